/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal_reference.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal/interp.h"
#include "goal/local.h"

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
	for (uint64_t i = 0; i < image->all; i++)
		memory[i] = (unsigned char)(i * 7 + i / 251 + rank * 31 + 1);
}

int goal_reference_make(struct goal_reference *r, const struct goal_program *p, uint64_t limit)
{
	int ret = 0;

	*r = (struct goal_reference){ .ranks = p->ranks, .is_certain = true };
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

/* A send without a receive, or a receive without a message. */
struct waiting {
	uint32_t rank, op, peer, tag;
	unsigned char *data; /* send: its bytes */
	struct waiting *next;
};

struct flow {
	struct goal_reference *r;
	struct goal_state **states;
	struct waiting **sends, **recvs; /* by receiver, in order */
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

static void append(struct waiting **list, struct waiting *w)
{
	while (*list)
		list = &(*list)->next;
	*list = w;
}

static bool meets(const struct waiting *recv, const struct waiting *send)
{
	return (recv->peer == send->rank || recv->peer == GOAL_ANY) &&
	       (recv->tag == send->tag || recv->tag == GOAL_ANY);
}

static void end_op(struct flow *f, uint32_t rank, uint32_t op)
{
	goal_end(f->r->images[rank].block, f->states[rank], op);
}

/* Completes `recv` with the bytes of `send`. When sizes differ it stays stuck. */
static void deliver(struct flow *f, struct waiting *recv, struct waiting *send)
{
	const struct goal_op *op = &goal_ops(f->r->images[recv->rank].block)[recv->op];
	const struct goal_op *from = &goal_ops(f->r->images[send->rank].block)[send->op];

	if (op->bytes == from->bytes) {
		move(&f->r->images[recv->rank], op, send->data, false);
		end_op(f, recv->rank, recv->op);
	}
	free(send->data);
	free(send);
	free(recv);
}

/* Removes and returns the first match of the list. */
static struct waiting *remove_match(struct waiting **list, const struct waiting *w,
				    bool list_of_recvs)
{
	for (; *list; list = &(*list)->next) {
		struct waiting *other = *list;

		if (list_of_recvs ? meets(other, w) : meets(w, other)) {
			*list = other->next;
			return other;
		}
	}
	return NULL;
}

static int start_transfer(struct flow *f, uint32_t rank, uint32_t i, const struct goal_op *op)
{
	struct waiting *w = calloc(1, sizeof *w), *other;
	bool is_send = op->type == GOAL_SEND;
	uint32_t at = is_send ? op->peer : rank;

	if (!w)
		return -ENOMEM;
	*w = (struct waiting){ rank, i, op->peer, op->tag, NULL, NULL };
	if (is_send) {
		w->data = malloc(op->bytes + 1);
		if (!w->data) {
			free(w);
			return -ENOMEM;
		}
		move(&f->r->images[rank], op, w->data, true);
		end_op(f, rank, i);
	} else if (op->peer == GOAL_ANY || op->tag == GOAL_ANY) {
		f->r->is_certain = false;
	}
	other = remove_match(is_send ? &f->recvs[at] : &f->sends[at], w, is_send);
	if (other)
		deliver(f, is_send ? other : w, is_send ? w : other);
	else
		append(is_send ? &f->sends[at] : &f->recvs[at], w);
	return 0;
}

/* Executes all that a rank can do now. Returns: 1: something, 0: nothing, -errno. */
static int step_rank(struct flow *f, uint32_t rank)
{
	const struct goal_image *m = &f->r->images[rank];
	int ret = 0, err = 0;
	uint32_t i;

	while (!err && (i = goal_claim(m->block, f->states[rank])) != GOAL_NONE) {
		const struct goal_op *op = &goal_ops_const(m->block)[i];

		ret = 1;
		goal_begin(m->block, f->states[rank], i);
		if (goal_is_transfer(op)) {
			err = start_transfer(f, rank, i, op);
			continue;
		}
		if (op->type == GOAL_STAMP)
			f->r->is_certain = false;
		else if (op->type == GOAL_COPY || goal_is_arithmetic(op))
			compute(m, op);
		end_op(f, rank, i);
	}
	return err ? err : ret;
}

static void free_list(struct waiting *w)
{
	for (struct waiting *next; w; w = next) {
		next = w->next;
		free(w->data);
		free(w);
	}
}

static int prepare(struct flow *f)
{
	for (uint32_t k = 0; k < f->r->ranks; k++) {
		struct goal_image *m = &f->r->images[k];

		f->states[k] = malloc(goal_state_bytes(m->block->op_count));
		m->memory = malloc(m->all + 1);
		if (!f->states[k] || !m->memory)
			return -ENOMEM;
		goal_state_init(m->block, f->states[k]);
		goal_reference_fill(m, k, m->memory);
	}
	return 0;
}

int goal_reference_execute(struct goal_reference *r)
{
	struct flow f = { r, calloc(r->ranks, sizeof *f.states), calloc(r->ranks, sizeof *f.sends),
			  calloc(r->ranks, sizeof *f.recvs) };
	int ret = f.states && f.sends && f.recvs ? prepare(&f) : -ENOMEM, any = 1;

	while (!ret && any) {
		any = 0;
		for (uint32_t k = 0; k < r->ranks && !ret; k++) {
			int did = step_rank(&f, k);

			any |= did > 0;
			ret = did < 0 ? did : 0;
		}
	}
	for (uint32_t k = 0; k < r->ranks; k++) {
		if (!ret)
			r->stuck += atomic_load(&f.states[k]->remaining);
		if (f.states)
			free(f.states[k]);
		free_list(f.sends ? f.sends[k] : NULL);
		free_list(f.recvs ? f.recvs[k] : NULL);
	}
	free(f.states);
	free(f.sends);
	free(f.recvs);
	return ret;
}
