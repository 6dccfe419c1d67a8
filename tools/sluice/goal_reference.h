/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * goal_reference: what a program leaves in memory, found by executing it in this process, one
 * operation after the other, without time and with unlimited buffers. Also the memory that a
 * program needs: sends and receives that name none get places of their own behind the buffers that
 * are named.
 */
#ifndef SLUICE_TOOL_GOAL_REFERENCE_H
#define SLUICE_TOOL_GOAL_REFERENCE_H

#include "goal/program.h"

/* A rank's memory: one run of bytes, its spaces one behind the other; scratch is the first. */
struct goal_image {
	struct goal_block *block;  /* a copy in which everything names memory */
	uint64_t bytes[GOAL_SPACES_MAX], offset[GOAL_SPACES_MAX], all;
	unsigned char *memory;     /* what it must be afterwards */
};

struct goal_reference {
	struct goal_image *images; /* by rank */
	uint32_t ranks;
	bool is_certain; /* false: receives from any rank or tag, or stamps: more than one outcome
			    is right */
	uint32_t stuck;            /* operations that never end */
};

/* 0, -ENOMEM, -E2BIG: a rank would need more than `limit` bytes. */
int goal_reference_make(struct goal_reference *r, const struct goal_program *p, uint64_t limit);
/* What rank's memory holds before. */
void goal_reference_fill(const struct goal_image *image, uint32_t rank, unsigned char *memory);
/* 0 or -ENOMEM. */
int goal_reference_execute(struct goal_reference *r);
void goal_reference_free(struct goal_reference *r);

#endif
