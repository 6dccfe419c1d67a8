/* SPDX-License-Identifier: BSD-3-Clause */
/* sluice goal draw */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal.h"
#include "goal_layout.h"

static const char help[] =
	"usage: sluice goal draw [--dot] [--ranks LIST] [-o OUT] FILE\n"
	"\n"
	"Draws a program as SVG: one lane for each rank, time downward, lines for\n"
	"requirements and messages, red for operations that never end. FILE is a text or\n"
	"a compiled program; - is standard input.\n"
	"\n"
	"  --dot         write Graphviz instead of SVG; the default for OUT.dot\n"
	"  --ranks LIST  draw these ranks only, for example 0-3,8\n"
	"  -o OUT        write to OUT instead of standard output\n"
	"\n"
	"Examples:\n"
	"  sluice goal draw text.goal -o picture.svg\n"
	"  sluice goal draw --ranks 0-1 text.goal > picture.svg\n"
	"\n"
	"Exit code: 0 done; 1 FILE is wrong or too large to draw; 2 misuse.\n"
	"More: man sluice-goal\n";

struct draw {
	const char *file, *out, *ranks;
	bool dot;
	uint64_t chosen[(BASE_CPU_MAX + 1) / 64];
};

/* An exit code, or -1: go on. */
static int parse_args(char **argv, struct draw *d)
{
	static const char *const names[] = { "--help", "-h", "--dot", "--ranks=", "-o=", NULL };
	const char *value;
	int at = 1, arg;

	while ((arg = goal_next_arg("draw", names, argv, &at, &value)) != GOAL_ARG_END) {
		if (arg == GOAL_ARG_WRONG)
			return TOOL_MISUSE;
		if (arg == 0 || arg == 1) {
			fputs(help, stdout);
			return TOOL_DONE;
		}
		d->dot |= arg == 2;
		if (arg == 3)
			d->ranks = value;
		if (arg == 4)
			d->out = value;
		if (arg == GOAL_ARG_WORD && d->file) {
			tool_say("goal draw: one file only, not also '%s'", value);
			return TOOL_MISUSE;
		}
		if (arg == GOAL_ARG_WORD)
			d->file = value;
	}
	if (!d->file) {
		tool_say("goal draw: no FILE; see: sluice goal draw --help");
		return TOOL_MISUSE;
	}
	if (d->ranks &&
	    (!*d->ranks || base_parse_cpus(d->ranks, d->chosen, BASE_ARRAY_LEN(d->chosen)))) {
		tool_say(
			"goal draw: --ranks takes a list such as 0-3,8 of ranks up to %d, not '%s'",
			BASE_CPU_MAX, d->ranks);
		return TOOL_MISUSE;
	}
	return -1;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* Chooses the format by the name of the file. Returns: false: the format is not supported. */
static bool agree_with_name(struct draw *d)
{
	static const char *const others[] = { ".png", ".pdf", ".jpg", ".ps" };

	if (!d->out)
		return true;
	d->dot |= ends_with(d->out, ".dot");
	for (size_t i = 0; i < BASE_ARRAY_LEN(others); i++) {
		if (!ends_with(d->out, others[i]))
			continue;
		tool_say("goal draw: OUT is SVG, or Graphviz with --dot, not '%s'", d->out);
		return false;
	}
	return true;
}

static bool has_chosen(const struct goal_input *in, const struct draw *d)
{
	for (uint32_t r = in->program->ranks; d->ranks && r <= BASE_CPU_MAX; r++) {
		if (!(d->chosen[r / 64] >> r % 64 & 1))
			continue;
		tool_say("goal draw: %s: there is no rank %u: num_ranks is %u", in->name, r,
			 in->program->ranks);
		return false;
	}
	return true;
}

static int draw_to(const struct goal_layout *l, const struct draw *d)
{
	FILE *out = d->out && strcmp(d->out, "-") ? fopen(d->out, "we") : stdout;
	int ret = out ? 0 : -errno;

	if (out)
		(d->dot ? goal_dot_write : goal_svg_write)(l, out);
	if (out && ferror(out))
		ret = -EIO;
	if (out && out != stdout && fclose(out) && !ret)
		ret = -errno;
	if (!ret)
		return TOOL_DONE;
	tool_say("goal draw: cannot write %s: %s", d->out ? d->out : "standard output",
		 goal_why(ret));
	return TOOL_FAILED;
}

int goal_draw_main(int argc, char **argv)
{
	struct draw d = { 0 };
	struct goal_layout l;
	struct goal_input in;
	int ret = parse_args(argv, &d);

	if (ret >= 0)
		return ret;
	if (!agree_with_name(&d))
		return TOOL_MISUSE;
	ret = goal_input_open(&in, "draw", d.file, true);
	goal_problems_print(&in.problems, in.name);
	if (!ret && !has_chosen(&in, &d)) {
		ret = TOOL_FAILED;
	} else if (!ret) {
		int error = goal_layout_make(&l, &in, d.ranks ? d.chosen : NULL,
					     BASE_ARRAY_LEN(d.chosen));

		ret = error ? TOOL_FAILED : draw_to(&l, &d);
		if (error == -E2BIG)
			tool_say("goal draw: %s: too large to draw: at most %d ranks and "
				 "%d operations; choose with "
				 "--ranks",
				 in.name, LAYOUT_RANKS_MAX, LAYOUT_OPS_MAX);
		else if (error)
			tool_say("goal draw: %s: %s", in.name, goal_why(error));
		else
			goal_layout_free(&l);
	}
	goal_input_close(&in);
	return ret;
}
