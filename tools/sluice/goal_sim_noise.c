/* SPDX-License-Identifier: BSD-3-Clause */
/* The trace of OS noise: lines of a beginning and a duration, as Netgauge writes and LogGOPSim
 * reads it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "goal_sim.h"

static int add(struct sim_noise *n, uint64_t begin_ps, uint64_t ps, size_t *cap)
{
	struct sim_detour *detours = (struct sim_detour *)n->detours; /* owned here */

	if (n->count == *cap) {
		*cap = *cap ? 2 * *cap : 1024;
		detours = reallocarray(detours, *cap, sizeof *detours);
		if (!detours)
			return -ENOMEM;
		n->detours = detours;
	}
	detours[n->count++] = (struct sim_detour){ begin_ps, ps };
	return 0;
}

static bool parse(const char **at, uint64_t *out_ps)
{
	char *end;
	double ps = strtod(*at, &end) * SIM_PS_PER_NS;

	if (end == *at || !(ps >= 0) || ps > (double)SIM_TIME_MAX)
		return false;
	*at = end;
	*out_ps = (uint64_t)(ps + 0.5);
	return true;
}

/* Returns: NULL, or what is wrong with a line. */
static const char *add_line(struct sim_noise *n, const char *line, size_t *cap)
{
	uint64_t begin_ps, ps;

	if (line[0] == '#' || line[strspn(line, " \t\r\n")] == '\0')
		return NULL;
	if (!parse(&line, &begin_ps) || !parse(&line, &ps) ||
	    line[strspn(line, " \t\r\n")] != '\0')
		return "a line has two numbers: nanoseconds from the beginning, and of duration";
	if (n->count && begin_ps < n->detours[n->count - 1].begin_ps)
		return "it begins before the line above";
	return add(n, begin_ps, ps, cap) ? strerror(ENOMEM) : NULL;
}

int goal_noise_load(struct goal_sim_options *o)
{
	FILE *in = fopen(o->noise_path, "re");
	const char *why = NULL;
	size_t cap = 0;
	char line[256];
	int number = 0;

	if (!in) {
		tool_say("goal sim: cannot read %s: %s", o->noise_path, strerror(errno));
		return TOOL_FAILED;
	}
	while (!why && fgets(line, sizeof line, in)) {
		number++;
		why = add_line(&o->noise, line, &cap);
	}
	if (why)
		tool_say("goal sim: %s:%d: %s", o->noise_path, number, why);
	else if (ferror(in))
		tool_say("goal sim: cannot read %s: %s", o->noise_path, strerror(errno));
	else if (!o->noise.count)
		tool_say("goal sim: %s has no detours: lines of two numbers", o->noise_path);
	else
		number = 0;
	fclose(in);
	return number || !o->noise.count ? TOOL_FAILED : TOOL_DONE;
}
