/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What one thread is doing: calls that nobody looks at (trust), sections without handlers of the
 * program, waits in them, faults.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "sud/private.h"

/* ---- trust: calls of this thread that nobody looks at ------------------------------------ */

/* The kernel reads the word on this thread's behalf: program order is enough. */
static void set_depth(struct thread *t, uint32_t depth)
{
	uint32_t now = atomic_load_explicit(&t->word, memory_order_relaxed);

	while (!atomic_compare_exchange_weak_explicit(&t->word, &now,
						      thread_word(depth, now & ARMED),
						      memory_order_relaxed, memory_order_relaxed))
		;
}

void sud_allow_push(void)
{
	struct thread *t;

	if (!atomic_load_explicit(&sud_is_required, memory_order_relaxed))
		return;
	t = thread_self();
	if (!t)
		return;
	if (base_unlikely(!t->has_own_selector && t->is_dispatched))
		thread_own_selector(t);
	set_depth(t, thread_depth(t) + 1);
}

void sud_allow_pop(void)
{
	struct thread *t = sud_local.thread;

	if (t && thread_depth(t)) /* else it began before there was anything to trust */
		set_depth(t, thread_depth(t) - 1);
}

uint32_t section_suspend(void)
{
	struct thread *t = sud_local.thread;
	uint32_t depth = t ? thread_depth(t) : 0;

	if (base_unlikely(depth))
		set_depth(t, 0);
	return depth;
}

void section_resume(uint32_t depth)
{
	if (base_unlikely(depth) && sud_local.thread)
		set_depth(sud_local.thread, depth);
}

/* ---- sections without handlers of the program -------------------------------------------- */

/*
 * Signals are not blocked in them: the kernel would give those of the process to another thread,
 * whose stack a handler may not expect. relay() asks here instead; the signal is kept, and sent
 * again to this thread when the section ends. One is enough: until then all others are blocked.
 */
bool section_defer_sig(const siginfo_t *si, void *ucontext)
{
	uint64_t all = PROGRAMS_SIGNALS & ~NEVER_BLOCKED;
	ucontext_t *uc = ucontext;

	if (sud_local.waiting || (!sud_local.enters && !sud_local.in_fault))
		return false;
	memcpy(&sud_local.mask, &uc->uc_sigmask, sizeof(sud_local.mask));
	memcpy(&uc->uc_sigmask, &all, sizeof(all));
	sud_local.deferred = *si;
	sud_local.has_deferred = true;
	return true;
}

static void set_mask(uint64_t mask)
{
	sud_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

/* It stays pending until the mask is restored. */
static void send_deferred(void)
{
	siginfo_t si = sud_local.deferred;
	long pid = sud_syscall(SYS_getpid), tid = sud_syscall(SYS_gettid);

	sud_local.has_deferred = false;
	if (sud_syscall(SYS_rt_tgsigqueueinfo, pid, tid, (long)si.si_signo, &si))
		sud_syscall(SYS_tgkill, pid, tid, (long)si.si_signo);
}

/* As seen by a handler that interrupts here. */
static void in_order(void)
{
	atomic_signal_fence(memory_order_seq_cst);
}

static void handlers_may_run(void)
{
	in_order();
	if (base_likely(!sud_local.has_deferred))
		return;
	send_deferred();
	set_mask(sud_local.mask);
}

/* Before sud_init() no handler asks: blocked by the kernel. */
static void block_all(void)
{
	uint64_t all = PROGRAMS_SIGNALS;

	sud_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &sud_local.mask, sizeof(all));
	sud_local.is_blocked = true;
}

static void unblock(void)
{
	sud_local.is_blocked = false;
	set_mask(sud_local.mask);
}

/* Cancelled here, a thread would take locks with it into its grave. Where it may be cancelled
 * anywhere, this would come too late for a request that is on its way: there our handlers block
 * libc's signal (signals.c). */
static int keep_cancellation_out(void)
{
	int old = PTHREAD_CANCEL_ENABLE;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	return old;
}

