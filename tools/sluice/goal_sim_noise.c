/* SPDX-License-Identifier: BSD-3-Clause */
/* The trace of OS noise: lines of a beginning and a duration, as Netgauge writes and LogGOPSim
 * reads it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal_sim.h"

struct loading {
	struct sim_noise *noise;
	size_t cap;
	uint64_t end_ps; /* of the last detour so far */
	bool has_time;   /* there is time between detours */
};

static int add(struct loading *l, const struct sim_detour *d)
{
	struct sim_detour *detours = (struct sim_detour *)l->noise->detours; /* owned here */

	if (l->noise->count == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 1024;
		detours = reallocarray(detours, l->cap, sizeof *detours);
		if (!detours)
			return -ENOMEM;
		l->noise->detours = detours;
	}
	detours[l->noise->count++] = *d;
	l->has_time |= d->begin_ps > l->end_ps;
	l->end_ps = base_max_u64(l->end_ps, d->begin_ps + d->ps);
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
static const char *add_line(struct loading *l, const char *line)
{
	const struct sim_noise *n = l->noise;
	struct sim_detour d;

	if (line[0] == '#' || line[strspn(line, " \t\r\n")] == '\0')
		return NULL;
	if (!parse(&line, &d.begin_ps) || !parse(&line, &d.ps) ||
	    line[strspn(line, " \t\r\n")] != '\0')
		return "a line has two numbers: nanoseconds from the beginning, and of duration";
	if (n->count && d.begin_ps < n->detours[n->count - 1].begin_ps)
		return "it begins before the line above";
	return add(l, &d) ? strerror(ENOMEM) : NULL;
}

/* Prints what is wrong. Returns: an exit code. */
static int read_lines(struct loading *l, FILE *in, const char *path)
{
	const char *why = NULL;
	char *line = NULL;
	size_t bytes = 0;
	int number = 0, ret = TOOL_FAILED;

	for (errno = 0; !why && getline(&line, &bytes, in) >= 0; number++)
		why = add_line(l, line);
	free(line);
	if (why)
		tool_say("goal sim: %s:%d: %s", path, number, why);
	else if (ferror(in))
		tool_say("goal sim: cannot read %s: %s", path, strerror(errno));
	else if (!l->noise->count)
		tool_say("goal sim: %s: no detours: lines of two numbers", path);
	else if (!l->has_time)
		tool_say("goal sim: %s: no time between its detours", path);
	else
		ret = TOOL_DONE;
	return ret;
}

int goal_noise_load(struct goal_sim_options *o)
{
	struct loading l = { .noise = &o->noise };
	FILE *in = fopen(o->noise_path, "re");
	int ret;

	if (!in) {
		tool_say("goal sim: cannot read %s: %s", o->noise_path, strerror(errno));
		return TOOL_FAILED;
	}
	ret = read_lines(&l, in, o->noise_path);
	fclose(in);
	return ret;
}
