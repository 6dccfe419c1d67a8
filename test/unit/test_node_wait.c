/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping and waking in every interleaving: no wake-up is lost. The functions are those of
 * node/wait.c, with a rank that sleeps at once and, unlike the real one, without a time limit. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "node/private.h"
#include "unit.h"

#include "interleave_atomics.h"
#define node_wait_progress(g, w)               model_progress(g, w)
#define node_wait_is_long(w)                   model_is_long(w)
#define node_wait_polled(w)                    model_polled(w)
#define node_wait_is_stuck(w)                  model_is_stuck(w)
#define node_wait_end(g, w)                    model_end(g, w)
#define node_wait(g, w)                        model_wait(g, w)
#define node_wake(g, rank)                     model_ring(g, rank)
#define node_wake_relaxed(g, rank)                model_ring_soon(g, rank)
#define os_futex_wait(word, expected, limit)                                                     \
	((void)(limit), il_futex_wait((void *)(word), (expected)))
#define os_futex_wake(word, n)               il_futex_wake((void *)(word))
#define os_now_ns()                          ((uint64_t)1)
#define base_fault(name)                       false
#define UNUSED                                 __attribute__((unused))
static void model_progress(struct node_group *g, struct node_wait *w);
static bool model_is_long(const struct node_wait *w) UNUSED;
static void model_polled(struct node_wait *w);
static bool model_is_stuck(struct node_wait *w) UNUSED;
static void model_end(struct node_group *g, struct node_wait *w) UNUSED;
static int model_wait(struct node_group *g, struct node_wait *w);
static void model_ring(struct node_group *g, int rank);
static void model_ring_soon(struct node_group *g, int rank);
#include "node/wait.c"

enum { RANKS = 3, ITEMS = 2 };
static bool ring_first, announce_late;

struct world {
	struct node_rank ranks[RANKS];
	_Atomic uint32_t item[RANKS]; /* items that a rank has published */
};

struct place {
	struct node_wait wait;
	uint32_t sent, seen[RANKS];
};

static void world_init(void *shared)
{
	memset(shared, 0, sizeof(struct world));
}

static struct node_group group_of(struct world *w, int rank)
{
	return (struct node_group){ .rank = rank, .size = RANKS, .ranks = w->ranks };
}

static void publish(struct world *w, int rank, int to, uint32_t value)
{
	struct node_group g = group_of(w, rank);

	if (ring_first)
		model_ring(&g, to);
	atomic_store_explicit(&w->item[rank], value, memory_order_release);
	if (!ring_first)
		model_ring(&g, to);
}

/* Checks whether another rank has published more since the last check; waits a step when not. */
static bool look(struct world *w, int rank, int at, uint32_t want, struct place *p)
{
	struct node_group g = group_of(w, rank);
	uint32_t now = atomic_load_explicit(&w->item[at], memory_order_acquire);

	if (now != p->seen[at]) {
		p->seen[at] = now;
		model_progress(&g, &p->wait);
	} else {
		model_wait(&g, &p->wait);
		if (announce_late && p->wait.armed) /* mutant: sleeps without a second check */
			model_wait(&g, &p->wait);
	}
	p->wait.idle =
		0; /* affects only spinning ranks, and would multiply the states */
	return p->seen[at] >= want;
}

/* Rank 0 waits for items of the two others. */
static bool collect_round(int t, void *shared, void *local)
{
	struct world *w = shared;
	struct place *p = local;

	if (t) {
		publish(w, t, 0, ++p->sent);
		return p->sent < ITEMS;
	}
	if (p->seen[1] < ITEMS && !look(w, 0, 1, ITEMS, p))
		return true;
	return p->seen[2] < ITEMS && !look(w, 0, 2, ITEMS, p);
}

/* Ranks 0 and 1 answer each other. */
static bool talk_round(int t, void *shared, void *local)
{
	struct world *w = shared;
	struct place *p = local;
	int peer = 1 - t;

	if (p->sent == p->seen[peer] + (t ? 0 : 1)) {
		look(w, t, peer, p->sent, p);
		return p->seen[peer] < ITEMS || p->sent < ITEMS;
	}
	publish(w, t, peer, ++p->sent);
	return p->seen[peer] < ITEMS || p->sent < ITEMS;
}

static const char *explore(int threads, bool (*round)(int, void *, void *), unsigned mutation)
{
	const struct il_model m = {
		.threads = threads,
		.shared_bytes = sizeof(struct world),
		.local_bytes = sizeof(struct place),
		.mutation = mutation,
		.init = world_init,
		.round = round,
	};

	return il_violation(&m);
}

UNIT_TEST(waiting_loses_no_wake_up_of_two_ringers)
{
	CHECK_STR(explore(3, collect_round, 0) ?: "", "");
}

UNIT_TEST(waiting_loses_no_wake_up_of_two_that_answer_each_other)
{
	CHECK_STR(explore(2, talk_round, 0) ?: "", "");
}

UNIT_TEST(waiting_without_fences_is_caught)
{
	CHECK_STR(explore(2, talk_round, IL_NO_FENCE) ?: "", "deadlock");
}

UNIT_TEST(waiting_for_one_that_rings_before_it_publishes_is_caught)
{
	const char *violation;

	ring_first = true;
	violation = explore(2, talk_round, 0);
	ring_first = false;
	CHECK_STR(violation ?: "", "deadlock");
}

UNIT_TEST(waiting_without_a_last_look_is_caught)
{
	const char *violation;

	announce_late = true;
	violation = explore(2, talk_round, 0);
	announce_late = false;
	CHECK_STR(violation ?: "", "deadlock");
}