static void let_cancellation_in(int old)
{
	if (old == PTHREAD_CANCEL_ENABLE)
		pthread_setcancelstate(old, NULL);
}

/* Trust first and last: a call that is looked at with SIGSYS blocked kills the process. */
void sud_enter(void)
{
	if ((sud_local.enters || sud_local.in_fault) && !sud_local.waiting) {
		sud_local.enters++;
		return;
	}
	sud_allow_push();
	if (sud_local.waiting) /* a handler of the program on top of a wait */
		return;
	if (!atomic_load_explicit(&sud_is_required, memory_order_relaxed))
		block_all();
	sud_local.cancel_state = keep_cancellation_out();
	sud_local.enters = 1;
	in_order();
}

void sud_exit(void)
{
	if (sud_local.waiting) {
		sud_allow_pop();
		return;
	}
	in_order();
	if (--sud_local.enters || sud_local.in_fault)
		return;
	if (sud_local.is_blocked)
		unblock();
	else
		handlers_may_run();
	sud_allow_pop();
	let_cancellation_in(sud_local.cancel_state);
}

/* In a fault nothing is let through: a handler that ran on top of this one could jump away over it.
 * It runs when this one has returned: guard_wait_interrupted(). */
void sud_wait_begin(void)
{
	if (sud_local.waiting || sud_local.in_fault || !sud_local.enters)
		return;
	sud_local.waiting_depth = section_suspend();
	sud_local.waiting = true;
	if (sud_local.is_blocked)
		unblock();
	else
		handlers_may_run();
}

void sud_wait_end(void)
{
	if (!sud_local.waiting)
		return;
	if (!atomic_load_explicit(&sud_is_required, memory_order_relaxed))
		block_all();
	sud_local.waiting = false;
	in_order();
	section_resume(sud_local.waiting_depth);
}

bool sud_wait_interrupted(void)
{
	return sud_local.in_fault && sud_local.has_deferred;
}

void sud_fault_begin_sig(struct sud_fault *f)
{
	*f = (struct sud_fault){ sud_local.enters, sud_local.waiting_depth, errno,
				    sud_local.in_fault, sud_local.waiting };
	sud_local.enters = 0;
	sud_local.in_fault = true;
	sud_local.waiting = false;
	in_order();
	sud_allow_push();
}

/* What was deferred is delivered where the program was: the handler's return restores the mask. */
void sud_fault_end_sig(const struct sud_fault *f)
{
	sud_allow_pop();
	in_order();
	sud_local.enters = f->saved_enters;
	sud_local.waiting_depth = f->saved_allowed;
	sud_local.in_fault = f->saved_in_fault;
	sud_local.waiting = f->saved_waiting;
	in_order();
	if (base_unlikely(sud_local.has_deferred) &&
	    (sud_local.waiting || (!sud_local.in_fault && !sud_local.enters)))
		send_deferred();
	errno = f->saved_errno;
}

void section_reset(void)
{
	if (base_likely(!sud_local.thread || (!sud_local.in_fault && !sud_local.enters &&
						!thread_depth(sud_local.thread))))
		return;
	sud_local.in_fault = sud_local.waiting = false;
	sud_local.enters = 0;
	sud_local.has_deferred = false;
	set_depth(sud_local.thread, 0);
}

/* ---- other programs ---------------------------------------------------------------------- */

bool sud_is_vforked(void)
{
	const struct thread *t = sud_local.thread;

	return t && sud_syscall(SYS_gettid) != t->tid;
}

void sud_exec_begin(void)
{
	bool allows = atomic_load_explicit(&sud_is_required, memory_order_relaxed);

	if (allows && !sud_is_vforked())
		sud_allow_push();
	signals_exec_mask(true);
}

void sud_exec_end(void)
{
	bool allows = atomic_load_explicit(&sud_is_required, memory_order_relaxed);

	signals_exec_mask(false);
	if (allows && !sud_is_vforked())
		sud_allow_pop();
}
