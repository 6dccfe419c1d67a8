/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce between ranks whose numbers differ in one bit. When the number of ranks is no power of
 * two, each of the first `extra` even ranks sends its vector to the odd rank after it and gets the
 * result from it; the other ranks are renumbered.
 */
#include "private.h"

enum { HAND_BACK = UINT16_MAX }; /* the tag of the result */

struct exchange {
	uint32_t size;   /* the largest power of two up to the number of ranks */
	uint32_t extra;
	uint32_t id;     /* new number; GOAL_NONE: this rank has sent its vector */
	struct gen_at sum; /* the partial result */
	uint32_t made;   /* the operation that made it */
};

static uint32_t rank_of(const struct exchange *x, uint32_t id)
{
	return id < x->extra ? 2 * id + 1 : id + x->extra;
}

/* Returns: the number of receives of a rank before its exchanges. */
static uint32_t early_recvs(const struct exchange *x, uint32_t id) { return id < x->extra; }

/* Returns: true when this rank takes part in the exchanges. */
static bool hand_in(struct gen_out *o, struct exchange *x)
{
	uint64_t bytes = o->p->bytes;
	struct gen_at in;
	uint32_t got;

	*x = (struct exchange){ .size = 1, .sum = gen_send(0), .made = GOAL_NONE };
	while (x->size <= o->n / 2)
		x->size *= 2;
	x->extra = o->n - x->size;
	if (o->rank >= 2 * x->extra) {
		x->id = o->rank - x->extra;
		return true;
	}
	x->id = o->rank / 2;
	if (o->rank % 2 == 0) {
		gen_to(o, o->rank + 1, 0, 0, gen_send(0), bytes);
		gen_from(o, o->rank + 1, HAND_BACK, gen_recv(0), bytes);
		return false;
	}
	in = gen_scratch(o, bytes);
	got = gen_from(o, o->rank - 1, 0, in, bytes);
	x->made = gen_reduce(o, x->size > 1 ? in : gen_recv(0), gen_send(0), in, bytes);
	gen_requires(o, x->made, got);
	x->sum = x->size > 1 ? in : gen_recv(0);
	return true;
}

static void hand_back(struct gen_out *o, const struct exchange *x, const uint32_t *required,
		      uint32_t count)
{
	uint32_t sent;

	if (x->id >= x->extra)
		return;
	sent = gen_to(o, o->rank - 1, HAND_BACK, 0, gen_recv(0), o->p->bytes);
	for (uint32_t i = 0; i < count; i++)
		gen_requires(o, sent, required[i]);
}

void gen_doubling_allreduce(struct gen_out *o)
{
	struct exchange x;
	uint64_t bytes = o->p->bytes;
	uint32_t step = 1, k = 1;

	if (o->n == 1)
		gen_copy(o, gen_recv(0), gen_send(0), bytes);
	if (o->n == 1 || !hand_in(o, &x))
		return;
	for (; step < x.size; step *= 2, k++) {
		uint32_t peer = rank_of(&x, x.id ^ step);
		struct gen_at in = gen_scratch(o, bytes);
		struct gen_at to = step * 2 < x.size ? in : gen_recv(0);
		uint32_t sent =
			gen_to(o, peer, k, k - 1 + early_recvs(&x, x.id ^ step), x.sum, bytes);
		uint32_t got = gen_from(o, peer, k, in, bytes);

		gen_requires(o, sent, x.made);
		gen_requires(o, gen_reduce(o, to, x.sum, in, bytes), got);
		gen_requires(o, o->ops - 1, x.made);
		x.made = o->ops - 1;
		x.sum = to;
	}
	hand_back(o, &x, &x.made, 1);
}

#define LEVELS 32

/* One level of recursive halving; recursive doubling undoes it. */
struct level {
	uint32_t peer, first, count; /* parts that this rank sent away */
};

static uint64_t parts_bytes(const struct gen_out *o, const struct exchange *x, uint32_t first,
			    uint32_t count)
{
	return gen_part(o, first + count, x->size) - gen_part(o, first, x->size);
}

/* Sends the half that the partner keeps; receives and reduces the other half. */
static uint32_t halve(struct gen_out *o, struct exchange *x, struct level *levels)
{
	uint32_t first = 0, count = x->size, depth = 0;

	for (uint32_t step = x->size / 2; step; step /= 2, depth++) {
		struct level *l = &levels[depth];
		bool is_upper = x->id & step;
		uint32_t own_half = is_upper ? first + count / 2 : first, sent, reduced, got;
		uint64_t at, size;
		struct gen_at in;

		*l = (struct level){ .peer = rank_of(x, x->id ^ step),
				     .first = is_upper ? first : first + count / 2,
				     .count = count / 2 };
		sent = gen_to(o, l->peer, depth + 1, depth + early_recvs(x, x->id ^ step),
			      gen_plus(x->sum, gen_part(o, l->first, x->size)),
			      parts_bytes(o, x, l->first, l->count));
		gen_requires(o, sent, x->made);
		at = gen_part(o, own_half, x->size);
		size = parts_bytes(o, x, own_half, l->count);
		in = gen_scratch(o, size);
		got = gen_from(o, l->peer, depth + 1, in, size);
		reduced = gen_reduce(o, gen_recv(at), gen_plus(x->sum, at), in, size);
		gen_requires(o, reduced, got);
		gen_requires(o, reduced, x->made);
		x->made = reduced == GOAL_NONE ? got : reduced;
		x->sum = gen_recv(0);
		first = own_half;
		count /= 2;
	}
	return depth;
}

void gen_halving_allreduce(struct gen_out *o)
{
	struct level levels[LEVELS];
	struct exchange x;
	uint32_t depth, first, count = 1, got[LEVELS + 1], gots = 0;

	if (o->n == 1)
		gen_copy(o, gen_recv(0), gen_send(0), o->p->bytes);
	if (o->n == 1 || !hand_in(o, &x))
		return;
	depth = halve(o, &x, levels);
	got[gots++] = x.made;
	first = x.id;
	for (uint32_t k = 0; k < depth; k++) {
		const struct level *l = &levels[depth - 1 - k];
		uint32_t tag = depth + 1 + k, peer_id = x.id ^ (1u << k);
		uint32_t sent = gen_to(o, l->peer, tag, tag - 1 + early_recvs(&x, peer_id),
				       gen_recv(gen_part(o, first, x.size)),
				       parts_bytes(o, &x, first, count));

		for (uint32_t i = 0; i < gots; i++)
			gen_requires(o, sent, got[i]);
		/* the parts that were sent away come back here */
		got[gots++] = gen_from(o, l->peer, tag, gen_recv(gen_part(o, l->first, x.size)),
				       parts_bytes(o, &x, l->first, l->count));
		first = l->first < first ? l->first : first;
		count *= 2;
	}
	hand_back(o, &x, got, gots);
}
