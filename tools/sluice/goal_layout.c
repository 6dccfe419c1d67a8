/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { COLUMN_GAP = 8, LANE_GAP = 20, ROW_GAP = 8, LEVEL_GAP = 40, LEVEL_GAP_MAX = 140 };

static bool is_chosen(uint32_t rank, const uint64_t *chosen, size_t words)
{
	return !chosen || (rank / 64 < words && chosen[rank / 64] >> rank % 64 & 1);
}

static int choose(struct goal_layout *l, const uint64_t *chosen, size_t words)
{
	const struct goal_program *p = l->in->program;
	uint64_t ops = 0;

	for (uint32_t r = 0; r < p->ranks; r++) {
		if (!is_chosen(r, chosen, words))
			continue;
		if (l->lane_count == LAYOUT_RANKS_MAX)
			return -E2BIG;
		l->lanes[l->lane_count++] =
			(struct goal_lane){ .rank = r,
					    .first = (uint32_t)ops,
					    .count = goal_program_block(p, r)->op_count };
		ops += goal_program_block(p, r)->op_count;
		if (ops > LAYOUT_OPS_MAX)
			return -E2BIG;
	}
	l->node_count = (uint32_t)ops;
	return 0;
}

static struct goal_node *node_of(const struct goal_layout *l, uint32_t lane, uint32_t place)
{
	return &l->nodes[l->lanes[lane].first + place];
}

struct goal_node *goal_layout_node(const struct goal_layout *l, uint32_t op)
{
	for (uint32_t i = 0; op != GOAL_NONE && i < l->lane_count; i++)
		if (l->lanes[i].rank == l->flow.rank[op])
			return node_of(l, i, op - l->flow.first[l->lanes[i].rank]);
	return NULL;
}

static void fill_nodes(struct goal_layout *l)
{
	for (uint32_t i = 0; i < l->lane_count; i++)
		for (uint32_t k = 0; k < l->lanes[i].count; k++)
			*node_of(l, i, k) =
				(struct goal_node){ .rank = l->lanes[i].rank,
						    .place = k,
						    .lane = i,
						    .partner = GOAL_NONE,
						    .op = l->flow.first[l->lanes[i].rank] + k };
	for (uint32_t n = 0; n < l->node_count; n++) {
		const struct goal_node *partner =
			goal_layout_node(l, l->flow.partner[l->nodes[n].op]);

		if (partner)
			l->nodes[n].partner = (uint32_t)(partner - l->nodes);
	}
}

void goal_layout_edges(const struct goal_layout *l,
		       void (*visit)(void *ctx, const struct goal_node *before,
				     const struct goal_node *after, bool immediate),
		       void *ctx)
{
	for (uint32_t n = 0; n < l->node_count; n++) {
		const struct goal_node *from = &l->nodes[n];
		const struct goal_op *op = goal_layout_op(l, from);
		const uint32_t *list =
			goal_adjacency(goal_program_block(l->in->program, from->rank));

		for (uint32_t k = 0; k < op->next_count; k++)
			visit(ctx, from, node_of(l, from->lane, list[op->next + k]), false);
		for (uint32_t k = 0; k < op->inext_count; k++)
			visit(ctx, from, node_of(l, from->lane, list[op->inext + k]), true);
	}
}

/* ---- levels ----------------------------------------------------------------------------- */

struct levels {
	struct goal_layout *l;
	uint32_t *remaining; /* requirements and messages whose level is not known */
	bool *done;
};

static void below(struct levels *w, uint32_t node, uint32_t level)
{
	if (w->l->nodes[node].level <= level)
		w->l->nodes[node].level = level + 1;
	w->remaining[node]--;
}

static bool waits_for_message(const struct goal_layout *l, uint32_t n)
{
	return goal_layout_op(l, &l->nodes[n])->type == GOAL_RECV &&
	       l->nodes[n].partner != GOAL_NONE;
}

