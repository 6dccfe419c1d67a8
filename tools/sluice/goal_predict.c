/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulates a program that sluice goal run executes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "goal_sim.h"

/* A program that does not end here will say so when it runs. */
static int simulate(const struct sim_config *c, const struct goal_program *p, uint64_t *out_ps)
{
	struct sim *sim;
	int ret = sim_create(c, &sim);

	if (ret)
		return ret;
	for (uint32_t r = 0; r < p->ranks && !ret; r++)
		ret = sim_add(sim, r, goal_program_block(p, r));
	if (!ret)
		ret = sim_run(sim);
	for (uint32_t r = 0; r < p->ranks && (!ret || ret == -EDEADLK); r++)
		out_ps[r] = sim_rank_end(sim, r);
	sim_destroy(sim);
	return ret == -EDEADLK ? 0 : ret;
}

int goal_predict(const char *path, const struct goal_program *p, uint64_t **out_ps)
{
	struct sim_config c = { .ranks = p->ranks };
	int ret;

	sim_params_from(&c.params, &sim_presets[0]);
	ret = goal_params_load(path, &c.params);
	if (ret)
		return ret;
	if (!c.params.node.row_count) {
		tool_say("goal run: %s has no parameters of a node; see: sluice goal sim --measure "
			 "--save",
			 path);
		return TOOL_FAILED;
	}
	c.params.node.ranks = p->ranks;
	if (p->ranks > c.params.node.cpus)
		tool_say("goal run: predicted for a CPU to each of %u ranks: %s is of %u CPUs",
			 p->ranks, path, c.params.node.cpus);
	*out_ps = calloc(p->ranks, sizeof **out_ps);
	ret = *out_ps ? simulate(&c, p, *out_ps) : -ENOMEM;
	if (ret)
		tool_say("goal run: cannot predict: %s", goal_why(ret));
	return ret ? TOOL_FAILED : TOOL_DONE;
}
