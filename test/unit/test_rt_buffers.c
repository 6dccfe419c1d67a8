/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of buffers that peers cannot reach, between processes without MPI. */
#include <string.h>

#include "ranks.h"
#include "rt/buffer.h"
#include "region/region.h"
#include "rt/pieces.h"
#include "unit.h"

enum { SMALL = 64 << 10, LARGE = 8 << 20, EXTENTS = 8 };

/* ---- collectives in pieces --------------------------------------------------------------- */

struct sum {
	struct coll_call call;
	struct coll_part part;
	uint64_t *send, *recv, bytes;
};

static void sum_open(struct sum *s, struct ranks *r, uint64_t bytes)
{
	*s = (struct sum){ .bytes = bytes, .part = { 0, bytes } };
	s->send = malloc(bytes);
	s->recv = malloc(bytes);
	CHECK(s->send && s->recv);
	for (uint64_t i = 0; i < bytes / 8; i++)
		s->send[i] = (uint64_t)(r->rank + 1) * i;
	s->call = (struct coll_call){ .kind = COLL_REDUCE,
				      .bytes = bytes,
				      .name = "sum",
				      .send = { { .addr = s->send, .bytes = bytes }, &s->part, 1 },
				      .reduce = { .op = GOAL_ADD,
						  .type = GOAL_U64,
						  .element_bytes = 8,
						  .commutes = true } };
	if (!r->rank)
		s->call.recv =
			(struct coll_side){ { .addr = s->recv, .bytes = bytes }, &s->part, 1 };
}

static void sum_run(struct sum *s, struct ranks *r, struct rt_pieces *p)
{
	memset(s->recv, 1, s->bytes);
	CHECK_EQ(rt_pieces_run(p, 0, 0, s->bytes), 0);
	for (uint64_t i = 0; i < s->bytes / 8 && !r->rank; i++)
		CHECK_EQ(s->recv[i], 3 * i);
}

static void sum_close(struct sum *s)
{
	free(s->send);
	free(s->recv);
}

/* Fills the free extents of the arena that a released copy would lie in. */
static void extents_fill(struct region_extent *extents)
{
	for (int i = 0; i < EXTENTS; i++) {
		CHECK_EQ(region_extent_get(REGION_UNIT, false, &extents[i]), 0);
		memset((char *)region_arena_base() + extents[i].offset, 77, REGION_UNIT);
	}
}

static void extents_check(struct region_extent *extents)
{
	for (int i = 0; i < EXTENTS; i++) {
		const char *at = (char *)region_arena_base() + extents[i].offset;

		for (uint64_t k = 0; k < REGION_UNIT; k++)
			CHECK_EQ(at[k], 77);
		region_extent_put(&extents[i]);
	}
}

/* The second collective needs a longer copy than the first, and ends first. */
static void two_in_pieces(struct ranks *r)
{
	struct rt_pieces *first, *second;
	struct region_extent extents[EXTENTS];
	struct sum small, large;
	struct rt_comm *c;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	sum_open(&small, r, SMALL);
	sum_open(&large, r, LARGE);
	CHECK_EQ(rt_pieces_begin(c, &small.call, SMALL, &first), 0);
	sum_run(&small, r, first);
	CHECK_EQ(rt_pieces_begin(c, &large.call, LARGE, &second), 0);
	extents_fill(extents);
	sum_run(&small, r, first);
	sum_run(&large, r, second);
	sum_run(&small, r, first);
	rt_pieces_end(second);
	sum_run(&small, r, first);
	extents_check(extents);
	rt_pieces_end(first);
	sum_close(&small);
	sum_close(&large);
	ranks_barrier(r);
	rt_comm_destroy(c);
}

UNIT_TEST(collectives_in_pieces_have_their_own_copies) { ranks_run(2, NULL, two_in_pieces, NULL); }

/* ---- parts that nobody sends ------------------------------------------------------------- */

static int pack(void *ctx, uint64_t off, uint64_t len, void *out)
{
	memcpy(out, (char *)ctx + off, len);
	return 0;
}

static int unpack(void *ctx, uint64_t off, uint64_t len, const void *in)
{
	memcpy((char *)ctx + off, in, len);
	return 0;
}

/* The ends of an open line: each rank has one neighbour, and none in the other direction. */
static void line_of_two(struct ranks *r)
{
	static char send[2 * SMALL], recv[2 * SMALL];
	const struct coll_part parts[2] = { { 0, SMALL }, { SMALL, SMALL } };
	int peers[2] = { -1, -1 }, near = !r->rank;
	struct coll_call call = {
		.kind = COLL_NEIGHBOR_ALLTOALL,
		.root = -1,
		.send = { { .bytes = sizeof send, .pack = pack, .unpack = unpack, .ctx = send },
			  parts,
			  2 },
		.recv = { { .bytes = sizeof recv, .pack = pack, .unpack = unpack, .ctx = recv },
			  parts,
			  2 },
		.sources = peers,
		.targets = peers,
		.target_count = 2,
		.name = "line",
	};
	struct rt_comm *c;

	peers[near] = !r->rank;
	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	for (int round = 0; round < 3; round++) {
		memset(send, 10 * r->rank + round, sizeof send);
		memset(recv, 55, sizeof recv);
		CHECK_EQ(rt_collective(c, &call), 0);
		for (int i = 0; i < SMALL; i++) {
			CHECK_EQ(recv[near * SMALL + i], 10 * !r->rank + round);
			CHECK_EQ(recv[!near * SMALL + i], 55);
		}
	}
	ranks_barrier(r);
	rt_comm_destroy(c);
}

UNIT_TEST(a_part_without_a_source_stays_as_it_is) { ranks_run(2, NULL, line_of_two, NULL); }

/* ---- the pool of copies ------------------------------------------------------------------ */

static void open_and_close(struct ranks *r)
{
	enum { LONG = 40 << 20 };
	const struct coll_part part = { 0, LONG };
	static char memory[LONG];
	struct coll_side side = { { .addr = memory, .bytes = LONG }, &part, 1 };
	struct buffer b;

	CHECK_EQ(region_init(), 0);
	CHECK_EQ(buffer_open(&b, &side, LONG, BUFFER_COPY), 0);
	b.addr[LONG / 2] = 44;
	buffer_close(&b, NULL);
	CHECK_EQ(buffer_open(&b, &side, LONG, BUFFER_COPY), 0);
	CHECK_EQ(b.addr[LONG / 2], 44); /* in the same pages */
	buffer_close(&b, NULL);
	buffer_pool_fini();
	CHECK_EQ(buffer_open(&b, &side, LONG, BUFFER_COPY), 0);
	CHECK_EQ(b.addr[LONG / 2], 0); /* in new pages */
	buffer_close(&b, NULL);
	buffer_pool_fini();
}

UNIT_TEST(a_long_copy_has_the_pages_of_the_last_one)
{
	ranks_run(1, (char *[]){ "SLUICE_TEST=region_pool=0", NULL }, open_and_close, NULL);
}
