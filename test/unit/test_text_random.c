/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parse and print are inverses, for random schedules of all kinds of operations that goal_compile()
 * made. A failing schedule is reduced and shown. TEXT_SEED and TEXT_ROUNDS choose others.
 */
#include "text_case.h"

enum { OPS = 24, EDGES = 40, PIECES = 4, RANKS = 5 };

struct any_op {
	struct goal_op op;
	struct {
		uint16_t mem;
		uint64_t off, bytes;
	} pieces[PIECES];
	uint32_t piece_count;
};

/* A schedule as it was added; dropped operations stay in the arrays, unused. */
struct any {
	struct any_op ops[OPS];
	bool dropped[OPS];
	uint32_t op_count;
	struct goal_edge edges[EDGES];
	bool edge_dropped[EDGES];
	uint32_t edge_count;
	uint64_t more_scratch;
};

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return below ? seed % below : seed;
}

/* Mostly small, sometimes of the largest size. */
static uint64_t draw_size(void)
{
	return draw(8) ? draw(100) : draw(2) ? draw(1ull << 40) : 1ull << 62;
}

static uint16_t draw_space(void)
{
	return (uint16_t)(draw(3) ? draw(4) : draw(GOAL_SPACES_MAX));
}

static void draw_transfer(struct any_op *a)
{
	struct goal_op *op = &a->op;
	bool recv = op->type == GOAL_RECV;

	op->peer = recv && !draw(4) ? GOAL_ANY : (uint32_t)draw(RANKS);
	op->tag = recv && !draw(4) ? GOAL_ANY : draw(4) ? (uint32_t)draw(5) : GOAL_ANY - 1;
	if (!recv && !draw(3))
		op->match = (uint32_t)draw(1ull << 32);
	if (!draw(4)) {
		a->piece_count = 1 + (uint32_t)draw(PIECES);
		for (uint32_t i = 0; i < a->piece_count; i++) {
			a->pieces[i].mem = draw_space();
			a->pieces[i].off = draw_size();
			a->pieces[i].bytes = draw(1000);
		}
		return;
	}
	op->bytes = draw_size();
	op->mem = draw(2) ? GOAL_NOWHERE : draw_space();
	op->off = op->mem == GOAL_NOWHERE ? 0 : draw_size();
}

static void draw_local(struct goal_op *op)
{
	uint64_t elements = draw(50);

	if (goal_is_arithmetic(op))
		op->dtype = (uint8_t)draw(op->type >= GOAL_AND ? GOAL_F16 : GOAL_DTYPE_COUNT);
	op->bytes = goal_is_arithmetic(op) ? elements * goal_dtype_bytes(op->dtype) : elements;
	/* spaces of their own: nothing overlaps; or all the same */
	op->mem = (uint16_t)draw(20);
	op->src_mem = draw(4) ? (uint16_t)(20 + draw(20)) : op->mem;
	op->off = draw_size();
	op->src_off = op->src_mem == op->mem ? op->off : draw_size();
	if (goal_is_arithmetic(op)) {
		op->src2_mem = draw(4) ? (uint16_t)(40 + draw(20)) : op->src_mem;
		op->src2_off = op->src2_mem == op->src_mem ? op->src_off : draw_size();
	}
}

static void draw_one_sided(struct goal_op *op)
{
	bool append = goal_is_append(op);

	op->mem = GOAL_NOWHERE;
	if (goal_is_triggered(op)) {
		op->when = 1 + (uint32_t)draw(GOAL_COUNTERS_MAX);
		op->off = draw_size();
	}
	if (op->type == GOAL_TEST)
		return;
	op->bytes = draw_size();
	op->peer = append && !draw(4) ? GOAL_ANY : (uint32_t)draw(RANKS);
	op->tag = append && !draw(4) ? GOAL_ANY : (uint32_t)draw(GOAL_ANY);
	op->counter = append || draw(2) ? 1 + (uint32_t)draw(GOAL_COUNTERS_MAX) : 0;
	if (!append)
		return;
	op->options = (uint8_t)draw(4);
	for (int i = 0; i < 3; i++)
		op->handlers[i] = (uint8_t)draw(1 + GOAL_HANDLERS_MAX);
}

