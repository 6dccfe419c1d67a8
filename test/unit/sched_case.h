/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the tests of sched/: a group of forked ranks, and schedules made in one line. */
#ifndef SLUICE_UNIT_SCHED_CASE_H
#define SLUICE_UNIT_SCHED_CASE_H

#include "ranks.h"
#include "goal/sched/sched.h"

#define CASE_OPS 4096

/* A schedule under construction, and its buffers. */
struct plan {
	struct goal_build build;
	struct goal_op ops[CASE_OPS];
	struct goal_edge edges[2 * CASE_OPS];
	struct goal_segment segments[CASE_OPS];
	struct goal_block *block;
	void *buffers[4];
	uint64_t bytes[4];
	uint32_t count, channel;
	unsigned flags;
};

void plan_init(struct plan *p);
/* Opens the schedule and CHECKs that it worked. */
struct sched_inst *plan_open(struct plan *p, struct sched_group *g);
/* Opens a schedule of two ranks: rank 1 sends, rank 0 receives, then writes the time to stamp[0].
 * stamp: 16 bytes. */
struct sched_inst *plan_open_stamp(struct plan *p, struct sched_group *g, _Atomic uint64_t *stamp);
/* Returns: the group of the ranks; CHECKs that there is one. */
struct sched_group *case_group(struct ranks *r);
/* Uses a CPU for so long. */
void case_compute(uint64_t ns);
/* Byte i of the message with this number. */
static inline unsigned char case_byte(uint64_t number, uint64_t i)
{
	return (unsigned char)(number * 31 + i * 7 + i / 251);
}
void case_fill(void *buf, uint64_t bytes, uint64_t number);
/* Returns: the position of the first wrong byte, or -1. */
int64_t case_wrong(const void *buf, uint64_t bytes, uint64_t number);

#endif
