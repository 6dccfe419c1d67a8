/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal_reference.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal/local.h"
#include "goal_flow.h"

#define FILL_BLOCK 251u /* bytes until the pattern of a memory's contents moves on by one */

/* ---- memory ------------------------------------------------------------------------------ */

/* Memory of sends and receives that name none: the n-th gets the n-th place of one more buffer. */
static int name_memory(struct goal_image *image)
{
	struct goal_block *b = image->block;
	uint64_t at = 0;
	uint32_t mem = b->user_count + 1;

	for (uint32_t i = 0; i < b->op_count; i++) {
		struct goal_op *op = &goal_ops(b)[i];

		if (!goal_is_transfer(op) || op->segment_count || op->mem != GOAL_NOWHERE)
			continue;
		if (mem > GOAL_USERS_MAX)
			return -E2BIG;
		op->mem = (uint16_t)mem;
		op->off = at;
		if (op->bytes > UINT64_MAX / 4 - at)
			return -E2BIG;
		at += base_round_up(op->bytes, BASE_CACHE_LINE);
		b->user_count = mem;
	}
	return 0;
}

static int make_image(struct goal_image *image, const struct goal_block *b, uint64_t limit)
{
	int ret;

	image->block = aligned_alloc(BASE_CACHE_LINE, base_round_up(b->bytes, BASE_CACHE_LINE));
	if (!image->block)
		return -ENOMEM;
	memcpy(image->block, b, b->bytes);
	ret = name_memory(image);
	if (ret)
		return ret;
	goal_extents(image->block, image->bytes);
	for (uint32_t m = 0; m <= image->block->user_count; m++) {
		if (image->bytes[m] > limit || image->all > limit)
			return -E2BIG;
		image->offset[m] = image->all;
		image->all += base_round_up(image->bytes[m], BASE_CACHE_LINE);
	}
	return image->all > limit ? -E2BIG : 0;
}

void goal_reference_fill(const struct goal_image *image, uint32_t rank, unsigned char *memory)
{
	uint64_t at = 0;

	for (uint64_t block = 0; at < image->all; block++) {
		uint64_t end = base_min_u64(at + FILL_BLOCK, image->all);
		unsigned char value = (unsigned char)(at * 7 + block + rank * 31 + 1);

		for (; at < end; at++, value = (unsigned char)(value + 7))
			memory[at] = value;
	}
}

int goal_reference_make(struct goal_reference *r, const struct goal_program *p, uint64_t limit)
{
	int ret = 0;

	*r = (struct goal_reference){ .program = p, .ranks = p->ranks, .is_certain = true };
	r->images = calloc(p->ranks, sizeof *r->images);
	if (!r->images)
		return -ENOMEM;
	for (uint32_t k = 0; k < p->ranks && !ret; k++)
		ret = make_image(&r->images[k], goal_program_block(p, k), limit);
	if (ret)
		goal_reference_free(r);
	return ret;
}

void goal_reference_free(struct goal_reference *r)
{
	for (uint32_t k = 0; r->images && k < r->ranks; k++) {
		free(r->images[k].block);
		free(r->images[k].memory);
	}
	free(r->images);
	r->images = NULL;
}

/* ---- executing --------------------------------------------------------------------------- */

/* Data moves in the order in which goal_flow has begun the operations: a message is copied when its
 * send begins, and delivered when send and receive have begun. */
struct flow {
	struct goal_reference *r;
	struct goal_flow f;
	uint32_t *sequence;   /* operations in order of beginnings */
	unsigned char **data; /* of each send: a message that has no receive yet */
};

static unsigned char *place(const struct goal_image *m, uint32_t mem, uint64_t off)
{
	return m->memory + m->offset[mem] + off;
}

/* Copies the bytes of a transfer between its memory and `data`. */
static void move(const struct goal_image *m, const struct goal_op *op, unsigned char *data,
		 bool out)
{
	const struct goal_segment *l = goal_segments(m->block) + op->segment;

	if (!op->segment_count) {
		unsigned char *p = place(m, op->mem, op->off);

		memcpy(out ? data : p, out ? p : data, op->bytes);
		return;
	}
	for (uint32_t k = 0; k < op->segment_count; data += l[k++].bytes) {
		unsigned char *p = place(m, l[k].mem, l[k].off);

		memcpy(out ? data : p, out ? p : data, l[k].bytes);
	}
}

