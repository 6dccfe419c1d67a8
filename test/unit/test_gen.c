/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The generated schedules do what their collectives mean: each pattern, for 1 to 17 ranks, several
 * roots and sizes, is executed by the sequential reference in several orders, with eager and with
 * synchronous sends. An order that the requirements should forbid gives wrong data.
 */
#include <errno.h>

#include "goal/gen/gen.h"
#include "gen_reference.h"
#include "goal/local.h"
#include "unit.h"

enum { RANKS = 17, ORDERS = 4 };

static struct goal_block *blocks[RANKS];
static struct reference_rank ranks[RANKS];
static char *brought[RANKS]; /* contents of the send buffers before */

static void *zeroed(uint64_t bytes)
{
	void *p = calloc(1, bytes + 1);

	CHECK(p != NULL);
	return p;
}

/* The rank's schedule, verified against exactly the memory that gen_memory() says. */
static struct goal_block *make(const struct gen_pattern *g, const struct gen_params *p,
			       uint32_t rank, uint64_t mem_bytes[GOAL_MEMS])
{
	struct goal_build b;
	struct goal_limits limits = { p->ranks, GOAL_MEMS, mem_bytes, false };
	uint32_t op_count, edge_count, *work;
	struct goal_op *ops;
	struct goal_edge *edges;
	struct goal_block *block;
	uint64_t bytes;

	gen_room(g, p, rank, &op_count, &edge_count);
	ops = zeroed(op_count * sizeof *ops);
	edges = zeroed(edge_count * sizeof *edges);
	bytes = goal_block_bytes(op_count, edge_count, 0);
	block = zeroed(bytes);
	goal_build_init(&b, ops, op_count, edges, edge_count);
	gen_build(g, p, rank, &b);
	CHECK_EQ(b.op_count, op_count);
	CHECK_EQ(b.edge_count, edge_count);
	CHECK_EQ(goal_compile(&b, block, bytes), 0);
	gen_memory(g, p, rank, &mem_bytes[GEN_SEND], &mem_bytes[GEN_RECV]);
	mem_bytes[GOAL_SCRATCH] = block->scratch_bytes;
	work = zeroed(block->bytes);
	CHECK_EQ(goal_verify(block, block->bytes, &limits, work), 0);
	free(work);
	free(ops);
	free(edges);
	return block;
}

/* Byte i of the block that rank src sends to rank dst. */
static char datum(uint32_t src, uint32_t dst, uint64_t i)
{
	return (char)(src * 131 + dst * 37 + i * 7 + 1);
}

static bool has_parts(const struct gen_pattern *g)
{
	return g->collective == GEN_SCATTER || g->collective == GEN_ALLTOALL ||
	       g->collective == GEN_REDUCE_SCATTER || g->collective == GEN_NEIGHBOURS;
}

static void fill(const struct gen_pattern *g, const struct gen_params *p, uint32_t rank)
{
	uint64_t bytes = ranks[rank].mem_bytes[GEN_SEND];
	char *send = ranks[rank].mem[GEN_SEND];

	memset(ranks[rank].mem[GEN_RECV], 0x5a, ranks[rank].mem_bytes[GEN_RECV]);
	memset(ranks[rank].mem[GOAL_SCRATCH], 0x77, ranks[rank].mem_bytes[GOAL_SCRATCH]);
	for (uint64_t i = 0; i < bytes; i++)
		send[i] = datum(rank, has_parts(g) ? (uint32_t)(i / p->bytes) : 0,
				has_parts(g) ? i % p->bytes : i);
	if (g->collective == GEN_BCAST && rank != p->root)
		memset(send, 0x33, bytes);
	memcpy(brought[rank], send, bytes);
}

/* ---- what must be there afterwards ------------------------------------------------------- */

static void check_bytes(const char *got, uint32_t src, uint32_t dst, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		CHECK_EQ(got[i], datum(src, dst, i));
}

/* The vectors of all ranks, or their parts for `part`, reduced in order. */
static void check_reduced(const struct gen_pattern *g, const struct gen_params *p, const char *got,
			  uint32_t part)
{
	char *sum = zeroed(p->bytes);
	uint64_t at = has_parts(g) ? part * p->bytes : 0;

	memcpy(sum, brought[0] + at, p->bytes);
	for (uint32_t rank = 1; rank < p->ranks; rank++)
		goal_local(GOAL_ISA_BASE, p->op, p->dtype, sum, sum, brought[rank] + at, p->bytes);
	CHECK(memcmp(sum, got, p->bytes) == 0);
	free(sum);
}

