/* SPDX-License-Identifier: BSD-3-Clause */
#include "gen_reference.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "goal/local.h"

/* A send or receive that has begun and has no partner. */
struct open {
	struct open *next;
	uint32_t rank, op;  /* whose; the op of a send whose data was taken away has ended */
	char *data;         /* of such a send */
};

struct state {
	struct reference_rank *ranks;
	uint32_t count;
	uint64_t random;
	uint32_t **left;    /* [rank][op]: requirements not met */
	struct open **sends, **recvs; /* [rank]: at this receiver, in order */
	struct ready {
		uint32_t rank, op;
	} *ready;
	uint64_t ready_count, ready_cap, ops_left;
	bool is_eager;
};

static const struct goal_op *op_of(const struct state *s, uint32_t rank, uint32_t op)
{
	return goal_ops_const(s->ranks[rank].block) + op;
}

static int make_ready(struct state *s, uint32_t rank, uint32_t op)
{
	if (s->ready_count == s->ready_cap) {
		uint64_t cap = s->ready_cap ? s->ready_cap * 2 : 256;
		struct ready *ready = realloc(s->ready, cap * sizeof(*ready));

		if (!ready)
			return -ENOMEM;
		s->ready = ready;
		s->ready_cap = cap;
	}
	s->ready[s->ready_count++] = (struct ready){ rank, op };
	return 0;
}

static int release(struct state *s, uint32_t rank, uint32_t next, uint32_t count)
{
	const uint32_t *adjacency = goal_adjacency(s->ranks[rank].block);
	int rc = 0;

	for (uint32_t i = next; i < next + count && !rc; i++)
		if (!--s->left[rank][adjacency[i]])
			rc = make_ready(s, rank, adjacency[i]);
	return rc;
}

static int begin(struct state *s, uint32_t rank, uint32_t op)
{
	return release(s, rank, op_of(s, rank, op)->inext, op_of(s, rank, op)->inext_count);
}

static int end(struct state *s, uint32_t rank, uint32_t op)
{
	s->ops_left--;
	return release(s, rank, op_of(s, rank, op)->next, op_of(s, rank, op)->next_count);
}

/* NULL with *error: not there. NULL without: nowhere. */
static char *place(const struct state *s, uint32_t rank, uint16_t mem, uint64_t off, uint64_t bytes,
		   int *error)
{
	const struct reference_rank *r = &s->ranks[rank];

	if (mem == GOAL_NOWHERE)
		return NULL;
	if (mem < GOAL_MEMS && off <= r->mem_bytes[mem] && bytes <= r->mem_bytes[mem] - off)
		return bytes ? (char *)r->mem[mem] + off : NULL;
	*error = -EFAULT;
	return NULL;
}

static int deliver(struct state *s, uint32_t src, uint32_t send, const char *data, uint32_t dst,
		   uint32_t recv)
{
	const struct goal_op *from = op_of(s, src, send), *to = op_of(s, dst, recv);
	int rc = 0;
	char *target = place(s, dst, to->mem, to->off, to->bytes, &rc);

	if (from->segment_count || to->segment_count)
		return -EOPNOTSUPP;
	if (!data)
		data = place(s, src, from->mem, from->off, from->bytes, &rc);
	if (!rc && from->bytes != to->bytes)
		rc = -EMSGSIZE;
	if (!rc && data && target)
		memmove(target, data, to->bytes);
	return rc ? rc : end(s, dst, recv);
}

static bool do_match(const struct state *s, uint32_t src, uint32_t send, uint32_t dst,
		     uint32_t recv)
{
	const struct goal_op *from = op_of(s, src, send), *to = op_of(s, dst, recv);

	return (to->peer == src || to->peer == GOAL_ANY) &&
	       (to->tag == from->tag || to->tag == GOAL_ANY);
}

static int append(struct open **list, uint32_t rank, uint32_t op, char *data)
{
	struct open *o = malloc(sizeof(*o));

	if (!o) {
		free(data);
		return -ENOMEM;
	}
	*o = (struct open){ .rank = rank, .op = op, .data = data };
	while (*list)
		list = &(*list)->next;
	*list = o;
	return 0;
}

static void drop(struct open **at)
{
	struct open *gone = *at;

	*at = gone->next;
	free(gone->data);
	free(gone);
}