static void place(struct levels *w, uint32_t n)
{
	struct goal_layout *l = w->l;
	struct goal_node *node = &l->nodes[n];
	const struct goal_op *op = goal_layout_op(l, node);
	const uint32_t *list = goal_adjacency(goal_program_block(l->in->program, node->rank));

	w->done[n] = true;
	for (uint32_t k = 0; k < op->next_count; k++)
		below(w, l->lanes[node->lane].first + list[op->next + k], node->level);
	for (uint32_t k = 0; k < op->inext_count; k++)
		below(w, l->lanes[node->lane].first + list[op->inext + k], node->level);
	if (op->type == GOAL_SEND && node->partner != GOAL_NONE && !w->done[node->partner])
		below(w, node->partner, node->level);
	if (node->level >= l->level_count)
		l->level_count = node->level + 1;
}

/*
 * Places operations in topological order. A receive whose beginning leads to the send of its own
 * message would wait for itself: when nothing else remains, a receive that misses only its message
 * goes first.
 */
static int find_levels(struct goal_layout *l)
{
	struct levels w = { .l = l,
			    .remaining = calloc(l->node_count + 1u, sizeof *w.remaining),
			    .done = calloc(l->node_count + 1u, sizeof *w.done) };
	uint32_t placed = 0, before;

	if (!w.remaining || !w.done) {
		free(w.remaining);
		free(w.done);
		return -ENOMEM;
	}
	for (uint32_t n = 0; n < l->node_count; n++)
	w.remaining[n] = goal_layout_op(l, &l->nodes[n])->requires + waits_for_message(l, n);
	while (placed < l->node_count) {
		before = placed;
		for (uint32_t n = 0; n < l->node_count; n++)
			if (!w.done[n] && !w.remaining[n]) {
				place(&w, n);
				placed++;
			}
		for (uint32_t n = 0; placed == before && n < l->node_count; n++)
			if (!w.done[n] && w.remaining[n] == 1 && waits_for_message(l, n) &&
			    !w.done[l->nodes[n].partner]) {
				place(&w, n);
				placed++;
			}
		if (placed == before)
			break; /* cannot happen with a verified program */
	}
	free(w.remaining);
	free(w.done);
	return 0;
}

/* ---- columns and rows ------------------------------------------------------------------- */

/* The largest width of a lane for which the drawing stays readable. */
static uint32_t most_columns(const struct goal_layout *l)
{
	return l->lane_count <= 8 ? 6 : l->lane_count <= 24 ? 3 : 2;
}

/* Places operations of a level side by side, in rows when there are many. used: [level_count],
 * zero. */
static void find_columns(struct goal_layout *l, struct goal_lane *lane, uint32_t *used)
{
	for (uint32_t k = 0; k < lane->count; k++)
		used[l->nodes[lane->first + k].level]++;
	lane->columns = 1;
	for (uint32_t i = 0; i < l->level_count; i++) {
		lane->columns = (uint32_t)base_max_u64(lane->columns,
						       base_min_u64(used[i], most_columns(l)));
		used[i] = 0;
	}
	for (uint32_t k = 0; k < lane->count; k++) {
		struct goal_node *node = &l->nodes[lane->first + k];

		node->column = used[node->level] % lane->columns;
		node->row = used[node->level]++ / lane->columns;
		if (node->row >= l->level_rows[node->level])
			l->level_rows[node->level] = node->row + 1;
	}
}

static int find_rows(struct goal_layout *l)
{
	uint32_t *used = malloc((l->level_count + 1ull) * sizeof *used);

	l->level_rows = calloc(l->level_count + 1ull, sizeof *l->level_rows);
	if (!used || !l->level_rows) {
		free(used);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < l->lane_count; i++) {
		memset(used, 0, l->level_count * sizeof *used);
		find_columns(l, &l->lanes[i], used);
	}
	free(used);
	return 0;
}

