/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A reduce of two levels in place, every interleaving: rank 0 has a domain of its own, which is the
 * home, ranks 1 and 2 share one; the only unit is of rank 0's slice. The steps of run_reduce_step()
 * in exec/ and of reduce/levels.c, with claiming by the functions of xfer/protocol.c. The part lies
 * in the memory of rank 1, which brings something there and gets the result there. All have come:
 * coming and going is the same with one level (test_reduce_protocol.c).
 */
#include <stdlib.h>

#include "reduce/reduce.h"
#include "unit.h"

#include "interleave_xfer.h"

enum { RANKS = 3, TAG = 5, PART_RANK = 1, LEVELS = REDUCE_SPREAD + 1 };
static bool without_parts, without_result, without_spread, without_all;

struct world {
	struct xfer x[LEVELS];
	_Atomic uint64_t memory[RANKS];
};

/* What is in the memory: the ranks whose input it is, and the collective's number. */
static uint64_t of_ranks(uint64_t ranks) { return TAG << 8 | ranks; }

static void world_init(void *shared)
{
	struct world *w = shared;

	*w = (struct world){ 0 };
	for (int i = 0; i < LEVELS; i++) {
		w->x[i].taken = xfer_word(TAG, 0);
		w->x[i].done = xfer_word(TAG, 0);
	}
	for (int r = 0; r < RANKS; r++)
		w->memory[r] = of_ranks(1u << r);
}

static bool claim(struct world *w, enum reduce_level level)
{
	return model_claim(&w->x[level], TAG, 1, 0) != XFER_NONE;
}

static bool is_done(struct world *w, enum reduce_level level)
{
	return model_is_done(&w->x[level], TAG, xfer_bits(1));
}

static void finish(struct world *w, enum reduce_level level)
{
	model_complete(&w->x[level], TAG, xfer_bit(0), xfer_bits(1));
}

static uint64_t get(struct world *w, int rank, uint64_t want, const char *what)
{
	uint64_t value = atomic_load_explicit(&w->memory[rank], memory_order_relaxed);

	if (value != want)
		il_fail(what);
	return value;
}

static void put(struct world *w, int rank, uint64_t value)
{
	atomic_store_explicit(&w->memory[rank], value, memory_order_relaxed);
}

static void move(struct world *w, int rank)
{
	if (rank && claim(w, REDUCE_PART)) {
		get(w, 1, of_ranks(2), "a part is not of what rank 1 brought");
		get(w, 2, of_ranks(4), "a part is not of what rank 2 brought");
		put(w, PART_RANK, of_ranks(6));
		finish(w, REDUCE_PART);
	} else if (!rank && (without_parts || is_done(w, REDUCE_PART)) && claim(w, REDUCE_RESULT)) {
		get(w, 0, of_ranks(1), "a result is not of what rank 0 brought");
		get(w, PART_RANK, of_ranks(6), "a result is not of the part");
		put(w, 0, of_ranks(7));
		put(w, PART_RANK, of_ranks(7));
		finish(w, REDUCE_RESULT);
	} else if (rank && (without_result || is_done(w, REDUCE_RESULT)) && claim(w, REDUCE_SPREAD)) {
		put(w, 2, get(w, PART_RANK, of_ranks(7), "what is spread is not the result"));
		finish(w, REDUCE_SPREAD);
	}
}

static bool rank_round(int rank, void *shared, void *local)
{
	struct world *w = shared;

	(void)local;
	move(w, rank);
	if (!without_all &&
	    (!is_done(w, REDUCE_RESULT) || (!without_spread && !is_done(w, REDUCE_SPREAD))))
		return true;
	get(w, rank, of_ranks(7), "a rank has ended without its result");
	return false;
}

static const char *explore_with(unsigned mutation)
{
	const struct il_model m = {
		.threads = RANKS,
		.shared_bytes = sizeof(struct world),
		.local_bytes = sizeof(uint64_t),
		.mutation = mutation,
		.init = world_init,
		.round = rank_round,
	};

	return il_violation(&m);
}

static const char *explore_mutant(bool *mutant)
{
	const char *violation;

	*mutant = true;
	violation = explore_with(0);
	*mutant = false;
	return violation;
}

UNIT_TEST(reduce_of_two_levels_holds_in_every_interleaving)
{
	CHECK_STR(explore_with(0) ?: "", "");
}

UNIT_TEST(reduce_of_two_levels_without_release_is_caught)
{
	CHECK(explore_with(IL_NO_RELEASE));
}

UNIT_TEST(reduce_of_two_levels_that_does_not_wait_for_parts_is_caught)
{
	CHECK(explore_mutant(&without_parts));
}

UNIT_TEST(reduce_of_two_levels_that_does_not_wait_for_the_result_is_caught)
{
	CHECK(explore_mutant(&without_result));
}

UNIT_TEST(reduce_of_two_levels_that_ends_before_it_is_spread_is_caught)
{
	CHECK(explore_mutant(&without_spread));
}

UNIT_TEST(reduce_of_two_levels_that_does_not_wait_for_its_end_is_caught)
{
	CHECK(explore_mutant(&without_all));
}
