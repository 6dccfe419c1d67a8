/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "private.h"

#define LINE 64             /* bytes of a cache line */

/* All ranks share the empty schedule until sim_add(). */
static int set_up_ranks(struct sim *s)
{
	struct goal_block none = { .op_count = 0 };
	int rc;

	s->nothing = sim_shape_of(&s->shapes, &s->config, 0, &none, &rc);
	for (uint32_t rank = 0; rank < s->config.ranks && !rc; rank++) {
		struct sim_rank *r = sim_rank_of(s, rank);

		memset(r, 0, sizeof(*r));
		sim_unit_init(&r->unit);
		r->shape = s->nothing;
	}
	return rc;
}

static int set_up_matching(struct sim *s)
{
	if (!s->config.matching)
		return 0;
	s->matching = calloc(s->config.ranks, sizeof(*s->matching));
	return s->matching ? 0 : -ENOMEM;
}

static int set_up_nodes(struct sim *s)
{
	if (!s->config.params.node.ranks)
		return 0;
	s->neighbours = calloc(s->config.ranks, sizeof(*s->neighbours));
	return s->neighbours ? 0 : -ENOMEM;
}

int sim_create(const struct sim_config *config, struct sim **out)
{
	struct sim *s;
	size_t bytes;
	int rc;

	if (!config->ranks || config->ranks > GOAL_RANKS_MAX ||
	    (config->params.node.ranks &&
	     (!config->params.node.row_count || config->params.model == SIM_ATLAHS)) ||
	    (config->matching && config->params.model == SIM_ATLAHS))
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->config = *config;
	sim_classes_fill(&s->config.params);
	sim_queue_init(&s->queue);
	sim_shapes_init(&s->shapes);
	sim_pool_init(&s->posted, sizeof(struct sim_posted));
	sim_pool_init(&s->arrived, sizeof(struct sim_arrived));
	sim_pool_init(&s->waiters, sizeof(struct sim_waiter));
	sim_pool_init(&s->entries, sizeof(struct sim_entry));
	sim_pool_init(&s->watchers, sizeof(struct sim_watcher));
	sim_table_init(&s->units, sizeof(struct sim_unit_slot));
	sim_table_init(&s->partials, sizeof(struct sim_partial));
	sim_table_init(&s->counters, sizeof(struct sim_counter));
	if (__builtin_mul_overflow(sizeof(*s->ranks), config->ranks, &bytes) ||
	    posix_memalign((void **)&s->ranks, LINE, bytes) || set_up_nodes(s) ||
	    set_up_matching(s) || set_up_ranks(s)) {
		sim_destroy(s);
		return -ENOMEM;
	}
	rc = sim_detours_init(&s->detours, &config->noise);
	if (rc) {
		sim_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

void sim_destroy(struct sim *s)
{
	if (!s)
		return;
	sim_queue_fini(&s->queue);
	sim_shapes_fini(&s->shapes);
	sim_pool_fini(&s->posted);
	sim_pool_fini(&s->arrived);
	sim_pool_fini(&s->waiters);
	sim_cards_fini(s);
	sim_table_fini(&s->partials);
	sim_table_fini(&s->units);
	sim_log_fini(&s->log);
	for (uint32_t i = 1; i < s->bins_count; i++)
		sim_bins_free(s->bins[i]);
	free(s->bins);
	free(s->neighbours);
	free(s->matching);
	sim_detours_fini(&s->detours);
	free(s->freed[0]);
	free(s->freed[1]);
	free(s->ranks);
	free(s);
}

int sim_add(struct sim *s, uint32_t rank, const struct goal_block *block)
{
	struct sim_rank *r = sim_rank_of(s, rank);
	int rc;

	if (rank >= s->config.ranks || r->shape != s->nothing)
		return -EINVAL;
	r->shape = sim_shape_of(&s->shapes, &s->config, rank, block, &rc);
	if (!r->shape) {
		r->shape = s->nothing;
		return rc;
	}
	rc = sim_units_add(s, rank, block);
	if (rc)
		return rc;
	sim_node_add(s, rank, block);
	r->remaining = block->op_count;
	s->stats.ops += r->remaining;
	s->stats.shapes = s->shapes.shapes.used - 1;
	return 0;
}

void sim_get_stats(const struct sim *s, struct sim_stats *out) { *out = s->stats; }

const struct sim_matching *sim_matching_of(const struct sim *s, uint32_t rank)
{
	return s->matching ? &s->matching[rank] : NULL;
}

uint64_t sim_rank_end(const struct sim *s, uint32_t rank)
{
	uint64_t cpu = sim_rank_of(s, rank)->unit.cpu.free;

	return s->neighbours && s->neighbours[rank].sent_until > cpu
		       ? s->neighbours[rank].sent_until
		       : cpu;
}
