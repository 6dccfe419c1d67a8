/* SPDX-License-Identifier: BSD-3-Clause */
#include "sched_program.h"

static uint32_t random_bytes(uint32_t cell, uint64_t *random)
{
	switch (ranks_below(random, 5)) {
	case 0:
		return 4 * (uint32_t)ranks_below(random, 9); /* inline */
	case 1:
		return 4 * (uint32_t)ranks_below(random, base_min_u64(cell, 1100) / 4); /* eager */
	case 2:
		return cell;
	default:
		return 4 * (uint32_t)ranks_below(random, cell / 4 + 1);
	}
}

void program_random(struct program *p, uint64_t *random)
{
	static const uint32_t cells[] = { 64, 400, 1200, 5000, 70000 };

	p->steps = 1 + (int)ranks_below(random, PROGRAM_STEPS);
	p->cell = cells[ranks_below(random, BASE_ARRAY_LEN(cells))];
	for (int i = 0; i < p->steps; i++) {
		struct step *s = &p->step[i];

		*s = (struct step){ .kind = (enum step_kind)ranks_below(random, STEP_KINDS + 3),
				    .rank = (uint8_t)ranks_below(random, (uint64_t)p->ranks),
				    .peer = (uint8_t)ranks_below(random, (uint64_t)p->ranks),
				    .from = (uint8_t)ranks_below(random, PROGRAM_CELLS),
				    .from2 = (uint8_t)ranks_below(random, PROGRAM_CELLS),
				    .to = (uint8_t)ranks_below(random, PROGRAM_CELLS),
				    .tag = (uint8_t)ranks_below(random, PROGRAM_TAGS),
				    .bytes = random_bytes(p->cell, random) };
		if (s->kind >= STEP_KINDS)
			s->kind = STEP_MESSAGE;
		/* a receive that requires the end of its own send would never start */
		if (s->kind == STEP_MESSAGE && s->rank == s->peer && s->from == s->to)
			s->to = (uint8_t)((s->from + 1) % PROGRAM_CELLS);
		s->any_source = !ranks_below(random, 4);
		if (!ranks_below(random, 4))
			s->pieces_out = (uint8_t)(1 + ranks_below(random, 5));
		if (!ranks_below(random, 4))
			s->pieces_in = (uint8_t)(1 + ranks_below(random, 5));
	}
}

/* ---- what must come out ------------------------------------------------------------------ */

static uint32_t add(uint32_t a, uint32_t b) { return a + b; }
static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

static void compute(unsigned char *dst, const unsigned char *a, const unsigned char *b,
		    uint32_t bytes, uint32_t (*op)(uint32_t, uint32_t))
{
	for (uint32_t i = 0; i < bytes; i += 4) {
		uint32_t x, y;

		memcpy(&x, a + i, 4);
		memcpy(&y, b + i, 4);
		x = op(x, y);
		memcpy(dst + i, &x, 4);
	}
}

void program_execute(const struct program *p, unsigned char **memory)
{
	for (int i = 0; i < p->steps; i++) {
		const struct step *s = &p->step[i];
		unsigned char *mine = memory[s->rank],
			      *to = memory[s->kind == STEP_MESSAGE ? s->peer : s->rank];
		unsigned char *dst = to + s->to * p->cell, *a = mine + s->from * p->cell,
			      *b = mine + s->from2 * p->cell;

		if (s->kind == STEP_MESSAGE || s->kind == STEP_COPY)
			memmove(dst, a, s->bytes);
		else if (s->kind != STEP_WAIT)
			compute(dst, a, b, s->bytes, s->kind == STEP_ADD ? add : larger);
	}
}

/* ---- schedules --------------------------------------------------------------------------- */

/* The operation that wrote a cell last, and those that have read it since. */
struct cell_use {
	uint32_t writer, readers[PROGRAM_STEPS], count;
};

struct planner {
	const struct program *p;
	struct goal_build *b;
	struct cell_use use[PROGRAM_CELLS];
	uint32_t last_with[2][PROGRAM_RANKS][PROGRAM_TAGS]; /* sends, receives by peer and tag: they
							       keep their order */
};

static void place(const struct program *p, uint32_t cell, uint16_t *mem, uint64_t *off)
{
	*mem = cell < PROGRAM_CELLS / 2 ? GOAL_SCRATCH : GOAL_USER;
	*off = (uint64_t)(cell % (PROGRAM_CELLS / 2)) * p->cell;
}

static void reads(struct planner *l, uint32_t op, uint32_t cell)
{
	struct cell_use *u = &l->use[cell];

	if (u->writer != GOAL_NONE && u->writer != op)
		goal_requires(l->b, op, u->writer);
	u->readers[u->count++ % PROGRAM_STEPS] = op;
}

