/* SPDX-License-Identifier: BSD-3-Clause */
/* Output of sluice goal sim --json. All times are picoseconds, so they are exact. */
#include <stdlib.h>

#include "base/base.h"
#include "goal_sim.h"
#include "text.h"

#define TIMES_MAX 4096 /* ranks whose times are listed without --times */

static void put_costs(struct text_json *j, const struct sim_costs *c)
{
	static const char *const names[] = { "L_ps", "o_ps", "g_ps", "G_ns", "O_ns" };
	char number[32];

	for (int k = 0; k < SIM_COSTS; k++)
		if (!goal_sim_cost_of(c, k, number))
			continue;
		else if (k < SIM_COSTS_NS)
			text_json_uint(j, names[k], c->all[k]);
		else
			text_json_string(j, names[k], number);
}

static void put_params(struct text_json *j, const struct goal_sim *g)
{
	const struct sim_params *p = &g->o.params;
	char number[32];

	text_json_open(j, "parameters", '{');
	text_json_string(j, "from", g->o.params_name);
	put_costs(j, &p->costs);
	text_json_string(j, "C_ns", goal_sim_cost(p->local_byte, number));
	text_json_uint(j, "S_bytes", p->eager_bytes);
	text_json_open(j, "above", '[');
	for (uint32_t i = 0; i < p->class_count; i++) {
		text_json_open(j, NULL, '{');
		text_json_uint(j, "bytes", p->classes[i].above_bytes);
		put_costs(j, &p->classes[i].costs);
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
	text_json_close(j, '}');
}

static void put_times(struct text_json *j, const struct goal_sim *g, const struct sim_stats *s)
{
	uint64_t *ends = goal_sim_sorted_ends(g);
	uint32_t n = g->config.ranks;

	text_json_uint(j, "end_ps", s->end_ps);
	text_json_uint(j, "last_rank", s->last_rank);
	if (ends) {
		text_json_uint(j, "first_end_ps", ends[0]);
		text_json_uint(j, "median_end_ps", ends[(n - 1) / 2]);
	}
	free(ends);
	if (n > TIMES_MAX && !g->o.times)
		return;
	text_json_open(j, "rank_end_ps", '[');
	for (uint32_t r = 0; r < n; r++)
		text_json_uint(j, NULL, sim_rank_end(g->sim, r));
	text_json_close(j, ']');
}

/* ---- the critical path ------------------------------------------------------------------- */

struct context {
	struct text_json *j;
	const struct goal_sim *g;
	uint64_t remaining, more; /* what may be written; what was not */
};

static void put_name(struct context *c, uint32_t rank, uint32_t op, uint8_t type, uint64_t bytes,
		     uint32_t peer, uint32_t tag)
{
	uint64_t line;
	const char *label = goal_sim_label(c->g, rank, op, &line);
	char name[160];

	text_json_uint(c->j, "rank", rank);
	text_json_uint(c->j, "op", op);
	if (label)
		text_json_string(c->j, "label", label);
	if (line)
		text_json_uint(c->j, "line", line);
	goal_sim_name(c->g, rank, op, type, bytes, peer, tag, name, sizeof name);
	text_json_string(c->j, "operation", name);
}

static void put_step(void *ctx, const struct sim_step *s)
{
	static const char *const causes[] = { [SIM_FIRST] = "first",
					      [SIM_REQUIRED] = "required",
					      [SIM_CPU] = "cpu",
					      [SIM_NIC] = "nic",
					      [SIM_WIRE] = "wire" };
	static const char *const kinds[] = {
		[SIM_SEND] = "send", [SIM_RECEIVE] = "receive", [SIM_LOCAL] = "local"
	};
	struct context *c = ctx;
	bool is_receive = s->kind == SIM_RECEIVE;

	if (!c->remaining)
		return;
	c->remaining--;
	text_json_open(c->j, NULL, '{');
	text_json_string(c->j, "kind", kinds[s->kind]);
	text_json_string(c->j, "cause", causes[s->cause]);
	text_json_uint(c->j, "begin_ps", s->begin_ps);
	text_json_uint(c->j, "end_ps", s->end_ps);
	if (is_receive)
		text_json_uint(c->j, "at_rank", s->rank);
	put_name(c, is_receive ? s->peer : s->rank, s->op, s->type, s->bytes,
		 is_receive ? s->rank : s->peer, s->tag);
	text_json_close(c->j, '}');
}

static void put_path(struct text_json *j, const struct goal_sim *g)
{
	struct context c = { .j = j, .g = g, .remaining = g->o.path_steps };
	struct sim_path_sum sum;

	sim_path(g->sim, NULL, NULL, &sum);
	text_json_open(j, "critical_path", '{');
	text_json_uint(j, "total_ps", sum.total_ps);
	text_json_uint(j, "L_ps", sum.latency_ps);
	text_json_uint(j, "o_ps", sum.overhead_ps);
	text_json_uint(j, "O_ps", sum.overhead_byte_ps);
	text_json_uint(j, "g_ps", sum.gap_ps);
	text_json_uint(j, "G_ps", sum.byte_ps);
	text_json_uint(j, "local_ps", sum.local_ps);
	text_json_uint(j, "noise_ps", sum.noise_ps);
	text_json_uint(j, "waiting_ps", sum.other_ps);
	text_json_uint(j, "before_ps", sum.before_ps);
	text_json_uint(j, "step_count", sum.steps);
	text_json_uint(j, "messages", sum.messages);
	text_json_open(j, "steps_last_first", '[');
	sim_path(g->sim, put_step, &c, NULL);
	text_json_close(j, ']');
	text_json_close(j, '}');
}

/* ---- what is stuck ----------------------------------------------------------------------- */

static void put_stuck(void *ctx, const struct sim_stuck *w)
{
	static const char *const kinds[] = { [SIM_STUCK_RECEIVE] = "receive",
					     [SIM_STUCK_SEND] = "send",
					     [SIM_STUCK_MESSAGE] = "message",
					     [SIM_STUCK_REQUIRES] = "requires",
					     [SIM_STUCK_COUNTER] = "counter" };
	struct context *c = ctx;

	if (!c->remaining) {
		c->more++;
		return;
	}
	c->remaining--;
	text_json_open(c->j, NULL, '{');
	text_json_string(c->j, "kind", kinds[w->kind]);
	put_name(c, w->rank, w->op, w->type, w->bytes, w->peer, w->tag);
	text_json_close(c->j, '}');
}

static void put_list(struct text_json *j, const char *name, const struct sim_matching_list *l)
{
	text_json_open(j, name, '{');
	text_json_uint(j, "hits", l->hits);
	text_json_uint(j, "misses", l->misses);
	text_json_uint(j, "compared", l->compared);
	text_json_uint(j, "compared_most", l->compared_most);
	text_json_uint(j, "most", l->length_most);
	text_json_close(j, '}');
}

void goal_sim_json(const struct goal_sim *g)
{
	struct text_json j = { .out = stdout };
	struct context c = { &j, g, GOAL_SIM_STUCK_MAX, 0 };
	struct sim_stats s;

	sim_get_stats(g->sim, &s);
	text_json_open(&j, NULL, '{');
	text_json_bool(&j, "complete", !g->result);
	text_json_uint(&j, "ranks", g->config.ranks);
	text_json_uint(&j, "operations", s.ops);
	text_json_uint(&j, "operations_ended", s.ops_done);
	text_json_uint(&j, "messages", s.messages);
	text_json_uint(&j, "message_bytes", s.message_bytes);
	text_json_uint(&j, "rendezvous", s.rendezvous);
	text_json_uint(&j, "unexpected", s.unexpected);
	text_json_uint(&j, "unexpected_most", s.unexpected_most);
	text_json_uint(&j, "unexpected_ps", s.unexpected_ps);
	text_json_uint(&j, "noise_ps", s.noise_ps);
	text_json_uint(&j, "lost", s.lost);
	text_json_uint(&j, "events", s.events);
	text_json_uint(&j, "different_schedules", s.shapes);
	put_params(&j, g);
	if (g->o.matching) {
		struct sim_matching sum = goal_matching_sum(g);

		text_json_open(&j, "matching", '{');
		put_list(&j, "posted", &sum.posted);
		put_list(&j, "unexpected", &sum.unexpected);
		text_json_close(&j, '}');
	}
	put_times(&j, g, &s);
	put_path(&j, g);
	text_json_open(&j, "stuck", '[');
	if (g->result)
		sim_stuck(g->sim, put_stuck, &c);
	text_json_close(&j, ']');
	text_json_uint(&j, "stuck_more", c.more);
	text_json_close(&j, '}');
	putchar('\n');
}
