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

/* Runs all trials, in child processes where two are needed; a fraction of a second. */
void trial_run_all(struct trial out[TRIAL_COUNT]);

/* trial_early.c: what returning early needs: a guard, and a copy engine. In a child process, as a guard
 * changes signal handlers and threads. */
void trial_early(struct trial *guard, struct trial *engine);

#endif