static void writes(struct planner *l, uint32_t op, uint32_t cell)
{
	struct cell_use *u = &l->use[cell];

	if (u->writer != GOAL_NONE && u->writer != op)
		goal_requires(l->b, op, u->writer);
	for (uint32_t k = 0; k < u->count; k++)
		if (u->readers[k] != op)
			goal_requires(l->b, op, u->readers[k]);
	u->count = 0;
	u->writer = op;
}

/* The n-th send under a tag must begin before the next, and receives likewise. */
static void in_order(struct planner *l, uint32_t op, bool send, uint32_t peer, uint32_t tag)
{
	uint32_t *last = &l->last_with[send][peer][tag];

	if (*last != GOAL_NONE)
		goal_irequires(l->b, op, *last);
	*last = op;
}

static uint32_t add_transfer(struct planner *l, const struct step *s, bool send)
{
	struct goal_op op = { .type = send ? GOAL_SEND : GOAL_RECV,
			      .peer = send ? s->peer : s->rank,
			      .tag = s->tag };
	uint32_t pieces = send ? s->pieces_out : s->pieces_in, at = 0, label;
	uint16_t mem;
	uint64_t off;

	if (s->any_source) { /* a tag of its own: no other message matches */
		op.tag = PROGRAM_TAGS + (uint32_t)(s - l->p->step);
		op.peer = send ? s->peer : GOAL_ANY;
	}
	place(l->p, send ? s->from : s->to, &mem, &off);
	if (!pieces) {
		op.mem = mem;
		op.off = off;
		op.bytes = s->bytes;
	}
	label = goal_add(l->b, &op);
	for (uint32_t k = 0; k < pieces; k++) {
		uint32_t end = k + 1 == pieces ? s->bytes
					       : (uint32_t)((uint64_t)s->bytes * (k + 1) * (k + 2) /
							    (pieces * (pieces + 1)));

		goal_segment(l->b, label, mem, off + at, end - at);
		at = end;
	}
	if (!s->any_source)
		in_order(l, label, send, op.peer, op.tag);
	return label;
}

static void add_local(struct planner *l, const struct step *s)
{
	static const uint8_t types[] = { [STEP_COPY] = GOAL_COPY,
					 [STEP_ADD] = GOAL_ADD,
					 [STEP_MAX] = GOAL_MAX,
					 [STEP_WAIT] = GOAL_CALC };
	struct goal_op op = { .type = types[s->kind], .bytes = s->bytes };
	uint16_t mem;
	uint32_t label;

	if (s->kind != STEP_WAIT) {
		place(l->p, s->to, &op.mem, &op.off);
		place(l->p, s->from, &mem, &op.src_off);
		op.src_mem = mem;
		op.bytes = s->bytes;
	}
	if (s->kind == STEP_ADD || s->kind == STEP_MAX) {
		place(l->p, s->from2, &mem, &op.src2_off);
		op.src2_mem = mem;
		op.dtype = GOAL_U32;
	}
	label = goal_add(l->b, &op);
	reads(l, label, s->from);
	reads(l, label, s->from2);
	writes(l, label, s->to);
}

void program_plan(const struct program *p, int rank, struct plan *out)
{
	struct planner *l = calloc(1, sizeof *l);

	plan_init(out);
	out->build.scratch_bytes = (uint64_t)PROGRAM_CELLS / 2 * p->cell;
	l->p = p;
	l->b = &out->build;
	memset(l->last_with, 0xff, sizeof l->last_with);
	for (int c = 0; c < PROGRAM_CELLS; c++)
		l->use[c].writer = GOAL_NONE;
	for (int i = 0; i < p->steps; i++) {
		const struct step *s = &p->step[i];
		uint32_t op;

		if (s->kind != STEP_MESSAGE) {
			if (s->rank == rank)
				add_local(l, s);
			continue;
		}
		if (s->rank == rank) {
			op = add_transfer(l, s, true);
			reads(l, op, s->from);
		}
		if (s->peer == rank) {
			op = add_transfer(l, s, false);
			writes(l, op, s->to);
		}
	}
	free(l);
}

void program_print(const struct program *p)
{
	static const char *const words[] = { "message", "copy", "add", "max", "wait" };

	printf("    %d ranks, %d steps, cells of %u bytes\n", p->ranks, p->steps, p->cell);
	for (int i = 0; i < p->steps; i++) {
		const struct step *s = &p->step[i];

		printf("    %s rank %d peer %d from %d from2 %d to %d bytes %u tag %d lists %d "
		       "%d%s\n",
		       words[s->kind], s->rank, s->peer, s->from, s->from2, s->to, s->bytes, s->tag,
		       s->pieces_out, s->pieces_in, s->any_source ? " from any" : "");
	}
}