/* Neighbours computed from coordinates, in another way than the generator's. */
static void check_faces(const struct gen_params *p, uint32_t rank, const char *got)
{
	uint32_t dims = p->dims[2] ? 3 : 2, at[3], rest = rank;

	for (uint32_t d = dims; d-- > 0; rest /= p->dims[d])
		at[d] = rest % p->dims[d];
	for (uint32_t face = 0; face < 2 * dims; face++) {
		uint32_t d = face / 2, there[3] = { at[0], at[1], at[2] }, peer = 0;
		int64_t moved = (int64_t)at[d] + (face % 2 ? 1 : -1);
		char untouched = 0x5a;

		there[d] = (uint32_t)((moved + p->dims[d]) % p->dims[d]);
		for (uint32_t k = 0; k < dims; k++)
			peer = peer * p->dims[k] + there[k];
		if (p->periodic || (moved >= 0 && moved < p->dims[d]))
			check_bytes(got + face * p->bytes, peer, face ^ 1, p->bytes);
		else if (p->bytes)
			CHECK_EQ(got[face * p->bytes], untouched);
	}
}

static void check(const struct gen_pattern *g, const struct gen_params *p, uint32_t rank)
{
	const char *send = ranks[rank].mem[GEN_SEND], *recv = ranks[rank].mem[GEN_RECV];
	bool is_root = rank == p->root;

	switch (g->collective) {
	case GEN_BCAST:
		check_bytes(send, p->root, 0, p->bytes);
		return;
	case GEN_SCATTER:
		check_bytes(recv, p->root, rank, p->bytes);
		break;
	case GEN_GATHER:
	case GEN_ALLGATHER:
	case GEN_ALLTOALL:
		for (uint32_t src = 0; src < p->ranks && (is_root || g->collective != GEN_GATHER);
		     src++)
			check_bytes(recv + src * p->bytes, src, has_parts(g) ? rank : 0, p->bytes);
		break;
	case GEN_REDUCE:
		if (is_root)
			check_reduced(g, p, recv, 0);
		break;
	case GEN_ALLREDUCE:
	case GEN_REDUCE_SCATTER:
		check_reduced(g, p, recv, rank);
		break;
	case GEN_NEIGHBOURS:
		check_faces(p, rank, recv);
		break;
	case GEN_PINGPONG:
		if (rank < 2)
			check_bytes(recv, 0, 0, p->bytes);
		break;
	case GEN_BARRIER:
		break;
	}
	CHECK(memcmp(send, brought[rank], ranks[rank].mem_bytes[GEN_SEND]) == 0);
}

/* ---- running ----------------------------------------------------------------------------- */

static void run_all_orders(const struct gen_pattern *g, const struct gen_params *p)
{
	for (uint32_t rank = 0; rank < p->ranks; rank++) {
		ranks[rank].block = blocks[rank] = make(g, p, rank, ranks[rank].mem_bytes);
		for (uint32_t mem = 0; mem < GOAL_MEMS; mem++)
			ranks[rank].mem[mem] = zeroed(ranks[rank].mem_bytes[mem]);
		brought[rank] = zeroed(ranks[rank].mem_bytes[GEN_SEND]);
	}
	for (uint64_t seed = 0; seed < ORDERS; seed++) {
		for (uint32_t rank = 0; rank < p->ranks; rank++)
			fill(g, p, rank);
		CHECK_EQ(reference_run(ranks, p->ranks, seed), 0);
		for (uint32_t rank = 0; rank < p->ranks; rank++)
			check(g, p, rank);
	}
	for (uint32_t rank = 0; rank < p->ranks; rank++) {
		for (uint32_t mem = 0; mem < GOAL_MEMS; mem++)
			free(ranks[rank].mem[mem]);
		free(brought[rank]);
		free(blocks[rank]);
	}
}

