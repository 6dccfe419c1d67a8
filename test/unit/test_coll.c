/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives as data: for all sizes and roots, who sends what to whom. */
#include <stdlib.h>

#include "base/base.h"
#include "coll/coll.h"
#include "unit.h"

enum { RANKS_MAX = 9 };
static struct coll_flat_op ops[RANKS_MAX][2 * RANKS_MAX];
static struct coll_schedule schedules[RANKS_MAX];

/* Every operation lies inside its buffers, receives come first. */
static void check_schedule(int rank, int ranks, const uint64_t *buf_bytes)
{
	const struct coll_schedule *s = &schedules[rank];

	for (uint32_t i = 0; i < s->count; i++) {
		const struct coll_flat_op *op = &s->ops[i];

		CHECK_EQ(op->type == COLL_OP_RECV, i < s->recv_count);
		CHECK(op->type > COLL_OP_NONE && op->type <= COLL_OP_COPY);
		CHECK(op->buf < COLL_BUFFERS && op->src_buf < COLL_BUFFERS);
		CHECK(op->peer < (uint32_t)ranks);
		CHECK(op->bytes && op->off + op->bytes <= buf_bytes[op->buf]);
		if (op->type == COLL_OP_COPY)
			CHECK(op->src_off + op->bytes <= buf_bytes[op->src_buf]);
	}
}

static void build(const struct coll_shape *s)
{
	CHECK_EQ(coll_build(s, ops[s->rank], coll_ops_max(s->ranks), &schedules[s->rank]), 0);
}

/* Each send has the receive that it names by number, of the same size, and no receive is left over.
 */
static void check_pairs(int ranks, int wanted)
{
	int sends = 0, recvs = 0;

	for (int r = 0; r < ranks; r++) {
		const struct coll_flat_op *mine = schedules[r].ops;

		for (uint32_t i = 0; i < schedules[r].count; i++) {
			const struct coll_flat_op *theirs;

			recvs += mine[i].type == COLL_OP_RECV;
			if (mine[i].type != COLL_OP_SEND)
				continue;
			sends++;
			/* receives come first: the number is the place */
			CHECK(mine[i].match < schedules[mine[i].peer].recv_count);
			theirs = &schedules[mine[i].peer].ops[mine[i].match];
			CHECK_EQ(theirs->type, COLL_OP_RECV);
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
		struct coll_shape s = { .kind = kind,
					.rank = r,
					.ranks = ranks,
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
		build(&s);
		check_schedule(r, ranks, buf_bytes);
	}
}

static int copies_of(int rank)
{
	int n = 0;

	for (uint32_t i = 0; i < schedules[rank].count; i++)
		n += schedules[rank].ops[i].type == COLL_OP_COPY;
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
	const struct coll_flat_op *own = &ops[1][2];

	build(&s);
	CHECK_EQ(own->type, COLL_OP_COPY);
	CHECK_EQ(own->bytes, 8);
	CHECK_EQ(own->buf, COLL_RECV);
	CHECK_EQ(own->off, 8);
	CHECK_EQ(own->src_buf, COLL_SEND);
	CHECK_EQ(own->src_off, 3);
}

UNIT_TEST(allgather_in_place_has_one_buffer)
{
	build_all(COLL_ALLGATHER, 5, 0, true);
	for (uint32_t i = 0; i < schedules[3].count; i++) {
		const struct coll_flat_op *op = &schedules[3].ops[i];

		CHECK_EQ(op->buf, COLL_SEND);
		CHECK_EQ(op->off, 1000 * (uint64_t)(op->type == COLL_OP_SEND ? 3 : op->peer));
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

	build(&s);
	CHECK_EQ(schedules[0].count, 4);
	CHECK_EQ(schedules[0].ops[1].tag, 1); /* the second from the same */
	CHECK_EQ(schedules[0].ops[1].off, 16);
}