static void compute(const struct goal_image *m, const struct goal_op *op)
{
	unsigned char *dst = place(m, op->mem, op->off), *a = place(m, op->src_mem, op->src_off);

	if (op->type == GOAL_COPY)
		memmove(dst, a, op->bytes);
	else
		goal_local(GOAL_ISA_BASE, op->type, op->dtype, dst, a,
			   place(m, op->src2_mem, op->src2_off), op->bytes);
}

static const struct goal_op *op_of(const struct flow *f, uint32_t op, const struct goal_image **m)
{
	uint32_t rank = f->f.rank[op];

	*m = &f->r->images[rank];
	return &goal_ops_const((*m)->block)[op - f->f.first[rank]];
}

/* Returns: 0 or -ENOMEM. */
static int begin_send(struct flow *f, uint32_t i)
{
	const struct goal_image *m, *to;
	const struct goal_op *op = op_of(f, i, &m), *recv;
	uint32_t partner = f->f.partner[i];

	if (partner == GOAL_NONE)
		return 0;
	f->data[i] = malloc(op->bytes + 1);
	if (!f->data[i])
		return -ENOMEM;
	move(m, op, f->data[i], true);
	if (f->f.order[partner] > f->f.order[i])
		return 0;
	recv = op_of(f, partner, &to);
	move(to, recv, f->data[i], false);
	free(f->data[i]);
	f->data[i] = NULL;
	return 0;
}

static void begin_recv(struct flow *f, uint32_t i)
{
	const struct goal_image *m;
	const struct goal_op *op = op_of(f, i, &m);
	uint32_t partner = f->f.partner[i];

	if (partner == GOAL_NONE || !f->data[partner])
		return;
	move(m, op, f->data[partner], false);
	free(f->data[partner]);
	f->data[partner] = NULL;
}

static int execute(struct flow *f)
{
	int ret = 0;

	for (uint32_t k = 0; k < f->f.began && !ret; k++) {
		const struct goal_image *m;
		const struct goal_op *op = op_of(f, f->sequence[k], &m);

		if (op->type == GOAL_SEND)
			ret = begin_send(f, f->sequence[k]);
		else if (op->type == GOAL_RECV)
			begin_recv(f, f->sequence[k]);
		else if (op->type == GOAL_COPY || goal_is_arithmetic(op))
			compute(m, op);
	}
	return ret;
}

/* Has the data one outcome, and do all operations end? */
static void judge(struct flow *f)
{
	f->r->stuck = f->f.op_count - f->f.ended;
	f->r->is_certain = !f->f.any_count;
	for (uint32_t i = 0; i < f->f.op_count; i++) {
		const struct goal_image *m;
		const struct goal_op *op = op_of(f, i, &m);

		if (op->type == GOAL_STAMP)
			f->r->is_certain = false;
		if (op->type == GOAL_RECV && f->f.partner[i] != GOAL_NONE &&
		    op_of(f, f->f.partner[i], &m)->bytes != op->bytes)
			f->r->stuck++;
	}
}

static int prepare(struct flow *f)
{
	f->sequence = malloc((f->f.began + 1ull) * sizeof *f->sequence);
	f->data = calloc(f->f.op_count + 1ull, sizeof *f->data);
	if (!f->sequence || !f->data)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->f.op_count; i++)
		if (f->f.state[i] != GOAL_FLOW_WAITS)
			f->sequence[f->f.order[i]] = i;
	for (uint32_t k = 0; k < f->r->ranks; k++) {
		struct goal_image *m = &f->r->images[k];

		m->memory = malloc(m->all + 1);
		if (!m->memory)
			return -ENOMEM;
		goal_reference_fill(m, k, m->memory);
	}
	return 0;
}

int goal_reference_execute(struct goal_reference *r)
{
	struct flow f = { .r = r };
	int ret = goal_flow_run(&f.f, r->program, false);

	if (ret)
		return ret;
	judge(&f);
	if (r->is_certain && !r->stuck) {
		ret = prepare(&f);
		if (!ret)
			ret = execute(&f);
	}
	for (uint32_t i = 0; f.data && i < f.f.op_count; i++)
		free(f.data[i]);
	free(f.data);
	free(f.sequence);
	goal_flow_free(&f.f);
	return ret;
}
