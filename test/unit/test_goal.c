/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <sys/mman.h>

#include "../fuzz/goal_walk.h"
#include "os/os.h"
#include "ranks.h"

enum { OPS_MAX = 12, EDGES_MAX = 24, RANKS = 4, BLOCK_MAX = 4096 };

static const uint64_t mem_bytes[GOAL_MEMS] = { 1000, 5000, 1ull << 40 };
static const struct goal_limits limits = { RANKS, GOAL_MEMS, mem_bytes, false };
static struct goal_op ops[OPS_MAX];
static struct goal_edge edges[EDGES_MAX];
static _Alignas(8) char room[BLOCK_MAX];
static struct goal_block *const block = (struct goal_block *)room;

static struct goal_build begin(void)
{
	struct goal_build b;

	goal_build_init(&b, ops, OPS_MAX, edges, EDGES_MAX);
	return b;
}

static int verify(void)
{
	static uint32_t work[BLOCK_MAX / sizeof(struct goal_op)];

	return goal_verify(block, block->bytes, &limits, work);
}

/* "recv 100 0+10 from 3, copy ...; 1 after 0": operations in the block's order. */
static const char *described(void)
{
	static char text[512];
	size_t n = 0;

	for (uint32_t i = 0; i < block->op_count; i++) {
		const struct goal_op *op = &goal_ops_const(block)[i];

		n += (size_t)snprintf(text + n, sizeof text - n, "%s%" PRIu64 " at %u+%" PRIu64,
				      i ? ", " : "", op->bytes, op->mem, op->off);
		if (op->type == GOAL_COPY)
			n += (size_t)snprintf(text + n, sizeof text - n, " from %u+%" PRIu64,
					      op->src_mem, op->src_off);
		else
			n += (size_t)snprintf(text + n, sizeof text - n, " %s %u tag %u",
					      op->type == GOAL_SEND ? "to" : "from", op->peer,
					      op->tag);
	}
	for (uint32_t i = 0; i < block->op_count; i++) {
		const struct goal_op *op = &goal_ops_const(block)[i];

		for (uint32_t k = 0; k < op->next_count; k++)
			n += (size_t)snprintf(text + n, sizeof text - n, "; %u after %u",
					      goal_adjacency(block)[op->next + k], i);
		for (uint32_t k = 0; k < op->inext_count; k++)
			n += (size_t)snprintf(text + n, sizeof text - n, "; %u with %u",
					      goal_adjacency(block)[op->inext + k], i);
	}
	return text;
}

/* ---- building and text ------------------------------------------------------------------- */

UNIT_TEST(schedule_is_what_was_built)
{
	struct goal_build b = begin();
	uint32_t a = goal_recv(&b, 3, 7, GOAL_SCRATCH, 10, 100);
	uint32_t c = goal_copy(&b, GOAL_USER, 0, GOAL_SCRATCH, 10, 100);
	uint32_t d = goal_send(&b, 1, 8, 0, GOAL_USER, 0, 100);

	b.scratch_bytes = 110;
	goal_requires(&b, c, a);
	goal_requires(&b, d, c);
	CHECK_EQ(goal_compile(&b, block, sizeof room), 0);
	CHECK_EQ(verify(), 0);
	CHECK_STR(described(),
		  "100 at 0+10 from 3 tag 7, 100 at 1+0 from 0+10, 100 at 1+0 to 1 tag 8"
		  "; 1 after 0; 2 after 1");
}

UNIT_TEST(operations_are_sorted_so_that_requirements_point_forward)
{
	struct goal_build b = begin();
	uint32_t last = goal_send(&b, 1, 1, 0, GOAL_USER, 0, 1);
	uint32_t first = goal_recv(&b, 1, 1, GOAL_USER, 0, 1),
		 middle = goal_recv(&b, 2, 1, GOAL_USER, 1, 1);

	goal_requires(&b, last, middle);
	goal_requires(&b, middle, first);
	goal_requires(&b, last, first);
	CHECK_EQ(goal_compile(&b, block, sizeof room), 0);
	CHECK_EQ(verify(), 0);
	CHECK_EQ(block->ready_count, 1);
	CHECK_EQ(b.ops[last].next, 2); /* text/ finds its operations by it */
	CHECK_EQ(b.ops[first].next, 0);
	CHECK_EQ(b.ops[middle].next, 1);
	CHECK_STR(described(), "1 at 1+0 from 1 tag 1, 1 at 1+1 from 2 tag 1, 1 at 1+0 to 1 tag 1"
			       "; 1 after 0; 2 after 0; 2 after 1");
}

