/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of a rank that waits for a fragment the worker may have claimed. Another thread may
 * displace an idle-priority thread for a second, so the waiting rank lends its CPU. A worker that
 * makes no progress even so is killed. Only when the process is gone can it write nothing more, and
 * the ranks reclaim its claims.
 */
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/private.h"

#define CHECK_NS 1000000u /* interval of checks for a dead process, by a rank that waits for it */
#define CHECK_RARELY_NS 50000000u /* by a rank that announces; one check takes 10 us */
#define TRIES 100        /* yields before the worker's threads get help to leave a group */
#define KILL 9           /* SIGKILL; only guard/ includes signal.h */

static bool is_dead(const struct worker_page *p)
{
	int pid = atomic_load_explicit(&p->pid, memory_order_relaxed);

	return node_process_is_dead(pid, atomic_load_explicit(&p->start, memory_order_relaxed));
}

/* ---- lending a CPU ------------------------------------------------------------------------- */

static void place(const struct worker_thread *t, const struct os_cpumask *m)
{
	uint32_t tid = atomic_load_explicit(&t->tid, memory_order_relaxed);

	if (tid) /* 0: the thread does not exist yet; to the kernel 0 means the calling thread */
		os_cpumask_apply((int)tid, m);
}

struct borrower {
	const struct worker_page *page;
	const struct worker_thread *thread;
};

static void place_borrower(void *arg, const struct os_cpumask *cpus)
{
	const struct borrower *b = arg;

	place(b->thread, cpus ? cpus : &b->page->cpus);
}

/* Returns: true when the copy of this claim has ended. */
static bool lend(const struct worker_page *p, struct worker_thread *t, uint64_t claim)
{
	uint32_t ended = atomic_load_explicit(&t->lend.ended, memory_order_acquire);
	struct borrower b = { p, t };

	if (atomic_load_explicit(&t->claim, memory_order_acquire) != claim)
		return true;
	return os_lend_cpu(&t->lend, ended, place_borrower, &b);
}

/* ---- a dead or stuck worker ---------------------------------------------------------------- */

static void reclaim_all(struct worker_page *p, uint32_t group, worker_reclaim *reclaim,
			  void *arg)
{
	uint64_t intent = atomic_load_explicit(&p->intent, memory_order_relaxed);
	bool is_claim = false;

	for (uint32_t i = 0; i < p->threads; i++)
		is_claim |=
			atomic_load_explicit(&p->thread[i].claim, memory_order_relaxed) == intent;
	if (intent && !is_claim && exec_name_group(intent) == group)
		reclaim(arg, intent, true);
	for (uint32_t i = 0; i < p->threads; i++) {
		uint64_t claim = atomic_load_explicit(&p->thread[i].claim, memory_order_relaxed);

		if (claim && exec_name_group(claim) == group)
			reclaim(arg, claim, false);
	}
}

/* One rank reclaims for each group, once. */
static bool rescue(struct worker_page *p, uint32_t group, worker_reclaim *reclaim, void *arg)
{
	struct worker_group *g = &p->group[group];
	uint32_t none = 0;

	if (!atomic_compare_exchange_strong_explicit(&g->rescue, &none, 1, memory_order_acquire,
						     memory_order_acquire))
		return false;
	reclaim_all(p, group, reclaim, arg);
	atomic_store_explicit(&g->rescue, 2, memory_order_release);
	return true;
}

static void declare_dead(struct worker_page *p)
{
	if (atomic_exchange_explicit(&p->state, WORKER_DEAD, memory_order_release) != WORKER_DEAD)
		base_count(BASE_CTR_ENGINE_RETIRED, 1);
}

/* Kills the worker because it is stuck or no longer needed. The start time, or without /proc the
 * number of a thread, protects another process that has got its pid. */
static void end_it(const struct worker_page *p)
{
	int pid = atomic_load_explicit(&p->pid, memory_order_relaxed);
	uint64_t start = atomic_load_explicit(&p->start, memory_order_relaxed);
	uint32_t tid = atomic_load_explicit(&p->thread[0].tid, memory_order_relaxed);

	if (start ? os_process_start(pid) == start : !syscall(SYS_tgkill, pid, tid, 0))
		syscall(SYS_kill, pid, KILL);
}

/* ---- checks -------------------------------------------------------------------------------- */

/* Checks at most once per interval whether the process lives. */
static void check_alive(struct worker_page *p, uint64_t interval_ns)
{
	static _Atomic uint64_t checked_ns;
	uint64_t now = os_now_ns(), last = atomic_load_explicit(&checked_ns, memory_order_relaxed);

	if (now - last < interval_ns)
		return;
	atomic_store_explicit(&checked_ns, now, memory_order_relaxed);
	if (is_dead(p))
		declare_dead(p);
}

void check_alive_sometimes(struct worker_page *p) { check_alive(p, CHECK_RARELY_NS); }

