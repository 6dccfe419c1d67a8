/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What one thread is doing: calls that nobody looks at (trust), sections with every signal blocked, waits
 * in them, faults.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "guard/private.h"
#include "guard/system.h"
#include "guard/threads.h"

/* ---- trust: calls of this thread that nobody looks at ---------------------------------------------- */

static uint32_t depth_of(const struct thread *t)
{
	return atomic_load_explicit(&t->word, memory_order_relaxed) / TRUST;
}

/* The kernel reads the word on this thread's behalf: program order is enough. */
static void set_depth(struct thread *t, uint32_t depth)
{
	uint32_t now = atomic_load_explicit(&t->word, memory_order_relaxed);

	while (!atomic_compare_exchange_weak_explicit(&t->word, &now, thread_word(depth, now & WANTED),
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
	set_depth(t, depth_of(t) + 1);
}

void guard_trust_end(void)
{
	struct thread *t = thread_here.thread;

	if (t && depth_of(t)) /* else it began before there was anything to trust */
		set_depth(t, depth_of(t) - 1);
}

uint32_t threads_suspend_trust(void)
{
	struct thread *t = thread_here.thread;
	uint32_t depth = t ? depth_of(t) : 0;

	if (base_unlikely(depth))
		set_depth(t, 0);
	return depth;
}

void threads_resume_trust(uint32_t depth)
{
	if (base_unlikely(depth) && thread_here.thread)
		set_depth(thread_here.thread, depth);
}

/* ---- sections with every signal blocked ---------------------------------------------------------------- */

static uint64_t block_all(void)
{
	uint64_t all = ALL_SIGNALS, old = 0;

	system_call(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof(old));
	return old;
}

static void set_mask(uint64_t mask)
{
	system_call(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

/* Trust first and last: a call that is looked at with SIGSYS blocked kills the process. */
void guard_enter(void)
{
	uint64_t old;

	if ((thread_here.enters || thread_here.in_fault) && !thread_here.waiting) {
		thread_here.enters++;
		return;
	}
	guard_trust_begin();
	old = block_all();
	if (thread_here.waiting) /* a handler of the program on top of a wait: restored by guard_leave */
		return;
	thread_here.mask = old;
	thread_here.enters = 1;
}

void guard_leave(void)
{
	if (!thread_here.waiting && (--thread_here.enters || thread_here.in_fault))
		return;
	set_mask(thread_here.mask);
	guard_trust_end();
}

/* In a fault nothing is let through: a handler that ran on top of this one could jump away over it. It
 * runs when this one has returned: guard_wait_interrupted(). */
void guard_wait_begin(void)
{
	if (uffd_waits() || thread_here.waiting || thread_here.in_fault || !thread_here.enters)
		return;
	thread_here.waiting_trust = thread_here.thread ? depth_of(thread_here.thread) : 0;
	if (thread_here.thread)
		set_depth(thread_here.thread, 0);
	thread_here.waiting = true;
	set_mask(thread_here.mask);
}

void guard_wait_end(void)
{
	if (!thread_here.waiting)
		return;
	block_all();
	thread_here.waiting = false;
	if (thread_here.thread)
		set_depth(thread_here.thread, thread_here.waiting_trust);
}

bool guard_in_fault(void)
{
	return thread_here.in_fault;
}

bool guard_wait_interrupted(void)
{
	uint64_t pending = 0;

	if (!thread_here.in_fault || thread_here.waiting)
		return false;
	system_call(SYS_rt_sigpending, &pending, sizeof(pending));
	return pending & ~thread_here.mask;
}

void system_fault_begin_sig(struct system_fault *f, void *ucontext)
{
	const ucontext_t *uc = ucontext;

	guard_trust_begin();
	*f = (struct system_fault){ thread_here.mask, thread_here.enters, thread_here.waiting_trust,
				    errno, thread_here.in_fault, thread_here.waiting };
	memcpy(&thread_here.mask, &uc->uc_sigmask, sizeof(thread_here.mask));
	thread_here.enters = 0;
	thread_here.in_fault = true;
	thread_here.waiting = false;
}

void system_fault_end_sig(const struct system_fault *f)
{
	thread_here.mask = f->saved_mask;
	thread_here.enters = f->saved_enters;
	thread_here.waiting_trust = f->saved_trust;
	thread_here.in_fault = f->saved_in_fault;
	thread_here.waiting = f->saved_waiting;
	errno = f->saved_errno;
	guard_trust_end();
}

void threads_jumped(void)
{
	if (base_likely(!thread_here.thread || (!thread_here.in_fault && !thread_here.enters && !depth_of(thread_here.thread))))
		return;
	thread_here.in_fault = thread_here.waiting = false;
	thread_here.enters = 0;
	set_depth(thread_here.thread, 0);
}

void guard_own_thread(void) { threads_mark_ours(); }

/* ---- other programs ---------------------------------------------------------------------------------- */

bool threads_is_vforked(void)
{
	const struct thread *t = thread_here.thread;

	return t && system_call(SYS_gettid) != t->tid;
}

void guard_complete(void)
{
	if (base_likely(!atomic_load_explicit(&guard_hi, memory_order_relaxed)))
		return;
	guard_enter();
	guard_complete_all_sig();
	guard_leave();
}

void guard_exec_begin(void)
{
	bool trusts = atomic_load_explicit(&threads_required, memory_order_relaxed);

	if (!trusts || !threads_is_vforked()) {
		guard_complete();
		guard_trust_begin();
	}
	signals_exec(true);
}

void guard_exec_end(void)
{
	bool trusts = atomic_load_explicit(&threads_required, memory_order_relaxed);

	signals_exec(false);
	if (trusts && !threads_is_vforked())
		guard_trust_end();
}