UNIT_TEST(compiling_says_what_is_wrong)
{
	struct goal_build b = begin();
	uint32_t one = goal_send(&b, 1, 1, 0, GOAL_USER, 0, 1),
		 two = goal_send(&b, 2, 1, 0, GOAL_USER, 0, 1);

	CHECK_EQ(goal_compile(&b, block, goal_block_bytes(2, 0, 0) - 1), -ENOSPC);
	CHECK_EQ(goal_compile(&b, block, goal_block_bytes(2, 0, 0)), 0);
	goal_requires(&b, one, two);
	goal_requires(&b, two, one);
	CHECK_EQ(goal_compile(&b, block, sizeof room), -ELOOP);
	b = begin();
	one = goal_send(&b, 1, 1, 0, GOAL_USER, 0, 1);
	goal_requires(&b, one, one);
	CHECK_EQ(goal_compile(&b, block, sizeof room), -ELOOP);
	b = begin();
	goal_requires(&b, 0, 1);
	CHECK_EQ(goal_compile(&b, block, sizeof room), -EINVAL);
	b = begin();
	for (int i = 0; i <= OPS_MAX; i++)
		goal_send(&b, 1, 1, 0, GOAL_USER, 0, 1);
	CHECK_EQ(goal_compile(&b, block, sizeof room), -ENOSPC);
}

UNIT_TEST(empty_schedule_is_one)
{
	struct goal_build b = begin();

	CHECK_EQ(goal_compile(&b, block, sizeof room), 0);
	CHECK_EQ(verify(), 0);
}

/* ---- random schedules -------------------------------------------------------------------- */

static void random_op(struct goal_build *b, uint64_t *seed)
{
	uint64_t bytes = ranks_below(seed, 1000), src_off;
	uint16_t mem = (uint16_t)ranks_below(seed, GOAL_MEMS);
	uint64_t off = ranks_below(seed, mem_bytes[mem] - bytes + 1);
	uint32_t peer = (uint32_t)ranks_below(seed, RANKS), tag = (uint32_t)ranks_random(seed) >> 1;

	switch (ranks_below(seed, 3)) {
	case 0:
		goal_send(b, peer, tag, (uint32_t)ranks_random(seed), mem, off, bytes);
		return;
	case 1:
		goal_recv(b, peer, tag, mem, off, bytes);
		return;
	}
	src_off = ranks_below(seed, mem_bytes[GOAL_USER] - bytes + 1);
	if (mem == GOAL_USER && (src_off > off ? src_off - off : off - src_off) < bytes)
		src_off = off;
	goal_copy(b, mem, off, GOAL_USER, src_off, bytes);
}

/* Returns: true when the requirements have a cycle; found by removing operations in topological
 * order. */
static bool random_build(struct goal_build *b, uint64_t *seed)
{
	uint32_t n = 1 + (uint32_t)ranks_below(seed, OPS_MAX),
		 m = (uint32_t)ranks_below(seed, EDGES_MAX + 1);
	bool sorted = ranks_below(seed, 4), ended[OPS_MAX] = { false }, any = true;
	uint32_t left = n;

	*b = begin();
	b->scratch_bytes = mem_bytes[GOAL_SCRATCH];
	for (uint32_t i = 0; i < n; i++)
		random_op(b, seed);
	for (uint32_t e = 0; e < m; e++) {
		uint32_t x = (uint32_t)ranks_below(seed, n), y = (uint32_t)ranks_below(seed, n);

		if (!sorted || x != y)
			goal_requires(b, sorted && x < y ? y : x, sorted && x < y ? x : y);
	}
	while (any) {
		any = false;
		for (uint32_t i = 0; i < n; i++) {
			bool can = !ended[i];

			for (uint32_t e = 0; e < b->edge_count; e++)
				can = can && (edges[e].after != i || ended[edges[e].before]);
			ended[i] = ended[i] || can;
			any = any || can;
			left -= can;
		}
	}
	return left;
}

UNIT_TEST(random_schedules_compile_to_blocks_that_run)
{
	uint64_t seed = 1;
	int cycles = 0;

	for (int i = 0; i < 5000; i++) {
		struct goal_build b;
		bool cyclic = random_build(&b, &seed);

		CHECK_EQ(goal_compile(&b, block, sizeof room), cyclic ? -ELOOP : 0);
		cycles += cyclic;
		if (cyclic)
			continue;
		CHECK_EQ(verify(), 0);
		CHECK_STR(goal_walk(block, block->bytes, &limits) ?: "", "");
		CHECK_EQ(block->op_count, b.op_count);
		CHECK_EQ(block->adjacency_count, b.edge_count);
	}
	CHECK(cycles > 100);
}

/* ---- damaged blocks ---------------------------------------------------------------------- */