/* Handles an overdue claim: notices a dead worker, lends the CPU to a live one, kills a stuck one.
 * Claims of a dead one stay in the page, and the numbers of its threads may be those of another
 * process. Returns: true when the copy has ended. */
static bool is_late(struct worker_page *p, struct worker_thread *t, uint64_t claim,
		    uint64_t overdue_ns)
{
	check_alive(p, CHECK_NS);
	if (atomic_load_explicit(&p->state, memory_order_relaxed) == WORKER_DEAD)
		return false;
	if (lend(p, t, claim))
		return true;
	if (overdue_ns > (uint64_t)base_opt.engine_timeout_ms * 1000000u)
		end_it(p);
	return false;
}

bool worker_check(int group, worker_reclaim *reclaim, void *arg)
{
	struct worker_page *p = atomic_load_explicit(&worker_page, memory_order_acquire);
	uint32_t state, g = (uint32_t)group;
	uint64_t intent;
	bool any = false;

	if (!p)
		return false;
	for (uint32_t i = 0; i < p->threads; i++) {
		struct worker_thread *t = &p->thread[i];
		uint64_t claim = atomic_load_explicit(&t->claim, memory_order_acquire), now, due;

		if (!claim || exec_name_group(claim) != g)
			continue;
		now = os_now_ns();
		due = atomic_load_explicit(&t->due_ns, memory_order_relaxed);
		if (now > due)
			any |= is_late(p, t, claim, now - due);
	}
	intent = atomic_load_explicit(&p->intent, memory_order_relaxed);
	if (intent && exec_name_group(intent) == g)
		check_alive(p, CHECK_NS); /* it may have died between two steps of claiming */
	state = atomic_load_explicit(&p->state, memory_order_acquire);
	return (state == WORKER_DEAD && rescue(p, g, reclaim, arg)) || any;
}

/* ---- closing a group ----------------------------------------------------------------------- */

bool is_inside(const struct worker_page *p, uint32_t group)
{
	/* seq_cst, as the store in serve_one(): either that thread sees the group closed, or this
	 * one sees the thread inside */
	for (uint32_t i = 0; i < p->threads; i++)
		if (atomic_load_explicit(&p->thread[i].in_group, memory_order_seq_cst) == group)
			return true;
	return false;
}

/* Moves the threads inside the group to this CPU for a moment, as they may be displaced. */
static void invite(struct worker_page *p, uint32_t group)
{
	const struct timespec a_moment = { .tv_nsec = OS_LEND_NS };
	struct os_cpumask here;
	bool has_cpu = os_cpumask_here(&here);

	for (uint32_t i = 0; has_cpu && i < p->threads; i++)
		if (atomic_load_explicit(&p->thread[i].in_group, memory_order_relaxed) == group)
			place(&p->thread[i], &here);
	syscall(SYS_nanosleep, &a_moment, NULL);
	for (uint32_t i = 0; has_cpu && i < p->threads; i++)
		place(&p->thread[i], &p->cpus);
}

void stop_process(uint64_t wait_ns)
{
	struct worker_page *p = atomic_load_explicit(&worker_page, memory_order_acquire);
	const struct timespec a_moment = { .tv_nsec = OS_LEND_NS };
	uint64_t until = os_now_ns() + wait_ns;
	struct os_cpumask here;

	/* the numbers of a dead worker's threads may be those of another process */
	if (!p || !os_cpumask_here(&here) || is_dead(p))
		return;
	/* the worker's threads must run once more to end, and this thread is about to sleep */
	for (uint32_t i = 0; i < p->threads; i++)
		place(&p->thread[i], &here);
	while (!is_dead(p) && os_now_ns() < until)
		syscall(SYS_nanosleep, &a_moment, NULL);
	if (!is_dead(p))
		end_it(p); /* no rank needs it any more, and it may be stopped by a signal */
}

void worker_group_close(int group, int ranks)
{
	struct worker_page *p = atomic_load_explicit(&worker_page, memory_order_acquire);
	uint64_t since = os_now_ns(), timeout = (uint64_t)base_opt.engine_timeout_ms * 1000000u;
	uint32_t tries = 0;

	if (!p || group < 1)
		return;
	atomic_store_explicit(&p->group[group].is_open, 0, memory_order_seq_cst);
	while (is_inside(p, (uint32_t)group)) {
		if (atomic_load_explicit(&p->state, memory_order_acquire) == WORKER_DEAD)
			return;
		if (tries++ < TRIES) {
			sched_yield();
			continue;
		}
		if (is_dead(p)) {
			declare_dead(p); /* a waiting rank reclaims its claims */
			return;
		}
		if (os_now_ns() - since > timeout)
			end_it(p);
		invite(p, (uint32_t)group);
	}
	/* release: this rank has left the number; partner: forget_closed */
	atomic_fetch_add_explicit(&p->group[group].closed, (uint32_t)ranks, memory_order_release);
}
