/* SPDX-License-Identifier: BSD-3-Clause */
/* The scheduler in ranks and on workers: see switch.h. The part of the carrier is monitor.c. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "endpoints/switch_private.h"

/* struct ucontext of the kernel, which ends before glibc's members */
enum { KERNEL_UCONTEXT_BYTES = 304, LEGACY_FP_BYTES = 512, FP_SW_OFFSET = 464 };
enum { FP_MAGIC = 0x46505853, SYSCALL_BYTES = 2, TRAP_BREAKPOINT = 3, BREAKPOINT_BYTES = 1 };
enum { HOME_TIMEOUT_NS = 100 * 1000 * 1000 }; /* where no signal could be queued */
enum { RECALL_NS = 1000 * 1000 }; /* a rank that yields is back by then */
enum { SHORT_TRIP = 16, STAY_MIN = 4, STAY_MAX = 64 };
/* Switches from one yield to the kernel to the next: while a rank is at home, and while more
 * workers than there are CPUs are awake. Such a yield may take a time slice. */
enum { KERNEL_YIELD_EVERY = 16, CROWDED_YIELD_EVERY = 1024 };
/* A poll takes 2 to 4 us: a yield to the kernel and some pauses. */
enum { POLL_PAUSES = 64, POLLS_STUCK = 4, POLLS_MAX = 2000 };

extern const char switch_copy_blocks[], switch_copy_bytes[], switch_copy_ends[];
extern const char __executable_start[], etext[]; /* of this program, by the linker */

/* ---- the queue ----------------------------------------------------------------------------- */

/* Returns: false: the monitor has given the queue to another worker. */
NOT_WATCHED static bool enter(struct endpoint_worker *w)
{
	uint64_t mine = w->id;

	return atomic_compare_exchange_strong_explicit(&w->group->owner, &mine, mine | OWNER_BUSY,
						       memory_order_acquire, memory_order_relaxed);
}

NOT_WATCHED static void release(struct endpoint_worker *w)
{
	atomic_store_explicit(&w->group->owner, w->id, memory_order_release);
}

NOT_WATCHED static void push(struct switch_group *g, struct switch_rank *r)
{
	uint32_t tail = atomic_load_explicit(&g->tail, memory_order_relaxed);

	g->queue[tail % ENDPOINT_RANKS_MAX] = r;
	atomic_store_explicit(&g->tail, tail + 1, memory_order_relaxed);
}

/* Appends those that came from their homes, the first first. */
NOT_WATCHED static void drain(struct switch_group *g)
{
	struct switch_rank *r, *first = NULL;

	if (!atomic_load_explicit(&g->inbox, memory_order_relaxed))
		return;
	r = atomic_exchange_explicit(&g->inbox, NULL, memory_order_acquire);
	while (r) {
		struct switch_rank *next = r->next;

		r->next = first;
		first = r;
		r = next;
	}
	for (; first; first = first->next)
		push(g, first);
}

/* Returns: the rank that is ready for the longest time, or NULL. */
NOT_WATCHED static struct switch_rank *pop(struct switch_group *g)
{
	uint32_t head = atomic_load_explicit(&g->head, memory_order_relaxed);

	while (head != atomic_load_explicit(&g->tail, memory_order_relaxed)) {
		struct switch_rank *r = g->queue[head++ % ENDPOINT_RANKS_MAX];

		atomic_store_explicit(&g->head, head, memory_order_relaxed);
		if (!atomic_load_explicit(&r->is_dead, memory_order_relaxed))
			return r;
	}
	return NULL;
}

NOT_WATCHED bool switch_has_ready(const struct switch_group *g)
{
	return atomic_load_explicit(&g->head, memory_order_relaxed) !=
		       atomic_load_explicit(&g->tail, memory_order_relaxed) ||
	       atomic_load_explicit(&g->inbox, memory_order_relaxed);
}

/* All who sleep: the owner, and one that was it before. */
NOT_WATCHED static void wake(struct switch_group *g)
{
	atomic_store_explicit(&g->is_asleep, 0, memory_order_relaxed);
	sud_syscall(SYS_futex, &g->is_asleep, FUTEX_OP_WAKE, INT_MAX, NULL, NULL, 0);
}

