/* SPDX-License-Identifier: BSD-3-Clause */
/* Helpers of the patterns. GOAL_NONE is the label of an operation that does not exist; requiring it
 * has no effect, so first and last steps need no special cases. */
#ifndef SLUICE_GEN_PRIVATE_H
#define SLUICE_GEN_PRIVATE_H

#include "goal/gen/gen.h"

struct gen_out {
	const struct gen_params *p;
	struct goal_build *b; /* NULL: only count */
	uint32_t rank, n;
	uint32_t ops, edges;
	uint64_t scratch;     /* bytes of scratch memory in use */
};

/* A place in memory. */
struct gen_at {
	uint16_t mem;
	uint64_t off;
};
static inline struct gen_at gen_send(uint64_t off) { return (struct gen_at){ GEN_SEND, off }; }
static inline struct gen_at gen_recv(uint64_t off) { return (struct gen_at){ GEN_RECV, off }; }
static inline struct gen_at gen_plus(struct gen_at at, uint64_t off)
{
	return (struct gen_at){ at.mem, at.off + off };
}
/* Allocates scratch memory. */
struct gen_at gen_scratch(struct gen_out *o, uint64_t bytes);

/* Each returns its label. match: number of the receive at the peer, a hint. */
uint32_t gen_to(struct gen_out *o, uint32_t peer, uint32_t tag, uint32_t match, struct gen_at from,
		uint64_t bytes);
uint32_t gen_from(struct gen_out *o, uint32_t peer, uint32_t tag, struct gen_at to, uint64_t bytes);
/* Adds nothing and returns GOAL_NONE when there is nothing to copy or reduce. */
uint32_t gen_copy(struct gen_out *o, struct gen_at to, struct gen_at from, uint64_t bytes);
uint32_t gen_reduce(struct gen_out *o, struct gen_at to, struct gen_at a, struct gen_at b,
		    uint64_t bytes);
uint32_t gen_nop(struct gen_out *o);
uint32_t gen_calc(struct gen_out *o, uint64_t ns);
void gen_requires(struct gen_out *o, uint32_t op, uint32_t before);
void gen_irequires(struct gen_out *o, uint32_t op, uint32_t before);

/* The rank `distance` after, or before, modulo the number of ranks. distance < ranks. */
static inline uint32_t gen_after(const struct gen_out *o, uint32_t rank, uint32_t distance)
{
	uint64_t sum = (uint64_t)rank + distance;

	return (uint32_t)(sum >= o->n ? sum - o->n : sum);
}
static inline uint32_t gen_before(const struct gen_out *o, uint32_t rank, uint32_t distance)
{
	return rank >= distance ? rank - distance : rank + (o->n - distance);
}
/* Offset of part i of `parts` of the vector, in whole elements. */
uint64_t gen_part(const struct gen_out *o, uint32_t i, uint32_t parts);

void gen_binomial_bcast(struct gen_out *o);
void gen_binomial_reduce(struct gen_out *o);
void gen_binomial_gather(struct gen_out *o);
void gen_binomial_scatter(struct gen_out *o);
void gen_dissemination_barrier(struct gen_out *o);
void gen_dissemination_allreduce(struct gen_out *o);
void gen_dissemination_allgather(struct gen_out *o);
void gen_bruck_allgather(struct gen_out *o);
void gen_bruck_alltoall(struct gen_out *o);
void gen_ring_bcast(struct gen_out *o);
void gen_ring_allgather(struct gen_out *o);
void gen_ring_reduce_scatter(struct gen_out *o);
void gen_ring_allreduce(struct gen_out *o);
void gen_linear_bcast(struct gen_out *o);
void gen_linear_gather(struct gen_out *o);
void gen_linear_scatter(struct gen_out *o);
void gen_linear_alltoall(struct gen_out *o);
void gen_pairwise_alltoall(struct gen_out *o);
void gen_doubling_allreduce(struct gen_out *o);
void gen_halving_allreduce(struct gen_out *o);
void gen_stencil(struct gen_out *o);
void gen_pingpong(struct gen_out *o);

#endif