/* The last bytes before an unreadable page: reading past the end faults. */
static char *fence_make(void)
{
	char *p = mmap(NULL, 2 * BLOCK_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	CHECK(p != MAP_FAILED && !mprotect(p + BLOCK_MAX, BLOCK_MAX, PROT_NONE));
	return p + BLOCK_MAX;
}

/* The place for a block before the fence, as near as its alignment permits. */
static char *fence_block(char *end, size_t bytes)
{
	return end - base_round_up(bytes, _Alignof(struct goal_block));
}

static int check_damaged(char *end, size_t bytes)
{
	struct goal_block *b = (struct goal_block *)fence_block(end, bytes);
	uint32_t work[BLOCK_MAX / sizeof(struct goal_op)];
	const char *wrong;

	if (goal_verify(b, bytes, &limits, work))
		return 0;
	wrong = goal_walk(b, bytes, &limits);
	if (wrong)
		unit_fail(__FILE__, __LINE__, "accepted: %s", wrong);
	return 1;
}

UNIT_TEST(block_with_a_flipped_bit_is_refused_or_runs)
{
	char *end = fence_make();
	uint64_t seed = 2, accepted = 0, tried = 0;

	for (int i = 0; i < 60; i++) {
		struct goal_build b;

		if (random_build(&b, &seed) || goal_compile(&b, block, sizeof room))
			continue;
		memcpy(fence_block(end, block->bytes), block, block->bytes);
		for (uint64_t bit = 0; bit < 8ull * block->bytes; bit++, tried++) {
			char *at = fence_block(end, block->bytes) + bit / 8;

			*at ^= (char)(1 << bit % 8);
			accepted += (uint64_t)check_damaged(end, block->bytes);
			*at ^= (char)(1 << bit % 8);
		}
	}
	CHECK(tried > 100000);
	CHECK(accepted && accepted < tried); /* a tag may be anything, a length may not */
	munmap(end - BLOCK_MAX, 2 * BLOCK_MAX);
}

UNIT_TEST(block_with_random_words_is_refused_or_runs)
{
	char *end = fence_make();
	uint64_t seed = 3;

	for (int i = 0; i < 100000; i++) {
		uint32_t words[4], small[] = { 0, 1, 2, 3, UINT32_MAX, 1u << 31, 0x10000 };
		struct goal_build b;
		size_t bytes;

		if (i % 50 == 0)
			while (random_build(&b, &seed) || goal_compile(&b, block, sizeof room))
				;
		bytes = block->bytes;
		memcpy(fence_block(end, bytes), block, bytes);
		for (uint64_t n = 1 + ranks_below(&seed, 4); n--;) {
			words[n] = (uint32_t)ranks_below(&seed, bytes / 4);
			memcpy(fence_block(end, bytes) + words[n] * 4,
			       &small[ranks_below(&seed, 7)], 4);
		}
		check_damaged(end, bytes);
	}
	munmap(end - BLOCK_MAX, 2 * BLOCK_MAX);
}

/* Requirements that no builder makes; the blocks are valid otherwise. */
UNIT_TEST(block_with_a_cycle_is_refused)
{
	struct goal_build b = begin();
	uint32_t *next = NULL;

	for (int i = 0; i < 4; i++)
		goal_send(&b, 1, 1, 0, GOAL_USER, 0, 1);
	goal_requires(&b, 1, 0);
	goal_requires(&b, 2, 1);
	goal_requires(&b, 3, 2);
	CHECK_EQ(goal_compile(&b, block, sizeof room), 0);
	next = (uint32_t *)(goal_ops(block) + block->op_count);
	CHECK(next[0] == 1 && next[1] == 2 && next[2] == 3);
	next[0] = 3; /* 1 and 2 release each other */
	next[2] = 1;
	CHECK_EQ(verify(), -EINVAL);
	next[0] = 1;
	next[1] = 3; /* 2 releases itself */
	next[2] = 2;
	CHECK_EQ(verify(), -EINVAL);
}

UNIT_TEST(block_that_is_cut_is_refused)
{
	uint32_t work[BLOCK_MAX / sizeof(struct goal_op)];
	char *end = fence_make();
	struct goal_build b = begin();

	goal_send(&b, 1, 1, 0, GOAL_USER, 0, 1);
	goal_send(&b, 2, 1, 0, GOAL_USER, 0, 1);
	goal_requires(&b, 1, 0);
	CHECK_EQ(goal_compile(&b, block, sizeof room), 0);
	for (size_t bytes = 0; bytes < block->bytes; bytes++) {
		memmove(fence_block(end, bytes), block, bytes);
		CHECK_EQ(goal_verify((struct goal_block *)fence_block(end, bytes), bytes, &limits,
				     work),
			 -EINVAL);
	}
	munmap(end - BLOCK_MAX, 2 * BLOCK_MAX);
}
