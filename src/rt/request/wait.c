/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for requests, and testing them without result. Another process may have to publish a
 * collective or to take back fragments of a dead worker process, or a rank has died. The program
 * may wait for a request of any communicator, so that a waiting rank checks all communicators with
 * requests.
 */
#include <sched.h>

#include "rt/request/request.h"

enum { CALLED_AT_ONCE = 16 };     /* communicators whose ranks are called */

_Static_assert(sizeof(struct node_wait) <= sizeof(((struct rt_nap *)0)->wait),
	       "struct rt_nap has room for it");

static struct node_wait *wait_of(struct rt_nap *nap) { return (struct node_wait *)nap->wait; }

/* ---- communicators with requests----------------------------------------------------------- */

static void each(void (*visit)(struct rt_comm *))
{
	struct rt_comm *c;

	for (int i = 0; (c = requests_busy_get(i)); i++) {
		visit(c);
		requests_busy_put(c);
	}
}

/* Wakes every other rank: it may hold a queued request that only it can publish. */
static void call_ranks(struct rt_comm *c)
{
	for (int r = 0; r < c->size; r++)
		if (r != c->rank)
			node_wake_process(c->group, r);
}

/* Wakes the ranks of a few communicators, the next ones at each call. */
static void call_next(void)
{
	static _Atomic uint32_t next;
	uint32_t n = requests_busy_count();

	for (uint32_t k = 0; k < n && k < CALLED_AT_ONCE; k++) {
		uint32_t i = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % n;
		struct rt_comm *c = requests_busy_get((int)i);

		if (!c)
			continue;
		call_ranks(c);
		requests_busy_put(c);
	}
}

/* After a long wait, or a millisecond without progress. */
static void ask_others(bool is_stuck)
{
	each(offload_check_worker);
	if (is_stuck)
		call_next();
}

/* ---- waiting ----------------------------------------------------------------------------- */

/* Naps are short, so that wakes of one communicator suffice. */
static struct rt_comm *comm_to_nap_on(struct rt_nap *nap)
{
	struct rt_comm *c = requests_busy_get(0);

	if (c != nap->comm)
		*nap = (struct rt_nap){ .comm = c };
	return c;
}

/* Returns: true when peers should be checked. A rank that has announced its sleep makes one more
 * pass, and then sleeps or withdraws the announcement: the communicator may be gone at the next
 * call. */
static bool wait_a_moment(struct rt_comm *c, struct node_wait *w)
{
	int is_due = node_wait(c->group, w);

	if (!w->armed)
		return is_due;
	if (rt_requests_progress())
		node_wait_progress(c->group, w);
	else
		is_due |= node_wait(c->group, w);
	node_wait_end(c->group, w);
	return is_due;
}

void rt_requests_nap(struct rt_nap *nap)
{
	struct rt_comm *c = comm_to_nap_on(nap);
	struct node_wait *w = wait_of(nap);
	void (*progress)(void *ctx) = NULL;
	void *ctx = NULL;

	if (!c) { /* another thread has completed the last request, and will collect it */
		sched_yield();
		return;
	}
	if (node_wait_is_long(w)) {
		ask_others(node_wait_is_stuck(w));
		progress = c->progress;
		ctx = c->progress_ctx;
	}
	if (wait_a_moment(c, w))
		each(requests_check_peers);
	requests_busy_put(c);
	if (progress) /* may destroy any communicator, c too, which waits for requests_busy_put() */
		progress(ctx);
}

void rt_requests_woke(struct rt_nap *nap)
{
	struct rt_comm *c = comm_to_nap_on(nap);

	if (!c)
		return;
	node_wait_progress(c->group, wait_of(nap));
	requests_busy_put(c);
}

/* ---- testing ----------------------------------------------------------------------------- */

/* Returns: true, in one of all threads, when interval_ns have passed since the last true. */
static bool is_due(_Atomic uint64_t *last_ns, uint64_t now, uint64_t interval_ns)
{
	uint64_t last = atomic_load_explicit(last_ns, memory_order_relaxed);

	return now - last >= interval_ns &&
	       atomic_compare_exchange_strong_explicit(last_ns, &last, now, memory_order_relaxed,
						       memory_order_relaxed);
}

void rt_requests_tested(bool any)
{
	static _Atomic uint64_t moved_ns, checked_ns; /* moved_ns 0: no test without result since */
	uint64_t now = any ? 0 : os_now_ns();

	if (any || !atomic_load_explicit(&moved_ns, memory_order_relaxed)) {
		atomic_store_explicit(&moved_ns, now, memory_order_relaxed);
		atomic_store_explicit(&checked_ns, now, memory_order_relaxed);
		return;
	}
	if (!is_due(&moved_ns, now, NODE_STUCK_NS))
		return;
	ask_others(true);
	if (is_due(&checked_ns, now, NODE_CHECK_PEERS_NS))
		each(requests_check_peers);
}
