/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * goal_reference: the contents of memory after a program, found by executing it in this process,
 * one operation after the other, without time and with unlimited buffers. Also the memory that a
 * program needs: sends and receives that name none get places of their own behind the buffers that
 * are named.
 */
#ifndef SLUICE_TOOL_GOAL_REFERENCE_H
#define SLUICE_TOOL_GOAL_REFERENCE_H

#include "goal/program.h"

/* A rank's memory: one run of bytes, scratch first, then the other spaces. */
struct goal_image {
	struct goal_block *block;  /* a copy of the block in which every operation names memory */
	uint64_t bytes[GOAL_SPACES_MAX], offset[GOAL_SPACES_MAX], all;
	unsigned char *memory;     /* expected contents afterwards */
};

struct goal_reference {
	const struct goal_program *program;
	struct goal_image *images; /* by rank */
	uint32_t ranks;
	/* false: receives from any source or tag, or stamps, allow several outcomes */
	bool is_certain;
	uint32_t stuck;            /* operations that never end */
};

/* p: lives as long as the reference. Returns: 0, -ENOMEM, -E2BIG: a rank would need more than
 * `limit` bytes. */
int goal_reference_make(struct goal_reference *r, const struct goal_program *p, uint64_t limit);
/* Fills a rank's memory with the pattern. */
void goal_reference_fill(const struct goal_image *image, uint32_t rank, unsigned char *memory);
/* Executes only a program that ends and has one outcome. Returns: 0; -ENOMEM; -EOVERFLOW: too many
 * operations. */
int goal_reference_execute(struct goal_reference *r);
void goal_reference_free(struct goal_reference *r);

#endif
