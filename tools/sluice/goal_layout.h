/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * goal_layout: positions of operations in a drawing. Ranks are lanes, side by side. Levels go
 * downward: an operation stands below all operations that it requires, and a receive below its
 * send.
 */
#ifndef SLUICE_TOOL_GOAL_LAYOUT_H
#define SLUICE_TOOL_GOAL_LAYOUT_H

#include "goal.h"
#include "goal_flow.h"

enum {
	LAYOUT_OPS_MAX = 4096,
	LAYOUT_RANKS_MAX = 128,
	LAYOUT_BOX_WIDTH = 92,
	LAYOUT_BOX_HEIGHT = 32,
	LAYOUT_TOP = 84, /* for the title and the names of ranks */
	LAYOUT_MARGIN = 16,
};

struct goal_node {
	uint32_t rank, place, op; /* index in the rank's block; number in the flow */
	uint32_t lane, level;
	uint32_t column, row; /* position in the lane; in the level */
	uint32_t partner;     /* partner of a send or receive; GOAL_NONE: none, or not drawn */
	int x, y;             /* upper left corner */
};

struct goal_lane {
	uint32_t rank, first, count; /* nodes, in the block's order */
	uint32_t columns;
	int x, width;
};

struct goal_layout {
	const struct goal_input *in;
	struct goal_flow flow;
	struct goal_node *nodes;
	struct goal_lane *lanes;
	uint32_t node_count, lane_count, level_count;
	uint32_t *level_rows; /* [level_count] */
	int width, height;
};

/*
 * Lays out the ranks whose bit is set in `chosen` (64 a word, `words` of them; NULL: all). Returns:
 * 0; -ENOMEM; -E2BIG: too many to be readable.
 */
int goal_layout_make(struct goal_layout *l, const struct goal_input *in, const uint64_t *chosen,
		     size_t words);
void goal_layout_free(struct goal_layout *l);

static inline const struct goal_op *goal_layout_op(const struct goal_layout *l,
						   const struct goal_node *n)
{
	return &goal_ops_const(goal_program_block(l->in->program, n->rank))[n->place];
}
/* Returns: the node of an operation of the flow; NULL for GOAL_NONE, or when its rank is not
 * drawn. */
struct goal_node *goal_layout_node(const struct goal_layout *l, uint32_t op);
/* Does the operation never end, or its message find no receive? */
bool goal_layout_is_stuck(const struct goal_layout *l, const struct goal_node *n);
/* Returns: its label in the text; "" without one. */
void goal_layout_label(const struct goal_layout *l, const struct goal_node *n, char *buf,
		       size_t cap);
/* Calls visit for each requirement between drawn operations. */
void goal_layout_edges(const struct goal_layout *l,
		       void (*visit)(void *ctx, const struct goal_node *before,
				     const struct goal_node *after, bool immediate),
		       void *ctx);

/* goal_svg.c, goal_dot.c: write the drawing. Errors are those of the stream. */
void goal_svg_write(const struct goal_layout *l, FILE *out);
void goal_dot_write(const struct goal_layout *l, FILE *out);

#endif