static void check_pattern(const char *name, struct gen_params p)
{
	static const uint64_t sizes[] = { 0, 4, 52, 200 };
	const struct gen_pattern *g = gen_find(name);
	const char *why;

	CHECK(g != NULL);
	for (p.ranks = g->collective == GEN_PINGPONG ? 2 : 1; p.ranks <= RANKS; p.ranks++)
		for (uint32_t root = 0; root < 3; root++)
			for (uint32_t size = 0; size < 4; size++) {
				struct gen_params one = p;

				one.root = root * (p.ranks - 1) / 2;
				one.bytes = sizes[size];
				CHECK_EQ(gen_check(g, &one, &why), 0);
				run_all_orders(g, &one);
			}
}

static const struct gen_params sum = { .op = GOAL_ADD, .dtype = GOAL_I32 };

#define MOVES(test, name) UNIT_TEST(test) { check_pattern(name, sum); }
MOVES(binomial_bcast_brings_the_roots_data, "binomial-bcast")
MOVES(linear_bcast_brings_the_roots_data, "linear-bcast")
MOVES(binomial_gather_puts_blocks_by_rank, "binomial-gather")
MOVES(linear_gather_puts_blocks_by_rank, "linear-gather")
MOVES(binomial_scatter_gives_each_its_block, "binomial-scatter")
MOVES(linear_scatter_gives_each_its_block, "linear-scatter")
MOVES(dissemination_allgather_puts_blocks_by_rank, "dissemination-allgather")
MOVES(bruck_allgather_puts_blocks_by_rank, "bruck-allgather")
MOVES(ring_allgather_puts_blocks_by_rank, "ring-allgather")
MOVES(linear_alltoall_transposes, "linear-alltoall")
MOVES(pairwise_alltoall_transposes, "pairwise-alltoall")
MOVES(bruck_alltoall_transposes, "bruck-alltoall")
MOVES(ping_pong_comes_back, "ping-pong")
MOVES(binomial_reduce_sums_at_the_root, "binomial-reduce")
MOVES(dissemination_allreduce_counts_each_rank_once, "dissemination-allreduce")
MOVES(ring_allreduce_sums_everywhere, "ring-allreduce")
MOVES(doubling_allreduce_sums_everywhere, "doubling-allreduce")
MOVES(halving_allreduce_sums_everywhere, "halving-allreduce")
MOVES(ring_reduce_scatter_leaves_each_its_part, "ring-reduce-scatter")

UNIT_TEST(segments_of_a_pipeline_make_the_whole)
{
	check_pattern("ring-bcast", sum);
	check_pattern("ring-bcast", (struct gen_params){ .segment_bytes = 16 });
	check_pattern("ring-bcast", (struct gen_params){ .segment_bytes = 1000 });
}

UNIT_TEST(operations_that_may_count_twice_need_no_extra_messages)
{
	const struct gen_params most = { .op = GOAL_MAX, .dtype = GOAL_I32 };
	struct gen_params p = most;
	uint32_t ops, edges;
	const char *why;

	check_pattern("dissemination-allreduce", most);
	p.ranks = 1000000;
	p.bytes = 8;
	CHECK_EQ(gen_check(gen_find("dissemination-allreduce"), &p, &why), 0);
	gen_room(gen_find("dissemination-allreduce"), &p, 12345, &ops, &edges);
	CHECK_EQ(ops, 60); /* 20 rounds of send, receive, max */
}

UNIT_TEST(other_element_types_are_reduced_as_wholes)
{
	const struct gen_params bits = { .op = GOAL_XOR, .dtype = GOAL_U8 };

	check_pattern("halving-allreduce", bits);
	check_pattern("ring-allreduce", bits);
}

UNIT_TEST(stencils_exchange_faces_with_neighbours_that_exist)
{
	check_pattern("stencil-2d", (struct gen_params){ .periodic = false });
	check_pattern("stencil-3d", (struct gen_params){ .periodic = false });
	check_pattern("stencil-2d",
		      (struct gen_params){ .periodic = true, .rounds = 3, .calc_ns = 5 });
	check_pattern("stencil-3d", (struct gen_params){ .periodic = true });
}

UNIT_TEST(dimensions_are_as_equal_as_possible)
{
	struct gen_params p = { .ranks = 24 };
	const char *why;

	CHECK_EQ(gen_check(gen_find("stencil-3d"), &p, &why), 0);
	CHECK_EQ(p.dims[0], 2);
	CHECK_EQ(p.dims[1], 3);
	CHECK_EQ(p.dims[2], 4);
	p.dims[1] = 4;
	CHECK_EQ(gen_check(gen_find("stencil-3d"), &p, &why), -EINVAL);
	CHECK_HAS(why, "product");
}

