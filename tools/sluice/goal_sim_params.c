/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameters of the model: printed, written to a file, read from a file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal_sim.h"
#include "text.h"

#define EAGER_BYTES 4096 /* of sched/: sluice-goal-sim(1) */

static uint64_t ps_of(double ns) { return (uint64_t)(ns * SIM_PS_PER_NS + 0.5); }

/* ---- measured parameters of a node ------------------------------------------------------- */

static void print_all(const struct goal_measure *m)
{
	static const char *const heads[] = { "message", "one at a time", "%d at a time", "copy",
					     "add f32" };
	struct text_table t = { NULL };
	char cell[5][48];

	printf("measured on %d CPUs of this node, at most %d rounds: ns, median and 10 to 90 %%\n",
	       m->cpus, m->rounds);
	printf("  start %.4g, L %.4g, o %.4g\n", m->start_ns, m->latency_ns, m->overhead_ns);
	for (int c = 0; c < 5; c++)
		snprintf(cell[c], sizeof cell[c], heads[c], m->cpus < 2 ? 2 : m->cpus);
	text_table_row(&t, cell[0], cell[1], cell[2], cell[3], cell[4], NULL);
	for (size_t i = 0; i < m->length_count; i++) {
		base_format_bytes(m->lengths[i], cell[0], sizeof cell[0]);
		for (int c = 0; c < SIM_NODE_COLUMNS; c++)
			snprintf(cell[c + 1], sizeof cell[c + 1], "%.0f (%.0f to %.0f)",
				 m->row[i][c].median, m->row[i][c].low, m->row[i][c].high);
		text_table_row(&t, cell[0], cell[1], cell[2], cell[3], cell[4], NULL);
	}
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
	putchar('\n');
}

static void put_measured(struct text_json *j, const char *name, const struct goal_measured *m)
{
	text_json_open(j, name, '{');
	text_json_uint(j, "low", (uint64_t)(m->low + 0.5));
	text_json_uint(j, "median", (uint64_t)(m->median + 0.5));
	text_json_uint(j, "high", (uint64_t)(m->high + 0.5));
	text_json_close(j, '}');
}

static void put_all(const struct goal_measure *m)
{
	static const char *const names[] = { "alone_ns", "together_ns", "copy_ns", "add_ns" };
	struct text_json j = { .out = stdout };

	text_json_open(&j, NULL, '{');
	text_json_uint(&j, "cpus", (uint64_t)m->cpus);
	text_json_uint(&j, "rounds", (uint64_t)m->rounds);
	text_json_uint(&j, "start_ps", ps_of(m->start_ns));
	text_json_uint(&j, "L_ps", ps_of(m->latency_ns));
	text_json_uint(&j, "o_ps", ps_of(m->overhead_ns));
	text_json_open(&j, "rows", '[');
	for (size_t i = 0; i < m->length_count; i++) {
		text_json_open(&j, NULL, '{');
		text_json_uint(&j, "bytes", m->lengths[i]);
		for (int c = 0; c < SIM_NODE_COLUMNS; c++)
			put_measured(&j, names[c], &m->row[i][c]);
		text_json_close(&j, '}');
	}
	text_json_close(&j, ']');
	text_json_close(&j, '}');
	putchar('\n');
}

static void use(struct sim_node *n, const struct goal_measure *m)
{
	*n = (struct sim_node){ .ranks = n->ranks,
				.cpus = (uint32_t)(m->cpus < 2 ? 2 : m->cpus),
				.row_count = (uint32_t)m->length_count,
				.start_ps = ps_of(m->start_ns),
				.latency_ps = ps_of(m->latency_ns),
				.overhead_ps = ps_of(m->overhead_ns),
				.eager_bytes = EAGER_BYTES };
	for (size_t i = 0; i < m->length_count; i++) {
		n->rows[i].bytes = m->lengths[i];
		for (int c = 0; c < SIM_NODE_COLUMNS; c++)
			n->rows[i].ps[c] = ps_of(m->row[i][c].median);
	}
}

