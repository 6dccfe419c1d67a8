/* SPDX-License-Identifier: BSD-3-Clause */
/* Large random schedules, executed by threads: each operation once, after all that it requires. */
#include <pthread.h>

#include "goal/interp.h"
#include "ranks.h"

enum { OPS = 20000, EDGES = 60000, THREADS = 4, ROUNDS = 5 };

static struct {
	struct goal_block *block;
	struct goal_state *state;
	_Atomic uint8_t begun[OPS], ended[OPS];
	_Atomic uint32_t overs, wrong;
	uint32_t before[OPS];  /* an operation whose end it requires; itself: none */
	uint32_t payload[OPS]; /* plain memory, ordered by the protocol alone: TSan checks it */
} run;

/* Requirements of both kinds, from lower to higher labels. */
static void build(uint64_t *seed)
{
	static struct goal_op ops[OPS];
	static struct goal_edge edges[EDGES];
	struct goal_build b;
	size_t bytes = goal_block_bytes(OPS, EDGES, 0);

	goal_build_init(&b, ops, OPS, edges, EDGES);
	for (int i = 0; i < OPS; i++)
		goal_add(&b, &(struct goal_op){ .type = GOAL_NOP });
	for (int e = 0; e < EDGES; e++) {
		uint32_t after = 1 + (uint32_t)ranks_below(seed, OPS - 1);
		uint32_t reach = after < 40 ? after : 40,
			 before = after - 1 - (uint32_t)ranks_below(seed, reach);

		(e % 3 ? goal_requires : goal_irequires)(&b, after, before);
	}
	run.block = malloc(bytes);
	CHECK(run.block);
	CHECK_EQ(goal_compile(&b, run.block, bytes), 0);
	for (uint32_t i = 0; i < OPS; i++)
		run.before[i] = i;
	for (uint32_t i = 0; i < OPS; i++)
		for (uint32_t k = 0; k < goal_ops(run.block)[i].next_count; k++)
			run.before[goal_adjacency(run.block)[goal_ops(run.block)[i].next + k]] = i;
	run.state = malloc(goal_state_bytes(OPS));
	CHECK(run.state);
}

/* Returns: how many operations of a list have begun; those that an operation is about to release
 * must not have. Counters are relaxed, so that only the interpreter orders them. */
static uint32_t count_begun(uint32_t first, uint32_t count)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < count; k++)
		n += atomic_load_explicit(&run.begun[goal_adjacency(run.block)[first + k]],
					  memory_order_relaxed);
	return n;
}

static void *member(void *arg)
{
	uint32_t wrong = 0, overs = 0;

	while (!goal_is_complete(run.state)) {
		uint32_t i = goal_claim(run.block, run.state);
		const struct goal_op *op = &goal_ops_const(run.block)[i];

		if (i == GOAL_NONE)
			continue;
		wrong += count_begun(op->next, op->next_count) +
			 count_begun(op->inext, op->inext_count);
		wrong += atomic_fetch_add_explicit(&run.begun[i], 1, memory_order_relaxed);
		goal_begin(run.block, run.state, i);
		wrong += run.before[i] != i && run.payload[run.before[i]] != 1;
		run.payload[i] = 1;
		wrong += count_begun(op->next, op->next_count);
		wrong += atomic_fetch_add_explicit(&run.ended[i], 1, memory_order_relaxed);
		overs += goal_end(run.block, run.state, i);
	}
	atomic_fetch_add(&run.wrong, wrong);
	atomic_fetch_add(&run.overs, overs);
	return NULL;
}

UNIT_TEST(threads_run_each_operation_once_after_what_it_requires)
{
	uint64_t seed = 5;

	for (int round = 0; round < ROUNDS; round++) {
		pthread_t threads[THREADS];

		build(&seed);
		memset(run.payload, 0, sizeof run.payload);
		memset((void *)run.begun, 0, sizeof run.begun);
		memset((void *)run.ended, 0, sizeof run.ended);
		run.overs = run.wrong = 0;
		goal_state_init(run.block, run.state);
		for (int t = 0; t < THREADS; t++)
			CHECK(!pthread_create(&threads[t], NULL, member, NULL));
		for (int t = 0; t < THREADS; t++)
			pthread_join(threads[t], NULL);
		CHECK_EQ(run.wrong, 0);
		CHECK_EQ(run.overs, 1);
		for (int i = 0; i < OPS; i++)
			CHECK_EQ(run.ended[i], 1);
		free(run.block);
		free(run.state);
	}
}

/* A state with wrong contents stops the schedule; memory outside is not touched. */
UNIT_TEST(state_gone_wild_hands_out_no_operation_that_there_is_not)
{
	uint64_t seed = 6;

#ifdef __SANITIZE_THREAD__
	unit_skip("one thread only");
#endif
	build(&seed);
	for (int round = 0; round < 2000; round++) {
		uint32_t words = (uint32_t)(goal_state_bytes(OPS) / 4), op;

		goal_state_init(run.block, run.state);
		for (int k = 0; k < 20; k++)
			((uint32_t *)run.state)[ranks_below(&seed, k % 2 ? words : 3)] =
				(uint32_t)ranks_random(&seed);
		for (int k = 0; k < 50 && (op = goal_claim(run.block, run.state)) != GOAL_NONE;
		     k++) {
			CHECK(op < OPS);
			goal_begin(run.block, run.state, op);
			goal_end(run.block, run.state, op);
		}
	}
	free(run.block);
	free(run.state);
}
