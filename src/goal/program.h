/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program: the schedules of all ranks, as one run of bytes that can be a file and be mapped.
 *
 *   | goal_program | block 0 | block 1 | ... | offsets of the blocks | each rank's block |
 *
 * The tables come last, so that a writer needs no block but the one that it writes: millions of
 * ranks stream through. Ranks that do the same may share a block. Blocks begin at multiples of 64
 * bytes, gaps are zero. Opening a program file (goalfile/) verifies it; nothing of it is believed
 * before.
 */
#ifndef SLUICE_GOAL_PROGRAM_H
#define SLUICE_GOAL_PROGRAM_H

#include "goal/goal.h"

#define GOAL_PROGRAM_MAGIC 0x474f52504c414f47ull /* "GOALPROG" */
#define GOAL_PROGRAM_VERSION 1u
#define GOAL_PROGRAM_PACKED  2u /* version of a file in packed form, see goal/file/ */
#define GOAL_PROGRAM_ALIGN 64u

struct goal_program {
	uint64_t magic;
	uint32_t version, ranks;
	uint64_t bytes;       /* length of the whole program */
	uint64_t offsets_off; /* uint64_t [block_count]: offset of each block, ascending */
	uint32_t block_count; /* uint32_t [ranks]: number of each rank's block; padded to 8 bytes */
	uint32_t most_ops;    /* operations of the largest block */
	uint64_t reserved[3]; /* 0 */
};

_Static_assert(sizeof(struct goal_program) == 64, "sluice-goal(5)");

static inline uint64_t goal_program_align(uint64_t bytes)
{
	return (bytes + GOAL_PROGRAM_ALIGN - 1) & ~(uint64_t)(GOAL_PROGRAM_ALIGN - 1);
}
static inline const uint64_t *goal_program_offsets(const struct goal_program *p)
{
	return (const uint64_t *)((const char *)p + p->offsets_off);
}
/* Returns: the number of a rank's block. */
static inline const uint32_t *goal_program_numbers(const struct goal_program *p)
{
	return (const uint32_t *)(goal_program_offsets(p) + p->block_count);
}
static inline uint64_t goal_program_tables_bytes(uint32_t blocks, uint32_t ranks)
{
	return (uint64_t)blocks * sizeof(uint64_t) +
	       ((uint64_t)ranks + ranks % 2) * sizeof(uint32_t);
}
/* Returns: the schedule of a rank below p->ranks. */
static inline const struct goal_block *goal_program_block(const struct goal_program *p,
							  uint32_t rank)
{
	return (const struct goal_block *)((const char *)p +
					   goal_program_offsets(p)[goal_program_numbers(p)[rank]]);
}

/*
 * Verifies a program: everything lies inside, and each block is valid for a group of p->ranks.
 * Sends and receives may name no memory. The caller compares later how much memory blocks need
 * (goal_extents()). p: any bytes. work: [p->most_ops]; goal_program_verify_header() must have
 * accepted most_ops. Returns: 0; -EINVAL with the block in *out_block, or GOAL_NONE when no single
 * block is wrong.
 */
int goal_program_verify_header(const struct goal_program *p, uint64_t bytes);
int goal_program_verify(const struct goal_program *p, uint64_t bytes, uint32_t *work,
			uint32_t *out_block);

#endif
