/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Spin, yield, nap. Yielding lasts long, because a waiting rank also drives the host MPI's other
 * messages, and where cores are scarce a yield costs little more than a sleep. A napping rank
 * announces itself (sleeping = 1), checks once more, then sleeps on `wakes`; a waker publishes,
 * then checks whether the rank sleeps. Their full fences are partners: either the napping rank sees
 * what was published, or the waker sees `sleeping`.
 */
#include "node/private.h"

/* Naps are short, as this rank also drives the host MPI; longer when the wait is long. */
#define NAP_MIN_NS 100000ull
#define NAP_MAX_NS 1000000ull
#define TRY_NS 4000ull /* of yields that have run nobody lately */
#define NAP_SHARE 8 /* share of the time waited so far */
#define LONG_SPINS 128        /* some microseconds */
#define CHECK_SPINS 64        /* steps per clock read */

static struct node_rank *self(struct node_group *g) { return &g->ranks[g->rank]; }

void node_wait_end(struct node_group *g, struct node_wait *w)
{
	if (w->armed)
		atomic_store_explicit(&self(g)->sleeping, 0, memory_order_relaxed);
	w->armed = false;
}

void node_wait_progress(struct node_group *g, struct node_wait *w)
{
	node_wait_end(g, w);
	w->since_ns = w->idle = 0;
}

bool node_wait_is_long(const struct node_wait *w)
{
	return w->idle >= LONG_SPINS && w->idle % CHECK_SPINS == CHECK_SPINS - 1;
}

void node_wait_polled(struct node_wait *w) { w->idle |= CHECK_SPINS - 1; }

bool node_wait_is_stuck(struct node_wait *w)
{
	uint64_t now;

	if (!w->since_ns || !node_wait_is_long(w))
		return false;
	now = os_now_ns();
	if (now - base_max_u64(w->since_ns, w->called_ns) < NODE_STUCK_NS)
		return false;
	w->called_ns = now;
	return true;
}

static uint64_t nap_ns(uint64_t waited_ns)
{
	if (base_fault("nap")) /* tests: a missing wake-up shows */
		return 100 * 1000000000ull;
	return base_min_u64(base_max_u64(waited_ns / NAP_SHARE, NAP_MIN_NS), NAP_MAX_NS);
}

static void nap(struct node_group *g, struct node_wait *w, uint64_t waited_ns)
{
	struct node_rank *me = self(g);

	if (!w->armed) {
		w->wakes = atomic_load_explicit(&me->wakes, memory_order_acquire);
		atomic_store_explicit(&me->sleeping, 1, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst); /* partner: node_wake */
		w->armed = true;
		return; /* the caller checks once more */
	}
	base_count(BASE_CTR_SLEEPS, 1);
	os_futex_wait(&me->wakes, w->wakes, nap_ns(waited_ns));
	node_wait_polled(w); /* make progress after each nap */
	node_wait_end(g, w);
}

static uint64_t yield_ns(const struct node_group *g)
{
	return g->is_one_session || node_yields_reach() ? g->yield_ns
							: base_min_u64(g->yield_ns, TRY_NS);
}

int node_wait(struct node_group *g, struct node_wait *w)
{
	uint64_t now;

	w->idle++;
	if (!w->armed && g->spin_ns && w->idle % CHECK_SPINS) {
		os_cpu_relax();
		return 0;
	}
	now = os_now_ns();
	if (!w->since_ns) {
		w->since_ns = now;
		w->checked_ns = w->checked_ns ? w->checked_ns : now;
	}
	if (now - w->since_ns < g->spin_ns) {
		os_cpu_relax();
	} else if (!w->armed && now - w->since_ns < g->spin_ns + yield_ns(g)) {
		node_yield(g->is_one_session ? NULL : &w->yields);
		node_wait_polled(w); /* read the clock at each further step */
	} else {
		nap(g, w, now - w->since_ns);
	}
	if (now - w->checked_ns < NODE_CHECK_PEERS_NS)
		return 0;
	w->checked_ns = now;
	return 1;
}

void node_wake(struct node_group *g, int rank)
{
	atomic_thread_fence(memory_order_seq_cst); /* partner: nap */
	node_wake_relaxed(g, rank);
}

void node_wake_relaxed(struct node_group *g, int rank)
{
	struct node_rank *r = &g->ranks[rank];

	if (base_likely(!atomic_load_explicit(&r->sleeping, memory_order_relaxed)))
		return;
	atomic_fetch_add_explicit(&r->wakes, 1, memory_order_release);
	os_futex_wake(&r->wakes, 1);
	base_count(BASE_CTR_WAKES, 1);
}