static void find_x(struct goal_layout *l)
{
	int x = LAYOUT_MARGIN;

	for (uint32_t i = 0; i < l->lane_count; i++) {
		struct goal_lane *lane = &l->lanes[i];

		lane->x = x;
		lane->width = (int)lane->columns * (LAYOUT_BOX_WIDTH + COLUMN_GAP) - COLUMN_GAP +
			      LANE_GAP;
		x += lane->width;
		for (uint32_t k = 0; k < lane->count; k++) {
			struct goal_node *node = &l->nodes[lane->first + k];

			node->x = lane->x + LANE_GAP / 2 +
				  (int)node->column * (LAYOUT_BOX_WIDTH + COLUMN_GAP);
		}
	}
	l->width = x + LAYOUT_MARGIN;
}

/* The space below a level: larger when messages go far, so that their lines are not flat. */
static int gap_below(const struct goal_layout *l, uint32_t level)
{
	int gap = LEVEL_GAP;

	for (uint32_t n = 0; n < l->node_count; n++) {
		const struct goal_node *node = &l->nodes[n];
		int far = node->level == level && node->partner != GOAL_NONE
				  ? abs(l->nodes[node->partner].x - node->x) / 14
				  : 0;

		if (far > gap && l->nodes[node->partner].level == level + 1)
			gap = far;
	}
	return gap < LEVEL_GAP_MAX ? gap : LEVEL_GAP_MAX;
}

/* y: [level_count] */
static void find_y(struct goal_layout *l, int *y)
{
	int down = LAYOUT_TOP;

	for (uint32_t i = 0; i < l->level_count; i++) {
		y[i] = down;
		down += (int)l->level_rows[i] * (LAYOUT_BOX_HEIGHT + ROW_GAP) - ROW_GAP;
		if (i + 1 < l->level_count)
			down += gap_below(l, i);
	}
	l->height = down + LAYOUT_MARGIN * 2;
	for (uint32_t n = 0; n < l->node_count; n++) {
		struct goal_node *node = &l->nodes[n];

		node->y = y[node->level] + (int)node->row * (LAYOUT_BOX_HEIGHT + ROW_GAP);
	}
}

static int lay_out(struct goal_layout *l, const uint64_t *chosen, size_t words)
{
	int ret = choose(l, chosen, words), *y;

	if (!ret)
		ret = goal_flow_run(&l->flow, l->in->program, false);
	if (!ret)
		ret = goal_flow_explain(&l->flow);
	if (ret)
		return ret;
	l->nodes = calloc(l->node_count + 1ull, sizeof *l->nodes);
	if (!l->nodes)
		return -ENOMEM;
	fill_nodes(l);
	ret = find_levels(l);
	if (!ret)
		ret = find_rows(l);
	y = malloc((l->level_count + 1ull) * sizeof *y);
	if (!ret && !y)
		ret = -ENOMEM;
	if (!ret) {
		find_x(l);
		find_y(l, y);
	}
	free(y);
	return ret;
}

int goal_layout_make(struct goal_layout *l, const struct goal_input *in, const uint64_t *chosen,
		     size_t words)
{
	int ret;

	*l = (struct goal_layout){ .in = in, .lanes = calloc(LAYOUT_RANKS_MAX, sizeof *l->lanes) };
	ret = l->lanes ? lay_out(l, chosen, words) : -ENOMEM;
	if (ret)
		goal_layout_free(l);
	return ret;
}

void goal_layout_free(struct goal_layout *l)
{
	goal_flow_free(&l->flow);
	free(l->nodes);
	free(l->lanes);
	free(l->level_rows);
}

/* ---- asking ----------------------------------------------------------------------------- */

bool goal_layout_is_stuck(const struct goal_layout *l, const struct goal_node *n)
{
	return l->flow.state[n->op] != GOAL_FLOW_ENDED ||
	       (goal_layout_op(l, n)->type == GOAL_SEND && l->flow.partner[n->op] == GOAL_NONE);
}

void goal_layout_label(const struct goal_layout *l, const struct goal_node *n, char *buf,
		       size_t cap)
{
	const struct goal_places *places = l->in->places ? &l->in->places[n->rank] : NULL;

	if (!places)
		snprintf(buf, cap, "l%u", n->place);
	else if (places->all[n->place].label == TEXT_NO_LABEL)
		snprintf(buf, cap, "%s", "");
	else
		snprintf(buf, cap, "%s", places->labels + places->all[n->place].label);
}
