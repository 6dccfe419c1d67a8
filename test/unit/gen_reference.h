/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a program of schedules does to memory: all ranks in one process, one operation after the
 * other, in an order drawn from a seed among all that the requirements permit. So a program whose
 * result depends on more than its requirements say gives different results for different seeds.
 * Messages are matched as everywhere: by sender and tag, in order.
 */
#ifndef SLUICE_TEST_GEN_REFERENCE_H
#define SLUICE_TEST_GEN_REFERENCE_H

#include "goal/goal.h"

struct reference_rank {
	const struct goal_block *block; /* verified */
	void *mem[GOAL_MEMS];           /* by space; scratch too */
	uint64_t mem_bytes[GOAL_MEMS];
};

/*
 * seed: even: a send ends when its data was taken away (eager), odd: when it has met its receive.
 * 0; -EDEADLK: something cannot go on; -EMSGSIZE: a message and its receive differ in length;
 * -EFAULT: memory that is not there; -EOPNOTSUPP: lists of pieces; -ENOMEM. Transfers without
 * memory move nothing.
 */
int reference_run(struct reference_rank *ranks, uint32_t count, uint64_t seed);

#endif
