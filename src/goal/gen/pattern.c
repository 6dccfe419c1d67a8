/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "private.h"

const struct gen_pattern gen_patterns[] = {
	{ "binomial-bcast", "broadcast down a binomial tree, the largest subtree first",
	  "Johnsson, Ho 1989", GEN_BCAST, false, gen_binomial_bcast },
	{ "binomial-reduce", "reduction up a binomial tree", "Johnsson, Ho 1989", GEN_REDUCE, false,
	  gen_binomial_reduce },
	{ "binomial-gather", "gather up a binomial tree, whole subtrees in one message",
	  "Johnsson, Ho 1989", GEN_GATHER, false, gen_binomial_gather },
	{ "binomial-scatter", "scatter down a binomial tree, whole subtrees in one message",
	  "Johnsson, Ho 1989", GEN_SCATTER, false, gen_binomial_scatter },
	{ "dissemination-barrier", "barrier in ceil(log2 n) rounds", "Hensgen, Finkel, Manber 1988",
	  GEN_BARRIER, false, gen_dissemination_barrier },
	{ "dissemination-allreduce",
	  "every rank reduces in ceil(log2 n) rounds; sums over an n that is no power of two send "
	  "more",
	  "Hensgen, Finkel, Manber 1988; Bruck, Ho 1993", GEN_ALLREDUCE, false,
	  gen_dissemination_allreduce },
	{ "dissemination-allgather", "twice the blocks each round, received in place",
	  "Hensgen, Finkel, Manber 1988", GEN_ALLGATHER, false, gen_dissemination_allgather },
	{ "bruck-allgather", "twice the blocks each round, one message a round, rotated at the end",
	  "Bruck et al. 1997", GEN_ALLGATHER, false, gen_bruck_allgather },
	{ "bruck-alltoall", "ceil(log2 n) messages, each of half of all blocks",
	  "Bruck et al. 1997", GEN_ALLTOALL, false, gen_bruck_alltoall },
	{ "ring-bcast", "broadcast along a chain, in segments", "pipeline; textbook", GEN_BCAST,
	  false, gen_ring_bcast },
	{ "ring-allgather", "each block travels around the ring", "Chan et al. 2007", GEN_ALLGATHER,
	  false, gen_ring_allgather },
	{ "ring-reduce-scatter", "each block travels around the ring and is reduced on its way",
	  "Chan et al. 2007", GEN_REDUCE_SCATTER, false, gen_ring_reduce_scatter },
	{ "ring-allreduce", "ring reduce-scatter, then ring allgather", "Patarasuk, Yuan 2009",
	  GEN_ALLREDUCE, false, gen_ring_allreduce },
	{ "doubling-allreduce", "recursive doubling: whole vectors with rank xor 1, 2, 4 ...",
	  "Thakur, Rabenseifner, Gropp 2005", GEN_ALLREDUCE, true, gen_doubling_allreduce },
	{ "halving-allreduce", "recursive halving, then doubling", "Rabenseifner 2004",
	  GEN_ALLREDUCE, true, gen_halving_allreduce },
	{ "linear-bcast", "the root sends to each rank", "textbook", GEN_BCAST, false,
	  gen_linear_bcast },
	{ "linear-gather", "each rank sends to the root", "textbook", GEN_GATHER, false,
	  gen_linear_gather },
	{ "linear-scatter", "the root sends each rank its block", "textbook", GEN_SCATTER, false,
	  gen_linear_scatter },
	{ "linear-alltoall", "all messages at once, beginning with the next rank", "textbook",
	  GEN_ALLTOALL, false, gen_linear_alltoall },
	{ "pairwise-alltoall", "n - 1 steps, in each one message out and one in",
	  "Thakur, Rabenseifner, Gropp 2005", GEN_ALLTOALL, false, gen_pairwise_alltoall },
	{ "stencil-2d", "exchange with 4 neighbours in a grid, then compute", "textbook",
	  GEN_NEIGHBOURS, false, gen_stencil },
	{ "stencil-3d", "exchange with 6 neighbours in a grid, then compute", "textbook",
	  GEN_NEIGHBOURS, false, gen_stencil },
	{ "ping-pong", "rank 0 to rank 1 and back", "textbook", GEN_PINGPONG, false, gen_pingpong },
};
const uint32_t gen_pattern_count = sizeof(gen_patterns) / sizeof(gen_patterns[0]);