static void draw_op(struct any_op *a)
{
	struct goal_op *op = &a->op;

	*a = (struct any_op){ .op.type =
				      (uint8_t)(draw(2) ? GOAL_SEND + draw(2) : draw(GOAL_TYPES)) };
	if (goal_is_transfer(op))
		draw_transfer(a);
	else if (goal_is_one_sided(op))
		draw_one_sided(op);
	else if (op->type == GOAL_COPY || goal_is_arithmetic(op))
		draw_local(op);
	else if (op->type == GOAL_CALC)
		op->bytes = draw_size();
	else if (op->type == GOAL_STAMP) {
		op->bytes = 8;
		op->mem = draw_space();
		op->off = draw_size();
	}
	op->cpu = (uint16_t)(draw(3) ? 0 : draw(65536));
	op->nic = (uint16_t)(draw(3) ? 0 : draw(65536));
}

static void draw_any(struct any *a)
{
	memset(a, 0, sizeof *a);
	a->op_count = (uint32_t)draw(OPS + 1);
	for (uint32_t i = 0; i < a->op_count; i++)
		draw_op(&a->ops[i]);
	a->edge_count = a->op_count > 1 ? (uint32_t)draw(EDGES + 1) : 0;
	for (uint32_t e = 0; e < a->edge_count; e++) {
		/* no cycles: by an order that is not that of the labels */
		uint32_t x = (uint32_t)draw(a->op_count), y = (uint32_t)draw(a->op_count);
		bool swap = x * 7 % OPS > y * 7 % OPS;

		if (x == y)
			y = x ? 0 : 1, swap = x * 7 % OPS > y * 7 % OPS;
		a->edges[e] = (struct goal_edge){ swap ? y : x, swap ? x : y, draw(3) == 0 };
	}
	a->more_scratch = draw(3) ? 0 : draw(1000);
}

/* ---- compiling, comparing --------------------------------------------------------------- */

static _Alignas(8) char block_room[64 + OPS * 64 + EDGES * 4 + 8 + OPS * PIECES * 24];

static uint64_t add_scratch(uint64_t used, uint32_t mem, uint64_t off, uint64_t bytes)
{
	return mem == GOAL_SCRATCH && off + bytes > used ? off + bytes : used;
}

static uint64_t scratch_of(const struct any_op *a)
{
	const struct goal_op *op = &a->op;
	uint64_t used = 0;

	for (uint32_t i = 0; i < a->piece_count; i++)
		used = add_scratch(used, a->pieces[i].mem, a->pieces[i].off, a->pieces[i].bytes);
	if (op->type == GOAL_NOP || op->type == GOAL_CALC || goal_is_one_sided(op) ||
	    a->piece_count)
		return used;
	used = add_scratch(used, op->mem, op->off, op->bytes);
	if (goal_is_transfer(op) || op->type == GOAL_STAMP)
		return used;
	used = add_scratch(used, op->src_mem, op->src_off, op->bytes);
	return goal_is_arithmetic(op) ? add_scratch(used, op->src2_mem, op->src2_off, op->bytes)
				      : used;
}

static const struct goal_block *compile(const struct any *a)
{
	static struct goal_op ops[OPS];
	static struct goal_edge edges[EDGES];
	static struct goal_segment segments[OPS * PIECES];
	uint32_t label[OPS];
	struct goal_build b;

	goal_build_init(&b, ops, OPS, edges, EDGES);
	b.segments = segments;
	b.segment_cap = OPS * PIECES;
	for (uint32_t i = 0; i < a->op_count; i++) {
		const struct any_op *o = &a->ops[i];
		uint64_t used = scratch_of(o);

		if (a->dropped[i])
			continue;
		label[i] = goal_add(&b, &o->op);
		for (uint32_t k = 0; k < o->piece_count; k++)
			goal_segment(&b, label[i], o->pieces[k].mem, o->pieces[k].off,
				     o->pieces[k].bytes);
		b.scratch_bytes = used > b.scratch_bytes ? used : b.scratch_bytes;
	}
	b.scratch_bytes += a->more_scratch;
	for (uint32_t e = 0; e < a->edge_count; e++) {
		const struct goal_edge *edge = &a->edges[e];

		if (!a->edge_dropped[e] && !a->dropped[edge->after] && !a->dropped[edge->before])
			(edge->immediate ? goal_irequires : goal_requires)(&b, label[edge->after],
									   label[edge->before]);
	}
	return goal_compile(&b, (struct goal_block *)block_room, sizeof block_room)
		       ? NULL
		       : (struct goal_block *)block_room;
}

