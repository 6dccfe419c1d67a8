/* SPDX-License-Identifier: BSD-3-Clause */
/* Output of sluice goal sim for people. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal_sim.h"
#include "text.h"

#define BINS 10

/* Up to three decimals, without zeros at the end. */
static const char *decimals(uint64_t whole, unsigned thousandths, char buf[32])
{
	size_t n;

	snprintf(buf, 32, "%" PRIu64 ".%03u", whole, thousandths);
	for (n = strlen(buf); buf[n - 1] == '0'; n--)
		buf[n - 1] = '\0';
	if (buf[n - 1] == '.')
		buf[n - 1] = '\0';
	return buf;
}

const char *goal_sim_ns(uint64_t ps, char buf[32])
{
	return decimals(ps / SIM_PS_PER_NS, (unsigned)(ps % SIM_PS_PER_NS), buf);
}

const char *goal_sim_cost(uint64_t cost, char buf[32])
{
	snprintf(buf, 32, "%.6g", (double)cost / SIM_PS_PER_NS / (1 << SIM_FRACTION_BITS));
	return buf;
}

const char *goal_sim_cost_of(const struct sim_costs *c, int k, char buf[32])
{
	if (c->all[k] == SIM_AS_BELOW)
		return NULL;
	return k < SIM_COSTS_NS ? goal_sim_ns(c->all[k], buf) : goal_sim_cost(c->all[k], buf);
}