static int run_send(struct state *s, uint32_t rank, uint32_t index)
{
	const struct goal_op *op = op_of(s, rank, index);
	char *data = NULL, *from;
	int rc = 0;

	for (struct open **r = &s->recvs[op->peer]; *r; r = &(*r)->next)
		if (do_match(s, rank, index, op->peer, (*r)->op)) {
			rc = deliver(s, rank, index, NULL, op->peer, (*r)->op);
			drop(r);
			return rc ? rc : end(s, rank, index);
		}
	from = place(s, rank, op->mem, op->off, op->bytes, &rc);
	if (s->is_eager && from) {
		data = malloc(op->bytes);
		if (!data)
			return -ENOMEM;
		memcpy(data, from, op->bytes);
	}
	if (!rc)
		rc = append(&s->sends[op->peer], rank, index, data);
	return rc || !s->is_eager ? rc : end(s, rank, index);
}

static int run_recv(struct state *s, uint32_t rank, uint32_t index)
{
	for (struct open **m = &s->sends[rank]; *m; m = &(*m)->next)
		if (do_match(s, (*m)->rank, (*m)->op, rank, index)) {
			int rc = deliver(s, (*m)->rank, (*m)->op, (*m)->data, rank, index);

			if (!rc && !s->is_eager)
				rc = end(s, (*m)->rank, (*m)->op);
			drop(m);
			return rc;
		}
	return append(&s->recvs[rank], rank, index, NULL);
}

static int run_local(struct state *s, uint32_t rank, uint32_t index)
{
	const struct goal_op *op = op_of(s, rank, index);
	bool is_work = op->type != GOAL_NOP && op->type != GOAL_CALC;
	char *dst = NULL, *a = NULL, *b = NULL;
	int rc = 0;

	if (is_work)
		dst = place(s, rank, op->mem, op->off, op->bytes, &rc);
	if (is_work && op->type != GOAL_STAMP)
		a = place(s, rank, op->src_mem, op->src_off, op->bytes, &rc);
	if (goal_is_arithmetic(op))
		b = place(s, rank, op->src2_mem, op->src2_off, op->bytes, &rc);
	if (rc)
		return rc;
	if (goal_is_arithmetic(op) && dst)
		goal_local(GOAL_ISA_BASE, op->type, op->dtype, dst, a, b, op->bytes);
	else if (a && dst)
		memmove(dst, a, op->bytes);
	else if (dst)
		memset(dst, 0, op->bytes); /* a stamp: no time passes here */
	return end(s, rank, index);
}

static int run_one(struct state *s)
{
	uint64_t i;
	struct ready r;
	int rc;

	s->random = s->random * 6364136223846793005u + 1442695040888963407u;
	i = (s->random >> 33) % s->ready_count;
	r = s->ready[i];
	s->ready[i] = s->ready[--s->ready_count];
	rc = begin(s, r.rank, r.op);
	if (rc)
		return rc;
	switch (op_of(s, r.rank, r.op)->type) {
	case GOAL_SEND:
		return run_send(s, r.rank, r.op);
	case GOAL_RECV:
		return run_recv(s, r.rank, r.op);
	default:
		return run_local(s, r.rank, r.op);
	}
}

static int set_up(struct state *s)
{
	s->left = calloc(s->count, sizeof(uint32_t *));
	s->sends = calloc(s->count, sizeof(struct open *));
	s->recvs = calloc(s->count, sizeof(struct open *));
	if (!s->left || !s->sends || !s->recvs)
		return -ENOMEM;
	for (uint32_t rank = 0; rank < s->count; rank++) {
		const struct goal_block *b = s->ranks[rank].block;

		s->left[rank] = malloc((b->op_count + 1ull) * sizeof(uint32_t));
		if (!s->left[rank])
			return -ENOMEM;
		s->ops_left += b->op_count;
		for (uint32_t op = 0; op < b->op_count; op++) {
			s->left[rank][op] = op_of(s, rank, op)->requires;
			if (op < b->ready_count && make_ready(s, rank, op))
				return -ENOMEM;
		}
	}
	return 0;
}

static bool tear_down(struct state *s)
{
	bool is_left = s->ops_left;

	for (uint32_t rank = 0; rank < s->count; rank++) {
		while (s->sends && s->sends[rank]) {
			is_left = true;
			drop(&s->sends[rank]);
		}
		while (s->recvs && s->recvs[rank])
			drop(&s->recvs[rank]);
		if (s->left)
			free(s->left[rank]);
	}
	free(s->sends);
	free(s->recvs);
	free(s->left);
	free(s->ready);
	return is_left;
}

int reference_run(struct reference_rank *ranks, uint32_t count, uint64_t seed)
{
	struct state s = {
		.ranks = ranks, .count = count, .random = seed, .is_eager = seed % 2 == 0
	};
	int rc = set_up(&s);

	while (!rc && s.ready_count)
		rc = run_one(&s);
	if (tear_down(&s) && !rc)
		rc = -EDEADLK;
	return rc;
}
