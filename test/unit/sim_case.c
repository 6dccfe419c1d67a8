/* SPDX-License-Identifier: BSD-3-Clause */
#include "sim_case.h"

struct sim_params sim_case_params(double L, double o, double g, double G, double O, uint64_t S)
{
	const struct sim_preset preset = { "", L, o, g, G, O, 0, S };
	struct sim_params p;

	sim_params_from(&p, &preset);
	return p;
}

static void begin_rank(struct sim_case *c)
{
	goal_build_init(&c->build, c->ops, 4096, c->edges, 4096);
}

void sim_case_begin(struct sim_case *c, uint32_t ranks, const struct sim_params *p)
{
	c->config.params = *p;
	c->config.ranks = ranks;
	CHECK_EQ(sim_create(&c->config, &c->sim), 0);
	begin_rank(c);
}

uint32_t sim_case_calc(struct sim_case *c, uint64_t ns, uint16_t cpu)
{
	return goal_add(&c->build, &(struct goal_op){ .type = GOAL_CALC, .bytes = ns, .cpu = cpu });
}

/* Compiled and given to the simulator. */
static void add(struct sim *s, struct goal_build *b, uint32_t rank)
{
	size_t bytes = goal_block_bytes(b->op_count, b->edge_count, 0);
	struct goal_block *block = malloc(bytes);

	CHECK(block != NULL);
	CHECK_EQ(goal_compile(b, block, bytes), 0);
	CHECK_EQ(sim_add(s, rank, block), 0);
	free(block);
}

void sim_case_rank(struct sim_case *c, uint32_t rank)
{
	add(c->sim, &c->build, rank);
	begin_rank(c);
}

void sim_case_end(struct sim_case *c)
{
	sim_destroy(c->sim);
	c->sim = NULL;
}

struct sim *sim_case_pattern(const char *name, struct gen_params p, const struct sim_params *params,
			     size_t path_bytes)
{
	const struct gen_pattern *g = gen_find(name);
	struct sim_config config = { .params = *params,
				     .ranks = p.ranks,
				     .path_bytes = path_bytes,
				     .relation = g->by_bits ? SIM_BY_BITS : SIM_BY_DISTANCE };
	const char *why;
	struct sim *s;

	p.op = p.op ? p.op : GOAL_ADD;
	CHECK_EQ(gen_check(g, &p, &why), 0);
	CHECK_EQ(sim_create(&config, &s), 0);
	for (uint32_t rank = 0; rank < p.ranks; rank++) {
		uint32_t ops, edges;
		struct goal_build b;

		gen_room(g, &p, rank, &ops, &edges);
		goal_build_init(&b, malloc((ops + 1) * sizeof(struct goal_op)), ops,
				malloc((edges + 1) * sizeof(struct goal_edge)), edges);
		gen_build(g, &p, rank, &b);
		add(s, &b, rank);
		free(b.ops);
		free(b.edges);
	}
	CHECK_EQ(sim_run(s), 0);
	return s;
}

uint64_t sim_case_end_of(const char *name, struct gen_params p, const struct sim_params *params)
{
	struct sim *s = sim_case_pattern(name, p, params, 0);
	struct sim_stats stats;

	sim_get_stats(s, &stats);
	CHECK_EQ(stats.ops_done, stats.ops);
	sim_destroy(s);
	return stats.end_ps;
}