int goal_params_measure(struct goal_sim *g)
{
	struct goal_measure m;
	int ret = goal_measure(g, &m);
	bool is_all = !g->o.file && !g->o.pattern.pattern;

	if (ret) {
		tool_say("goal sim: cannot measure: %s", goal_why(ret));
		return TOOL_FAILED;
	}
	use(&g->o.params.node, &m);
	g->o.params_name = g->o.node_name = "measured";
	if (!g->o.json)
		print_all(&m);
	else if (is_all)
		put_all(&m);
	return TOOL_DONE;
}

/* ---- files ------------------------------------------------------------------------------- */

static void save_node(FILE *out, const struct sim_node *n)
{
	char number[32];

	if (!n->row_count)
		return;
	fprintf(out, "# inside a node; node BYTES: one message, one to each CPU, copy, add\n"
		     "node cpus %u\n", n->cpus);
	fprintf(out, "node start %s\n", goal_sim_ns(n->start_ps, number));
	fprintf(out, "node L %s\n", goal_sim_ns(n->latency_ps, number));
	fprintf(out, "node o %s\n", goal_sim_ns(n->overhead_ps, number));
	fprintf(out, "node S %llu\n", (unsigned long long)n->eager_bytes);
	for (uint32_t i = 0; i < n->row_count; i++) {
		fprintf(out, "node %llu", (unsigned long long)n->rows[i].bytes);
		for (int c = 0; c < SIM_NODE_COLUMNS; c++)
			fprintf(out, " %s", goal_sim_ns(n->rows[i].ps[c], number));
		fputc('\n', out);
	}
}

static void save_costs(FILE *out, const char *before, const struct sim_costs *c)
{
	char number[32];

	for (int k = 0; k < SIM_COSTS; k++)
		if (goal_sim_cost_of(c, k, number))
			fprintf(out, "%s%c %s\n", before, GOAL_COST_NAMES[k], number);
}

int goal_params_save(const char *path, const struct sim_params *p)
{
	FILE *out = fopen(path, "we");
	char number[32];
	int failed;

	if (out) {
		fprintf(out, "# LogGOPS parameters of `sluice goal sim`: nanoseconds, a byte where "
			     "large, bytes\n");
		save_costs(out, "", &p->costs);
		fprintf(out, "C %s\n", goal_sim_cost(p->local_byte, number));
		fprintf(out, "S %llu\n", (unsigned long long)p->eager_bytes);
		for (uint32_t i = 0; i < p->class_count; i++) {
			char above[48];

			snprintf(above, sizeof above, "above %llu ",
				 (unsigned long long)p->classes[i].above_bytes);
			save_costs(out, above, &p->classes[i].costs);
		}
		save_node(out, &p->node);
	}
	failed = !out || ferror(out);
	if (out && fclose(out))
		failed = 1;
	if (failed)
		tool_say("goal sim: cannot write %s: %s", path, strerror(errno));
	return failed ? TOOL_FAILED : TOOL_DONE;
}

static int set_cost(struct sim_costs *c, char name, const char *value)
{
	int k = 0;

	while (k < SIM_COSTS && GOAL_COST_NAMES[k] != name)
		k++;
	if (k == SIM_COSTS)
		return -EINVAL;
	return k < SIM_COSTS_NS ? sim_parse_ns(value, &c->all[k])
				: sim_parse_byte_ns(value, &c->all[k]);
}

int goal_params_set(struct sim_params *p, char name, const char *value)
{
	if (name == 'C')
		return sim_parse_byte_ns(value, &p->local_byte);
	if (name == 'S')
		return base_parse_bytes(value, &p->eager_bytes);
	return set_cost(&p->costs, name, value);
}

/* Words: size, name and value. Returns: 0 or -EINVAL. */
static int set_class(struct sim_params *p, char *const words[], int count)
{
	struct sim_class *class;
	struct sim_costs costs;
	uint64_t bytes;

	if (count != 3 || base_parse_bytes(words[0], &bytes) || strlen(words[1]) != 1 ||
	    set_cost(&costs, words[1][0], words[2]))
		return -EINVAL;
	class = sim_class_add(p, bytes);
	return class ? set_cost(&class->costs, words[1][0], words[2]) : -EINVAL;
}

