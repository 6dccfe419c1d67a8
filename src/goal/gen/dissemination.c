/* SPDX-License-Identifier: BSD-3-Clause */
/* Dissemination: round k sends to the rank 2^k after and receives from the rank 2^k before. */
#include "private.h"

void gen_dissemination_barrier(struct gen_out *o)
{
	uint32_t got = GOAL_NONE, before = GOAL_NONE, k = 0;

	for (uint64_t step = 1; step < o->n; step *= 2, k++) {
		uint32_t sent =
			gen_to(o, gen_after(o, o->rank, (uint32_t)step), k, k, gen_send(0), 0);

		/* it stands for the messages of all rounds before */
		gen_requires(o, sent, got);
		gen_irequires(o, sent, before);
		before = sent;
		got = gen_from(o, gen_before(o, o->rank, (uint32_t)step), k, gen_send(0), 0);
	}
}

/* ---- allreduce --------------------------------------------------------------------------- */

/* Is the operation idempotent? */
static bool is_idempotent(uint8_t op)
{
	return op == GOAL_MAX || op == GOAL_MIN || op == GOAL_AND || op == GOAL_OR;
}

/* A partial result: its place, and the operation that made it. */
struct value {
	struct gen_at at;
	uint32_t made;
};

/* Reduces the value of the rank `distance` before with `own`; the last round writes the receive
 * buffer. */
static struct value reduce_from(struct gen_out *o, const struct value *out, const struct value *own,
				uint32_t distance, uint32_t *step, bool is_last)
{
	struct gen_at in = gen_scratch(o, o->p->bytes);
	struct value sum = { is_last ? gen_recv(0) : in, GOAL_NONE };
	uint32_t sent =
		gen_to(o, gen_after(o, o->rank, distance), *step, *step, out->at, o->p->bytes);
	uint32_t got = gen_from(o, gen_before(o, o->rank, distance), *step, in, o->p->bytes);

	gen_requires(o, sent, out->made);
	sum.made = gen_reduce(o, sum.at, own->at, in, o->p->bytes);
	gen_requires(o, sum.made, got);
	gen_requires(o, sum.made, own->made);
	if (sum.made == GOAL_NONE)
		sum.made = got;
	++*step;
	return sum;
}

/*
 * `doubling` is the reduction over the last 2^k ranks up to this one. When the number of ranks is
 * no power of two and the operation is not idempotent, `whole` joins the ranges of the set bits of
 * that number: the reduction over the last n mod 2^(k+1) ranks.
 */
void gen_dissemination_allreduce(struct gen_out *o)
{
	struct value doubling = { gen_send(0), GOAL_NONE }, whole = doubling;
	bool is_plain = is_idempotent(o->p->op);
	uint32_t step = 0, covered = 0;

	if (o->n == 1)
		gen_copy(o, gen_recv(0), gen_send(0), o->p->bytes);
	for (uint64_t window = 1; is_plain ? window < o->n : window <= o->n; window *= 2) {
		bool is_last = window * 2 > o->n || (is_plain && window * 2 >= o->n);

		if (!is_plain && (o->n & window)) {
			if (covered)
				whole = reduce_from(o, &doubling, &whole, covered, &step, is_last);
			else
				whole = doubling;
			covered += (uint32_t)window;
		}
		if (is_plain || !is_last)
			doubling = reduce_from(o, &doubling, &doubling, (uint32_t)window, &step,
					       is_plain ? is_last : window * 2 == o->n);
	}
}

/* ---- allgather --------------------------------------------------------------------------- */

/* Sends or receives the blocks of `count` ranks up to `last`: one message, or two when they wrap
 * around; both sides compute which. */
static void each_run(struct gen_out *o, uint32_t last, uint32_t count, uint32_t peer, uint32_t tag,
		     bool is_send, uint32_t made[2])
{
	uint64_t bytes = o->p->bytes;
	uint32_t first = gen_before(o, last, count - 1);
	uint32_t head = count < o->n - first ? count : o->n - first;

	for (uint32_t part = 0; part < 2; part++) {
		struct gen_at at = gen_recv(part ? 0 : first * bytes);
		uint32_t size = part ? count - head : head;

		made[part] = GOAL_NONE;
		if (size)
			made[part] =
				is_send ? gen_to(o, peer, tag + part, tag / 2, at, size * bytes)
					: gen_from(o, peer, tag + part, at, size * bytes);
	}
}

/* A rank holds the blocks of the last 2^k ranks up to itself and sends as many of them as the
 * receiver lacks. */
void gen_dissemination_allgather(struct gen_out *o)
{
	uint32_t got[2] = { gen_copy(o, gen_recv(o->rank * o->p->bytes), gen_send(0), o->p->bytes),
			    GOAL_NONE };
	uint32_t tag = 0, before = GOAL_NONE;

	for (uint64_t step = 1; step < o->n; step *= 2, tag += 2) {
		uint32_t distance = (uint32_t)step, from = gen_before(o, o->rank, distance);
		uint32_t count = distance < o->n - distance ? distance : o->n - distance;
		uint32_t sent[2];

		each_run(o, o->rank, count, gen_after(o, o->rank, distance), tag, true, sent);
		for (uint32_t part = 0; part < 2; part++) {
			gen_requires(o, sent[part], got[0]);
			gen_requires(o, sent[part], got[1]);
			gen_irequires(o, sent[part],
				      before); /* and transitively all rounds before */
		}
		before = sent[0];
		each_run(o, from, count, from, tag, false, got);
	}
}
