/* SPDX-License-Identifier: BSD-3-Clause */
/* sluice goal gen: writes usual collectives as text or as a program, rank by rank. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal.h"
#include "goal_pattern.h"
#include "text.h"

static const char help_head[] =
	"usage: sluice goal gen PATTERN -n N [-s SIZE] [OPTION]... [-o OUT]\n"
	"       sluice goal gen --list\n"
	"\n"
	"Writes a collective as a schedule for any number of ranks, any root and size.\n"
	"Buffer `user 0` is a rank's input, `user 1` its output.\n"
	"\n";

static const char help_tail[] =
	"  -o OUT            write to OUT; - is standard output\n"
	"  --program         write a compiled program instead of text; needs -o\n"
	"  --list            list all patterns and the papers that describe them\n"
	"\n"
	"Examples:\n"
	"  sluice goal gen binomial-bcast -n 16 -s 1M --root 3\n"
	"  sluice goal gen stencil-3d -n 64 -s 64K --periodic --rounds 10 -o stencil.goal\n"
	"  sluice goal gen dissemination-allreduce -n 100000 -s 8 --program -o allreduce\n"
	"\n"
	"Exit code: 0 done; 1 OUT cannot be written; 2 misuse. More: man sluice-goal-sim\n";

static int print_list(void)
{
	struct text_table t = { NULL };

	for (uint32_t i = 0; i < gen_pattern_count; i++)
		text_table_row(&t, gen_patterns[i].name, gen_patterns[i].help,
			       gen_patterns[i].source, NULL);
	text_table_print(&t, "", stdout);
	text_table_free(&t);
	return TOOL_DONE;
}

static int write_text(const struct goal_pattern *g, const char *path)
{
	FILE *out = path && strcmp(path, "-") ? fopen(path, "we") : stdout;
	const struct goal_block *block;
	struct goal_maker m = { NULL };
	int ret = out ? text_print_head(g->params.ranks, goal_write_text, out) : -errno;

	for (uint32_t r = 0; r < g->params.ranks && !ret; r++) {
		ret = goal_maker_block(&m, g, r, &block);
		if (!ret)
			ret = text_print(r, block, goal_write_text, out);
	}
	goal_maker_free(&m);
	if (out && out != stdout && fclose(out) && !ret)
		ret = -errno;
	return ret;
}

static int write_program(const struct goal_pattern *g, const char *path)
{
	struct goalfile_writer *w;
	const struct goal_block *block;
	struct goal_maker m = { NULL };
	uint32_t number;
	int ret = goalfile_create(path, g->params.ranks, &w);

	if (ret)
		return ret;
	for (uint32_t r = 0; r < g->params.ranks && !ret; r++) {
		ret = goal_maker_block(&m, g, r, &block);
		if (!ret)
			ret = goalfile_add(w, block, &number);
		if (!ret)
			ret = goalfile_assign(w, r, number);
	}
	goal_maker_free(&m);
	if (!ret)
		return goalfile_finish(w);
	goalfile_abandon(w);
	return ret;
}

static int misuse(const char *what)
{
	tool_say("goal gen: %s; see: sluice goal gen --help", what);
	return TOOL_MISUSE;
}

static int set_pattern(struct goal_pattern *g, const char *word)
{
	if (g->pattern)
		return misuse("one pattern only");
	g->pattern = gen_find(word);
	if (g->pattern)
		return TOOL_DONE;
	goal_pattern_unknown("gen", word);
	return TOOL_MISUSE;
}

static int generate(struct goal_pattern *g, const char *out, bool is_program)
{
	int ret;

	if (!g->pattern)
		return misuse("no pattern");
	ret = goal_pattern_check(g, "gen");
	if (ret)
		return ret;
	if (is_program && (!out || !strcmp(out, "-")))
		return misuse("--program needs -o OUT");
	ret = is_program ? write_program(g, out) : write_text(g, out);
	if (!ret)
		return TOOL_DONE;
	tool_say("goal gen: cannot write %s: %s", out ? out : "standard output", goal_why(ret));
	return TOOL_FAILED;
}

int goal_gen_main(int argc, char **argv)
{
	enum { OUT = GOAL_PATTERN_OPTION_COUNT, PROGRAM, LIST, HELP, H };
	static const char *const names[] = {
		GOAL_PATTERN_OPTIONS, "-o=", "--program", "--list", "--help", "-h", NULL
	};
	const char *value, *out = NULL;
	struct goal_pattern g;
	bool is_program = false;
	int at = 1, arg, ret = TOOL_DONE;

	goal_pattern_init(&g);
	while (!ret && (arg = goal_next_arg("gen", names, argv, &at, &value)) != GOAL_ARG_END) {
		if (arg == GOAL_ARG_WRONG)
			return TOOL_MISUSE;
		if (arg == GOAL_ARG_WORD)
			ret = set_pattern(&g, value);
		else if (arg < GOAL_PATTERN_OPTION_COUNT)
			ret = goal_pattern_option(&g, "gen", arg, value);
		else if (arg == OUT)
			out = value;
		else if (arg == PROGRAM)
			is_program = true;
		else if (arg == LIST)
			return print_list();
		else
			return printf("%s%s%s", help_head, goal_pattern_help, help_tail) < 0
				       ? TOOL_FAILED
				       : TOOL_DONE;
	}
	return ret ? ret : generate(&g, out, is_program);
}
