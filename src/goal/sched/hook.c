/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that wait elsewhere, as in MPI: whoever they wait in calls sched_poll() meanwhile. A rank
 * whose calls follow closely for a while is the watcher. Nobody tells that such a wait has ended,
 * so this watcher counts as one only for a moment after each call (HOOK_LOST_NS), and the progress
 * thread of its process looks now and then whether it still polls (thread_guard()). Work that was
 * left to a watcher that had gone waits for that at most.
 */
#include <sched.h>

#include "goal/sched/private.h"

#define WAITS_NS     2000u  /* of close calls: their thread waits */
#define GAP_NS       3000u /* the program has computed, or the waiter polls too rarely */
#define DRIVE_NS     5000u  /* one call, at most, but for the copy under way */
#define NOTE_POLL_NS 2000u
#define IDLE_NS      20000000u   /* nothing is pending */
#define STUCK_NS     10000000000u /* something is, but nothing can be done */
#define CLOCK_TURNS  4u           /* turns without a copy for each look at the clock */
#define IDLE_POLLS   64u         /* for each look at the clock while nothing is pending */

/* guards the list, `idle` and the groups' `hook`; a poll does not wait for it */
static _Atomic uint32_t busy;
static struct sched_group *list;
static _Atomic uintptr_t asker; /* the function that has somebody poll; 0: none */
static _Atomic bool is_asked; /* asker need not be called: somebody polls, or there is no asker */
static struct {
	uint64_t since_ns; /* 0: there was something to do */
	uint32_t polls;
	bool pending; /* something was, but nothing could be done */
} idle;

static bool try_lock(void)
{
	return !atomic_exchange_explicit(&busy, 1, memory_order_acquire);
}

static void unlock(void) { atomic_store_explicit(&busy, 0, memory_order_release); }

static void lock(void)
{
	while (!try_lock())
		sched_yield();
}

/* Is there something that a rank might do for one that computes? Reads no line that a peer writes
 * often. */
static bool is_pending(const struct sched_group *g)
{
	const struct sched_state *st = g->drivers[g->rank].st;

	return atomic_load_explicit(&st->runs, memory_order_relaxed) ||
	       state_has_starts(&g->drivers[g->rank]) || state_has_computing_peers(g);
}

static void note_poll(struct sched_group *g, uint64_t now)
{
	if (now - atomic_load_explicit(g->watched_ns, memory_order_relaxed) > NOTE_POLL_NS)
		atomic_store_explicit(g->watched_ns, now, memory_order_relaxed);
}

bool hook_stop(struct sched_group *g)
{
	if (base_likely(!atomic_load_explicit(&g->hook.watches, memory_order_relaxed)))
		return false;
	atomic_store_explicit(&g->hook.watches, 0, memory_order_relaxed);
	state_unwatch(g, WATCHER_HOOK);
	return true;
}

static void end_watching(struct sched_group *g)
{
	if (hook_stop(g))
		state_drive_all(g);
}

static bool begin_watching(struct sched_group *g, uint64_t now)
{
	struct sched_hook *h = &g->hook;

	if (now - h->since_ns < WAITS_NS || !state_watch(g, WATCHER_HOOK))
		return false;
	atomic_store_explicit(g->watched_ns, now, memory_order_relaxed);
	atomic_store_explicit(&h->watches, 1, memory_order_relaxed);
	if (thread_guard(g))
		return true;
	end_watching(g);
	return false;
}

/* A process that found a claim of this poll taken has left the rest to it. The thread looks after
 * that only while the hook is the watcher; otherwise it is done here. */
static void end_poll(struct sched_group *g, bool goes_on)
{
	atomic_thread_fence(memory_order_seq_cst); /* partners: ask_holder, state_unwatch */
	if (!goes_on || !state_watches(g, WATCHER_HOOK))
		end_watching(g);
}

static bool poll_group(struct sched_group *g)
{
	struct sched_hook *h = &g->hook;
	bool watches = atomic_load_explicit(&h->watches, memory_order_relaxed), progress = false;
	uint64_t now = os_now_ns();
	int done;

	if (now - h->polled_ns > GAP_NS)
		h->since_ns = now;
	h->polled_ns = now;
	if (watches && !state_watches(g, WATCHER_HOOK)) {
		atomic_store_explicit(&h->watches, 0, memory_order_relaxed); /* it was relieved */
		watches = false;
	}
	if (!watches && !begin_watching(g, now))
		return false;
	note_poll(g, now);
	for (uint32_t n = 1; (done = state_drive_each(g)) != 0; n++) {
		progress = true;
		if (done == DROVE && n % CLOCK_TURNS)
			continue;
		now = os_now_ns();
		note_poll(g, now);
		if (now - h->polled_ns > DRIVE_NS)
			break;
	}
	h->polled_ns = progress ? os_now_ns() : now;
	end_poll(g, progress || is_pending(g));
	return progress;
}

/* Tells, now and then, that there has been nothing to do for so long that polls may end. */
static bool is_idle_for_long(bool pending)
{
	uint64_t now;

	if (++idle.polls % IDLE_POLLS)
		return false;
	now = os_now_ns();
	if (!idle.since_ns || pending != idle.pending) {
		idle.since_ns = now;
		idle.pending = pending;
	}
	if (now - idle.since_ns < (pending ? STUCK_NS : IDLE_NS))
		return false;
	idle.since_ns = 0;
	return true;
}

int sched_poll(void)
{
	bool progress = false, pending = false, has_ended;

	/* another thread polls; or a signal handler waits in MPI, and this thread does */
	if (!try_lock())
		return 0;
	for (struct sched_group *g = list; g; g = g->hook.next) {
		if (!atomic_load_explicit(&g->hook.watches, memory_order_relaxed) && !is_pending(g))
			continue;
		pending = true;
		progress |= poll_group(g);
	}
	has_ended = !progress && is_idle_for_long(pending);
	if (progress)
		idle.since_ns = 0;
	if (has_ended)
		atomic_store_explicit(&is_asked, false, memory_order_relaxed);
	unlock();
	return has_ended ? -1 : progress;
}

static void ask(int (*f)(void))
{
	/* before the call: it may poll at once, and be told to stop */
	atomic_store_explicit(&is_asked, true, memory_order_relaxed);
	if (f && f())
		atomic_store_explicit(&is_asked, false, memory_order_relaxed);
}

void sched_ask(int (*f)(void))
{
	if (atomic_exchange_explicit(&asker, (uintptr_t)f, memory_order_relaxed) != (uintptr_t)f ||
	    !atomic_load_explicit(&is_asked, memory_order_relaxed))
		ask(f);
}

void hook_ask(void)
{
	if (base_unlikely(!atomic_load_explicit(&is_asked, memory_order_relaxed)))
		ask((int (*)(void))atomic_load_explicit(&asker, memory_order_relaxed));
}

void hook_add(struct sched_group *g)
{
	lock();
	g->hook.next = list;
	list = g;
	unlock();
}

void hook_remove(struct sched_group *g)
{
	lock();
	for (struct sched_group **link = &list; *link; link = &(*link)->hook.next) {
		if (*link != g)
			continue;
		*link = g->hook.next;
		break;
	}
	unlock();
	end_watching(g);
}
