/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sluice program: one binary with verbs.
 *
 *   main.c           verbs, help, version
 *   run.c            sluice run: starts a program with the preloaded library
 *   bench.c tune.c   execute tools/bench/main.py and tools/tune/main.py (script.c)
 *   check.c          sluice check: what Sluice can do for one program; check_*.c: a copy engine
 *   info.c           sluice info: collects and prints; mpi_find.c trial.c topology.c
 *   trace.c          sluice trace: trace_*.c (trace_data.h)
 *   goal.c           sluice goal: goal_*.c (goal.h)
 *   text.c           tables, JSON, spelling suggestions
 *
 * Results go to stdout, messages to stderr, each one line: "sluice: run: problem, remedy".
 */
#ifndef SLUICE_TOOL_H
#define SLUICE_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum tool_exit {
	TOOL_DONE = 0,
	TOOL_FAILED = 1,
	TOOL_MISUSE = 2,
	TOOL_CANNOT_EXECUTE = 126, /* the exit code of shells */
	TOOL_NOT_FOUND = 127,
};

/* main() of a verb; argv[0] is the verb. Returns: an exit code. */
int tool_run(int argc, char **argv);
int tool_info(int argc, char **argv);
int tool_check(int argc, char **argv);
int tool_trace(int argc, char **argv);
int tool_report(int argc, char **argv);
int tool_bench(int argc, char **argv);
int tool_tune(int argc, char **argv);
int tool_goal(int argc, char **argv);

/* Writes one line to stderr, after "sluice: ", by one write, as ranks share the terminal. */
void tool_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Executes libexec/sluice/VERB/main.py with this program's path and the arguments. Returns only on
 * failure, an exit code. */
int tool_become_script(const char *verb, int argc, char **argv);

/* Finds the preloaded library of this program, installed or in the build tree. Returns: 0 with its
 * absolute path, or -ENOENT. */
int tool_find_preload(char *out, size_t cap);

/* Returns: the word with the smallest edit distance, or NULL when none is near. */
const char *tool_nearest(const char *word, const char *const *words, size_t count);

/* Matches `arg` with "--name=rest" (*value: the rest) or "--name" (*value: NULL). */
bool tool_is_flag(const char *arg, const char *name, const char **value);

#endif
