/* SPDX-License-Identifier: BSD-3-Clause */
/* trial: tests which ways between two processes work, by the same calls that Sluice makes between
 * ranks. A configuration value shows what should work; a trial shows what does. */
#ifndef SLUICE_TOOL_TRIAL_H
#define SLUICE_TOOL_TRIAL_H

#include <stdbool.h>
#include <stddef.h>

enum {
	TRIAL_ARENA,
	TRIAL_CMA_READ,
	TRIAL_CMA_WRITE,
	TRIAL_STAGED,
	TRIAL_HUGE,
	TRIAL_MAPS,
	TRIAL_GUARD,
	TRIAL_ENGINE,
	TRIAL_ENDPOINTS,
	TRIAL_SWITCH,
	TRIAL_COUNT
};

struct trial {
	const char *name;
	const char *what; /* a sentence for users */
	bool works;
	char reason[192];   /* why not, with the kernel's words */
	const char *remedy; /* what to do; NULL: unknown */
	char note[320];     /* which one works, and why no better one does; "": none */
	double gbps;        /* of one copy; 0: not measured */
};

/* One of several alternatives: a kind of guard, an engine, a way to protect system calls. */
#define TRIAL_NODES 16 /* NUMA nodes whose channels are listed */
struct trial_way {
	char name[24], what[128];
	bool works;
	char reason[200];         /* why not */
	const char *remedy;       /* what to do; NULL: unknown */
	int channels[TRIAL_NODES]; /* of an engine, by NUMA node */
};

#define TRIAL_WAYS 8
struct trial_early {
	struct trial_way guards[TRIAL_WAYS], calls[TRIAL_WAYS], engines[TRIAL_WAYS],
		workers[TRIAL_WAYS];
	size_t guard_count, call_count, engine_count, worker_count;
	int nodes;           /* entries of `channels`, at most TRIAL_NODES */
	int unused_cpus;     /* CPUs that a program of one rank leaves to worker threads */
	bool is_complete;    /* false: a child ended without a result */
	char guard[24], engine[24]; /* the choices for a program; "none" */
};

/* Runs all trials, with child processes where two are needed, in a fraction of a second. */
void trial_run_all(struct trial out[TRIAL_COUNT], struct trial_early *early);

/* trial_early.c: the requirements of early return: guards and copy engines. In child processes, as
 * a guard changes signal handlers and threads. */
void trial_early_run(struct trial_early *out);

/* trial_pair.c: access between two processes. */
struct trial_pair {
	char arena[160]; /* "": works; else the reason */
	char vm_read[160], vm_write[160];
	double vm_read_gbps, arena_gbps;
};
/* Forks two processes, which make a node group. Returns: 0, or -errno when the trial itself failed,
 * with the reason in *out. Context: single-threaded processes only. */
int trial_pair_run(struct trial_pair *out);

#endif
