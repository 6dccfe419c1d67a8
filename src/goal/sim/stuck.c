/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds what is stuck when there are no more events. */
#include <stdlib.h>

#include "private.h"

struct context {
	const struct sim *s;
	void (*visit)(void *ctx, const struct sim_stuck *what);
	void *ctx;
	uint32_t rank;
};

static void report(const struct context *c, enum sim_stuck_kind kind, uint32_t rank, uint32_t index)
{
	const struct sim_op *op = sim_op_of(c->s, sim_rank_of(c->s, rank), index);
	struct sim_stuck what = { .kind = kind,
				  .rank = rank,
				  .op = index,
				  .peer = rank,
				  .tag = op->kind == SIM_LOCAL ? 0 : op->tag,
				  .type = op->type,
				  .bytes = op->bytes };

	if (op->kind != SIM_LOCAL)
		what.peer = sim_peer(c->s, rank, op);
	c->visit(c->ctx, &what);
}

static void report_posted(void *ctx, uint32_t index)
{
	const struct context *c = ctx;

	report(c, SIM_STUCK_RECEIVE, c->rank,
	       ((struct sim_posted *)sim_pool_at(&c->s->posted, index))->op);
}

static void report_arrived(void *ctx, uint32_t index)
{
	const struct context *c = ctx;
	const struct sim_arrived *a = sim_pool_at(&c->s->arrived, index);
	const struct sim_op *op = sim_op_of(c->s, sim_rank_of(c->s, a->rank), a->op);

	report(c,
	       sim_is_eager(c->s, op, sim_is_node(c->s, a->rank, c->rank)) ? SIM_STUCK_MESSAGE
									   : SIM_STUCK_SEND,
	       a->rank, a->op);
}

static void report_watcher(void *ctx, uint32_t rank, uint32_t op)
{
	report(ctx, SIM_STUCK_COUNTER, rank, op);
}

static int by_key(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Returns: sorted keys of the counters that are partly met; NULL: no memory. */
static uint64_t *open_counters(const struct sim *s, uint32_t *out_count)
{
	uint64_t *keys = malloc((s->partials.count + 1) * sizeof(*keys));
	const struct sim_partial *p = NULL;
	uint32_t n = 0;

	*out_count = 0;
	if (!keys)
		return NULL;
	while ((p = sim_table_next(&s->partials, p)))
		keys[n++] = p->key - 1;
	qsort(keys, n, sizeof(*keys), by_key);
	*out_count = n;
	return keys;
}

void sim_stuck(const struct sim *s, void (*visit)(void *ctx, const struct sim_stuck *what),
	       void *ctx)
{
	struct context c = { s, visit, ctx, 0 };
	const struct sim_partial *p = NULL;
	uint32_t count, k = 0;
	uint64_t *keys = open_counters(s, &count);

	for (; c.rank < s->config.ranks; c.rank++) {
		struct sim_rank *r = sim_rank_of(s, c.rank);

		if (r->posted.count)
			sim_list_each(s, &r->posted, &s->posted, report_posted, &c);
		if (r->arrived.count)
			sim_list_each(s, &r->arrived, &s->arrived, report_arrived, &c);
		for (; k < count && keys[k] >> 32 == c.rank; k++)
			report(&c, SIM_STUCK_REQUIRES, c.rank, (uint32_t)keys[k]);
	}
	while (!keys && (p = sim_table_next(&s->partials, p)))
		report(&c, SIM_STUCK_REQUIRES, (uint32_t)((p->key - 1) >> 32),
		       (uint32_t)(p->key - 1));
	free(keys);
	sim_cards_each(s, report_watcher, &c);
}
