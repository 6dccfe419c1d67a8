/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives as data: for all sizes and roots, who sends what to whom. */
#include <stdlib.h>

#include "exec/private.h"
#include "unit.h"

enum { RANKS_MAX = 9 };
static struct { struct exec_slot slot; struct slot_op ops[2 * RANKS_MAX]; } sides[RANKS_MAX];
static struct layout layouts[3 * RANKS_MAX];

/* Every operation lies inside its buffers, receives come first. */
static void check_schedule(int rank, int ranks, const uint64_t *buf_bytes)
{
	const struct exec_slot *s = &sides[rank].slot;

	CHECK(s->op_count <= 2 * (uint32_t)ranks);
	for (uint32_t i = 0; i < s->op_count; i++) {
		const struct slot_op *op = &sides[rank].ops[i];

		CHECK_EQ(op->type == OP_RECV, i < s->recv_count);
		CHECK(op->type > OP_NONE && op->type <= OP_COPY);
		CHECK(op->buf < COLL_BUFFERS && op->src_buf < COLL_BUFFERS);
		CHECK(op->peer < (uint32_t)ranks);
		CHECK(op->bytes && op->off + op->bytes <= buf_bytes[op->buf]);
		if (op->type == OP_COPY)
			CHECK(op->src_off + op->bytes <= buf_bytes[op->src_buf]);
	}
}

static void build(const struct exec_shape *s, int rank, int ranks)
{
	slot_build(&sides[rank].slot, layouts, s, rank, ranks);
}

/* Each send has the receive that it names by number, of the same size, and no receive is left over.
 */
static void check_pairs(int ranks, int wanted)
{
	int sends = 0, recvs = 0;

	for (int r = 0; r < ranks; r++) {
		const struct slot_op *mine = sides[r].ops;

		for (uint32_t i = 0; i < sides[r].slot.op_count; i++) {
			const struct slot_op *theirs;

			recvs += mine[i].type == OP_RECV;
			if (mine[i].type != OP_SEND)
				continue;
			sends++;
			/* receives come first: the number is the place */
			CHECK(mine[i].match < sides[mine[i].peer].slot.recv_count);
			theirs = &sides[mine[i].peer].ops[mine[i].match];
			CHECK_EQ(theirs->type, OP_RECV);
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

/* The parts that a rank sends to all, or receives from all, one after the other. */
static void fill_parts(struct coll_part *p, enum coll kind, int rank, int ranks, bool sends)
{
	for (int r = 0; r < ranks; r++)
		p[r] = (struct coll_part){ 1000 * (uint64_t)r, sends ? part_bytes(kind, rank, r)
								     : part_bytes(kind, r, rank) };
}

static void build_all(enum coll kind, int ranks, int root, bool in_place)
{
	const uint64_t buf_bytes[COLL_BUFFERS] = { 1000 * RANKS_MAX, 1000 * RANKS_MAX };

	for (int r = 0; r < ranks; r++) {
		struct coll_part send[RANKS_MAX], recv[RANKS_MAX];
		struct exec_shape s = { .kind = kind,
					.root = root,
					.send = send,
					.recv = recv,
					.in_place = in_place };
		fill_parts(send, kind, r, ranks, true);
		fill_parts(recv, kind, r, ranks, false);
		if (kind == COLL_GATHER)
			send[0].bytes = part_bytes(kind, r, root);
		if (kind == COLL_SCATTER && r != root)
			recv[0].bytes = part_bytes(kind, root, r);
		if (kind == COLL_SCATTER && r == root)
			recv[0].bytes = part_bytes(kind, r, r);
		build(&s, r, ranks);
		check_schedule(r, ranks, buf_bytes);
	}
}

static int copies_of(int rank)
{
	int n = 0;

	for (uint32_t i = 0; i < sides[rank].slot.op_count; i++)
		n += sides[rank].ops[i].type == OP_COPY;
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
	const struct exec_shape s = { .kind = COLL_GATHER, .root = 1, .send = &send, .recv = recv };
	const struct slot_op *own = &sides[1].ops[2];

	build(&s, 1, 3);
	CHECK_EQ(own->type, OP_COPY);
	CHECK_EQ(own->bytes, 8);
	CHECK_EQ(own->buf, COLL_RECV);
	CHECK_EQ(own->off, 8);
	CHECK_EQ(own->src_buf, COLL_SEND);
	CHECK_EQ(own->src_off, 3);
}

UNIT_TEST(allgather_in_place_has_one_buffer)
{
	build_all(COLL_ALLGATHER, 5, 0, true);
	for (uint32_t i = 0; i < sides[3].slot.op_count; i++) {
		const struct slot_op *op = &sides[3].ops[i];

		CHECK_EQ(op->buf, COLL_SEND);
		CHECK_EQ(op->off, 1000 * (uint64_t)(op->type == OP_SEND ? 3 : op->peer));
	}
}

UNIT_TEST(neighbours_that_are_nobody_get_nothing)
{
	const struct coll_part parts[] = { { 0, 8 }, { 8, 8 }, { 16, 8 } };
	const int neighbours[] = { -1, 1, 1 };
	const struct exec_shape s = { .kind = COLL_NEIGHBOR_ALLTOALL,
				      .send = parts,
				      .recv = parts,
				      .sources = neighbours,
				      .targets = neighbours,
				      .source_count = 3,
				      .target_count = 3 };

	build(&s, 0, 2);
	CHECK_EQ(sides[0].slot.op_count, 4);
	CHECK_EQ(sides[0].ops[1].tag, 1); /* the second from the same */
	CHECK_EQ(sides[0].ops[1].off, 16);
}
