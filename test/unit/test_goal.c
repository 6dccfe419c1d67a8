/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <sys/mman.h>

#include "../fuzz/goal_walk.h"
#include "host/host.h"
#include "ranks.h"

enum { OPS_MAX = 12, EDGES_MAX = 24, RANKS = 4, BLOCK_MAX = 4096 };

static const uint64_t mem_bytes[GOAL_MEMS] = { 1000, 5000, 1ull << 40 };
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
	return goal_verify(block, block->bytes, RANKS, mem_bytes);
}

/* ---- building and text ------------------------------------------------------------------- */

UNIT_TEST(schedule_is_printed_with_labels_and_requirements)
{
	struct goal_build b = begin();
	uint32_t a = goal_recv(&b, 3, 7, GOAL_SCRATCH, 10, 100);
	uint32_t c = goal_copy(&b, GOAL_USER, 0, GOAL_SCRATCH, 10, 100);
	uint32_t d = goal_send(&b, 1, 8, 0, GOAL_USER, 0, 100);
	char text[512];

	b.scratch_bytes = 110;
	goal_requires(&b, c, a);
	goal_requires(&b, d, c);
	CHECK_EQ(goal_compile(&b, block, sizeof room), 0);
	CHECK_EQ(verify(), 0);
	goal_print(block, text, sizeof text);
	CHECK_STR(text, "l0: recv 100b from 3 tag 7 into scratch+10\n"
			"l1: copy 100b from scratch+10 to user0+0\n"
			"l2: send 100b to 1 tag 8 out of user0+0\n"
			"l1 requires l0\n"
			"l2 requires l1\n");
}

UNIT_TEST(operations_are_sorted_so_that_requirements_point_forward)
{
	struct goal_build b = begin();
	uint32_t last = goal_send(&b, 1, 1, 0, GOAL_USER, 0, 1);
	uint32_t first = goal_recv(&b, 1, 1, GOAL_USER, 0, 1),
		 middle = goal_recv(&b, 2, 1, GOAL_USER, 1, 1);
	char text[512];

	goal_requires(&b, last, middle);
	goal_requires(&b, middle, first);
	goal_requires(&b, last, first);
	CHECK_EQ(goal_compile(&b, block, sizeof room), 0);
	CHECK_EQ(verify(), 0);
	CHECK_EQ(block->ready_count, 1);
	goal_print(block, text, sizeof text);
	CHECK_STR(text, "l0: recv 1b from 1 tag 1 into user0+0\n"
			"l1: recv 1b from 2 tag 1 into user0+1\n"
			"l2: send 1b to 1 tag 1 out of user0+0\n"
			"l1 requires l0\n"
			"l2 requires l0\n"
			"l2 requires l1\n");
}

UNIT_TEST(text_that_does_not_fit_is_cut_and_its_length_told)
{
	struct goal_build b = begin();
	char whole[256], cut[20];
	int n;

	goal_send(&b, 1, 1, 0, GOAL_USER, 0, 1);
	goal_send(&b, 2, 1, 0, GOAL_USER, 0, 1);
	CHECK_EQ(goal_compile(&b, block, sizeof room), 0);
	n = goal_print(block, whole, sizeof whole);
	CHECK_EQ(n, strlen(whole));
	CHECK_EQ(goal_print(block, cut, sizeof cut), n);
	CHECK_EQ(goal_print(block, NULL, 0), n);
	CHECK(!strncmp(cut, whole, sizeof cut - 1));
	CHECK_EQ(cut[sizeof cut - 1], 0);
}

