/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sluice goal: schedules in files. A file for each of its verbs:
 *
 *   goal.c         the verbs, what their command lines share
 *   goal_input.c   a file, text or program, becomes a program in memory; goal_problems.c: problems
 *   goal_check.c   mistakes: of a text, and across ranks (goal_flow.c: execution without time)
 *   goal_print.c   print and compile: between the two forms
 *   goal_merge.c   several programs on one machine
 *   goal_gen.c     collectives by pattern; goal_pattern.c: their options
 *   goal_sim.c     the simulator; its parts: goal_sim.h
 *   goal_run.c     as processes; goal_reference.c: what they must leave in memory; goal_replay.c
 *   goal_draw.c    pictures; goal_layout.c: what stands where; goal_svg.c, goal_dot.c
 *
 * A verb of yours: its file, its line in goal.c, its main below.
 */
#ifndef SLUICE_TOOL_GOAL_H
#define SLUICE_TOOL_GOAL_H

#include "goal/program.h"
#include "goal/file/goalfile.h"
#include "goal/text/text.h"
#include "tool.h"

/* Mains of verbs; argv[0] is the verb. Each returns an exit code. */
int goal_check_main(int argc, char **argv);
int goal_print_main(int argc, char **argv);
int goal_compile_main(int argc, char **argv);
int goal_gen_main(int argc, char **argv);
int goal_merge_main(int argc, char **argv);
int goal_sim_main(int argc, char **argv);
int goal_draw_main(int argc, char **argv);
int goal_run_main(int argc, char **argv);

/* goal_replay.c. Returns: ns of each traced rank; NULL after a message. Owner: the caller. */
uint64_t *goal_replay_read(const char *path, uint32_t ranks);
void goal_replay_print(uint64_t traced_ns, uint64_t run_ns, bool json);

/* goal_loggopsim.c: as text for txt2bin; as binary. Each returns an exit code, after a message
 * unless it is TOOL_DONE; the caller looks at ferror(out). */
int goal_loggopsim_print(const struct goal_program *p, FILE *out);
int goal_loggopsim_write(const struct goal_program *p, FILE *out);

/* error: a negative errno. Returns: why, for a message; a limit of address space is named. Valid
 * until the next call. */
const char *goal_why(int error);

/* ---- command lines ----------------------------------------------------------------------- */

/*
 * Parses the next option of a verb's command line: "--name=value", "--name value", "-o value".
 * names: ends with NULL; a name that ends with '=' takes a value. *at: index in argv, advanced.
 * Returns: the index in names; GOAL_ARG_WORD for a word that is no option (in *value; "-" is a
 * word); GOAL_ARG_END; GOAL_ARG_WRONG after a message.
 */
enum { GOAL_ARG_END = -1, GOAL_ARG_WORD = -2, GOAL_ARG_WRONG = -3 };
int goal_next_arg(const char *verb, const char *const *names, char **argv, int *at,
		  const char **value);
/* Parses a decimal number from least to most. Returns: 0 or -EINVAL; then *out is unchanged. */
int goal_parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *out);
/* Parses the command line of a verb that takes one file, -o and --loggopsim; *out may be NULL.
 * Returns: an exit code, or -1: go on. */
int goal_file_args(const char *verb, const char *help, char **argv, const char **file,
		   const char **out, bool *loggopsim);

/* For text_print(): ctx is a FILE. */
int goal_write_text(void *ctx, const char *text, size_t bytes);

/* ---- files ------------------------------------------------------------------------------- */

/* A problem and its place. */
struct goal_problem {
	uint64_t line;          /* 0: of the whole file */
	uint32_t column, bytes; /* 0: of the whole line */
	char *message, *text;   /* text: the line, or NULL */
	char *notes;            /* further lines, each with its newline; or NULL */
};
struct goal_problems {
	struct goal_problem *all;
	size_t count, cap;
	bool more; /* problems found, listed or not */
};
void goal_problem_add(struct goal_problems *list, uint64_t line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Prints "sched.goal:3:9: message", the line and a caret on stderr. */
void goal_problems_print(const struct goal_problems *list, const char *name);
void goal_problems_free(struct goal_problems *list);

/* Where the operations of a rank stand in the text. */
struct goal_places {
	struct text_place *all; /* by operation, in the block's order */
	char *labels;
};

/* A program in memory. Owner: the caller of goal_input_open(). */
struct goal_input {
	const char *name;                   /* in messages */
	const struct goal_program *program; /* verified */
	struct goal_places *places;         /* [ranks]; NULL: not requested, or not a text */
	uint32_t place_count;
	struct goal_problems problems;      /* problems of the text */
	char *why;                          /* the message by which it was refused; or NULL */
	size_t bytes;                       /* bytes of the mapping of a program that was read */
	struct goalfile file;               /* a program file that was mapped */
};
/*
 * Opens a text or a program; "-" is standard input. with_places: keep where operations stand.
 * Returns: TOOL_DONE; TOOL_FAILED after a message, or with in->problems, which are not printed.
 */
int goal_input_open(struct goal_input *in, const char *verb, const char *path, bool with_places);
/* As goal_input_open() with places, but hands each rank of a text over and keeps no program of it;
 * of a program file, all ranks in order. */
int goal_input_stream(struct goal_input *in, const char *verb, const char *path,
		      const struct goalfile_calls *to, void *ctx);
void goal_input_close(struct goal_input *in);
/* Says why a file is refused, and keeps it in in->why. verb: of sluice goal, or "trace". Returns:
 * TOOL_FAILED. */
int goal_input_refuse(struct goal_input *in, const char *verb, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* As goal_input_open(), and prints the problems. */
int goal_input_need(struct goal_input *in, const char *verb, const char *path);
/* As goal_input_need(), but writes a text to the file to_path rank by rank, in bounded memory; then
 * in->program is NULL. */
int goal_input_compile(struct goal_input *in, const char *verb, const char *path,
		       const char *to_path);

#endif
