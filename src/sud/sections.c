/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sections of one thread: allowed system calls, critical sections in which handlers of the program
 * are deferred, waits inside these, faults.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "sud/private.h"

/* ---- allowed system calls ---------------------------------------------------------------- */

/* Only this thread and the kernel on its behalf read the selector: program order is enough. */
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
	set_depth(t, thread_depth(t) + 1);
	/* After it: the signal that enables this thread comes before, or sees the depth. */
	atomic_signal_fence(memory_order_seq_cst);
	if (base_unlikely(!t->has_own_selector && t->is_dispatched))
		thread_own_selector(t);
}

void sud_allow_pop(void)
{
	struct thread *t = sud_local.thread;

	if (t && thread_depth(t)) /* 0: pushed before sud_init() */
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

/* ---- critical sections ------------------------------------------------------------------- */

/*
 * Signals are not blocked in a section: the kernel would deliver those of the process to another
 * thread, whose stack the program's handler may not expect. Instead relay() (signals.c) calls this
 * function; the signal is kept, and sent to this thread again when the section ends. One is enough,
 * as all others are blocked from then on.
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

/* Orders accesses for a handler that interrupts this thread. */
static void order_for_handlers(void) { atomic_signal_fence(memory_order_seq_cst); }

static void deliver_deferred(void)
{
	order_for_handlers();
	if (base_likely(!sud_local.has_deferred))
		return;
	send_deferred();
	set_mask(sud_local.mask);
}

/* Before sud_init() no relay stands before the program's handlers: the kernel blocks signals. */
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

/* A thread that is cancelled in a section would never release its locks. With asynchronous
 * cancellation this would come too late for a request that is already sent: there our handlers
 * block libc's signal (signals.c). */
static int cancel_disable(void)
{
	int old = PTHREAD_CANCEL_ENABLE;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	return old;
}

static void cancel_restore(int old)
{
	if (old == PTHREAD_CANCEL_ENABLE)
		pthread_setcancelstate(old, NULL);
}

/* Calls are allowed first and last: a call that is dispatched with SIGSYS blocked kills the
 * process. */
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
	sud_local.cancel_state = cancel_disable();
	sud_local.enters = 1;
	order_for_handlers();
}

void sud_exit(void)
{
	if (sud_local.waiting) {
		sud_allow_pop();
		return;
	}
	order_for_handlers();
	if (--sud_local.enters || sud_local.in_fault)
		return;
	if (sud_local.is_blocked)
		unblock();
	else
		deliver_deferred();
	sud_allow_pop();
	cancel_restore(sud_local.cancel_state);
}

/* In a fault nothing changes: a handler of the program on top of ours could jump over it. It runs
 * after ours has returned: sud_wait_interrupted(). */
void sud_wait_begin(void)
{
	if (sud_local.waiting || sud_local.in_fault || !sud_local.enters)
		return;
	sud_local.waiting_depth = section_suspend();
	sud_local.waiting = true;
	if (sud_local.is_blocked)
		unblock();
	else
		deliver_deferred();
}

void sud_wait_end(void)
{
	if (!sud_local.waiting)
		return;
	if (!atomic_load_explicit(&sud_is_required, memory_order_relaxed))
		block_all();
	sud_local.waiting = false;
	order_for_handlers();
	section_resume(sud_local.waiting_depth);
}

bool sud_wait_interrupted(void) { return sud_local.in_fault && sud_local.has_deferred; }

void sud_fault_begin_sig(struct sud_fault *f)
{
	*f = (struct sud_fault){ sud_local.enters, sud_local.waiting_depth, errno,
				    sud_local.in_fault, sud_local.waiting, 0, 0 };
	sud_local.enters = 0;
	sud_local.in_fault = true;
	sud_local.waiting = false;
	order_for_handlers();
	sud_allow_push();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &f->cancel_state);
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &f->cancel_type);
}

/* A deferred signal is delivered where the program was interrupted: the return restores the mask.
 * */
void sud_fault_end_sig(const struct sud_fault *f)
{
	sud_allow_pop();
	order_for_handlers();
	sud_local.enters = f->saved_enters;
	sud_local.waiting_depth = f->saved_allowed;
	sud_local.in_fault = f->saved_in_fault;
	sud_local.waiting = f->saved_waiting;
	order_for_handlers();
	if (base_unlikely(sud_local.has_deferred) &&
	    (sud_local.waiting || (!sud_local.in_fault && !sud_local.enters)))
		send_deferred();
	errno = f->saved_errno;
	cancel_restore(f->cancel_state);
	if (f->cancel_type == PTHREAD_CANCEL_ASYNCHRONOUS)
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
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

/* ---- vfork and exec ---------------------------------------------------------------------- */

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