static int split(char *line, char *words[], int most)
{
	char *rest = line, *word;
	int count = 0;

	while (count < most && (word = strtok_r(rest, " \t\n", &rest)) != NULL)
		words[count++] = word;
	return count;
}

int goal_params_above(struct sim_params *p, const char *value)
{
	char line[128], *words[4];

	if (strlen(value) >= sizeof line)
		return -EINVAL;
	memcpy(line, value, strlen(value) + 1);
	return set_class(p, words, split(line, words, 4));
}

enum { NODE_CPUS_MAX = 1 << 16 };

/* The words of a line behind "node". Returns: 0 or -EINVAL. */
static int set_node(struct sim_node *n, char *const words[], int count)
{
	struct sim_node_row row;
	char *end;

	if (count == 2 && !strcmp(words[0], "cpus")) {
		unsigned long cpus = strtoul(words[1], &end, 10);

		n->cpus = (uint32_t)cpus;
		return *end || cpus < 2 || cpus > NODE_CPUS_MAX ? -EINVAL : 0;
	}
	if (count == 2 && !strcmp(words[0], "start"))
		return sim_parse_ns(words[1], &n->start_ps);
	if (count == 2 && !strcmp(words[0], "L"))
		return sim_parse_ns(words[1], &n->latency_ps);
	if (count == 2 && !strcmp(words[0], "o"))
		return sim_parse_ns(words[1], &n->overhead_ps);
	if (count == 2 && !strcmp(words[0], "S"))
		return base_parse_bytes(words[1], &n->eager_bytes);
	if (count != 1 + SIM_NODE_COLUMNS || n->row_count == SIM_NODE_ROWS_MAX ||
	    base_parse_bytes(words[0], &row.bytes))
		return -EINVAL;
	if (!row.bytes || (n->row_count && row.bytes <= n->rows[n->row_count - 1].bytes))
		return -EINVAL;
	for (int c = 0; c < SIM_NODE_COLUMNS; c++)
		if (sim_parse_ns(words[1 + c], &row.ps[c]))
			return -EINVAL;
	n->rows[n->row_count++] = row;
	return 0;
}

static int set_line(struct sim_params *p, char *line)
{
	char *words[8];
	int count = split(line, words, 8);

	if (count > 2 && !strcmp(words[0], "above"))
		return set_class(p, words + 1, count - 1);
	if (count > 2 && !strcmp(words[0], "node"))
		return set_node(&p->node, words + 1, count - 1);
	return count == 2 && strlen(words[0]) == 1 ? goal_params_set(p, words[0][0], words[1])
						   : -EINVAL;
}

int goal_params_load(const char *path, struct sim_params *p)
{
	FILE *in = fopen(path, "re");
	char line[256], words[256];
	int number = 0, ret = TOOL_DONE;

	p->node.row_count = p->node.cpus = 0;
	p->class_count = 0;
	if (!in) {
		tool_say("goal sim: cannot read %s: %s", path, strerror(errno));
		return TOOL_FAILED;
	}
	while (!ret && fgets(line, sizeof line, in)) {
		number++;
		if (line[0] == '#' || line[strspn(line, " \t\n")] == '\0')
			continue;
		memcpy(words, line, sizeof words);
		if (!set_line(p, words))
			continue;
		line[strcspn(line, "\n")] = '\0';
		tool_say(
			"goal sim: %s:%d: '%s' is no parameter: L, o, g, G, O, C or S and a "
			"number, above SIZE and one of them, or node ... as --save writes it",
			path, number, line);
		ret = TOOL_FAILED;
	}
	fclose(in);
	if (!ret && p->node.row_count && !p->node.cpus) {
		tool_say("goal sim: %s: lines 'node BYTES ...' need a line 'node cpus N': with how "
			 "many CPUs they were measured",
			 path);
		ret = TOOL_FAILED;
	}
	return ret;
}
