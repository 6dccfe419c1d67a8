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

#include "guard/private.h"
#include "guard/system.h"
#include "guard/threads.h"

/* ---- trust: calls of this thread that nobody looks at ------------------------------------ */

/* The kernel reads the word on this thread's behalf: program order is enough. */
static void set_depth(struct thread *t, uint32_t depth)
{
	uint32_t now = atomic_load_explicit(&t->word, memory_order_relaxed);

	while (!atomic_compare_exchange_weak_explicit(&t->word, &now,
						      thread_word(depth, now & WANTED),
						      memory_order_relaxed, memory_order_relaxed))
		;
}

void guard_trust_begin(void)
{
	struct thread *t;

	if (!atomic_load_explicit(&threads_required, memory_order_relaxed))
		return;
	t = threads_self();
	if (!t)
		return;
	if (base_unlikely(!t->has_own_selector && t->is_dispatched))
		threads_own_selector(t);
	set_depth(t, thread_trust(t) + 1);
}

void guard_trust_end(void)
{
	struct thread *t = thread_here.thread;

	if (t && thread_trust(t)) /* else it began before there was anything to trust */
		set_depth(t, thread_trust(t) - 1);
}

uint32_t threads_suspend_trust(void)
{
	struct thread *t = thread_here.thread;
	uint32_t depth = t ? thread_trust(t) : 0;

	if (base_unlikely(depth))
		set_depth(t, 0);
	return depth;
}

void threads_resume_trust(uint32_t depth)
{
	if (base_unlikely(depth) && thread_here.thread)
		set_depth(thread_here.thread, depth);
}

/* ---- sections without handlers of the program -------------------------------------------- */

/*
 * Signals are not blocked in them: the kernel would give those of the process to another thread,
 * whose stack a handler may not expect. relay() asks here instead; the signal is kept, and sent
 * again to this thread when the section ends. One is enough: until then all others are blocked.
 */
bool threads_defer_sig(const siginfo_t *si, void *ucontext)
{
	uint64_t all = PROGRAMS_SIGNALS & ~NEVER_BLOCKED;
	ucontext_t *uc = ucontext;

	if (thread_here.waiting || (!thread_here.enters && !thread_here.in_fault))
		return false;
	memcpy(&thread_here.mask, &uc->uc_sigmask, sizeof(thread_here.mask));
	memcpy(&uc->uc_sigmask, &all, sizeof(all));
	thread_here.deferred = *si;
	thread_here.has_deferred = true;
	return true;
}

