/* SPDX-License-Identifier: BSD-3-Clause */
/* Small programs for the simulator, rank by rank, and patterns as a whole. */
#ifndef SLUICE_TEST_SIM_CASE_H
#define SLUICE_TEST_SIM_CASE_H

#include "goal/gen/gen.h"
#include "goal/sim/sim.h"
#include "unit.h"

struct sim_case {
	struct goal_build build; /* of the rank at hand */
	struct goal_op ops[4096];
	struct goal_edge edges[4096];
	struct sim_config config;
	struct sim *sim;
};

/* Parameters in ns, like `goal sim -L -o -g -G -O -S`. */
struct sim_params sim_case_params(double L, double o, double g, double G, double O, uint64_t S);

/* sim_case_begin -> (goal_send ... -> sim_case_rank) ... -> sim_run(c->sim) ... -> sim_case_end */
void sim_case_begin(struct sim_case *c, uint32_t ranks, const struct sim_params *p);
uint32_t sim_case_calc(struct sim_case *c, uint64_t ns, uint16_t cpu);
/* The operations that were added to c->build since the last call become this rank's schedule. */
void sim_case_rank(struct sim_case *c, uint32_t rank);
void sim_case_end(struct sim_case *c);

/* Simulates a pattern. Owner: the caller destroys the result. path_bytes: as in struct
 * sim_config. */
struct sim *sim_case_pattern(const char *name, struct gen_params p, const struct sim_params *params,
			     size_t path_bytes);
/* Simulates a pattern and returns only its end, in ps. */
uint64_t sim_case_end_of(const char *name, struct gen_params p, const struct sim_params *params);

#endif