UNIT_TEST(compiling_says_what_is_wrong)
{
	struct goal_build b = begin();
	uint32_t one = goal_send(&b, 1, 1, 0, GOAL_USER, 0, 1),
		 two = goal_send(&b, 2, 1, 0, GOAL_USER, 0, 1);

	CHECK_EQ(goal_compile(&b, block, goal_block_bytes(2, 0) - 1), -ENOSPC);
	CHECK_EQ(goal_compile(&b, block, goal_block_bytes(2, 0)), 0);
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

/* The number of requirements of an operation is counted in 16 bits. */
UNIT_TEST(operation_with_too_many_requirements_is_refused)
{
	static struct goal_edge many[70000];
	static _Alignas(8) char large[1 << 20];
	struct goal_build b;

	goal_build_init(&b, ops, OPS_MAX, many, 70000);
	goal_send(&b, 1, 1, 0, GOAL_USER, 0, 1);
	goal_send(&b, 2, 1, 0, GOAL_USER, 0, 1);
	for (int i = 0; i < 65536; i++)
		goal_requires(&b, 1, 0);
	CHECK_EQ(goal_compile(&b, (struct goal_block *)large, sizeof large), -ENOSPC);
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
	uint64_t bytes = ranks_below(seed, 1000);
	enum goal_mem mem = (enum goal_mem)ranks_below(seed, GOAL_MEMS);
	uint64_t off = ranks_below(seed, mem_bytes[mem] - bytes + 1);
	uint32_t peer = (uint32_t)ranks_below(seed, RANKS), tag = (uint32_t)ranks_random(seed);

	switch (ranks_below(seed, 3)) {
	case 0:
		goal_send(b, peer, tag, (uint32_t)ranks_random(seed), mem, off, bytes);
		return;
	case 1:
		goal_recv(b, peer, tag, mem, off, bytes);
		return;
	}
	goal_copy(b, mem, off, GOAL_USER, ranks_below(seed, mem_bytes[GOAL_USER] - bytes + 1),
		  bytes);
}

/* Returns whether the requirements have a cycle, found by letting operations end as long as any
 * can. */
static bool random_build(struct goal_build *b, uint64_t *seed)
{
	uint32_t n = 1 + (uint32_t)ranks_below(seed, OPS_MAX),
		 m = (uint32_t)ranks_below(seed, EDGES_MAX + 1);
	bool sorted = ranks_below(seed, 4), ended[OPS_MAX] = { false }, any = true;
	uint32_t left = n;

	*b = begin();
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
		CHECK_STR(goal_walk(block, block->bytes, RANKS, mem_bytes) ?: "", "");
		CHECK_EQ(block->op_count, b.op_count);
		CHECK_EQ(block->adjacency_count, b.edge_count);
	}
	CHECK(cycles > 100);
}

/* ---- damaged blocks ---------------------------------------------------------------------- */

/* The last bytes before a page that cannot be read: whoever reads on is found. */
static char *fence_make(void)
{
	char *p = mmap(NULL, 2 * BLOCK_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	CHECK(p != MAP_FAILED && !mprotect(p + BLOCK_MAX, BLOCK_MAX, PROT_NONE));
	return p + BLOCK_MAX;
}

/* Where a block of so many bytes lies before the fence: as near as its alignment lets it. */
static char *fence_block(char *end, size_t bytes)
{
	return end - base_round_up(bytes, _Alignof(struct goal_block));
}

static int check_damaged(char *end, size_t bytes)
{
	struct goal_block *b = (struct goal_block *)fence_block(end, bytes);
	const char *wrong;
	char text[64];

	if (goal_verify(b, bytes, RANKS, mem_bytes))
		return 0;
	wrong = goal_walk(b, bytes, RANKS, mem_bytes);
	if (wrong)
		unit_fail(__FILE__, __LINE__, "accepted: %s", wrong);
	goal_print(b, text, sizeof text);
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

/* Requirements that no builder can write down: everything else about the blocks is right. */
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
	next = (uint32_t *)(room + block->adjacency_off);
	CHECK(next[0] == 1 && next[1] == 2 && next[2] == 3);
	next[0] = 3; /* 1 and 2 release each other */
	next[2] = 1;
	CHECK_EQ(verify(), -ELOOP);
	next[0] = 1;
	next[1] = 3; /* 2 releases itself */
	next[2] = 2;
	CHECK_EQ(verify(), -ELOOP);
}

UNIT_TEST(block_that_is_cut_is_refused)
{
	char *end = fence_make();
	struct goal_build b = begin();

	goal_send(&b, 1, 1, 0, GOAL_USER, 0, 1);
	goal_send(&b, 2, 1, 0, GOAL_USER, 0, 1);
	goal_requires(&b, 1, 0);
	CHECK_EQ(goal_compile(&b, block, sizeof room), 0);
	for (size_t bytes = 0; bytes < block->bytes; bytes++) {
		memmove(fence_block(end, bytes), block, bytes);
		CHECK_EQ(goal_verify((struct goal_block *)fence_block(end, bytes), bytes, RANKS,
				     mem_bytes),
			 -EINVAL);
	}
	munmap(end - BLOCK_MAX, 2 * BLOCK_MAX);
}