static void set_mask(uint64_t mask)
{
	system_call(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

/* It stays pending until the mask is restored. */
static void send_deferred(void)
{
	siginfo_t si = thread_here.deferred;
	long pid = system_call(SYS_getpid), tid = system_call(SYS_gettid);

	thread_here.has_deferred = false;
	if (system_call(SYS_rt_tgsigqueueinfo, pid, tid, (long)si.si_signo, &si))
		system_call(SYS_tgkill, pid, tid, (long)si.si_signo);
}

/* As seen by a handler that interrupts here. */
static void in_order(void)
{
	atomic_signal_fence(memory_order_seq_cst);
}

static void handlers_may_run(void)
{
	in_order();
	if (base_likely(!thread_here.has_deferred))
		return;
	send_deferred();
	set_mask(thread_here.mask);
}

/* Before threads_init() no handler asks: blocked by the kernel. */
static void block_all(void)
{
	uint64_t all = PROGRAMS_SIGNALS;

	system_call(SYS_rt_sigprocmask, SIG_SETMASK, &all, &thread_here.mask, sizeof(all));
	thread_here.is_blocked = true;
}

static void unblock(void)
{
	thread_here.is_blocked = false;
	set_mask(thread_here.mask);
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
void guard_enter(void)
{
	if ((thread_here.enters || thread_here.in_fault) && !thread_here.waiting) {
		thread_here.enters++;
		return;
	}
	guard_trust_begin();
	if (thread_here.waiting) /* a handler of the program on top of a wait */
		return;
	if (!atomic_load_explicit(&threads_required, memory_order_relaxed))
		block_all();
	thread_here.cancel_state = keep_cancellation_out();
	thread_here.enters = 1;
	in_order();
}

void guard_leave(void)
{
	if (thread_here.waiting) {
		guard_trust_end();
		return;
	}
	in_order();
	if (--thread_here.enters || thread_here.in_fault)
		return;
	if (thread_here.is_blocked)
		unblock();
	else
		handlers_may_run();
	guard_trust_end();
	let_cancellation_in(thread_here.cancel_state);
}

/* In a fault nothing is let through: a handler that ran on top of this one could jump away over it.
 * It runs when this one has returned: guard_wait_interrupted(). */
void guard_wait_begin(void)
{
	if (uffd_waits() || thread_here.waiting || thread_here.in_fault || !thread_here.enters)
		return;
	thread_here.waiting_trust = threads_suspend_trust();
	thread_here.waiting = true;
	if (thread_here.is_blocked)
		unblock();
	else
		handlers_may_run();
}

void guard_wait_end(void)
{
	if (!thread_here.waiting)
		return;
	if (!atomic_load_explicit(&threads_required, memory_order_relaxed))
		block_all();
	thread_here.waiting = false;
	in_order();
	threads_resume_trust(thread_here.waiting_trust);
}

bool guard_in_fault(void)
{
	return thread_here.in_fault;
}

bool guard_wait_interrupted(void)
{
	return thread_here.in_fault && thread_here.has_deferred;
}

void system_fault_begin_sig(struct system_fault *f)
{
	*f = (struct system_fault){ thread_here.enters, thread_here.waiting_trust, errno,
				    thread_here.in_fault, thread_here.waiting };
	thread_here.enters = 0;
	thread_here.in_fault = true;
	thread_here.waiting = false;
	in_order();
	guard_trust_begin();
}

/* What was deferred is delivered where the program was: the handler's return restores the mask. */
void system_fault_end_sig(const struct system_fault *f)
{
	guard_trust_end();
	in_order();
	thread_here.enters = f->saved_enters;
	thread_here.waiting_trust = f->saved_trust;
	thread_here.in_fault = f->saved_in_fault;
	thread_here.waiting = f->saved_waiting;
	in_order();
	if (base_unlikely(thread_here.has_deferred) &&
	    (thread_here.waiting || (!thread_here.in_fault && !thread_here.enters)))
		send_deferred();
	errno = f->saved_errno;
}

void threads_jumped(void)
{
	if (base_likely(!thread_here.thread || (!thread_here.in_fault && !thread_here.enters &&
						!thread_trust(thread_here.thread))))
		return;
	thread_here.in_fault = thread_here.waiting = false;
	thread_here.enters = 0;
	thread_here.has_deferred = false;
	set_depth(thread_here.thread, 0);
}

void guard_own_thread(void) { threads_mark_ours(); }

/* ---- other programs ---------------------------------------------------------------------- */

bool threads_is_vforked(void)
{
	const struct thread *t = thread_here.thread;

	return t && system_call(SYS_gettid) != t->tid;
}

void guard_complete(void)
{
	if (base_likely(!atomic_load_explicit(&guard_hi, memory_order_relaxed)) ||
	    threads_is_vforked())
		return;
	guard_enter();
	guard_complete_all_sig();
	guard_leave();
}

void guard_exec_begin(void)
{
	bool trusts = atomic_load_explicit(&threads_required, memory_order_relaxed);

	guard_complete();
	if (trusts && !threads_is_vforked())
		guard_trust_begin();
	signals_exec(true);
}

void guard_exec_end(void)
{
	bool trusts = atomic_load_explicit(&threads_required, memory_order_relaxed);

	signals_exec(false);
	if (trusts && !threads_is_vforked())
		guard_trust_end();
}
