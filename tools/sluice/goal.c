/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/base.h"
#include "goal.h"

static const char help_head[] =
	"usage: sluice goal VERB ...\n"
	"\n"
	"Works on schedules in files: the operations of each rank (send, receive,\n"
	"compute) and their order. FILE is a text (man sluice-goal-text) or a compiled\n"
	"program; - is standard input.\n"
	"\n";

static const char help_tail[] =
	"\n"
	"Examples:\n"
	"  echo 'num_ranks 1; rank 0 { l1: calc 5 }' | sluice goal check -\n"
	"\n"
	"More: sluice goal VERB --help, man sluice-goal\n";

static const struct {
	const char *name, *args, *help;
	int (*main)(int argc, char **argv);
} verbs[] = {
	{ "check", "FILE...", "report mistakes, also across ranks: deadlocks ...",
	  goal_check_main },
	{ "print", "FILE", "print as text", goal_print_main },
	{ "compile", "FILE -o OUT", "compile to a program, which loads fast", goal_compile_main },
	{ "draw", "FILE -o OUT", "draw as a picture", goal_draw_main },
	{ "gen", "PATTERN", "write a usual collective, for any number of ranks", goal_gen_main },
	{ "merge", "FILE...", "several programs on one machine, placed", goal_merge_main },
	{ "run", "FILE", "run all ranks as processes of this machine", goal_run_main },
	{ "sim", "FILE | PATTERN", "compute when each rank ends, on other machines",
	  goal_sim_main },
};

const char *goal_why(int error)
{
	static char limited[80];
	struct rlimit limit;

	if (error != -ENOMEM || getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return strerror(-error);
	snprintf(limited, sizeof limited,
		 "out of memory: ulimit -v allows %llu KiB of address space",
		 (unsigned long long)limit.rlim_cur >> 10);
	return limited;
}

/* ---- command lines ---------------------------------------------------------------------- */

/* "--name" for "--name=" */
static bool is_name(const char *arg, const char *name, size_t *out_bytes)
{
	size_t bytes = strcspn(name, "=");

	*out_bytes = bytes;
	return !strncmp(arg, name, bytes) && (!arg[bytes] || arg[bytes] == '=');
}

static int unknown(const char *verb, const char *const *names, const char *arg)
{
	char word[64], bare[64][32];
	const char *list[64], *nearest;
	size_t count = 0;

	for (; names[count] && count < BASE_ARRAY_LEN(list); count++) {
		snprintf(bare[count], sizeof bare[count], "%.*s", (int)strcspn(names[count], "="),
			 names[count]);
		list[count] = bare[count];
	}
	snprintf(word, sizeof word, "%.*s", (int)strcspn(arg, "="), arg);
	nearest = tool_nearest(word, list, count);
	tool_say("goal %s: there is no option '%s'%s%s%s", verb, word,
		 nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
	return GOAL_ARG_WRONG;
}

int goal_next_arg(const char *verb, const char *const *names, char **argv, int *at,
		  const char **value)
{
	const char *arg = argv[*at];
	size_t bytes;

	*value = arg;
	if (!arg)
		return GOAL_ARG_END;
	++*at;
	if (arg[0] != '-' || !arg[1])
		return GOAL_ARG_WORD;
	for (int i = 0; names[i]; i++) {
		bool needs_value = strchr(names[i], '=') != NULL;

		if (!is_name(arg, names[i], &bytes))
			continue;
		*value = arg[bytes] ? arg + bytes + 1 : NULL;
		if (needs_value && !*value)
			*value = argv[*at] ? argv[(*at)++] : NULL;
		if (needs_value == (*value != NULL))
			return i;
		tool_say("goal %s: %.*s %s", verb, (int)bytes, arg,
			 needs_value ? "needs a value" : "takes no value");
		return GOAL_ARG_WRONG;
	}
	return unknown(verb, names, arg);
}

int goal_parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n < least || n > most)
		return -EINVAL;
	*out = n;
	return 0;
}

int goal_write_text(void *ctx, const char *text, size_t bytes)
{
	errno = EIO;
	return fwrite(text, 1, bytes, ctx) == bytes ? 0 : -errno;
}

int goal_file_args(const char *verb, const char *help, char **argv, const char **file,
		   const char **out, bool *loggopsim)
{
	static const char *const names[] = { "--help", "-h", "-o=", "--loggopsim", NULL };
	const char *value;
	int at = 1, arg;

	*file = *out = NULL;
	*loggopsim = false;
	while ((arg = goal_next_arg(verb, names, argv, &at, &value)) != GOAL_ARG_END) {
		if (arg == GOAL_ARG_WRONG)
			return TOOL_MISUSE;
		if (arg == 0 || arg == 1) {
			fputs(help, stdout);
			return TOOL_DONE;
		}
		if (arg == 3) {
			*loggopsim = true;
			continue;
		}
		if (arg == 2 ? *out != NULL : *file != NULL) {
			tool_say("goal %s: one %s only, not also '%s'", verb,
				 arg == 2 ? "-o" : "file", value);
			return TOOL_MISUSE;
		}
		*(arg == 2 ? out : file) = value;
	}
	if (*file)
		return -1;
	tool_say("goal %s: no FILE; see: sluice goal %s --help", verb, verb);
	return TOOL_MISUSE;
}

/* ---- verbs ------------------------------------------------------------------------------ */

static void print_help(FILE *out)
{
	fputs(help_head, out);
	for (size_t i = 0; i < BASE_ARRAY_LEN(verbs); i++)
		fprintf(out, "  %-8s%-16s%s\n", verbs[i].name, verbs[i].args, verbs[i].help);
	fputs(help_tail, out);
}

static int unknown_verb(const char *word)
{
	const char *names[BASE_ARRAY_LEN(verbs)], *nearest;

	for (size_t i = 0; i < BASE_ARRAY_LEN(verbs); i++)
		names[i] = verbs[i].name;
	nearest = tool_nearest(word, names, BASE_ARRAY_LEN(names));
	tool_say("goal: there is no verb '%s'%s%s%s; see: sluice goal --help", word,
		 nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
	return TOOL_MISUSE;
}

/* Ranks are compiled one after the other, each in memory of megabytes. Given back to the kernel in
 * between, it is cleared and mapped again for each: a seventh of the time of a simulation. */
static void keep_memory(void)
{
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the most that the C library takes */
	mallopt(M_TOP_PAD, 1 << 20);
}

int tool_goal(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return TOOL_MISUSE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_help(stdout);
		return TOOL_DONE;
	}
	keep_memory();
	for (size_t i = 0; i < BASE_ARRAY_LEN(verbs); i++)
		if (!strcmp(argv[1], verbs[i].name))
			return verbs[i].main(argc - 1, argv + 1);
	return unknown_verb(argv[1]);
}
