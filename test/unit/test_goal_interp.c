/* SPDX-License-Identifier: BSD-3-Clause */
/* The interpreter's core: every interleaving of two and three members, and many threads. */
#include <stdatomic.h>

#include "goal/goal.h"
#include "unit.h"

/* Its atomics are scheduling points; goal_state_init() is the library's own. */
#include "interleave_atomics.h"
#include "goal/interp.h"

enum { OPS = 4, MEMBERS_MAX = 3 };

static _Alignas(8) char room[1024];
static struct goal_block *const block = (struct goal_block *)room;

struct shared {
	_Alignas(8) char state[64];
	_Atomic uint32_t
		/* effects of operations; relaxed, so that only the protocol orders them */
		payload[OPS];
	uint8_t taken[OPS], begun[OPS], ended[OPS], over; /* ghosts */
};

_Static_assert(sizeof(struct goal_state) + 2 * OPS * 4 <= 64, "state");

/* 1 starts when 0 has ended, 2 when it has begun; 3 when 1 and 2 have ended. */
static void build_diamond(void)
{
	struct goal_edge edges[OPS];
	struct goal_op ops[OPS];
	struct goal_build b;

	goal_build_init(&b, ops, OPS, edges, OPS);
	for (int i = 0; i < OPS; i++)
		goal_add(&b, &(struct goal_op){ .type = GOAL_NOP });
	goal_requires(&b, 1, 0);
	goal_irequires(&b, 2, 0);
	goal_requires(&b, 3, 1);
	goal_requires(&b, 3, 2);
	CHECK_EQ(goal_compile(&b, block, sizeof room), 0);
}

static void model_init(void *p)
{
	struct shared *s = p;

	memset(s, 0, sizeof *s);
	goal_state_init(block, (struct goal_state *)s->state);
}

/* Returns: true when the operations that op requires have happened and are visible. */
static void check_start(struct shared *s, uint32_t op)
{
	static const uint8_t ends[OPS] = { 0, 1, 0, 6 }; /* bit i: needs the end of i */

	if (op == 2 && !s->begun[0])
		il_fail("an operation has started before what it requires has begun");
	for (uint32_t i = 0; i < OPS; i++) {
		if (!(ends[op] >> i & 1))
			continue;
		if (!s->ended[i])
			il_fail("an operation has started before what it requires has ended");
		if (!atomic_load_explicit(&s->payload[i], memory_order_relaxed))
			il_fail("what an operation has done is not seen by those that required it");
	}
}

static bool model_round(int t, void *p, void *local)
{
	struct shared *s = p;
	struct goal_state *state = (struct goal_state *)s->state;
	uint32_t op = goal_claim(block, state);

	if (op == GOAL_NONE)
		return !goal_is_complete(state);
	if (op >= OPS || (il_turn() && s->taken[op]++))
		il_fail("an operation was handed out twice");
	check_start(s, op);
	if (il_turn())
		s->begun[op] = 1;
	goal_begin(block, state, op);
	atomic_store_explicit(&s->payload[op], 1, memory_order_relaxed);
	if (il_turn())
		s->ended[op] = 1;
	if (goal_end(block, state, op) && il_turn() && s->over++)
		il_fail("a schedule has ended twice");
	return true;
}

static void model_end(void *p)
{
	struct shared *s = p;

	for (uint32_t i = 0; i < OPS; i++)
		if (!s->taken[i])
			il_fail("an operation has never started");
	if (!s->over)
		il_fail("nobody was told that the schedule has ended");
}

static struct il_result explore(int threads, unsigned mutation)
{
	const struct il_model m = { .threads = threads,
				    .shared_bytes = sizeof(struct shared),
				    .mutation = mutation,
				    .init = model_init,
				    .round = model_round,
				    .end = model_end };
	struct il_result r;

	build_diamond();
	il_explore(&m, &r);
	return r;
}

UNIT_TEST(schedule_is_run_by_any_number_of_members_in_any_order)
{
	for (int threads = 1; threads <= MEMBERS_MAX; threads++) {
		struct il_result r = explore(threads, 0);

		if (r.violation)
			unit_fail(__FILE__, __LINE__, "%d members: %s (%s)", threads, r.violation,
				  r.order);
		CHECK(r.states > 20);
	}
}

UNIT_TEST(model_of_the_interpreter_finds_what_is_broken)
{
	CHECK_HAS(explore(2, IL_NO_RELEASE).violation, "is not seen");
	CHECK_HAS(explore(2, IL_BLIND_CAS).violation, "twice");
}
