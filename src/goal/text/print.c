/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints blocks in the canonical form, which leaves out defaults. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "private.h"

#define PIECE 8192
#define LINE  256 /* largest length of an operation without list, or of one piece */

/* Buffered output; need() makes room for LINE bytes. */
struct out {
	text_write_fn *write;
	void *ctx;
	int error;
	size_t used;
	char buf[PIECE];
};

static void flush(struct out *o)
{
	if (!o->error && o->used)
		o->error = o->write(o->ctx, o->buf, o->used);
	o->used = 0;
}

static void need(struct out *o)
{
	if (PIECE - o->used < LINE)
		flush(o);
}

static void put(struct out *o, const char *text)
{
	size_t n = strlen(text);

	memcpy(o->buf + o->used, text, n);
	o->used += n;
}

static void put_number(struct out *o, uint64_t n)
{
	char digits[20];
	size_t at = sizeof digits;

	do {
		digits[--at] = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	memcpy(o->buf + o->used, digits + at, sizeof digits - at);
	o->used += sizeof digits - at;
}

/* " tag 3" */
static void put_part(struct out *o, const char *word, uint64_t n)
{
	put(o, word);
	put_number(o, n);
}

static void put_memory(struct out *o, uint32_t mem, uint64_t off)
{
	if (mem == GOAL_SCRATCH)
		put(o, "scratch");
	else
		put_part(o, "user", mem - GOAL_USER);
	put_part(o, "+", off);
}

static void put_size(struct out *o, uint64_t bytes)
{
	put_number(o, bytes);
	put(o, "b");
}

static void put_list(struct out *o, const struct goal_block *b, const struct goal_op *op,
		     uint32_t shown)
{
	const struct goal_segment *s = goal_segments(b) + op->segment;

	for (uint32_t i = 0; i < op->segment_count; i++, s++) {
		need(o);
		put(o, i ? ", " : "[");
		if (i == shown) {
			put(o, "...");
			break;
		}
		put_size(o, s->bytes);
		put(o, " ");
		put_memory(o, s->mem, s->off);
	}
	put(o, "]");
}

static void put_any(struct out *o, const char *word, uint32_t n, bool any)
{
	if (any && n == GOAL_ANY) {
		put(o, word);
		put(o, "-1");
	} else {
		put_part(o, word, n);
	}
}

/* match: the number that parsing would give by default */
static void put_transfer(struct out *o, const struct goal_block *b, const struct goal_op *op,
			 uint32_t match, uint32_t shown)
{
	bool recv = op->type == GOAL_RECV;

	put_size(o, op->bytes);
	put_any(o, recv ? " from " : " to ", op->peer, recv);
	put_any(o, " tag ", op->tag, recv);
	if (op->cpu)
		put_part(o, " cpu ", op->cpu);
	if (op->nic)
		put_part(o, " nic ", op->nic);
	if (op->match != match)
		put_part(o, " match ", op->match);
	if (!op->segment_count && op->mem == GOAL_NOWHERE)
		return;
	put(o, recv ? " into " : " from ");
	if (op->segment_count)
		put_list(o, b, op, shown);
	else
		put_memory(o, op->mem, op->off);
}

static void put_operands(struct out *o, const struct goal_op *op)
{
	if (op->type == GOAL_CALC)
		put_part(o, " ", op->bytes);
	if (goal_is_arithmetic(op)) {
		put(o, " ");
		put(o, goal_dtype_words[op->dtype]);
	}
	if (goal_is_arithmetic(op) || op->type == GOAL_COPY) {
		put_part(o, " ", op->bytes);
		put(o, "b from ");
		put_memory(o, op->src_mem, op->src_off);
	}
	if (goal_is_arithmetic(op)) {
		put(o, ", ");
		put_memory(o, op->src2_mem, op->src2_off);
	}
	if (op->type != GOAL_CALC && op->type != GOAL_NOP) {
		put(o, " into ");
		put_memory(o, op->mem, op->off);
	}
	if (op->cpu)
		put_part(o, " cpu ", op->cpu);
	if (op->nic)
		put_part(o, " nic ", op->nic);
}

/* In the order that LogGOPSim2 requires. */
static void put_append(struct out *o, const struct goal_op *op)
{
	static const char *const words[] = { " hh ", " ph ", " ch " };

	put(o, op->options & GOAL_OVERFLOW ? " to overflow_list" : " to priority_list");
	for (int i = 0; i < 3; i++)
		if (op->handlers[i])
			put_part(o, words[i], op->handlers[i] - 1u);
	put_any(o, " allowed ", op->peer, true);
}

static void put_one_sided(struct out *o, const struct goal_op *op)
{
	bool append = goal_is_append(op);

	if (op->type == GOAL_TEST) {
		put_part(o, " ", op->when - 1);
		put_part(o, " for ", op->off);
	} else {
		put(o, " ");
		put_size(o, op->bytes);
		if (append)
			put_append(o, op);
		else
			put_part(o,
				 op->type == GOAL_GET || op->type == GOAL_TGET ? " from " : " to ",
				 op->peer);
		if (goal_is_triggered(op)) {
			put_part(o, " when ", op->when - 1);
			put_part(o, " reaches ", op->off);
		}
		if (op->counter)
			put_part(o, " ct ", op->counter - 1);
		if (op->options & GOAL_ONCE)
			put(o, " use_once");
		put_any(o, " tag ", op->tag, append);
	}
	if (op->cpu)
		put_part(o, " cpu ", op->cpu);
	if (op->nic)
		put_part(o, " nic ", op->nic);
}

static void put_op(struct out *o, const struct goal_block *b, uint32_t i, uint32_t match,
		   uint32_t shown)
{
	const struct goal_op *op = &goal_ops_const(b)[i];

	put(o, goal_op_words[op->type]);
	if (goal_is_transfer(op)) {
		put(o, " ");
		put_transfer(o, b, op, match, shown);
	} else if (goal_is_one_sided(op)) {
		put_one_sided(o, op);
	} else {
		put_operands(o, op);
	}
}

/* A text need not state the scratch memory that its operations name. */
static bool states_scratch(const struct goal_block *b)
{
	uint64_t named[GOAL_SPACES_MAX];

	if (!b->scratch_bytes)
		return false;
	goal_named(b, named);
	return b->scratch_bytes != named[GOAL_SCRATCH];
}

static void put_requirements(struct out *o, const struct goal_block *b, uint32_t i)
{
	const struct goal_op *op = &goal_ops_const(b)[i];
	const uint32_t *list = goal_adjacency(b);

	for (uint32_t k = 0; k < op->next_count; k++) {
		need(o);
		put_part(o, "l", list[op->next + k]);
		put_part(o, " requires l", i);
		put(o, "\n");
	}
	for (uint32_t k = 0; k < op->inext_count; k++) {
		need(o);
		put_part(o, "l", list[op->inext + k]);
		put_part(o, " irequires l", i);
		put(o, "\n");
	}
}

int text_print_head(uint32_t ranks, text_write_fn *write, void *ctx)
{
	char text[32];

	return write(ctx, text, (size_t)snprintf(text, sizeof text, "num_ranks %u\n", ranks));
}

int text_print(uint32_t rank, const struct goal_block *b, text_write_fn *write, void *ctx)
{
	struct out o;
	uint32_t receives = 0;

	o.write = write;
	o.ctx = ctx;
	o.error = 0;
	o.used = 0;
	put_part(&o, "\nrank ", rank);
	put(&o, " {\n");
	if (states_scratch(b)) {
		put_part(&o, "scratch ", b->scratch_bytes);
		put(&o, "b\n");
	}
	for (uint32_t i = 0; i < b->op_count && !o.error; i++) {
		bool recv = goal_ops_const(b)[i].type == GOAL_RECV;

		need(&o);
		put_part(&o, "l", i);
		put(&o, ": ");
		put_op(&o, b, i, recv ? receives++ : 0, UINT32_MAX);
		put(&o, "\n");
	}
	for (uint32_t i = 0; i < b->op_count && !o.error; i++)
		put_requirements(&o, b, i);
	need(&o);
	put(&o, "}\n");
	flush(&o);
	return o.error;
}

static int write_nothing(void *ctx, const char *text, size_t bytes) { return 0; }

void text_print_op(const struct goal_block *b, uint32_t op, char *buf, size_t cap)
{
	enum { SHOWN_PIECES = 4 };
	struct out o;

	o.write = write_nothing; /* never called: few pieces fit */
	o.error = 0;
	o.used = 0;
	put_op(&o, b, op, goal_ops_const(b)[op].match, SHOWN_PIECES);
	o.buf[o.used] = '\0';
	if (cap) {
		size_t n = base_min_u64(o.used, cap - 1);

		memcpy(buf, o.buf, n);
		buf[n] = '\0';
	}
}
