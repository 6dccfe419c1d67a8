/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Driving all ranks: the watcher, calls that go back to their programs, and the ends of CALCs that
 * they leave (doc/adr/0041-goal-progress.md).
 */
#include "goal/sched/private.h"

#define DRIVE_ALL_NS  100000u /* how long a call that does not wait drives other ranks, at most */
#define DRIVE_FREE_NS 5000u   /* the same while the progress thread finds a free CPU */
/* A watching progress thread that has not polled for so long has lost its CPU. */
#define WATCHER_LOST_NS 50000u
#define HOOK_LOST_NS    20000u /* the same of a hook: its wait may have ended */

static bool has_runs(const struct sched_driver *d)
{
	return atomic_load_explicit(&d->st->runs, memory_order_relaxed) || state_has_starts(d);
}

static bool is_claimed(const struct sched_driver *d)
{
	return atomic_load_explicit(&d->st->claim, memory_order_relaxed);
}

static bool is_computing(const struct sched_driver *d)
{
	return atomic_load_explicit(&d->st->computing, memory_order_relaxed);
}

/*
 * Calls that go back to their programs drive only ranks that compute: the others drive themselves,
 * and ranks that wait at once after each start read no line that a peer writes. Who makes something
 * ready, passes a fence and finds that a rank does not compute leaves it to that rank, which looks
 * at its own state after the fence here.
 */
void state_mark_computing(struct sched_driver *d)
{
	if (!is_computing(d))
		atomic_store_explicit(&d->st->computing, 1, memory_order_relaxed);
}

void state_set_computing(struct sched_group *g)
{
	struct sched_driver *own = &g->drivers[g->rank];

	if (!has_runs(own) || is_computing(own))
		return;
	state_mark_computing(own);
	atomic_thread_fence(memory_order_seq_cst); /* partner: state_drive_until */
}

void state_clear_computing(struct sched_group *g)
{
	struct sched_driver *own = &g->drivers[g->rank];

	if (has_runs(own) || !is_computing(own))
		return;
	atomic_store_explicit(&own->st->computing, 0, memory_order_relaxed);
	/* another thread of the rank may have started a run and read 1: state_drive_all() looks
	 * again */
	atomic_thread_fence(memory_order_seq_cst);
}

bool state_has_computing_peers(const struct sched_group *g)
{
	for (int k = 1; k < g->size; k++)
		if (is_computing(&g->drivers[(g->rank + k) % g->size]))
			return true;
	return false;
}

bool state_drive_others(struct sched_group *g)
{
	bool progress = false;

	for (int k = 1; k < g->size; k++) {
		struct sched_driver *d = &g->drivers[(g->rank + k) % g->size];

		if (has_runs(d) && !is_claimed(d))
			progress |= state_drive(d);
	}
	return progress;
}

int state_drive_each(struct sched_group *g)
{
	struct sched_driver *own = &g->drivers[g->rank];
	int done = state_drive_others(g) ? DROVE : 0;

	if (has_runs(own) && !is_claimed(own) && state_drive(own)) {
		done = DROVE;
		node_wake(g->node, g->rank); /* another thread may wait for the end of the run */
	}
	for (int r = 0; r < g->size; r++)
		if (job_work(g, r))
			done = COPIED;
	return done;
}

/* Asks whoever holds the claim to drive the state again after its release. Returns: true when the
 * claim is free: that process may not have seen the request. */
static bool ask_holder(struct sched_driver *d)
{
	atomic_exchange_explicit(&d->st->again, 1, memory_order_seq_cst);
	atomic_thread_fence(memory_order_seq_cst); /* partners: drive_or_ask, state_drive_until */
	return !is_claimed(d) && !atomic_load_explicit(&d->st->broken, memory_order_relaxed);
}

static bool drive_or_ask(struct sched_driver *d)
{
	bool progress = false;

	if (!has_runs(d))
		return false;
	do {
		while (!state_try_claim(d))
			if (!ask_holder(d))
				return progress;
		if (!state_drive_claimed(d, &progress))
			return progress;
		progress |= job_work(d->g, d->rank);
		atomic_thread_fence(memory_order_seq_cst); /* partner: ask_holder */
	} while (atomic_load_explicit(&d->st->again, memory_order_relaxed));
	return progress;
}

