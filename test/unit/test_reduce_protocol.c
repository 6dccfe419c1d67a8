/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A reduce in place, every interleaving: two ranks and a helper that may be late by a turn of the
 * slots, the steps of publish(), look() and work() in exec/ with claiming by the functions of
 * xfer/protocol.c. Each unit reads an element of both ranks and overwrites both, so it must be done
 * by one mover, once, after both have come and before either goes on.
 */
#include <stdlib.h>

#include "unit.h"
#include "xfer/xfer.h"

#include "interleave_xfer.h"

/* Collective n has n units, all in the slice of rank 0: rank 1's has no elements. */
enum { RANKS = 2, COLLECTIVES = 2, BROUGHT = 10, RESULT = 5 };
static bool without_invalidation, without_second_look, without_waiting, without_done;

struct world {
	struct xfer x;
	_Atomic uint64_t op[RANKS], desc[RANKS];
	_Atomic uint64_t memory[RANKS][COLLECTIVES]; /* of a rank: an element for each unit */
};
struct place { uint64_t tag, phase; };

static void world_init(void *shared) { *(struct world *)shared = (struct world){ 0 }; }

static void publish(struct world *w, int rank, uint64_t tag)
{
	for (uint64_t u = 0; u < tag; u++)
		atomic_store_explicit(&w->memory[rank][u], tag * BROUGHT, memory_order_relaxed);
	if (!without_invalidation) {
		atomic_store_explicit(&w->op[rank], 0, memory_order_relaxed);
		atomic_thread_fence(memory_order_release);
	}
	atomic_store_explicit(&w->desc[rank], tag, memory_order_relaxed);
	if (!rank)
		model_open(&w->x, tag);
	atomic_store_explicit(&w->op[rank], tag, memory_order_release);
}

/* 1: both have come, and their descriptors are in desc; 0: not; -1: one has passed on. */
static int look(struct world *w, uint64_t tag, uint64_t *desc)
{
	for (int r = 0; r < RANKS; r++) {
		uint64_t op = atomic_load_explicit(&w->op[r], memory_order_acquire);

		desc[r] = atomic_load_explicit(&w->desc[r], memory_order_relaxed);
		if (op > tag)
			return -1;
		if (op != tag && !without_waiting)
			return 0;
		atomic_thread_fence(memory_order_acquire);
		if (!without_second_look && !without_waiting &&
		    atomic_load_explicit(&w->op[r], memory_order_relaxed) != tag)
			return -1;
	}
	return 1;
}

static void move(struct world *w, uint64_t tag, const uint64_t *desc)
{
	uint32_t unit = model_claim(&w->x, tag, (uint32_t)desc[0], 0);

	if (unit == XFER_NONE)
		return;
	for (int r = 0; r < RANKS; r++) {
		if (desc[r] != tag)
			il_fail("a unit was claimed with another collective's descriptor");
		if (atomic_load_explicit(&w->memory[r][unit], memory_order_relaxed) !=
		    tag * BROUGHT)
			il_fail("what a unit read is not what its rank brought");
	}
	for (int r = 0; r < RANKS; r++)
		atomic_store_explicit(&w->memory[r][unit], tag * BROUGHT + RESULT,
				      memory_order_relaxed);
	model_complete(&w->x, xfer_bit(unit), xfer_bits((uint32_t)tag));
}

static void check_result(struct world *w, int rank, uint64_t tag)
{
	for (uint64_t u = 0; u < tag; u++)
		if (atomic_load_explicit(&w->memory[rank][u], memory_order_relaxed) !=
		    tag * BROUGHT + RESULT)
			il_fail("a rank has ended without its result");
}

enum { PHASE_BEGIN, PHASE_MOVE };

static bool rank_round(struct world *w, struct place *p, int rank)
{
	uint64_t desc[RANKS];
	int come;

	if (p->phase == PHASE_BEGIN) {
		publish(w, rank, ++p->tag);
		p->phase = PHASE_MOVE;
		return true;
	}
	come = look(w, p->tag, desc);
	if (!come)
		return true;
	if (come > 0) {
		move(w, p->tag, desc);
		if (!without_done && !model_is_done(&w->x, p->tag, xfer_bits((uint32_t)p->tag)))
			return true;
	}
	check_result(w, rank, p->tag);
	p->phase = PHASE_BEGIN;
	return p->tag < COLLECTIVES;
}

/* In collective number p->tag; goes on to the next whenever it likes. */
static bool helper_round(struct world *w, struct place *p)
{
	uint64_t desc[RANKS];

	p->tag++;
	if (look(w, p->tag, desc) > 0)
		move(w, p->tag, desc);
	return p->tag < COLLECTIVES;
}

static bool world_round(int t, void *shared, void *local)
{
	return t < RANKS ? rank_round(shared, local, t) : helper_round(shared, local);
}

static const char *explore_with(int threads, unsigned mutation)
{
	const struct il_model m = {
		.threads = threads,
		.shared_bytes = sizeof(struct world),
		.local_bytes = sizeof(struct place),
		.mutation = mutation,
		.init = world_init,
		.round = world_round,
	};

	return il_violation(&m);
}

static const char *explore_mutant(bool *mutant)
{
	const char *violation;

	*mutant = true;
	violation = explore_with(3, 0);
	*mutant = false;
	return violation;
}

UNIT_TEST(reduce_of_two_ranks_holds_in_every_interleaving)
{
	CHECK_STR(explore_with(2, 0) ?: "", "");
}

UNIT_TEST(reduce_with_a_late_helper_holds_in_every_interleaving)
{
	CHECK_STR(explore_with(3, 0) ?: "", "");
}

UNIT_TEST(reduce_without_release_is_caught)
{
	CHECK(explore_with(2, IL_NO_RELEASE));
}

UNIT_TEST(reduce_with_claims_that_do_not_compare_is_caught)
{
	CHECK(explore_with(2, IL_BLIND_CAS));
}

UNIT_TEST(reduce_whose_slots_are_not_invalidated_is_caught)
{
	CHECK(explore_mutant(&without_invalidation));
}

UNIT_TEST(reduce_whose_slots_are_not_looked_at_again_is_caught)
{
	CHECK(explore_mutant(&without_second_look));
}

UNIT_TEST(reduce_that_does_not_wait_for_all_is_caught)
{
	CHECK(explore_mutant(&without_waiting));
}

UNIT_TEST(reduce_that_ends_before_all_is_done_is_caught)
{
	CHECK(explore_mutant(&without_done));
}