static char *text_of(const struct goal_block *b)
{
	static const char rest[] = "rank 1 {} rank 2 {} rank 3 {} rank 4 {}\n";
	char *text = NULL;

	text_print_head(RANKS, text_case_append, &text);
	text_print(0, b, text_case_append, &text);
	text_case_append(&text, rest, sizeof rest - 1);
	return text;
}

/* Returns: NULL, or the mistake. */
static const char *wrong_with(const struct any *a)
{
	const struct goal_block *b = compile(a);
	const char *wrong = NULL;
	struct text_case c;
	char *text, *again;

	if (!b)
		return "it does not compile";
	text = text_of(b);
	text_case_parse_in(&c, text, strlen(text), 1 + (size_t)(strlen(text) * 31 % 200));
	if (c.ret || c.rank_count != RANKS) {
		wrong = "its text is not accepted";
	} else if (c.blocks[0]->bytes != b->bytes || memcmp(c.blocks[0], b, b->bytes)) {
		wrong = "its text has another meaning";
	} else {
		again = text_of(c.blocks[0]);
		wrong = strcmp(again, text) ? "printed again it is another text" : NULL;
		free(again);
	}
	text_case_free(&c);
	free(text);
	return wrong;
}

/* Removes operations while the mistake remains. */
static void shrink(struct any *a)
{
	bool smaller = true;

	while (smaller) {
		smaller = false;
		for (uint32_t i = 0; i < a->op_count + a->edge_count; i++) {
			bool *flag = i < a->op_count ? &a->dropped[i]
						     : &a->edge_dropped[i - a->op_count];

			if (*flag)
				continue;
			*flag = true;
			if (wrong_with(a))
				smaller = true;
			else
				*flag = false;
		}
	}
}

UNIT_TEST(random_schedules_are_the_same_after_printing_and_parsing)
{
	const char *rounds = getenv("TEXT_ROUNDS"), *first = getenv("TEXT_SEED");
	uint64_t begin = first ? strtoull(first, NULL, 0) : 1,
		 count = rounds ? strtoull(rounds, NULL, 0) : 3000;
	static struct any a;

	for (uint64_t i = begin; i < begin + count; i++) {
		const char *wrong;

		seed = i * 0x9e3779b97f4a7c15ull | 1;
		draw_any(&a);
		if (!wrong_with(&a))
			continue;
		shrink(&a);
		wrong = wrong_with(&a);
		unit_fail(__FILE__, __LINE__, "seed %llu: %s:\n%s", (unsigned long long)i, wrong,
			  compile(&a) ? text_of(compile(&a)) : "");
	}
}

UNIT_TEST(the_random_schedules_are_of_all_kinds)
{
	uint32_t types[GOAL_TYPES] = { 0 }, lists = 0, edges = 0, beginnings = 0;
	static struct any a;

	for (uint64_t i = 1; i < 500; i++) {
		seed = i * 0x9e3779b97f4a7c15ull | 1;
		draw_any(&a);
		CHECK(compile(&a));
		for (uint32_t k = 0; k < a.op_count; k++) {
			types[a.ops[k].op.type]++;
			lists += a.ops[k].piece_count > 1;
		}
		for (uint32_t e = 0; e < a.edge_count; e++)
			*(a.edges[e].immediate ? &beginnings : &edges) += 1;
	}
	for (int t = 0; t < GOAL_TYPES; t++)
		CHECK(types[t] > 20);
	CHECK(lists > 100 && edges > 1000 && beginnings > 500);
}