bool state_drive_until(struct sched_group *g, uint64_t limit_ns, uint32_t *rounds)
{
	uint64_t give_up_ns = 0;
	bool progress = true;

	for (*rounds = 0; progress; ++*rounds) {
		/* partners: state_unwatch, ask_holder, state_set_computing */
		atomic_thread_fence(memory_order_seq_cst);
		if (state_is_watched(g))
			break;
		progress = false;
		for (int k = 0; k < g->size; k++) {
			struct sched_driver *d = &g->drivers[(g->rank + g->size - k) % g->size];

			if (d->own || is_computing(d))
				progress |= drive_or_ask(d);
		}
		if (!progress)
			break;
		if (!give_up_ns)
			give_up_ns = os_now_ns() + limit_ns;
		else if (os_now_ns() > give_up_ns)
			return true;
	}
	return false;
}

void state_drive_all(struct sched_group *g)
{
	uint64_t limit_ns = DRIVE_ALL_NS;
	uint32_t rounds;

	if (!atomic_load_explicit(g->detached, memory_order_relaxed))
		return;
	state_set_computing(g);
	if (atomic_load_explicit(&g->thread.found_cpu, memory_order_relaxed))
		limit_ns = DRIVE_FREE_NS;
	if (state_drive_until(g, limit_ns, &rounds))
		thread_wake(g);
	else
		state_cover_timers(g);
	if (rounds)
		thread_count(g, rounds);
}

/* ---- the watcher ------------------------------------------------------------------------- */

static uint32_t watcher_value(const struct sched_group *g, uint32_t thread)
{
	return (1 + (uint32_t)g->rank) | thread;
}

/* Has this watcher its CPU? */
static bool is_awake(const struct sched_group *g, uint32_t watcher)
{
	if (base_likely(!(watcher & (WATCHER_THREAD | WATCHER_HOOK))))
		return watcher;
	return os_now_ns() < atomic_load_explicit(g->watched_ns, memory_order_relaxed) +
				     (watcher & WATCHER_HOOK ? HOOK_LOST_NS : WATCHER_LOST_NS);
}

bool state_watch(struct sched_group *g, uint32_t thread)
{
	uint32_t old = atomic_load_explicit(g->watcher, memory_order_relaxed);

	return atomic_load_explicit(g->detached, memory_order_relaxed) && !is_awake(g, old) &&
	       atomic_compare_exchange_strong_explicit(g->watcher, &old, watcher_value(g, thread),
						       memory_order_relaxed, memory_order_relaxed);
}

bool state_watches(const struct sched_group *g, uint32_t thread)
{
	return atomic_load_explicit(g->watcher, memory_order_relaxed) == watcher_value(g, thread);
}

void state_unwatch(struct sched_group *g, uint32_t thread)
{
	uint32_t mine = watcher_value(g, thread);

	atomic_compare_exchange_strong_explicit(g->watcher, &mine, 0, memory_order_relaxed,
						memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* partners: state_drive_until,
						    * is_for_watcher */
}

bool state_is_watched(const struct sched_group *g)
{
	return is_awake(g, atomic_load_explicit(g->watcher, memory_order_relaxed));
}

/* ---- timers ------------------------------------------------------------------------------ */

uint64_t state_next_timer(const struct sched_group *g)
{
	uint64_t first = 0;

	for (int r = 0; r < g->size; r++) {
		const struct sched_driver *d = &g->drivers[r];
		uint64_t ns = d->own || is_computing(d) ? atomic_load_explicit(&d->st->timer_ns,
									  memory_order_relaxed)
						   : 0;

		if (ns && (!first || ns < first) && !d->refused &&
		    !atomic_load_explicit(&d->st->broken, memory_order_relaxed))
			first = ns;
	}
	return first;
}

void state_cover_timers(struct sched_group *g)
{
	uint64_t first, covered;

	if (state_is_watched(g))
		return;
	first = state_next_timer(g);
	if (base_likely(!first))
		return;
	atomic_thread_fence(memory_order_seq_cst); /* partner: sleep_until */
	covered = atomic_load_explicit(g->covered_ns, memory_order_relaxed);
	if (covered > first || covered < os_now_ns())
		thread_wake(g);
}
