/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameters of the model: printed, written to a file, read from a file. */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "goal_sim.h"
#include "text.h"

#define EAGER_BYTES 8192 /* S is chosen, not measured */

static uint64_t ps_of(double ns) { return (uint64_t)(ns * SIM_PS_PER_NS + 0.5); }
static uint64_t cost_of(double ns)
{
	return (uint64_t)(ns * SIM_PS_PER_NS * (1 << SIM_FRACTION_BITS) + 0.5);
}

static void print_measured(struct text_table *t, const char *name, const struct goal_measured *m,
			   const char *unit)
{
	char value[48], spread[64];

	snprintf(value, sizeof value, "%.4g %s", m->median, unit);
	snprintf(spread, sizeof spread, "%.4g to %.4g", m->low, m->high);
	text_table_row(t, name, value, spread, NULL);
}

static void print_all(const struct goal_measure *m)
{
	struct text_table t = { NULL };

	printf("measured between 2 processes on CPUs %d and %d, shared memory, %u rounds: median, "
	       "10 to 90 %%\n",
	       m->cpus[0], m->cpus[1], m->rounds);
	if (m->cpus[0] == m->cpus[1])
		printf("there is one CPU only, which both share: these are the scheduler's "
		       "times\n");
	print_measured(&t, "L", &m->latency_ns, "ns");
	print_measured(&t, "o", &m->overhead_ns, "ns");
	print_measured(&t, "g", &m->gap_ns, "ns");
	print_measured(&t, "G", &m->gap_byte_ns, "ns/byte");
	print_measured(&t, "O", &m->overhead_byte_ns, "ns/byte");
	print_measured(&t, "C", &m->local_byte_ns, "ns/byte");
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
	putchar('\n');
}

static void put_measured(struct text_json *j, const char *name, const struct goal_measured *m)
{
	const double values[] = { m->low, m->median, m->high };
	static const char *const keys[] = { "low", "median", "high" };
	char number[32];

	text_json_open(j, name, '{');
	for (int i = 0; i < 3; i++) {
		snprintf(number, sizeof number, "%.6g", values[i]);
		text_json_string(j, keys[i], number);
	}
	text_json_close(j, '}');
}

static void put_all(const struct goal_measure *m)
{
	struct text_json j = { .out = stdout };

	text_json_open(&j, NULL, '{');
	text_json_uint(&j, "rounds", m->rounds);
	put_measured(&j, "L_ns", &m->latency_ns);
	put_measured(&j, "o_ns", &m->overhead_ns);
	put_measured(&j, "g_ns", &m->gap_ns);
	put_measured(&j, "G_ns", &m->gap_byte_ns);
	put_measured(&j, "O_ns", &m->overhead_byte_ns);
	put_measured(&j, "C_ns", &m->local_byte_ns);
	text_json_close(&j, '}');
	putchar('\n');
}

int goal_params_measure(struct goal_sim *g)
{
	struct goal_measure m;
	int ret = goal_measure(&m);
	bool is_all = !g->o.file && !g->o.pattern.pattern;

	if (ret) {
		tool_say("goal sim: cannot measure: %s", strerror(-ret));
		return TOOL_FAILED;
	}
	g->o.params = (struct sim_params){
		.latency_ps = ps_of(m.latency_ns.median),
		.overhead_ps = ps_of(m.overhead_ns.median),
		.gap_ps = ps_of(m.gap_ns.median),
		.gap_byte = cost_of(m.gap_byte_ns.median),
		.overhead_byte = cost_of(m.overhead_byte_ns.median),
		.local_byte = cost_of(m.local_byte_ns.median),
		.eager_bytes = EAGER_BYTES,
	};
	g->o.params_name = "measured";
	if (!g->o.json)
		print_all(&m);
	else if (is_all)
		put_all(&m);
	return TOOL_DONE;
}

/* ---- files ------------------------------------------------------------------------------- */

int goal_params_save(const char *path, const struct sim_params *p)
{
	FILE *out = fopen(path, "we");
	char number[32];
	int failed;

	if (out) {
		fprintf(out, "# LogGOPS parameters of `sluice goal sim`: nanoseconds, a byte where "
			     "large, bytes\n");
		fprintf(out, "L %s\n", goal_sim_ns(p->latency_ps, number));
		fprintf(out, "o %s\n", goal_sim_ns(p->overhead_ps, number));
		fprintf(out, "g %s\n", goal_sim_ns(p->gap_ps, number));
		fprintf(out, "G %s\n", goal_sim_cost(p->gap_byte, number));
		fprintf(out, "O %s\n", goal_sim_cost(p->overhead_byte, number));
		fprintf(out, "C %s\n", goal_sim_cost(p->local_byte, number));
		fprintf(out, "S %llu\n", (unsigned long long)p->eager_bytes);
	}
	failed = !out || ferror(out);
	if (out && fclose(out))
		failed = 1;
	if (failed)
		tool_say("goal sim: cannot write %s: %s", path, strerror(errno));
	return failed ? TOOL_FAILED : TOOL_DONE;
}

int goal_params_set(struct sim_params *p, char name, const char *value)
{
	switch (name) {
	case 'L':
		return sim_parse_ns(value, &p->latency_ps);
	case 'o':
		return sim_parse_ns(value, &p->overhead_ps);
	case 'g':
		return sim_parse_ns(value, &p->gap_ps);
	case 'G':
		return sim_parse_byte_ns(value, &p->gap_byte);
	case 'O':
		return sim_parse_byte_ns(value, &p->overhead_byte);
	case 'C':
		return sim_parse_byte_ns(value, &p->local_byte);
	case 'S':
		return base_parse_bytes(value, &p->eager_bytes);
	}
	return -EINVAL;
}

int goal_params_load(const char *path, struct sim_params *p)
{
	FILE *in = fopen(path, "re");
	char line[128], name[2], value[64];
	int number = 0, ret = TOOL_DONE;

	if (!in) {
		tool_say("goal sim: cannot read %s: %s", path, strerror(errno));
		return TOOL_FAILED;
	}
	while (!ret && fgets(line, sizeof line, in)) {
		number++;
		if (line[0] == '#' || line[strspn(line, " \t\n")] == '\0')
			continue;
		if (sscanf(line, " %1s %63s", name, value) == 2 &&
		    !goal_params_set(p, name[0], value))
			continue;
		line[strcspn(line, "\n")] = '\0';
		tool_say(
			"goal sim: %s:%d: '%s' is no parameter: L, o, g, G, O, C or S and a number",
			path, number, line);
		ret = TOOL_FAILED;
	}
	fclose(in);
	return ret;
}
