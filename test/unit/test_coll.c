/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives as data: for all sizes and roots, who sends what to whom. */
#include <stdlib.h>

#include "../fuzz/goal_walk.h"
#include "base/base.h"
#include "coll/coll.h"
#include "unit.h"

enum { RANKS_MAX = 9 };
static struct goal_op ops[2 * RANKS_MAX];
static struct goal_edge edges[2 * RANKS_MAX];
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
static void check_pairs(int ranks, int wanted)
{
	int sends = 0, recvs = 0;

	for (int r = 0; r < ranks; r++) {
		const struct goal_op *mine = goal_ops_const(block_of(r));

		for (uint32_t i = 0; i < block_of(r)->op_count; i++) {
			const struct goal_op *theirs;

			recvs += mine[i].type == GOAL_RECV;
			if (mine[i].type != GOAL_SEND)
				continue;
			sends++;
			/* receives come first: the number is the place */
			CHECK(mine[i].match < block_of((int)mine[i].peer)->recv_count);
			theirs = &goal_ops_const(block_of((int)mine[i].peer))[mine[i].match];
			CHECK_EQ(theirs->type, GOAL_RECV);
			CHECK_EQ(theirs->peer, r);
			CHECK_EQ(theirs->tag, mine[i].tag);
			CHECK_EQ(theirs->bytes, mine[i].bytes);
		}
	}
	CHECK_EQ(sends, recvs);
	CHECK_EQ(sends, wanted);
}

static uint64_t part_bytes(enum coll kind, int from, int to)
{
	return kind == COLL_BCAST       ? 100
	       : kind == COLL_ALLGATHER ? 10 + (uint64_t)from
					: 10 + (uint64_t)(from * RANKS_MAX + to);
}

/* What rank sends to all, or receives from all: one after the other. */
static void fill_parts(struct coll_part *p, enum coll kind, int rank, int ranks, bool sends)
{
	for (int r = 0; r < ranks; r++)
		p[r] = (struct coll_part){ 1000 * (uint64_t)r, sends ? part_bytes(kind, rank, r)
								     : part_bytes(kind, r, rank) };
}

static void build_all(enum coll kind, int ranks, int root, bool in_place)
{
	const uint64_t mem_bytes[GOAL_MEMS] = { 0, 1000 * RANKS_MAX, 1000 * RANKS_MAX };

	for (int r = 0; r < ranks; r++) {
		struct coll_part send[RANKS_MAX], recv[RANKS_MAX];
		struct coll_shape s = { .kind = kind,
					.rank = r,
					.ranks = ranks,
					.root = root,
					.send = send,
					.recv = recv,
					.in_place = in_place };
		struct goal_build b;

		fill_parts(send, kind, r, ranks, true);
		fill_parts(recv, kind, r, ranks, false);
		if (kind == COLL_GATHER)
			send[0].bytes = part_bytes(kind, r, root);
		if (kind == COLL_SCATTER && r != root)
			recv[0].bytes = part_bytes(kind, root, r);
		if (kind == COLL_SCATTER && r == root)
			recv[0].bytes = part_bytes(kind, r, r);
		build_init(&b, ranks);
		coll_build(&b, &s);
		compile(&b, r, ranks, mem_bytes);
		CHECK_EQ(block_of(r)->ready_count, block_of(r)->op_count);
	}
}

static int copies_of(int rank)
{
	int n = 0;

	for (uint32_t i = 0; i < block_of(rank)->op_count; i++)
		n += goal_ops_const(block_of(rank))[i].type == GOAL_COPY;
	return n;
}

static const enum coll kinds[] = { COLL_BCAST, COLL_GATHER, COLL_SCATTER, COLL_ALLGATHER,
				   COLL_ALLTOALL };

UNIT_TEST(each_send_names_its_receive)
{
	for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
		for (int root = 0; root < ranks; root++) {
			for (size_t i = 0; i < BASE_ARRAY_LEN(kinds); i++) {
				enum coll kind = kinds[i];
				bool is_all = kind == COLL_ALLGATHER || kind == COLL_ALLTOALL;

				build_all(kind, ranks, root, root % 2);
				check_pairs(ranks, is_all ? ranks * (ranks - 1) : ranks - 1);
			}
		}
	}
}

UNIT_TEST(own_parts_are_copied_once_and_not_in_place)
{
	for (size_t i = 0; i < BASE_ARRAY_LEN(kinds); i++) {
		enum coll kind = kinds[i];
		bool is_all = kind == COLL_ALLGATHER || kind == COLL_ALLTOALL;

		for (int in_place = 0; in_place < 2; in_place++) {
			build_all(kind, 4, 2, in_place);
			CHECK_EQ(copies_of(2), kind != COLL_BCAST && !in_place);
			CHECK_EQ(copies_of(1), is_all && !in_place);
		}
	}
}

UNIT_TEST(gather_at_the_root_copies_its_own_part)
{
	const struct coll_part send = { 3, 8 }, recv[] = { { 0, 8 }, { 8, 8 }, { 16, 8 } };
	const struct coll_shape s = {
		.kind = COLL_GATHER, .rank = 1, .ranks = 3, .root = 1, .send = &send, .recv = recv
	};
	const struct goal_op *own = &goal_ops_const(block_of(0))[2];
	struct goal_build b;

	build_init(&b, 3);
	coll_build(&b, &s);
	CHECK_EQ(goal_compile(&b, block_of(0), sizeof blocks[0]), 0);
	CHECK_EQ(own->type, GOAL_COPY);
	CHECK_EQ(own->bytes, 8);
	CHECK_EQ(own->mem, COLL_RECV);
	CHECK_EQ(own->off, 8);
	CHECK_EQ(own->src_mem, COLL_SEND);
	CHECK_EQ(own->src_off, 3);
}

UNIT_TEST(allgather_in_place_has_one_buffer)
{
	build_all(COLL_ALLGATHER, 5, 0, true);
	for (uint32_t i = 0; i < block_of(3)->op_count; i++) {
		const struct goal_op *op = &goal_ops_const(block_of(3))[i];

		CHECK_EQ(op->mem, COLL_SEND);
		CHECK_EQ(op->off, 1000 * (uint64_t)(op->type == GOAL_SEND ? 3 : op->peer));
	}
}

UNIT_TEST(neighbours_that_are_nobody_get_nothing)
{
	const struct coll_part parts[] = { { 0, 8 }, { 8, 8 }, { 16, 8 } };
	const int neighbours[] = { -1, 1, 1 };
	const struct coll_shape s = { .kind = COLL_NEIGHBOR_ALLTOALL,
				      .rank = 0,
				      .ranks = 2,
				      .send = parts,
				      .recv = parts,
				      .sources = neighbours,
				      .targets = neighbours,
				      .source_count = 3,
				      .target_count = 3 };
	struct goal_build b;

	build_init(&b, 2);
	coll_build(&b, &s);
	CHECK_EQ(goal_compile(&b, block_of(0), sizeof blocks[0]), 0);
	CHECK_EQ(block_of(0)->op_count, 4);
	CHECK_EQ(goal_ops_const(block_of(0))[1].tag, 1); /* the second from the same */
	CHECK_EQ(goal_ops_const(block_of(0))[1].off, 16);
}
