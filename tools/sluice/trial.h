/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trial: which ways between two processes work here, by doing what Sluice does between ranks. A
 * setting that is read says what should work; only a trial says what does.
 */
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
	TRIAL_COUNT
};

struct trial {
	const char *name;
	const char *what; /* a sentence for people */
	bool works;
	char reason[192];   /* of a "no", with the kernel's words */
	const char *remedy; /* of a "no"; NULL: none that we know */
	char note[320];     /* of a "yes": which one, and why no better; "" none */
	double gbps;        /* of one copy, 0: not measured */
};

/* One of several that do the same: a kind of guard, an engine, a way to protect system calls. */
#define TRIAL_NODES 16 /* NUMA nodes whose channels are told one by one */
struct trial_way {
	char name[24], what[128];
	bool works;
	char reason[200];         /* of a "no" */
	const char *remedy;       /* of a "no"; NULL: none that we know */
	int channels[TRIAL_NODES]; /* of an engine, by node */
};

#define TRIAL_WAYS 8
struct trial_early {
	struct trial_way guards[TRIAL_WAYS], calls[TRIAL_WAYS], engines[TRIAL_WAYS],
		workers[TRIAL_WAYS];
	size_t guard_count, call_count, engine_count, worker_count;
	int nodes;           /* of `channels`, at most TRIAL_NODES */
	int spare_cpus;      /* that a program of one rank leaves to workers */
	bool is_complete;    /* false: a child ended without an answer */
	char guard[24], engine[24]; /* those that a program gets; "none" */
};

/* Runs all trials, in child processes where two are needed; a fraction of a second. */
void trial_run_all(struct trial out[TRIAL_COUNT], struct trial_early *early);

/* trial_early.c: what returning early needs: guards, and copy engines. In child processes, as a
 * guard changes signal handlers and threads. */
void trial_early_run(struct trial_early *out);

#endif
