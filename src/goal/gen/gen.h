/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gen: the usual collectives as schedules (goal/): for any number of ranks, any root, any size, one
 * rank's side at a time, in time proportional to that rank's operations. Pure: allocates nothing,
 * communicates nothing, needs no libc.
 *
 *   gen_check(&p)                              can there be such a schedule?
 *   gen_room(&p, rank, &ops, &edges)           how large is this rank's side?
 *   gen_build(&p, rank, &b); goal_compile(&b)  make it
 *
 * Memory: GOAL_USER + 0 is what a rank brings, GOAL_USER + 1 what it gets, and GOAL_SCRATCH the
 * rest; gen_memory() says how much of each. A broadcast has one buffer, GOAL_USER + 0. Blocks stand
 * in rank order, `bytes` each; of reductions `bytes` is the whole vector. What a rank brings is
 * never written.
 *
 *   pattern.c        the table of patterns       linear.c      everyone with everyone
 *   tree.c           binomial trees              exchange.c    recursive doubling and halving
 *   dissemination.c  dissemination              neighbour.c   stencils, ping-pong
 *   bruck.c          Bruck                      ring.c        rings and pipelines
 *
 * Messages between two ranks of one schedule never overtake: each step has a tag of its own.
 */
#ifndef SLUICE_GEN_H
#define SLUICE_GEN_H

#include <stdbool.h>
#include <stdint.h>

#include "goal/goal.h"

#define GEN_SEND ((uint16_t)GOAL_USER)
#define GEN_RECV ((uint16_t)(GOAL_USER + 1))
#define GEN_DIMS_MAX 3

/* What a schedule does to the data: MPI's collectives. */
enum gen_collective {
	GEN_BARRIER,        /* nobody ends before all have begun */
	GEN_BCAST,
	GEN_REDUCE,         /* at the root */
	GEN_GATHER,
	GEN_SCATTER,
	GEN_ALLGATHER,
	GEN_ALLREDUCE,
	GEN_REDUCE_SCATTER, /* brings `ranks` blocks of `bytes`, gets its own, reduced */
	GEN_ALLTOALL,
	GEN_NEIGHBOURS,     /* block 2d: with the rank before in dimension d; 2d + 1: after */
	GEN_PINGPONG,       /* ranks 0 and 1; the others have nothing to do */
};

struct gen_params {
	uint32_t ranks, root;
	uint64_t bytes;          /* of a block, or of the vector of a reduction */
	uint64_t segment_bytes;  /* pipelines: of a piece; 0: all in one */
	uint8_t op,
		dtype; /* reductions: enum goal_type, enum goal_dtype; `bytes` are whole elements */
	bool periodic;           /* stencils: the last is a neighbour of the first */
	uint32_t dims[GEN_DIMS_MAX]; /* stencils; all 0: as equal as possible. Their product is
					`ranks` */
	uint32_t rounds;         /* stencils, ping-pong: so often; 0: once */
	uint64_t calc_ns;        /* stencils: computes so long in each round */
};

struct gen_out;
struct gen_pattern {
	const char *name, *help, *source; /* source: who described the algorithm */
	enum gen_collective collective;
	bool by_bits; /* peers are rank xor something, rather than rank + something (sim/) */
	void (*build)(struct gen_out *out);
};
extern const struct gen_pattern gen_patterns[];
extern const uint32_t gen_pattern_count;
const struct gen_pattern *gen_find(const char *name); /* or NULL */

/*
 * Are these parameters such that the pattern can be made? 0, or -EINVAL with *why, a sentence. Sets
 * dims when they are all 0.
 */
int gen_check(const struct gen_pattern *pattern, struct gen_params *p, const char **why);
/* Operations and requirements of the rank's side. After gen_check(). */
void gen_room(const struct gen_pattern *pattern, const struct gen_params *p, uint32_t rank,
	      uint32_t *out_ops, uint32_t *out_edges);
/* Adds them to an empty build. Errors, of room only, are kept in it until goal_compile(). */
void gen_build(const struct gen_pattern *pattern, const struct gen_params *p, uint32_t rank,
	       struct goal_build *b);
/* Bytes that the rank must have of GOAL_USER + 0 and + 1. */
void gen_memory(const struct gen_pattern *pattern, const struct gen_params *p, uint32_t rank,
		uint64_t *out_send_bytes, uint64_t *out_recv_bytes);

#endif
