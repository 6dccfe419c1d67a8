/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives between forked processes by exec/ alone: memory of the program at odd addresses,
 * which is adopted, or packed where it cannot be; waiting for a run, stepping through it, or
 * leaving it.
 */
#ifndef SLUICE_UNIT_EXEC_CASE_H
#define SLUICE_UNIT_EXEC_CASE_H

#include "exec/exec.h"
#include "ranks.h"

enum { CASE_RUNS = 4, CASE_BYTES = 2 << 20, CASE_GUARD = 4096 + 64 };

struct exec_case {
	struct ranks *r;
	struct node_group *g;
	struct exec_comm *e;
	bool is_in_place; /* the next collective's result, where that can be */
	uint64_t own; /* random numbers of this rank; those that all draw alike are the caller's */
};
extern struct exec_case exec_case;

void exec_case_begin(struct ranks *r, uint64_t seed);
void exec_case_end(void);

/* One buffer of a collective: `bytes` at addr, with guards around. */
struct case_side {
	char *addr, *used; /* used: what exec/ is given; the same, or a packed copy */
	uint64_t bytes;
	struct region_desc desc;
	struct region_extent packed;
};
/* Side 0 or 1 of the run'th collective in flight; filled with `fill`. bytes may be 0. */
void case_side_make(struct case_side *s, int run, int side, uint64_t bytes, char fill);
/* When what it brings is in it: described for the peers. */
void case_side_begin(struct case_side *s);
/* The collective is over: its result is in place, and nothing around is changed. */
void case_side_end(struct case_side *s, const char *what);

enum case_how { CASE_WAIT, CASE_STEP, CASE_LEAVE, CASE_HOWS };
/* Run them all to their ends; more than one: CASE_STEP. */
void exec_case_finish(struct exec_run **runs, int n, enum case_how how);
/* Returns: the seed of a sequence of collectives; RANDOM_SEED=N in the environment changes it. */
uint64_t exec_case_seed(uint64_t number);
/* Sleep for a moment, now and then. */
void exec_case_dawdle(void);

#endif
