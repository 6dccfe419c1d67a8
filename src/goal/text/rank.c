/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a block of the operations and labels of a rank. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "private.h"

#define CYCLE_SHOWN 12 /* labels of a cycle that a message names */

int text_making_begin(struct text_making *m, uint32_t rank)
{
	struct goal_build *b = &m->build;

	m->rank = rank;
	m->has_scratch = false;
	m->scratch_bytes = m->scratch_used = 0;
	m->number_count = 0;
	b->op_count = b->edge_count = b->segment_count = b->recv_count = 0;
	b->scratch_bytes = 0;
	b->error = 0;
	return text_labels_clear(&m->labels);
}

void text_making_fini(struct text_making *m)
{
	text_labels_fini(&m->labels);
	free(m->build.ops);
	free(m->build.edges);
	free(m->build.segments);
	free(m->places);
	free(m->sorted);
	free(m->numbers);
	free(m->block);
	free(m->work);
}

uint32_t text_making_add(struct text_making *m, const struct goal_op *op, uint64_t line,
			 uint32_t label)
{
	struct goal_build *b = &m->build;
	uint32_t n;

	if (goal_grow(&b->ops, &b->op_cap, b->op_count + 1ull, sizeof *b->ops) ||
	    goal_grow(&m->places, &m->place_cap, b->op_count + 1ull, sizeof *m->places))
		return GOAL_NONE;
	n = goal_add(b, op);
	if (n == GOAL_NONE)
		return n;
	m->places[n] = (struct text_place){ .line = line, .label = TEXT_NO_LABEL };
	if (label != TEXT_NO_LABEL) {
		m->places[n].label = m->labels.all[label].name;
		m->labels.all[label].op = n;
	}
	return n;
}

int text_making_piece(struct text_making *m, uint32_t op, uint32_t mem, uint64_t off,
		      uint64_t bytes)
{
	struct goal_build *b = &m->build;

	if (goal_grow(&b->segments, &b->segment_cap, b->segment_count + 1ull, sizeof *b->segments))
		return -ENOMEM;
	goal_segment(b, op, (uint16_t)mem, off, bytes);
	return 0;
}

int text_making_number(struct text_making *m, uint32_t op, uint32_t match)
{
	if (goal_grow(&m->numbers, &m->number_cap, m->number_count + 1ull, sizeof *m->numbers))
		return -ENOMEM;
	m->numbers[m->number_count++] = (struct text_number){ op, match };
	return 0;
}

int text_making_edge(struct text_making *m, uint32_t after, uint32_t before, bool immediate)
{
	struct goal_build *b = &m->build;

	if (goal_grow(&b->edges, &b->edge_cap, b->edge_count + 1ull, sizeof *b->edges))
		return -ENOMEM;
	b->edges[b->edge_count++] = (struct goal_edge){ before, after, immediate };
	return 0;
}

/* ---- the end of a rank ------------------------------------------------------------------ */

static bool all_defined(struct text_parser *p)
{
	const struct text_labels *t = &p->making.labels;
	bool all = true;

	for (uint32_t i = 0; i < t->count && p->problem_count < TEXT_PROBLEMS_MAX; i++)
		if (t->all[i].op == GOAL_NONE) {
			text_wrong_at(p, t->all[i].line, t->all[i].column,
				      "there is no operation '%.40s' in rank %u",
				      text_label_name(t, i), p->making.rank);
			all = false;
		}
	return all;
}

/* Replaces labels in edges by the builder's operations. */
static void resolve(struct text_making *m)
{
	struct goal_build *b = &m->build;
	uint32_t count = b->edge_count;

	b->edge_count = 0;
	for (uint32_t e = 0; e < count; e++) {
		struct goal_edge edge = b->edges[e];
		uint32_t after = m->labels.all[edge.after].op,
			 before = m->labels.all[edge.before].op;

		/* at a place that was read already */
		(edge.immediate ? goal_irequires : goal_requires)(b, after, before);
	}
}

static const char *name_of(const struct text_making *m, uint32_t op)
{
	uint32_t label = m->places[op].label;

	return label == TEXT_NO_LABEL ? "?" : m->labels.names + label;
}

/* Removes operations in topological order; remaining[] of those on or behind a cycle stays above 0.
 * Used only when goal_compile() has found a cycle. */
static void peel(const struct goal_build *b, uint32_t *remaining, uint32_t *queue, uint32_t *starts,
		 uint32_t *successors)
{
	uint32_t head = 0, tail = 0, at = 0;

	for (uint32_t e = 0; e < b->edge_count; e++)
		starts[b->edges[e].before]++;
	for (uint32_t i = 0; i < b->op_count; i++) {
		uint32_t n = starts[i];

		starts[i] = at;
		at += n;
	}
	for (uint32_t e = 0; e < b->edge_count; e++) {
		remaining[b->edges[e].after]++;
		successors[starts[b->edges[e].before]++] = b->edges[e].after;
	}
	for (uint32_t i = 0; i < b->op_count; i++)
		if (!remaining[i])
			queue[tail++] = i;
	while (head < tail) {
		uint32_t i = queue[head++];

		/* starts[i] has advanced to the end of the list */
		for (uint32_t k = i ? starts[i - 1] : 0; k < starts[i]; k++)
			if (!--remaining[successors[k]])
				queue[tail++] = successors[k];
	}
}

