/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sluice goal sim, in parts:
 *
 *   goal_sim.c           command line, running
 *   goal_sim_load.c      a pattern, text or program into the simulator; names of operations
 *   goal_sim_report.c    what people read      goal_sim_json.c      what programs read
 *   goal_sim_timeline.c  what Perfetto reads   goal_sim_params.c    the model's parameters
 *   goal_sim_measure.c   those of this machine           goal_sim_noise.c   OS noise
 *   goal_sim_matching.c  how receives and messages matched
 */
#ifndef SLUICE_TOOL_GOAL_SIM_H
#define SLUICE_TOOL_GOAL_SIM_H

#include "goal.h"
#include "goal_pattern.h"
#include "goal/sim/sim.h"

#define GOAL_SIM_TIMES_MAX 16 /* without --times, times of so many ranks are printed */
#define GOAL_SIM_STUCK_MAX 20 /* lines about stuck operations */

struct goal_sim_options {
	struct goal_pattern pattern;
	const char *file;       /* a file instead of a pattern */
	struct sim_params params;
	const char *params_name, *node_name; /* where the parameters come from */
	const char *save;
	bool measure, json, times;
	const char *timeline;
	uint32_t timeline_first, timeline_end;
	uint64_t node_ranks;    /* of --node-ranks; 0: not given */
	uint64_t path_steps;    /* to print */
	uint64_t path_bytes;
	struct sim_noise noise;
	const char *noise_path;
	const char *matching;   /* file for statistics of matching */
};

struct goal_timeline;
struct goal_sim {
	struct goal_sim_options o;
	struct goal_input input; /* of a file */
	struct sim_config config;
	struct sim *sim;
	struct goal_timeline *timeline;
	uint64_t began_ns, printed_ns; /* for progress */
	bool is_terminal;
	int result;             /* of sim_run() */
};

/* Loads all ranks. Returns: TOOL_DONE, or an exit code after a message. */
int goal_sim_load(struct goal_sim *g);
/* Names an operation: "send 8b to 5 tag 0" or, from a text, "l3 (line 12): send ..."; returns as
 * snprintf(). */
int goal_sim_name(const struct goal_sim *g, uint32_t rank, uint32_t op, uint8_t type,
		  uint64_t bytes, uint32_t peer, uint32_t tag, char *buf, size_t cap);
/* Returns: the label of a text's operation, or NULL; *line: its line, 0: not known. */
const char *goal_sim_label(const struct goal_sim *g, uint32_t rank, uint32_t op, uint64_t *line);
/* Prints progress on stderr when that is a terminal and the simulation takes long. Returns: 1:
 * interrupted. */
int goal_sim_progress(struct goal_sim *g, const char *what, uint64_t done, uint64_t all);

/* Reads the trace of noise. Returns: TOOL_DONE, or an exit code after a message. */
int goal_noise_load(struct goal_sim_options *o);
/* Writes the table of --matching. Returns: TOOL_DONE, or an exit code after a message. */
int goal_matching_write(const struct goal_sim *g);
/* Returns: counts of all ranks; the largest of what is not a count. */
struct sim_matching goal_matching_sum(const struct goal_sim *g);

void goal_sim_report(const struct goal_sim *g);
void goal_sim_json(const struct goal_sim *g);
/* Prints stuck operations on stderr. */
void goal_sim_print_stuck(const struct goal_sim *g);
/* "22000", "22000.5": nanoseconds. */
const char *goal_sim_ns(uint64_t ps, char buf[32]);
const char *goal_sim_cost(uint64_t cost, char buf[32]);
#define GOAL_COST_NAMES "LogGO" /* of struct sim_costs.all */
/* Returns: cost k as "22000"; NULL: it is as of shorter messages. */
const char *goal_sim_cost_of(const struct sim_costs *c, int k, char buf[32]);

/* Returns: sorted end times of all ranks, which the caller frees; NULL: no memory. */
uint64_t *goal_sim_sorted_ends(const struct goal_sim *g);

/* Returns: TOOL_DONE, or an exit code after a message. */
int goal_timeline_open(struct goal_sim *g);
void goal_timeline_interval(struct goal_sim *g, const struct sim_interval *interval);
int goal_timeline_close(struct goal_sim *g);

/* A measured duration in ns: median, tenth and ninetieth percentile of its rounds. */
#define GOAL_MEASURE_ROUNDS 11 /* at most */
struct goal_measured {
	double low, median, high;
};
struct goal_measure {
	int cpus, rounds;
	double start_ns, latency_ns, overhead_ns;
	const uint64_t *lengths; /* [length_count] bytes of each row */
	size_t length_count;
	struct goal_measured row[SIM_NODE_ROWS_MAX][SIM_NODE_COLUMNS];
};
/* Measures messages and local operations inside this node. Returns: 0 or -errno; -ECANCELED. */
int goal_measure(struct goal_sim *g, struct goal_measure *out);
/* Measures this node, prints its parameters and uses them. Returns: TOOL_DONE, or an exit code
 * after a message. */
int goal_params_measure(struct goal_sim *g);
/* L, o, g, G, O, C or S. 0 or -EINVAL. */
int goal_params_set(struct sim_params *p, char name, const char *value);
/* "4K o 800": of messages that are longer. 0 or -EINVAL. */
int goal_params_above(struct sim_params *p, const char *value);
/* Writes parameters, one a line: "L 2500", "node L 100". Returns: TOOL_DONE, or an exit code after
 * a message. */
int goal_params_save(const char *path, const struct sim_params *p);
int goal_params_load(const char *path, struct sim_params *p);
/* Simulates a program, all of whose ranks share the node of `path`. Returns: TOOL_DONE with the end
 * of each rank in ps, which the caller frees; an exit code after a message. */
int goal_predict(const char *path, const struct goal_program *p, uint64_t **out_ps);

#endif
