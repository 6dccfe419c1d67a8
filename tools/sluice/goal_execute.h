/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * goal_execute: runs a program with all its ranks as processes of this machine, and measures the
 * runs. The ranks are forked here, or are those of mpiexec, of which this process is one.
 */
#ifndef SLUICE_TOOL_GOAL_EXECUTE_H
#define SLUICE_TOOL_GOAL_EXECUTE_H

#include <stdatomic.h>

#include "goal/sched/sched.h"
#include "goal_reference.h"

#define GOAL_EXECUTE_RANKS_MAX 256u
#define GOAL_EXECUTE_TIMES_MAX 100000u

/* One rank's results, in memory that the ranks share with the first process. */
struct goal_result {
	int error;              /* 0, -errno, or 1: memory is wrong */
	int ended_by;           /* signal that killed it; 0: none, or this tool's own */
	uint32_t wrong_mem;
	uint64_t wrong_off;
	uint32_t runs_done;
	char refusal[200];      /* why the ranks cannot form a group */
};

/* When a rank began and ended a run, by the clock that all share. */
struct goal_interval {
	uint64_t begin_ns, end_ns;
};

struct goal_execution {
	const struct goal_program *program;
	uint32_t times;
	uint64_t warm_ns; /* each rank, on a CPU of its own, writes its memory before the runs */
	uint32_t warm; /* first runs that durations leave out; less than times */
	bool verify, ops;
	struct goal_reference reference;
	struct goal_result *results;  /* by rank */
	struct goal_interval *intervals; /* [rank][times]; under mpiexec of the own rank only */
	struct sched_times **times_of_ops; /* by rank, of the last run; NULL: ops is false */
	_Atomic uint32_t *arrived;    /* at the start of a run; NULL: ranks of mpiexec */
	char group[48];
};

/* Makes the reference, whose memory the ranks use. Returns: 0; -ENOMEM; -E2BIG: a rank would need
 * more than 1 GiB. */
int goal_execution_prepare(struct goal_execution *x);
/* Forks all ranks and waits for them. Returns: 0, also when a rank failed; -ENOMEM; another -errno
 * of fork(), with the rank that could not be started in *out_rank. */
int goal_execute_all(struct goal_execution *x, uint32_t *out_rank);
/* Runs one rank in this process; the others are processes with the same parent. Returns: 0, also
 * when it failed; -ENOMEM. */
int goal_execute_rank(struct goal_execution *x, uint32_t rank);
/* Did a rank fail because another one did? */
bool goal_is_consequence(int error);
void goal_execution_free(struct goal_execution *x);

/* Least, 10 %, median and 90 % of all runs but the first `warm`, in ns; 0 without a run. */
struct goal_durations {
	uint64_t least, low, median, high;
};
/* From the beginning of a run, when the last rank had come, to the end of this rank. Returns: 0 or
 * -ENOMEM. */
int goal_durations_of(const struct goal_execution *x, uint32_t rank, struct goal_durations *out);
/* As goal_durations_of(), to the end of the last rank. */
int goal_durations_all(const struct goal_execution *x, struct goal_durations *out);

#endif