UNIT_TEST(what_cannot_be_is_refused_with_a_reason)
{
	const struct gen_pattern *g = gen_find("binomial-reduce");
	const struct {
		struct gen_params p;
		const char *why;
	} wrong[] = {
		{ { .op = GOAL_ADD, .dtype = GOAL_I32 }, "ranks" },
		{ { .ranks = 4, .root = 4, .op = GOAL_ADD }, "root" },
		{ { .ranks = 4, .op = GOAL_SUB }, "order" },
		{ { .ranks = 4, .op = GOAL_ADD, .dtype = GOAL_DTYPE_COUNT }, "type" },
		{ { .ranks = 4, .op = GOAL_XOR, .dtype = GOAL_F32 }, "integers" },
		{ { .ranks = 4, .op = GOAL_ADD, .dtype = GOAL_I32, .bytes = 5 }, "whole" },
		{ { .ranks = 4, .op = GOAL_ADD, .dtype = GOAL_I8, .bytes = UINT64_MAX / 8 },
		  "addressed" },
		{ { .ranks = 2, .op = GOAL_ADD, .bytes = 1ull << 40, .segment_bytes = 1 },
		  "segments" },
	};

	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct gen_params p = wrong[i].p;
		const char *why;

		CHECK_EQ(gen_check(g, &p, &why), -EINVAL);
		CHECK_HAS(why, wrong[i].why);
	}
	CHECK(gen_find("no-such") == NULL);
}

/* ---- a barrier --------------------------------------------------------------------------- */

enum { OPS = 64 };

/* Computes which ranks have certainly begun when an operation begins and when it ends, by
 * iteration. */
struct known {
	uint32_t begin[RANKS][OPS], end[RANKS][OPS];
};

static bool learn(uint32_t *to, uint32_t what)
{
	bool is_new = what & ~*to;

	*to |= what;
	return is_new;
}

static uint32_t sent_by(const struct known *k, uint32_t src, uint32_t dst, uint32_t tag)
{
	const struct goal_op *op = goal_ops_const(blocks[src]);

	for (uint32_t i = 0; i < blocks[src]->op_count; i++)
		if (op[i].type == GOAL_SEND && op[i].peer == dst && op[i].tag == tag)
			return k->begin[src][i];
	unit_fail(__FILE__, __LINE__, "rank %u sends nothing to %u", src, dst);
}

static bool spread(struct known *k, uint32_t rank)
{
	const uint32_t *adjacency = goal_adjacency(blocks[rank]);
	bool changed = false;

	for (uint32_t i = 0; i < blocks[rank]->op_count; i++) {
		const struct goal_op *op = goal_ops_const(blocks[rank]) + i;

		changed |= learn(&k->begin[rank][i], 1u << rank);
		changed |= learn(&k->end[rank][i], k->begin[rank][i]);
		if (op->type == GOAL_RECV)
			changed |= learn(&k->end[rank][i], sent_by(k, op->peer, rank, op->tag));
		for (uint32_t n = 0; n < op->next_count; n++)
			changed |= learn(&k->begin[rank][adjacency[op->next + n]], k->end[rank][i]);
		for (uint32_t n = 0; n < op->inext_count; n++)
			changed |=
				learn(&k->begin[rank][adjacency[op->inext + n]], k->begin[rank][i]);
	}
	return changed;
}

UNIT_TEST(nobody_leaves_a_barrier_before_all_have_come)
{
	const struct gen_pattern *g = gen_find("dissemination-barrier");

	for (uint32_t n = 1; n <= RANKS; n++) {
		struct gen_params p = { .ranks = n };
		struct known k = { .begin = { { 0 } } };
		uint64_t mem_bytes[GOAL_MEMS];
		bool changed = true;

		for (uint32_t rank = 0; rank < n; rank++)
			blocks[rank] = make(g, &p, rank, mem_bytes);
		while (changed) {
			changed = false;
			for (uint32_t rank = 0; rank < n; rank++)
				changed |= spread(&k, rank);
		}
		for (uint32_t rank = 0; rank < n; rank++) {
			uint32_t all = 1u << rank;

			for (uint32_t i = 0; i < blocks[rank]->op_count; i++)
				all |= k.end[rank][i];
			CHECK_EQ(all, (1u << n) - 1);
			free(blocks[rank]);
		}
	}
}
