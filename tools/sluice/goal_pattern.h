/* SPDX-License-Identifier: BSD-3-Clause */
/* goal_pattern: collectives by name on the command lines of `goal gen` and `goal sim`. */
#ifndef SLUICE_TOOL_GOAL_PATTERN_H
#define SLUICE_TOOL_GOAL_PATTERN_H

#include "goal/gen/gen.h"

/* Options of both, for goal_next_arg(). */
#define GOAL_PATTERN_OPTIONS                                                                       \
	"-n=", "--ranks=", "-s=", "--size=", "--root=", "--segment=", "--op=", "--type=",          \
		"--dims=", "--periodic", "--rounds=", "--calc="
enum { GOAL_PATTERN_OPTION_COUNT = 12 };
extern const char goal_pattern_help[];

struct goal_pattern {
	const struct gen_pattern *pattern; /* NULL: none */
	struct gen_params params;
	bool has_options;
};
void goal_pattern_init(struct goal_pattern *g);
/* Parses option `arg` of GOAL_PATTERN_OPTIONS. Returns: TOOL_DONE; TOOL_MISUSE after a message. */
int goal_pattern_option(struct goal_pattern *g, const char *verb, int option, const char *value);
/* Checks the options as a whole. Returns: TOOL_DONE; TOOL_MISUSE after a message. */
int goal_pattern_check(struct goal_pattern *g, const char *verb);
/* "there is no pattern ...; did you mean ...?" */
void goal_pattern_unknown(const char *verb, const char *word);

/* A rank's block, valid until the next call. Zeroed before the first. */
struct goal_maker {
	struct goal_op *ops;
	struct goal_edge *edges;
	struct goal_block *block;
	uint32_t op_cap, edge_cap;
};
/* 0 or -ENOMEM. */
int goal_maker_block(struct goal_maker *m, const struct goal_pattern *g, uint32_t rank,
		     const struct goal_block **out);
void goal_maker_free(struct goal_maker *m);

#endif
