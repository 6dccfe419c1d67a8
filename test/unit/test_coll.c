/* SPDX-License-Identifier: BSD-3-Clause */
/* Broadcast and gather as data: for all sizes and roots, who sends what to whom. */
#include <stdlib.h>

#include "../fuzz/goal_walk.h"
#include "coll/coll.h"
#include "unit.h"

enum { RANKS_MAX = 9 };
static struct goal_op ops[RANKS_MAX + 1];
static struct goal_edge edges[RANKS_MAX + 1];
static _Alignas(8) char blocks[RANKS_MAX][8192];

static struct goal_block *block_of(int rank)
{
	return (struct goal_block *)blocks[rank];
}

static void compile(struct goal_build *b, int rank, int ranks, const uint64_t *mem_bytes)
{
	const struct goal_limits limits = { (uint32_t)ranks, GOAL_MEMS, mem_bytes, false };
	uint32_t work[sizeof blocks[0] / sizeof(struct goal_op)];
	struct goal_block *block = block_of(rank);

	CHECK(b->op_count <= coll_ops_max(ranks));
	CHECK_EQ(goal_compile(b, block, sizeof blocks[rank]), 0);
	CHECK_EQ(goal_verify(block, block->bytes, &limits, work), 0);
	CHECK_STR(goal_walk(block, block->bytes, &limits) ?: "", "");
}

static void build_init(struct goal_build *b, int ranks)
{
	goal_build_init(b, ops, coll_ops_max(ranks), edges, coll_ops_max(ranks));
}

/* Each send has the receive that it names by number, of the same size, and no receive is left over.
 */
static void check_pairs(int ranks)
{
	int sends = 0, recvs = 0;

	for (int r = 0; r < ranks; r++) {
		const struct goal_op *mine = goal_ops_const(block_of(r));

		for (uint32_t i = 0; i < block_of(r)->op_count; i++) {
			const struct goal_op *theirs;
			uint32_t k = 0;

			recvs += mine[i].type == GOAL_RECV;
			if (mine[i].type != GOAL_SEND)
				continue;
			theirs = goal_ops_const(block_of((int)mine[i].peer));
			sends++;
			while (k < block_of((int)mine[i].peer)->op_count &&
			       (theirs[k].type != GOAL_RECV || theirs[k].match != mine[i].match))
				k++;
			CHECK(k < block_of((int)mine[i].peer)->op_count);
			CHECK_EQ(theirs[k].peer, r);
			CHECK_EQ(theirs[k].tag, mine[i].tag);
			CHECK_EQ(theirs[k].bytes, mine[i].bytes);
		}
	}
	CHECK_EQ(sends, recvs);
	CHECK_EQ(sends, ranks - 1);
}

UNIT_TEST(bcast_sends_from_the_root_to_each_other_rank)
{
	const uint64_t mem_bytes[GOAL_MEMS] = { 0, 150, 0 };

	for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
		for (int root = 0; root < ranks; root++) {
			for (int r = 0; r < ranks; r++) {
				struct goal_build b;

				build_init(&b, ranks);
				coll_bcast(&b, r, ranks, root, 50, 100);
				compile(&b, r, ranks, mem_bytes);
				CHECK_EQ(block_of(r)->op_count, r == root ? ranks - 1 : 1);
				CHECK_EQ(block_of(r)->ready_count, block_of(r)->op_count);
			}
			check_pairs(ranks);
		}
	}
}

UNIT_TEST(gather_brings_each_part_to_its_place)
{
	for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
		const uint64_t mem_bytes[GOAL_MEMS] = { 0, 30, 5 + 40 * (uint64_t)ranks };

		for (int root = 0; root < ranks; root++) {
			for (int r = 0; r < ranks; r++) {
				const struct coll_gather_shape s = { .bytes = 20,
								     .send_off = 10,
								     .recv_off = 5,
								     .recv_stride = 40,
								     .in_place = root % 2 };
				struct goal_build b;

				build_init(&b, ranks);
				coll_gather(&b, r, ranks, root, &s);
				compile(&b, r, ranks, mem_bytes);
				for (uint32_t i = 0; r == root && i < block_of(r)->op_count; i++) {
					const struct goal_op *op = &goal_ops_const(block_of(r))[i];
					uint64_t from =
						op->type == GOAL_COPY ? (uint64_t)root : op->peer;

					CHECK_EQ(op->mem, COLL_RECV);
					CHECK_EQ(op->off, 5 + 40 * from);
				}
				CHECK_EQ(block_of(r)->op_count,
					 r != root ? 1 : ranks - (s.in_place ? 1 : 0));
			}
			check_pairs(ranks);
		}
	}
}

UNIT_TEST(gather_at_the_root_copies_its_own_part)
{
	const struct coll_gather_shape s = { .bytes = 8, .send_off = 3, .recv_stride = 8 };
	const struct goal_op *own = &goal_ops_const(block_of(0))[2];
	struct goal_build b;

	build_init(&b, 3);
	coll_gather(&b, 1, 3, 1, &s);
	CHECK_EQ(goal_compile(&b, block_of(0), sizeof blocks[0]), 0);
	CHECK_EQ(own->type, GOAL_COPY);
	CHECK_EQ(own->bytes, 8);
	CHECK_EQ(own->mem, COLL_RECV);
	CHECK_EQ(own->off, 8);
	CHECK_EQ(own->src_mem, COLL_SEND);
	CHECK_EQ(own->src_off, 3);
}
