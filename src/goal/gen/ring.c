/* SPDX-License-Identifier: BSD-3-Clause */
/* Rings and pipelines: each rank sends to the next rank only. */
#include "private.h"

/* A pipeline from the root; segments follow one another. */
void gen_ring_bcast(struct gen_out *o)
{
	uint32_t v = gen_before(o, o->rank, o->p->root), k = 0;
	uint64_t bytes = o->p->bytes, segment = o->p->segment_bytes ? o->p->segment_bytes : bytes,
		 at = 0;

	do {
		uint64_t size = segment < bytes - at ? segment : bytes - at;
		uint32_t got = GOAL_NONE;

		if (v)
			got = gen_from(o, gen_before(o, o->rank, 1), k, gen_send(at), size);
		if (v + 1 < o->n)
			gen_requires(o,
				     gen_to(o, gen_after(o, o->rank, 1), k, k, gen_send(at), size),
				     got);
		at += size;
		k++;
	} while (at < bytes);
}

void gen_ring_allgather(struct gen_out *o)
{
	uint64_t bytes = o->p->bytes;
	uint32_t next = gen_after(o, o->rank, 1 % o->n),
		 previous = gen_before(o, o->rank, 1 % o->n);
	uint32_t block = o->rank, got = GOAL_NONE;

	gen_copy(o, gen_recv(block * bytes), gen_send(0), bytes);
	for (uint32_t step = 0; step + 1 < o->n; step++) {
		gen_requires(o,
			     gen_to(o, next, step, step,
				    step ? gen_recv(block * bytes) : gen_send(0), bytes),
			     got);
		block = gen_before(o, block, 1);
		got = gen_from(o, previous, step, gen_recv(block * bytes), bytes);
	}
}

/* Offset and size of part i of a vector that is cut into a part for each rank. Reduce-scatter has
 * blocks instead. */
struct parts {
	bool is_blocks;
};
static uint64_t part_at(const struct gen_out *o, struct parts p, uint32_t i)
{
	return p.is_blocks ? i * o->p->bytes : gen_part(o, i, o->n);
}

/*
 * Sends part rank - 1 first; reduces each part that comes with the rank's own and sends it in the
 * next step. The last part to come is the rank's own, which ends at `to`. Two pieces of scratch
 * memory alternate: a part is received where the part before the last one was, once that has been
 * sent. Returns: the operation that made the last part.
 */
static uint32_t reduce_scatter(struct gen_out *o, struct parts p, struct gen_at to)
{
	uint32_t next = gen_after(o, o->rank, 1), previous = gen_before(o, o->rank, 1),
		 part = previous;
	uint64_t most =
		/* the first part is the largest */
		p.is_blocks ? o->p->bytes : gen_part(o, 1, o->n);
	struct gen_at slot[2] = { gen_scratch(o, most), gen_scratch(o, most) };
	struct gen_at from = gen_send(part_at(o, p, part));
	uint32_t made = GOAL_NONE, sent[2] = { GOAL_NONE, GOAL_NONE }, match = 0;

	for (uint32_t step = 0; step + 1 < o->n; step++) {
		uint64_t size = part_at(o, p, part + 1) - part_at(o, p, part);
		struct gen_at in = slot[step % 2], sum = step + 2 < o->n ? in : to;
		uint32_t out = size ? gen_to(o, next, step, match++, from, size) : GOAL_NONE,
			 got = GOAL_NONE;

		gen_requires(o, out, made);
		/* `from` is the other piece, or first the send buffer; the send below frees it. An
		 * empty part leaves it to the last operation that used it. */
		if (out != GOAL_NONE)
			sent[(step + 1) % 2] = out;
		part = gen_before(o, part, 1);
		size = part_at(o, p, part + 1) - part_at(o, p, part);
		if (size)
			got = gen_from(o, previous, step, in, size);
		gen_requires(o, got, sent[step % 2]);
		made = gen_reduce(o, sum, gen_send(part_at(o, p, part)), in, size);
		gen_requires(o, made, got);
		from = sum;
	}
	return made;
}

void gen_ring_reduce_scatter(struct gen_out *o)
{
	if (o->n == 1)
		gen_copy(o, gen_recv(0), gen_send(0), o->p->bytes);
	else
		reduce_scatter(o, (struct parts){ true }, gen_recv(0));
}

void gen_ring_allreduce(struct gen_out *o)
{
	struct parts p = { false };
	uint32_t part = o->rank, ready;

	if (o->n == 1) {
		gen_copy(o, gen_recv(0), gen_send(0), o->p->bytes);
		return;
	}
	ready = reduce_scatter(o, p, gen_recv(part_at(o, p, part)));
	for (uint32_t step = 0; step + 1 < o->n; step++) {
		uint32_t tag = o->n + step;
		uint64_t size = part_at(o, p, part + 1) - part_at(o, p, part);

		if (size)
			gen_requires(o,
				     gen_to(o, gen_after(o, o->rank, 1), tag, tag - 1,
					    gen_recv(part_at(o, p, part)), size),
				     ready);
		part = gen_before(o, part, 1);
		size = part_at(o, p, part + 1) - part_at(o, p, part);
		ready = GOAL_NONE;
		if (size)
			ready = gen_from(o, gen_before(o, o->rank, 1), tag,
					 gen_recv(part_at(o, p, part)), size);
	}
}
