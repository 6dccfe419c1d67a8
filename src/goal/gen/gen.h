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

/* The effect of a schedule on the data: MPI's collectives. */
enum gen_collective {
	GEN_BARRIER,        /* no rank ends before all have begun */
	GEN_BCAST,
	GEN_REDUCE,         /* at the root */
	GEN_GATHER,
	GEN_SCATTER,
	GEN_ALLGATHER,
	GEN_ALLREDUCE,
	/* each rank brings `ranks` blocks of `bytes`, gets its own block, reduced */
	GEN_REDUCE_SCATTER,
	GEN_ALLTOALL,
	GEN_NEIGHBOURS, /* block 2d: exchanged with the rank before in dimension d; 2d + 1: after */
	GEN_PINGPONG,       /* between ranks 0 and 1; other ranks do nothing */
};

struct gen_params {
	uint32_t ranks, root;
	uint64_t bytes;          /* bytes of a block, or of the vector of a reduction */
	uint64_t segment_bytes;  /* pipelines: bytes of a segment; 0: one segment */
	/* reductions: enum goal_type, enum goal_dtype; `bytes` is a multiple of an element */
	uint8_t op, dtype;
	bool periodic; /* stencils: the last rank of a dimension is a neighbour of the first */
	/* stencils; all 0: chosen as equal as possible. Their product is `ranks` */
	uint32_t dims[GEN_DIMS_MAX];
	uint32_t rounds;         /* stencils, ping-pong: number of rounds; 0: one */
	uint64_t calc_ns;        /* stencils: time of computing in each round */
};

struct gen_out;
struct gen_pattern {
	const char *name, *help, *source; /* source: the publication that describes the algorithm */
	enum gen_collective collective;
	bool by_bits; /* peers are rank xor a number, not rank + a number (sim/) */
	void (*build)(struct gen_out *out);
};
extern const struct gen_pattern gen_patterns[];
extern const uint32_t gen_pattern_count;
const struct gen_pattern *gen_find(const char *name); /* or NULL */

/*
 * Can the pattern be made with these parameters? Sets dims when they are all 0. Returns: 0; -EINVAL
 * with *why, a sentence.
 */
int gen_check(const struct gen_pattern *pattern, struct gen_params *p, const char **why);
/* Counts operations and requirements of a rank. Context: after gen_check(). */
void gen_room(const struct gen_pattern *pattern, const struct gen_params *p, uint32_t rank,
	      uint32_t *out_ops, uint32_t *out_edges);
/* Adds a rank's operations to an empty build. goal_compile() returns the error when the build has
 * no room. */
void gen_build(const struct gen_pattern *pattern, const struct gen_params *p, uint32_t rank,
	       struct goal_build *b);
/* Computes the sizes of GOAL_USER + 0 and + 1 of a rank. */
void gen_memory(const struct gen_pattern *pattern, const struct gen_params *p, uint32_t rank,
		uint64_t *out_send_bytes, uint64_t *out_recv_bytes);

#endif
