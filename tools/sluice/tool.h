/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sluice program: one binary, a verb for each job.
 *
 *   main.c    the verbs, help, version
 *   run.c     sluice run: start a program with the preloaded library
 *   bench.c tune.c   become tools/bench/main.py, tools/tune/main.py (script.c)
 *   info.c    sluice info: collect, print; its parts: mpi_find.c trial.c topology.c
 *   goal.c    sluice goal: its verbs, goal_*.c (goal.h)
 *   text.c    tables, JSON, nearest words
 *
 * Results go to stdout, messages to stderr, one line each: "sluice: run: what, and what to do".
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
	TOOL_CANNOT_EXECUTE = 126, /* what shells return */
	TOOL_NOT_FOUND = 127,
};

/* A verb's main; argv[0] is the verb. Returns an exit code. */
int tool_run(int argc, char **argv);
int tool_info(int argc, char **argv);
int tool_trace(int argc, char **argv);
int tool_bench(int argc, char **argv);
int tool_tune(int argc, char **argv);
int tool_goal(int argc, char **argv);

/* One line on stderr, "sluice: " before it, in one write: ranks share the terminal. */
void tool_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* This process becomes libexec/sluice/VERB/main.py, which gets this program's path and then the
 * arguments. Returns only when that cannot be, with an exit code. */
int tool_become_script(const char *verb, int argc, char **argv);

/* Absolute path of the preloaded library that belongs to this program: installed beside it, or in
 * the build tree. 0 or -ENOENT. */
int tool_find_preload(char *out, size_t cap);

/* The nearest of `count` words by edits, or NULL when none is near. */
const char *tool_nearest(const char *word, const char *const *words, size_t count);

/* True, and the rest of the word in *value, for `arg` = "--name=rest"; also for "--name" with
 * *value = NULL. */
bool tool_is_flag(const char *arg, const char *name, const char **value);

#endif
