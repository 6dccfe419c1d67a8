/* SPDX-License-Identifier: BSD-3-Clause */
/* run: becoming a program with the library preloaded, for all verbs that start one. */
#ifndef SLUICE_TOOL_RUN_H
#define SLUICE_TOOL_RUN_H

#include <stdbool.h>

struct run_verb {
	const char *name;         /* "run": in messages, and in what they say to write */
	const char *help;
	const char *const *flags; /* all, NULL-terminated: for words that are none */
	/* A flag of the verb's own at arg[0]: how many words it takes; 0: it is none of its own.
	 * May be NULL. */
	int (*own_flag)(char **arg);
	/* The program is about to run, with the library (or plain: false). 0, or the exit code with
	 * which it does not; told. May be NULL. */
	int (*prepare)(bool has_library);
};

/* Does not return when the program runs. Else: an exit code, told. */
int run_program(const struct run_verb *v, char **argv);

#endif
