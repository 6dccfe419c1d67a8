/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reference execution of a program of schedules: all ranks in one process, one operation after the
 * other. A seed draws the order among all orders that the requirements permit, so that a program
 * whose result depends on a missing requirement gives different results for different seeds.
 * Messages match by sender and tag, in order.
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