/* Finds an operation on a cycle; before[i] is a remaining operation that i requires. */
static uint32_t find_cycle(const struct goal_build *b, uint32_t *remaining, uint32_t *before)
{
	uint32_t op = GOAL_NONE;

	for (uint32_t e = b->edge_count; e-- > 0;)
		if (remaining[b->edges[e].after] && remaining[b->edges[e].before]) {
			before[b->edges[e].after] = b->edges[e].before;
			op = b->edges[e].after;
		}
	/* after that many steps the walk is on the cycle */
	for (uint32_t i = 0; i < b->op_count && op != GOAL_NONE; i++)
		op = before[op];
	return op;
}

static void report_cycle(struct text_parser *p, uint32_t op, const uint32_t *before)
{
	const struct text_making *m = &p->making;
	uint32_t first = op, at, shown = 0;
	char text[CYCLE_SHOWN * 30] = "";
	size_t n = 0;

	/* named from its first statement in the text */
	for (at = before[op]; at != op; at = before[at])
		if (m->places[at].line < m->places[first].line)
			first = at;
	for (at = first; shown < CYCLE_SHOWN && (at != first || !shown); at = before[at], shown++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%.20s -> ", name_of(m, at));
	text_wrong_at(p, m->places[first].line, 0, "requirements of rank %u form a cycle: %s%s",
		      m->rank, text, at == first ? name_of(m, first) : "...");
}

static void name_cycle(struct text_parser *p)
{
	const struct goal_build *b = &p->making.build;
	size_t n = b->op_count;
	uint32_t *work = calloc(4 * n + b->edge_count + 1, sizeof *work), op;

	if (!work) {
		p->error = -ENOMEM;
		return;
	}
	peel(b, work, work + n, work + 2 * n, work + 4 * n);
	op = find_cycle(b, work, work + 3 * n);
	if (op != GOAL_NONE)
		report_cycle(p, op, work + 3 * n);
	free(work);
}

/*
 * Receives are numbered in the order of the block, which is the same for a written and a printed
 * text; `match` overrides the number.
 */
static void number_receives(struct text_making *m)
{
	struct goal_op *ops = goal_ops(m->block);
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->block->op_count; i++)
		if (ops[i].type == GOAL_RECV)
			ops[i].match = n++;
	for (uint32_t i = 0; i < m->number_count; i++)
		ops[m->build.ops[m->numbers[i].op].next].match = m->numbers[i].match;
}

/* Allocates the compiled rank and its tables. */
static int make_room(struct text_making *m)
{
	const struct goal_build *b = &m->build;
	uint64_t bytes = goal_block_bytes(b->op_count, b->edge_count, b->segment_count);
	size_t words = bytes / sizeof(struct goal_op) + 1;

	if (bytes > m->block_cap) {
		free(m->block);
		m->block_cap = 0;
		m->block = malloc(bytes + bytes / 2);
		if (!m->block)
			return -ENOMEM;
		m->block_cap = bytes + bytes / 2;
	}
	if (words > m->work_cap) {
		free(m->work);
		m->work_cap = 0;
		m->work = malloc((words + words / 2) * sizeof *m->work);
		if (!m->work)
			return -ENOMEM;
		m->work_cap = words + words / 2;
	}
	return goal_grow(&m->sorted, &m->sorted_cap, b->op_count, sizeof *m->sorted);
}

static bool compiled(struct text_parser *p)
{
	struct text_making *m = &p->making;
	int ret = make_room(m);

	if (!ret)
		ret = goal_compile(&m->build, m->block, m->block_cap);
	if (ret == -ELOOP)
		name_cycle(p);
	else if (ret)
		p->error = ret;
	return !ret;
}

static bool verified(struct text_parser *p)
{
	static uint64_t anything[GOAL_SPACES_MAX];
	struct text_making *m = &p->making;
	struct goal_limits limits = { p->ranks, GOAL_SPACES_MAX, anything, true };

	memset(anything, 0xff, sizeof anything);
	if (!goal_verify(m->block, m->block->bytes, &limits, m->work))
		return true;
	text_wrong_at(p, 0, 0,
		      m->number_count ? "rank %u: its receives are not numbered from 0 without gaps"
				      : "rank %u does not pass verification",
		      m->rank);
	return false;
}

static bool scratch_suffices(struct text_parser *p)
{
	struct text_making *m = &p->making;

	m->build.scratch_bytes = m->has_scratch ? m->scratch_bytes : m->scratch_used;
	if (m->build.scratch_bytes >= m->scratch_used)
		return true;
	text_wrong_at(p, 0, 0, "rank %u uses %llu bytes of scratch memory and states %llu", m->rank,
		      (unsigned long long)m->scratch_used, (unsigned long long)m->scratch_bytes);
	return false;
}

void text_making_end(struct text_parser *p)
{
	struct text_making *m = &p->making;
	const struct goal_build *b = &m->build;
	struct text_rank r;

	/* a statement with a mistake is missing: it would cause false problems */
	if (!all_defined(p) || p->problem_count > p->problems_before || !scratch_suffices(p))
		return;
	resolve(m);
	if (!compiled(p))
		return;
	number_receives(m);
	if (p->problem_count || !verified(p) || !p->calls->rank)
		return;
	/* goal_compile() has set `next` to the operation's index */
	for (uint32_t i = 0; i < b->op_count; i++)
		m->sorted[b->ops[i].next] = m->places[i];
	r = (struct text_rank){ .rank = m->rank,
				.block = m->block,
				.places = m->sorted,
				.labels = m->labels.names,
				.labels_bytes = m->labels.names_bytes };
	p->error = p->calls->rank(p->ctx, &r);
}