static int by_time(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

uint64_t *goal_sim_sorted_ends(const struct goal_sim *g)
{
	uint64_t *ends = malloc(g->config.ranks * sizeof *ends);

	for (uint32_t r = 0; ends && r < g->config.ranks; r++)
		ends[r] = sim_rank_end(g->sim, r);
	if (ends)
		qsort(ends, g->config.ranks, sizeof *ends, by_time);
	return ends;
}

static void print_classes(const struct sim_params *p)
{
	for (uint32_t i = 0; i < p->class_count; i++) {
		const struct sim_costs *c = &p->classes[i].costs;
		char number[32], bytes[32];

		base_format_bytes(p->classes[i].above_bytes, bytes, sizeof bytes);
		printf("above %s bytes:", bytes);
		for (int k = 0; k < SIM_COSTS; k++)
			if (goal_sim_cost_of(c, k, number))
				printf(" %c=%s", GOAL_COST_NAMES[k], number);
		puts(" ns");
	}
}

static void print_head(const struct goal_sim *g, const struct sim_stats *s)
{
	const struct sim_params *p = &g->o.params;
	char l[32], o[32], gap[32], G[32], O[32], C[32], S[32];

	base_format_bytes(p->eager_bytes, S, sizeof S);
	printf("%" PRIu32 " ranks, %" PRIu64 " operations, %" PRIu64 " messages, %" PRIu64
	       " bytes\n",
	       g->config.ranks, s->ops, s->messages, s->message_bytes);
	printf("L=%s o=%s g=%s G=%s O=%s C=%s ns, S=%s bytes (%s)\n",
	       goal_sim_ns(p->costs.latency_ps, l), goal_sim_ns(p->costs.overhead_ps, o),
	       goal_sim_ns(p->costs.gap_ps, gap), goal_sim_cost(p->costs.gap_byte, G),
	       goal_sim_cost(p->costs.overhead_byte, O), goal_sim_cost(p->local_byte, C), S,
	       p->node.ranks ? "between nodes" : g->o.params_name);
	print_classes(p);
	if (g->o.noise_path)
		printf("OS noise of %s, %s, seed %" PRIu64 ": %s ns in all\n", g->o.noise_path,
		       g->o.noise.is_cosched ? "coscheduled" : "each rank its own",
		       g->o.noise.seed, goal_sim_ns(s->noise_ps, l));
	if (p->node.ranks)
		printf("L=%s o=%s ns inside a node of up to %" PRIu32 " ranks (%s)\n",
		       goal_sim_ns(p->node.latency_ps, l), goal_sim_ns(p->node.overhead_ps, o),
		       p->node.ranks, g->o.node_name);
	putchar('\n');
}

static void print_times(const struct goal_sim *g)
{
	struct text_table t = { NULL };

	for (uint32_t r = 0; r < g->config.ranks; r++) {
		char rank[32], ns[32];

		snprintf(rank, sizeof rank, "rank %" PRIu32, r);
		text_table_row(&t, rank, goal_sim_ns(sim_rank_end(g->sim, r), ns), NULL);
	}
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
	putchar('\n');
}

/* A histogram of end times between the first and the last. */
static void print_histogram(const uint64_t *ends, uint32_t ranks)
{
	uint64_t first = ends[0], spread = ends[ranks - 1] - first;
	struct text_table t = { NULL };
	uint32_t r = 0;

	for (uint64_t bin = 0; bin < BINS && spread; bin++) {
		uint64_t until =
			bin + 1 == BINS
				? UINT64_MAX
				: first + (uint64_t)((double)spread * (double)(bin + 1) / BINS);
		uint32_t begin = r, width;
		char from[64], ns[32], count[32], bar[41];

		while (r < ranks && ends[r] < until)
			r++;
		width = (uint32_t)((uint64_t)(r - begin) * 40 / ranks);
		memset(bar, '#', width);
		bar[width] = '\0';
		goal_sim_ns(first + (uint64_t)((double)spread * (double)bin / BINS), ns);
		snprintf(from, sizeof from, "from %s ns", ns);
		snprintf(count, sizeof count, "%" PRIu32, r - begin);
		text_table_row(&t, from, count, bar, NULL);
	}
	text_table_print(&t, "  ", stdout);
	if (t.count)
		putchar('\n');
	text_table_free(&t);
}

static void print_ends(const struct goal_sim *g, const struct sim_stats *s)
{
	uint64_t *ends = goal_sim_sorted_ends(g);
	uint32_t n = g->config.ranks;
	char first[32], half[32], last[32];

	if (!ends) {
		tool_say("goal sim: %s", goal_why(-ENOMEM));
		return;
	}
	printf("last: rank %" PRIu32 " after %s ns; first %s ns, half of the ranks %s ns\n\n",
	       s->last_rank, goal_sim_ns(ends[n - 1], last), goal_sim_ns(ends[0], first),
	       goal_sim_ns(ends[(n - 1) / 2], half));
	if (n <= GOAL_SIM_TIMES_MAX || g->o.times)
		print_times(g);
	else
		print_histogram(ends, n);
	free(ends);
}

/* ---- the critical path ------------------------------------------------------------------- */

static void print_share(struct text_table *t, const char *what, uint64_t ps, uint64_t total)
{
	char ns[32], share[32];

	if (!ps)
		return;
	snprintf(share, sizeof share, "%.1f %%", 100.0 * (double)ps / (double)total);
	text_table_row(t, what, goal_sim_ns(ps, ns), share, NULL);
}

static void print_sum(const struct sim_path_sum *sum)
{
	struct text_table t = { NULL };
	char ns[32];

	printf("critical path: %s ns, %" PRIu64 " steps, %" PRIu64 " messages\n",
	       goal_sim_ns(sum->total_ps, ns), sum->steps, sum->messages);
	print_share(&t, "latency (L)", sum->latency_ps, sum->total_ps);
	print_share(&t, "overhead (o)", sum->overhead_ps, sum->total_ps);
	print_share(&t, "overhead of bytes (O)", sum->overhead_byte_ps, sum->total_ps);
	print_share(&t, "gaps (g)", sum->gap_ps, sum->total_ps);
	print_share(&t, "bytes (G)", sum->byte_ps, sum->total_ps);
	print_share(&t, "computing", sum->local_ps, sum->total_ps);
	print_share(&t, "OS noise", sum->noise_ps, sum->total_ps);
	print_share(&t, "waiting", sum->other_ps, sum->total_ps);
	print_share(&t, "before the recorded part", sum->before_ps, sum->total_ps);
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
}

/* Keeps the first half and the last half of the steps requested; the path is visited last first. */
struct steps {
	const struct goal_sim *g;
	struct sim_step *steps;
	uint64_t visited, all, count;
};

static void store_step(void *ctx, const struct sim_step *step)
{
	struct steps *s = ctx;
	uint64_t late = s->count / 2, early = s->count - late;

	if (s->visited < late)
		s->steps[s->visited] = *step;
	else if (s->all - s->visited <= early)
		s->steps[late + s->visited - (s->all - early)] = *step;
	s->visited++;
}

static void print_step(const struct goal_sim *g, const struct sim_step *step)
{
	static const char *const causes[] = { [SIM_FIRST] = "",
					      [SIM_REQUIRED] = "after its requirements",
					      [SIM_CPU] = "when the CPU is free",
					      [SIM_NIC] = "when the NIC is ready",
					      [SIM_WIRE] = "when it arrives" };
	char name[160], begin[32], end[32];
	bool is_receive = step->kind == SIM_RECEIVE;

	/* a message is named by its send */
	if (is_receive) {
		char sent[128];

		goal_sim_name(g, step->peer, step->op, step->type, step->bytes, step->rank,
			      step->tag, sent, sizeof sent);
		snprintf(name, sizeof name, "receives from %" PRIu32 ": %s", step->peer, sent);
	} else {
		goal_sim_name(g, step->rank, step->op, step->type, step->bytes, step->peer,
			      step->tag, name, sizeof name);
	}
	printf("  %12s .. %-12s rank %-8" PRIu32 " %s%s%s\n", goal_sim_ns(step->begin_ps, begin),
	       goal_sim_ns(step->end_ps, end), step->rank, name, *causes[step->cause] ? "  | " : "",
	       causes[step->cause]);
}

static void print_steps(const struct goal_sim *g, const struct sim_path_sum *sum)
{
	struct steps s = { .g = g,
			   .all = sum->steps,
			   .count = base_min_u64(g->o.path_steps, sum->steps) };

	s.steps = calloc(s.count + 1, sizeof *s.steps);
	if (!s.steps) {
		tool_say("goal sim: %s", goal_why(-ENOMEM));
		return;
	}
	sim_path(g->sim, store_step, &s, NULL);
	putchar('\n');
	for (uint64_t i = s.count; i-- > 0;) {
		print_step(g, &s.steps[i]);
		if (i == s.count / 2 && s.count < s.all && i)
			printf("  ... %" PRIu64 " more (--path)\n", s.all - s.count);
	}
	free(s.steps);
}

static void print_list(struct text_table *t, const char *name, const struct sim_matching_list *l)
{
	uint64_t searches = l->hits + l->misses;
	char cells[4][32];

	snprintf(cells[0], sizeof cells[0], "%" PRIu64, searches);
	snprintf(cells[1], sizeof cells[1], "%" PRIu64, l->hits);
	snprintf(cells[2], sizeof cells[2], "%.1f, at most %" PRIu32,
		 searches ? (double)l->compared / (double)searches : 0, l->compared_most);
	snprintf(cells[3], sizeof cells[3], "%" PRIu32, l->length_most);
	text_table_row(t, name, cells[0], cells[1], cells[2], cells[3], NULL);
}

/* has_path: lines of the path stand above. */
static void print_matching(const struct goal_sim *g, const struct sim_stats *s, bool has_path)
{
	char ns[32];

	if (has_path && (s->unexpected || g->o.matching))
		putchar('\n');
	if (s->unexpected)
		printf("%" PRIu64 " messages came before their receive, at most %" PRIu32
		       " at a time, at rank %" PRIu32 "; they waited %s ns on average\n",
		       s->unexpected, s->unexpected_most, s->unexpected_rank,
		       goal_sim_ns(s->unexpected_ps / s->unexpected, ns));
	if (g->o.matching) {
		struct sim_matching sum = goal_matching_sum(g);
		struct text_table t = { NULL };

		if (s->unexpected)
			putchar('\n');
		text_table_row(&t, "matching", "searches", "found", "compared", "longest list",
			       NULL);
		print_list(&t, "posted receives", &sum.posted);
		print_list(&t, "unexpected messages", &sum.unexpected);
		text_table_print(&t, "", stdout);
		text_table_free(&t);
	}
}

/* Returns: true when it printed something. */
static bool print_path(const struct goal_sim *g)
{
	struct sim_path_sum sum;

	sim_path(g->sim, NULL, NULL, &sum);
	if (!g->o.path_steps || !sum.total_ps)
		return false;
	if (!sum.steps) {
		printf("critical path: not recorded; raise --path-memory\n");
		return true;
	}
	print_sum(&sum);
	print_steps(g, &sum);
	return true;
}

void goal_sim_report(const struct goal_sim *g)
{
	struct sim_stats s;

	sim_get_stats(g->sim, &s);
	print_head(g, &s);
	print_ends(g, &s);
	if (s.lost)
		printf("%" PRIu64
		       " puts and gets arrived without a matching entry and were lost\n\n",
		       s.lost);
	print_matching(g, &s, print_path(g));
}

/* ---- what is stuck ----------------------------------------------------------------------- */

struct telling {
	const struct goal_sim *g;
	uint64_t count;
};

static void print_stuck(void *ctx, const struct sim_stuck *w)
{
	static const char *const why[] = { [SIM_STUCK_RECEIVE] = "no message came",
					   [SIM_STUCK_SEND] = "no receive came",
					   [SIM_STUCK_MESSAGE] = "sent but never received",
					   [SIM_STUCK_REQUIRES] = "a requirement has not ended",
					   [SIM_STUCK_COUNTER] =
						   "its counter did not reach its value" };
	struct telling *t = ctx;
	char name[160];

	if (t->count++ >= GOAL_SIM_STUCK_MAX)
		return;
	goal_sim_name(t->g, w->rank, w->op, w->type, w->bytes, w->peer, w->tag, name, sizeof name);
	tool_say("goal sim: rank %" PRIu32 ": %s: %s", w->rank, name, why[w->kind]);
}

void goal_sim_print_stuck(const struct goal_sim *g)
{
	struct telling t = { g, 0 };
	struct sim_stats s;

	sim_get_stats(g->sim, &s);
	if (s.ops_done < s.ops)
		tool_say("goal sim: deadlock: %" PRIu64 " of %" PRIu64 " operations have not ended",
			 s.ops - s.ops_done, s.ops);
	sim_stuck(g->sim, print_stuck, &t);
	if (t.count > GOAL_SIM_STUCK_MAX)
		tool_say("goal sim: and %" PRIu64 " more", t.count - GOAL_SIM_STUCK_MAX);
}
