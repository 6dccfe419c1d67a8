/* SPDX-License-Identifier: BSD-3-Clause */
/* run: executes a program with the library preloaded, for every verb that starts one. */
#ifndef SLUICE_TOOL_RUN_H
#define SLUICE_TOOL_RUN_H

#include <stdbool.h>

#include "preload/preload.h"

struct run_verb {
	const char *name;         /* "run": for messages */
	const char *help;
	const char *const *flags; /* all flags, NULL-terminated, for spelling suggestions */
	/* Handles a flag of the verb at arg[0]. Returns: the number of words, or 0 when it is none
	 * of the verb's flags. May be NULL. */
	int (*own_flag)(char **arg);
	/* Prepares the program's start with the library (or plain: false). Returns: 0, or an exit
	 * code after a message. May be NULL. */
	int (*prepare)(bool has_library);
	/* Returns: a library of the same folder that is preloaded before libsluice.so, or NULL. May
	 * be NULL. */
	const char *(*before)(void);
};

/* Returns: why the loader would ignore LD_PRELOAD in the program at `path`, or NULL. */
const char *run_refusal(const char *path, enum preload_target kind);

/* Does not return when the program starts. Returns: an exit code, after a message. */
int run_program(const struct run_verb *v, char **argv);
int run_wrapped(const char *program, char **argv);

#endif
