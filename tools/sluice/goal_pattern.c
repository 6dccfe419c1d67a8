/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal_pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal.h"

const char goal_pattern_help[] =
	"  -n, --ranks N     number of ranks\n"
	"  -s, --size SIZE   bytes of each block, or of the vector of a reduction (8)\n"
	"  --root R          root of a broadcast, reduction, gather or scatter (0)\n"
	"  --segment SIZE    ring-bcast: bytes of a segment (the whole message)\n"
	"  --op OP           reductions: add, mul, max, min, and, or, xor (add)\n"
	"  --type TYPE       reductions: i8 ... u64, f16, bf16, f32, f64 (i8)\n"
	"  --dims AxB[xC]    stencils: ranks in each dimension (as equal as possible)\n"
	"  --periodic        stencils: the last rank is a neighbour of the first\n"
	"  --rounds N        stencils and ping-pong: number of rounds (1)\n"
	"  --calc NS         stencils: nanoseconds of computing in each round (0)\n";

enum option { N, RANKS, S, SIZE, ROOT, SEGMENT, OP, TYPE, DIMS, PERIODIC, ROUNDS, CALC };

void goal_pattern_init(struct goal_pattern *g)
{
	*g = (struct goal_pattern){ .params = { .bytes = 8, .op = GOAL_ADD, .dtype = GOAL_I8 } };
}

static int parse_u32(const char *text, uint32_t least, uint32_t most, uint32_t *out)
{
	uint64_t n;

	if (goal_parse_number(text, least, most, &n))
		return -EINVAL;
	*out = (uint32_t)n;
	return 0;
}

static int parse_word(const char *text, const char *const *words, uint8_t first, uint8_t count,
		      uint8_t *out)
{
	for (uint8_t i = first; i < count; i++)
		if (!strcmp(text, words[i])) {
			*out = i;
			return 0;
		}
	return -EINVAL;
}

static int parse_dims(const char *text, uint32_t dims[GEN_DIMS_MAX])
{
	char part[16];
	uint32_t n = 0;

	memset(dims, 0, GEN_DIMS_MAX * sizeof *dims);
	for (;;) {
		size_t len = strcspn(text, "x");

		if (n == GEN_DIMS_MAX || len >= sizeof part)
			return -EINVAL;
		memcpy(part, text, len);
		part[len] = '\0';
		if (parse_u32(part, 1, GOAL_RANKS_MAX, &dims[n++]))
			return -EINVAL;
		if (!text[len])
			return n > 1 ? 0 : -EINVAL;
		text += len + 1;
	}
}

static int parse_option(struct gen_params *p, int option, const char *value)
{
	switch (option) {
	case N:
	case RANKS:
		return parse_u32(value, 1, GOAL_RANKS_MAX, &p->ranks);
	case S:
	case SIZE:
		return base_parse_bytes(value, &p->bytes);
	case ROOT:
		return parse_u32(value, 0, GOAL_RANKS_MAX, &p->root);
	case SEGMENT:
		return base_parse_bytes(value, &p->segment_bytes);
	case OP:
		return parse_word(value, goal_op_words, GOAL_ADD, GOAL_XOR + 1, &p->op);
	case TYPE:
		return parse_word(value, goal_dtype_words, 0, GOAL_DTYPE_COUNT, &p->dtype);
	case DIMS:
		return parse_dims(value, p->dims);
	case PERIODIC:
		p->periodic = true;
		return 0;
	case ROUNDS:
		return parse_u32(value, 1, UINT32_MAX / 8, &p->rounds);
	case CALC:
		return goal_parse_number(value, 0, INT64_MAX, &p->calc_ns);
	}
	return -EINVAL;
}

int goal_pattern_option(struct goal_pattern *g, const char *verb, int option, const char *value)
{
	static const char *const names[] = { GOAL_PATTERN_OPTIONS };

	g->has_options = true;
	if (!parse_option(&g->params, option, value))
		return TOOL_DONE;
	tool_say("goal %s: %.*s cannot be '%s'; see: sluice goal %s --help", verb,
		 (int)strcspn(names[option], "="), names[option], value, verb);
	return TOOL_MISUSE;
}

int goal_pattern_check(struct goal_pattern *g, const char *verb)
{
	const char *why;

	if (!g->params.ranks) {
		tool_say("goal %s: no number of ranks; use -n N", verb);
		return TOOL_MISUSE;
	}
	if (!gen_check(g->pattern, &g->params, &why))
		return TOOL_DONE;
	tool_say("goal %s: %s: %s", verb, g->pattern->name, why);
	return TOOL_MISUSE;
}

void goal_pattern_unknown(const char *verb, const char *word)
{
	const char *names[64], *nearest;
	uint32_t count = gen_pattern_count < 64 ? gen_pattern_count : 64;

	for (uint32_t i = 0; i < count; i++)
		names[i] = gen_patterns[i].name;
	nearest = tool_nearest(word, names, count);
	tool_say("goal %s: there is no pattern '%s'%s%s%s; see: sluice goal gen --list", verb, word,
		 nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

/* ---- blocks ------------------------------------------------------------------------------ */

static int make_room(struct goal_maker *m, const struct goal_pattern *g, uint32_t rank)
{
	uint32_t ops, edges;
	void *more_ops, *more_edges, *block;

	gen_room(g->pattern, &g->params, rank, &ops, &edges);
	ops = ops > m->op_cap ? ops + ops / 4 : m->op_cap;
	edges = edges > m->edge_cap ? edges + edges / 4 : m->edge_cap;
	more_ops = realloc(m->ops, (ops + 1ull) * sizeof *m->ops);
	m->ops = more_ops ? more_ops : m->ops;
	more_edges = realloc(m->edges, (edges + 1ull) * sizeof *m->edges);
	m->edges = more_edges ? more_edges : m->edges;
	block = realloc(m->block, goal_block_bytes(ops, edges, 0));
	m->block = block ? block : m->block;
	if (!more_ops || !more_edges || !block)
		return -ENOMEM;
	m->op_cap = ops;
	m->edge_cap = edges;
	return 0;
}

int goal_maker_block(struct goal_maker *m, const struct goal_pattern *g, uint32_t rank,
		     const struct goal_block **out)
{
	struct goal_build b;
	int ret = 0;

	goal_build_init(&b, m->ops, m->op_cap, m->edges, m->edge_cap);
	if (m->block)
		gen_build(g->pattern, &g->params, rank, &b);
	if (!m->block || b.error == -ENOSPC) {
		ret = make_room(m, g, rank);
		goal_build_init(&b, m->ops, m->op_cap, m->edges, m->edge_cap);
		if (!ret)
			gen_build(g->pattern, &g->params, rank, &b);
	}
	if (!ret)
		ret = goal_compile(&b, m->block, goal_block_bytes(m->op_cap, m->edge_cap, 0));
	*out = m->block;
	return ret;
}

void goal_maker_free(struct goal_maker *m)
{
	free(m->ops);
	free(m->edges);
	free(m->block);
	*m = (struct goal_maker){ NULL };
}