const struct gen_pattern *gen_find(const char *name)
{
	for (uint32_t i = 0; i < gen_pattern_count; i++)
		if (strcmp(gen_patterns[i].name, name) == 0)
			return &gen_patterns[i];
	return NULL;
}

/* ---- what patterns are written with ------------------------------------------------------ */

struct gen_at gen_scratch(struct gen_out *o, uint64_t bytes)
{
	struct gen_at at = { GOAL_SCRATCH, o->scratch };

	o->scratch += (bytes + 15) / 16 * 16; /* the largest alignment of an element */
	return at;
}

static uint32_t add(struct gen_out *o, const struct goal_op *op)
{
	o->ops++;
	return o->b ? goal_add(o->b, op) : o->ops - 1;
}

uint32_t gen_to(struct gen_out *o, uint32_t peer, uint32_t tag, uint32_t match, struct gen_at from,
		uint64_t bytes)
{
	return add(o, &(struct goal_op){ .type = GOAL_SEND,
					 .peer = peer,
					 .tag = tag,
					 .match = match,
					 .mem = from.mem,
					 .off = from.off,
					 .bytes = bytes });
}

uint32_t gen_from(struct gen_out *o, uint32_t peer, uint32_t tag, struct gen_at to, uint64_t bytes)
{
	return add(o, &(struct goal_op){ .type = GOAL_RECV,
					 .peer = peer,
					 .tag = tag,
					 .mem = to.mem,
					 .off = to.off,
					 .bytes = bytes });
}

uint32_t gen_copy(struct gen_out *o, struct gen_at to, struct gen_at from, uint64_t bytes)
{
	if (!bytes)
		return GOAL_NONE;
	return add(o, &(struct goal_op){ .type = GOAL_COPY,
					 .mem = to.mem,
					 .off = to.off,
					 .src_mem = from.mem,
					 .src_off = from.off,
					 .bytes = bytes });
}

uint32_t gen_reduce(struct gen_out *o, struct gen_at to, struct gen_at a, struct gen_at b,
		    uint64_t bytes)
{
	if (!bytes)
		return GOAL_NONE;
	return add(o, &(struct goal_op){ .type = o->p->op,
					 .dtype = o->p->dtype,
					 .mem = to.mem,
					 .off = to.off,
					 .src_mem = a.mem,
					 .src_off = a.off,
					 .src2_mem = b.mem,
					 .src2_off = b.off,
					 .bytes = bytes });
}

uint32_t gen_nop(struct gen_out *o) { return add(o, &(struct goal_op){ .type = GOAL_NOP }); }

uint32_t gen_calc(struct gen_out *o, uint64_t ns)
{
	return ns ? add(o, &(struct goal_op){ .type = GOAL_CALC, .bytes = ns }) : GOAL_NONE;
}

void gen_requires(struct gen_out *o, uint32_t op, uint32_t before)
{
	if (op == GOAL_NONE || before == GOAL_NONE)
		return;
	o->edges++;
	if (o->b)
		goal_requires(o->b, op, before);
}

void gen_irequires(struct gen_out *o, uint32_t op, uint32_t before)
{
	if (op == GOAL_NONE || before == GOAL_NONE)
		return;
	o->edges++;
	if (o->b)
		goal_irequires(o->b, op, before);
}

uint64_t gen_part(const struct gen_out *o, uint32_t i, uint32_t parts)
{
	uint32_t size = goal_dtype_bytes(o->p->dtype);
	uint64_t elements = o->p->bytes / size;

	/* without 128-bit division, which needs a library: equal parts, and one element more for
	 * the first ones */
	return (elements / parts * i + (elements % parts < i ? elements % parts : i)) * size;
}

/* ---- for callers ------------------------------------------------------------------------- */

static bool is_stencil(const struct gen_pattern *pattern)
{
	return pattern->collective == GEN_NEIGHBOURS;
}

static uint32_t dim_count(const struct gen_pattern *pattern)
{
	return pattern->name[sizeof("stencil-") - 1] == '2' ? 2 : 3;
}

/* Returns: the largest divisor of n that is at most its root-th root. */
static uint32_t near_root(uint32_t n, uint32_t root)
{
	uint32_t best = 1;

	for (uint64_t d = 1; (root == 2 ? d * d : d * d * d) <= n; d++)
		if (n % d == 0)
			best = (uint32_t)d;
	return best;
}

