/* SPDX-License-Identifier: BSD-3-Clause */
/* GOAL schedules of measuring programs. */
#ifndef SLUICE_BENCH_SCHEDULE_H
#define SLUICE_BENCH_SCHEDULE_H

#include <stdio.h>
#include <stdlib.h>

#include "goal/sched/sched.h"

/* Opens a schedule with one buffer, or none (NULL). Ends the program when that fails. */
static inline struct sched_inst *bench_open(struct sched_group *g, struct goal_build *b,
					    void *buffer, uint64_t bytes, uint32_t channel)
{
	uint64_t cap = goal_block_bytes(b->op_count, b->edge_count, b->segment_count);
	struct goal_block *block = malloc(cap);
	struct sched_open o = { .block = block,
				.block_bytes = cap,
				.buffers = &buffer,
				.buffer_bytes = &bytes,
				.buffer_count = buffer ? 1 : 0,
				.name = "bench",
				.channel = channel };
	struct sched_inst *s = NULL;

	if (!block || goal_compile(b, block, cap) || sched_open(g, &o, &s)) {
		fprintf(stderr, "cannot open a schedule\n");
		exit(1);
	}
	free(block);
	return s;
}

#endif
