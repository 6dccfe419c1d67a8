/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * api: what programs may call, include/sluice/goal.h, made of the folders below. The only folder
 * whose functions are exported (sluice_X) besides mpi/ and the version. Contracts are in the public
 * headers.
 */
#ifndef SLUICE_API_H
#define SLUICE_API_H

#include "goal/goal.h"
#include "sluice/goal.h"

#define API_EXPORT __attribute__((visibility("default")))

/* A verified block and the extents that it names. */
struct sluice_goal_schedule {
	struct goal_block *block;
	uint32_t ranks;
	uint64_t extents[GOAL_SPACES_MAX]; /* goal_extents() */
};

/* Verifies a block and takes ownership of it. Returns: 0 with *out, -EINVAL, -ENOMEM. */
int api_schedule(struct goal_block *block, uint64_t bytes, uint32_t ranks,
		 struct sluice_goal_schedule **out);

/* Once the program has initialized MPI: makes waits inside it call sched_poll(). */
void api_poll_in_mpi(void);

#endif