/* From any thread: the rank's stack belongs to whoever takes it out. */
NOT_WATCHED static void post(struct switch_group *g, struct switch_rank *r)
{
	struct switch_rank *head = atomic_load_explicit(&g->inbox, memory_order_relaxed);

	do
		r->next = head;
	while (!atomic_compare_exchange_weak_explicit(&g->inbox, &head, r, memory_order_release,
						      memory_order_relaxed));
	atomic_thread_fence(memory_order_seq_cst); /* partner: sleep_if_empty */
	if (atomic_load_explicit(&g->is_asleep, memory_order_relaxed))
		wake(g);
}

/* Has one writer: the worker. */
NOT_WATCHED static void count(struct endpoint_worker *w)
{
	uint64_t n = atomic_load_explicit(&w->switches, memory_order_relaxed);

	atomic_store_explicit(&w->switches, n + 1, memory_order_relaxed);
}

/* ---- on a worker --------------------------------------------------------------------------- */

NOT_WATCHED static void run_on(struct endpoint_worker *w, struct switch_rank *r)
{
	r->endpoint.worker = w;
	r->since_home++;
	atomic_store_explicit(&w->current, r, memory_order_relaxed);
	count(w);
}

/* Lets others have the CPU. */
NOT_WATCHED static void be_polite(struct endpoint_worker *w)
{
	struct switch_group *g = w->group;
	uint32_t every = KERNEL_YIELD_EVERY;

	if (base_likely(atomic_load_explicit(&g->at_home, memory_order_relaxed) <= 0)) {
		if (base_likely(atomic_load_explicit(&g->awake, memory_order_relaxed) <= g->share))
			return;
		every = CROWDED_YIELD_EVERY;
	}
	if (++w->alone % every == 0)
		sud_syscall(SYS_sched_yield);
}

/* Called by switch_out() on the stack of the rank. Returns: the next rank, with the scheduler
 * busy; the same rank; or NULL: switch_part() decides, on another stack. */
NOT_WATCHED struct endpoint *switch_pick(struct endpoint *self)
{
	struct switch_rank *r = (struct switch_rank *)self, *next;
	struct endpoint_worker *w = self->worker;

	if (atomic_load_explicit(&r->is_recalled, memory_order_relaxed) || !enter(w))
		return NULL;
	drain(w->group);
	next = pop(w->group);
	if (!next) {
		count(w); /* the rank lets others run: there is none */
		release(w);
		if (++w->alone % KERNEL_YIELD_EVERY == 0)
			sud_syscall(SYS_sched_yield);
		return self;
	}
	be_polite(w);
	self->switches++;
	push(w->group, r);
	run_on(w, next);
	return &next->endpoint;
}

/* The home continues where the rank is. Its stack and frame are not ours any more. */
NOT_WATCHED static void send_home(struct switch_rank *r, bool has_frame)
{
	siginfo_t info;
	long rc;

	if (atomic_load_explicit(&r->is_dead, memory_order_relaxed))
		return; /* its process ID may be another's by now */
	r->has_frame = has_frame;
	r->endpoint.worker = NULL;
	atomic_fetch_add_explicit(&r->group->at_home, 1, memory_order_relaxed);
	for (size_t i = 0; i < sizeof info; i++)
		((volatile char *)&info)[i] = 0;
	info.si_code = SI_QUEUE;
	info.si_signo = WAKE_SIGNAL;
	info.si_value.sival_ptr = r;
	rc = sud_syscall(SYS_rt_tgsigqueueinfo, r->endpoint.home_pid, r->endpoint.home_pid,
			 WAKE_SIGNAL, &info);
	if (rc)
		atomic_store_explicit(&r->must_return, 1, memory_order_release);
}

NOT_WATCHED void switch_part(struct endpoint *self, struct endpoint_worker *w)
{
	struct switch_rank *r = (struct switch_rank *)self;

	w->current = NULL;
	if (atomic_load_explicit(&r->is_recalled, memory_order_relaxed))
		send_home(r, false);
	else
		post(w->group, r);
	switch_loop(w);
}