static bool set_dims(struct gen_params *p, uint32_t dims)
{
	uint64_t product = 1;

	if (!p->dims[0] && !p->dims[1] && !p->dims[2]) {
		p->dims[0] = near_root(p->ranks, dims);
		p->dims[1] =
			dims == 2 ? p->ranks / p->dims[0] : near_root(p->ranks / p->dims[0], 2);
		p->dims[2] = dims == 2 ? 0 : p->ranks / p->dims[0] / p->dims[1];
	}
	for (uint32_t i = 0; i < dims; i++) {
		product *= p->dims[i];
		if (!product || product > p->ranks)
			return false;
	}
	return product == p->ranks && (dims == 3 || !p->dims[2]);
}

static bool is_reduction(const struct gen_pattern *pattern)
{
	return pattern->collective == GEN_REDUCE || pattern->collective == GEN_ALLREDUCE ||
	       pattern->collective == GEN_REDUCE_SCATTER;
}

static const char *check_reduction(const struct gen_params *p)
{
	uint32_t size = goal_dtype_bytes(p->dtype);

	if (p->op < GOAL_ADD || p->op > GOAL_XOR || p->op == GOAL_SUB || p->op == GOAL_DIV)
		return "the operation must be one whose order does not matter: add, mul, max, min, "
		       "and, or, xor";
	if (!size)
		return "there is no such element type";
	if (p->op >= GOAL_AND && goal_dtype_is_float(p->dtype))
		return "and, or and xor are for integers";
	return p->bytes % size ? "the size must be a whole number of elements" : NULL;
}

#define SEGMENTS_MAX (UINT32_MAX / 8) /* operations are counted in 32 bits */

static const char *check(const struct gen_pattern *pattern, struct gen_params *p)
{
	if (!p->ranks || p->ranks > GOAL_RANKS_MAX)
		return "there must be 1 to 2147483647 ranks";
	if (p->root >= p->ranks)
		return "the root must be one of the ranks";
	if (p->bytes > UINT64_MAX / 8 / p->ranks)
		return "so many bytes cannot be addressed";
	if (p->segment_bytes && p->bytes / p->segment_bytes >= SEGMENTS_MAX)
		return "so many segments cannot be counted";
	if (pattern->collective == GEN_PINGPONG && p->ranks < 2)
		return "a ping-pong needs two ranks";
	if (is_stencil(pattern) && !set_dims(p, dim_count(pattern)))
		return "the product of the dimensions must be the number of ranks";
	return is_reduction(pattern) ? check_reduction(p) : NULL;
}

int gen_check(const struct gen_pattern *pattern, struct gen_params *p, const char **why)
{
	*why = check(pattern, p);
	return *why ? -EINVAL : 0;
}

void gen_room(const struct gen_pattern *pattern, const struct gen_params *p, uint32_t rank,
	      uint32_t *out_ops, uint32_t *out_edges)
{
	struct gen_out o = { .p = p, .rank = rank, .n = p->ranks };

	pattern->build(&o);
	*out_ops = o.ops;
	*out_edges = o.edges;
}

void gen_build(const struct gen_pattern *pattern, const struct gen_params *p, uint32_t rank,
	       struct goal_build *b)
{
	struct gen_out o = { .p = p, .rank = rank, .n = p->ranks, .b = b };

	pattern->build(&o);
	b->scratch_bytes = o.scratch;
}

void gen_memory(const struct gen_pattern *pattern, const struct gen_params *p, uint32_t rank,
		uint64_t *out_send_bytes, uint64_t *out_recv_bytes)
{
	uint64_t whole = (uint64_t)p->ranks * p->bytes, at_root = rank == p->root ? whole : 0;
	uint64_t faces = is_stencil(pattern) ? 2ull * dim_count(pattern) * p->bytes : 0;
	struct {
		uint64_t send, recv;
	} m[] = {
		[GEN_BARRIER] = { 0, 0 },
		[GEN_BCAST] = { p->bytes, 0 },
		[GEN_REDUCE] = { p->bytes, rank == p->root ? p->bytes : 0 },
		[GEN_GATHER] = { p->bytes, at_root },
		[GEN_SCATTER] = { at_root, p->bytes },
		[GEN_ALLGATHER] = { p->bytes, whole },
		[GEN_ALLREDUCE] = { p->bytes, p->bytes },
		[GEN_REDUCE_SCATTER] = { whole, p->bytes },
		[GEN_ALLTOALL] = { whole, whole },
		[GEN_NEIGHBOURS] = { faces, faces },
		[GEN_PINGPONG] = { p->bytes, p->bytes },
	};

	*out_send_bytes = m[pattern->collective].send;
	*out_recv_bytes = m[pattern->collective].recv;
}