/* The owner releases the queue, which is empty. Nobody takes the queue before it is released, so
 * that `is_asleep` never hides a rank in it. */
NOT_WATCHED static void sleep_if_empty(struct endpoint_worker *w)
{
	struct switch_group *g = w->group;
	const uint64_t one = 1;

	atomic_store_explicit(&g->is_asleep, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* partner: post */
	if (atomic_load_explicit(&g->inbox, memory_order_relaxed)) {
		wake(g);
		release(w);
		return;
	}
	release(w);
	atomic_fetch_sub_explicit(&g->awake, 1, memory_order_relaxed);
	while (atomic_load_explicit(&g->is_asleep, memory_order_relaxed))
		sud_syscall(SYS_futex, &g->is_asleep, FUTEX_OP_WAIT, 1, NULL, NULL, 0);
	atomic_fetch_add_explicit(&g->awake, 1, memory_order_relaxed);
	sud_syscall(SYS_write, g->wakes_fd, &one, sizeof one);
}

/* The monitor may do the same: one of them clears is_unused. Returns: whether this worker owns the
 * queue now. */
NOT_WATCHED static bool claim_queue(struct endpoint_worker *w, uint64_t from)
{
	uint32_t unused = 1;

	if (!atomic_compare_exchange_strong(&w->is_unused, &unused, 0))
		return false;
	if (atomic_compare_exchange_strong(&w->group->owner, &from, w->id))
		return true;
	atomic_store(&w->is_unused, 1);
	return false;
}

/* Watches the owner on a CPU that the group has free. Returns: whether this worker owns the queue
 * now; false: it sleeps until the monitor wakes it. */
NOT_WATCHED static bool watch(struct endpoint_worker *w)
{
	struct switch_group *g = w->group;
	uint64_t observed = 0, now;
	int stuck = 0;

	for (int polls = 0; polls < POLLS_MAX; polls++) {
		uint64_t from = atomic_load(&g->owner);
		struct endpoint_worker *o = from ? g->worker[from / 2 - 1] : NULL;

		if ((from & ~(uint64_t)OWNER_BUSY) == w->id)
			return true;
		if (!o || atomic_load(&g->awake) > g->share)
			return false;
		now = atomic_load_explicit(&o->switches, memory_order_relaxed) ^ from << 48;
		stuck = now == observed ? stuck + 1 : 0;
		observed = now;
		if (stuck >= POLLS_STUCK && switch_has_ready(g) && atomic_load(&o->current) &&
		    !(from & OWNER_BUSY) && claim_queue(w, from)) {
			struct switch_rank *r = atomic_load(&o->current);

			if (r)
				r->endpoint.handoffs++;
			return true;
		}
		for (int i = 0; i < POLL_PAUSES; i++)
			__builtin_ia32_pause();
		sud_syscall(SYS_sched_yield); /* whoever else needs this CPU has it */
	}
	return false;
}

NOT_WATCHED static void await_ownership(struct endpoint_worker *w)
{
	struct switch_group *g = w->group;
	uint32_t observed = atomic_load_explicit(&w->given, memory_order_acquire);

	if ((atomic_load_explicit(&g->owner, memory_order_acquire) & ~OWNER_BUSY) == w->id)
		return;
	atomic_store_explicit(&w->is_unused, 1, memory_order_release);
	if (watch(w))
		return;
	atomic_fetch_sub_explicit(&g->awake, 1, memory_order_relaxed);
	sud_syscall(SYS_futex, &w->given, FUTEX_OP_WAIT, observed, NULL, NULL, 0);
	atomic_fetch_add_explicit(&g->awake, 1, memory_order_relaxed);
}

NOT_WATCHED void switch_loop(struct endpoint_worker *w)
{
	struct switch_rank *next;

	w->current = NULL;
	for (;;) {
		if (!enter(w)) {
			await_ownership(w);
			continue;
		}
		atomic_store_explicit(&w->is_unused, 0, memory_order_relaxed);
		drain(w->group);
		next = pop(w->group);
		if (next) {
			run_on(w, next);
			switch_enter(&next->endpoint);
		}
		sleep_if_empty(w);
	}
}

/* ---- a system call or a fault of a rank ---------------------------------------------------- */

NOT_WATCHED static size_t fp_bytes(const char *fp)
{
	const uint32_t *reserved = (const void *)(fp + FP_SW_OFFSET); /* magic, bytes */

	return reserved[0] == FP_MAGIC ? reserved[1] : LEGACY_FP_BYTES;
}

/* The frame as rt_sigreturn reads it at home, with the mask and the stack that the home had. */
NOT_WATCHED static bool keep_frame(struct switch_rank *r, const ucontext_t *uc)
{
	ucontext_t *to = (ucontext_t *)r->frame;
	const char *fp = (const char *)uc->uc_mcontext.fpregs;
	char *fp_to = r->frame + FRAME_FP_OFFSET;
	size_t bytes = fp ? fp_bytes(fp) : 0;

	if (bytes > FRAME_BYTES - FRAME_FP_OFFSET)
		return false;
	switch_copy(to, uc, KERNEL_UCONTEXT_BYTES);
	switch_copy(fp_to, fp, bytes);
	to->uc_mcontext.fpregs = fp ? (fpregset_t)fp_to : NULL;
	switch_copy(&to->uc_sigmask, &r->mask, sizeof r->mask);
	to->uc_stack = r->signal_stack;
	return true;
}

/* Does the rank's own code run, and not this program's scheduler or copy for it? Else the home asks
 * again. */
NOT_WATCHED static bool is_recalled_at(const struct switch_rank *r, const siginfo_t *si, greg_t ip)
{
	return si->si_code == SI_TKILL &&
	       atomic_load_explicit(&r->is_recalled, memory_order_relaxed) &&
	       (ip < (greg_t)__executable_start || ip >= (greg_t)etext);
}

NOT_WATCHED void switch_on_trap(int sig, siginfo_t *si, void *context)
{
	struct endpoint_worker *w = worker_of_stack(__builtin_frame_address(0));
	struct switch_rank *r = w->current;
	ucontext_t *uc = context;
	greg_t *ip = &uc->uc_mcontext.gregs[REG_RIP];

	if (sig == RECALL_SIGNAL && (!r || !is_recalled_at(r, si, *ip)))
		return;
	if (sig != RECALL_SIGNAL && *ip >= (greg_t)switch_copy_blocks &&
	    *ip <= (greg_t)switch_copy_bytes) {
		*ip = (greg_t)(*ip == (greg_t)switch_copy_bytes ? switch_copy_ends
								: switch_copy_bytes);
		return;
	}
	if (!r)
		sud_syscall(SYS_exit_group, 1); /* a fault of the scheduler: the carrier ends all */
	/* the instruction happens again at home; these two have moved the program counter */
	if (sig == SIGSYS)
		*ip -= SYSCALL_BYTES;
	if (sig == SIGTRAP && uc->uc_mcontext.gregs[REG_TRAPNO] == TRAP_BREAKPOINT)
		*ip -= BREAKPOINT_BYTES;
	if (!keep_frame(r, uc))
		sud_syscall(SYS_exit_group, 2);
	r->endpoint.trips++;
	w->current = NULL;
	send_home(r, true);
	switch_restart(w);
}

/* ---- at home ------------------------------------------------------------------------------- */

NOT_WATCHED static bool is_wake(const siginfo_t *info, const struct switch_rank *r)
{
	return info->si_signo == WAKE_SIGNAL && info->si_code == SI_QUEUE &&
	       info->si_value.sival_ptr == r;
}

/* A rank that computes for long does not come to its next yield. */
NOT_WATCHED static void interrupt_rank(const struct switch_rank *r)
{
	const struct endpoint_worker *w = r->endpoint.worker;

	if (w && atomic_load_explicit(&w->current, memory_order_relaxed) == r && w->pid > 0)
		sud_syscall(SYS_tgkill, w->pid, w->pid, RECALL_SIGNAL);
}

/* Signals of the program wait until the rank is back. Those that it blocks stay with the kernel:
 * they may be for another thread. */
NOT_WATCHED static void await_return(struct switch_rank *r)
{
	struct timespec limit = { .tv_nsec = HOME_TIMEOUT_NS };
	siginfo_t info;

	for (;;) {
		/* so do more than there is room for */
		bool has_room = r->signals < SIGNALS_DEFERRED - 1;
		uint64_t set = (has_room ? ~r->mask : 0) | 1ull << (WAKE_SIGNAL - 1);
		long sig = sud_syscall(SYS_rt_sigtimedwait, &set, &info, &limit, sizeof set);

		if (sig > 0 && is_wake(&info, r))
			return;
		if (sig > 0 && r->signals < SIGNALS_DEFERRED) {
			switch_copy(&r->signal[r->signals++], &info, sizeof info);
			atomic_store_explicit(&r->is_recalled, 1, memory_order_relaxed);
			limit.tv_nsec = RECALL_NS;
		}
		if (atomic_load_explicit(&r->must_return, memory_order_acquire))
			return;
		if (sig < 0 && r->signals)
			interrupt_rank(r);
	}
}

/* Called by switch_decouple() on the home's stack. Returns: the signal frame to continue with, or
 * NULL. */
NOT_WATCHED void *switch_home(struct endpoint *self)
{
	struct switch_rank *r = (struct switch_rank *)self;

	atomic_fetch_sub_explicit(&r->group->at_home, 1, memory_order_relaxed);
	post(r->group, r);
	await_return(r);
	for (uint32_t i = 0; i < r->signals; i++)
		sud_syscall(SYS_rt_tgsigqueueinfo, self->home_pid, self->home_pid,
			    r->signal[i].si_signo, &r->signal[i]);
	r->signals = 0;
	atomic_store_explicit(&r->is_recalled, 0, memory_order_relaxed);
	atomic_store_explicit(&r->must_return, 0, memory_order_relaxed);
	if (!r->has_frame)
		return NULL;
	/* going home and back takes microseconds: stay while each time away is short */
	r->stay_next = r->since_home >= SHORT_TRIP ? 0 :
		       !r->stay_next		    ? STAY_MIN :
		       r->stay_next < STAY_MAX	    ? r->stay_next * 2 : STAY_MAX;
	r->stay = r->stay_next;
	self->stays += r->stay > 0;
	return r->frame;
}

NOT_WATCHED static long set_mask(const uint64_t *mask, uint64_t *old)
{
	return sud_syscall(SYS_rt_sigprocmask, SIG_SETMASK, mask, old, sizeof *mask);
}

/* Returns: whether the rank was away. A child by fork() has the memory, and no scheduler. */
NOT_WATCHED static bool decouple(struct switch_rank *r)
{
	const uint64_t all = ~0ull, none = 0;
	const struct timespec now = { 0 };

	if (atomic_load_explicit(&r->group->ranks, memory_order_relaxed) < 2)
		return false; /* nobody to give the processor to */
	if (r->stay) {
		r->stay--;
		return false;
	}
	if (sud_syscall(SYS_gettid) != r->endpoint.home_pid ||
	    sud_syscall(SYS_sigaltstack, NULL, &r->signal_stack) ||
	    r->signal_stack.ss_flags & SS_ONSTACK)
		return false;
	/* a filter that the program has set may refuse them: no signal would wake the home */
	if (sud_syscall(SYS_rt_sigtimedwait, &none, NULL, &now, sizeof none) != -EAGAIN ||
	    set_mask(&all, &r->mask))
		return false;
	r->since_home = 0;
	switch_decouple(&r->endpoint, r->home_stack + HOME_STACK_BYTES);
	return true;
}

NOT_WATCHED int switch_yield(struct endpoint *self)
{
	struct switch_rank *r = (struct switch_rank *)self;
	uint64_t fs;

	__asm__ volatile("rdfsbase %0" : "=r"(fs));
	if (fs != self->fs)
		return 0;
	if (self->worker)
		switch_out(self);
	else if (!decouple(r))
		return 0;
	if (!self->worker)
		set_mask(&r->mask, NULL);
	return 1;
}
