/* SPDX-License-Identifier: BSD-3-Clause */
/* Bruck's algorithms: few messages, each one contiguous, at the price of local copies. */
#include "private.h"

/* Allgather: blocks `rank`, `rank` + 1 ... are gathered in scratch memory and rotated at the end to
 * begin with the block of rank 0. */
void gen_bruck_allgather(struct gen_out *o)
{
	uint64_t bytes = o->p->bytes;
	struct gen_at all = gen_scratch(o, o->n * bytes);
	uint32_t got = gen_copy(o, all, gen_send(0), bytes), before = GOAL_NONE, k = 0;
	uint32_t tail = o->n - o->rank, turned[2];

	for (uint64_t step = 1; step < o->n; step *= 2, k++) {
		uint32_t distance = (uint32_t)step;
		uint64_t size = (distance < o->n - distance ? distance : o->n - distance) * bytes;
		uint32_t sent = gen_to(o, gen_before(o, o->rank, distance), k, k, all, size);

		gen_requires(o, sent, got);
		gen_irequires(o, sent, before);
		before = sent;
		got = gen_from(o, gen_after(o, o->rank, distance), k,
			       gen_plus(all, distance * bytes), size);
	}
	turned[0] = gen_copy(o, gen_recv(o->rank * bytes), all, tail * bytes);
	turned[1] = gen_copy(o, gen_recv(0), gen_plus(all, tail * bytes), o->rank * bytes);
	for (int i = 0; i < 2; i++) {
		gen_requires(o, turned[i], got);
		gen_irequires(o, turned[i], before); /* and transitively all rounds before */
	}
}

static uint32_t packed_runs(const struct gen_out *o, uint32_t step)
{
	return (uint32_t)(((uint64_t)o->n + step - 1) / (2ull * step));
}

static uint64_t packed_bytes(const struct gen_out *o, uint32_t step)
{
	uint64_t whole = o->n / (2ull * step), rest = o->n % (2ull * step);

	return (whole * step + (rest > step ? rest - step : 0)) * o->p->bytes;
}

/* Copies the blocks whose bit `step` is set from `turned` to the packed message or back. Requires
 * `before`; `after` requires the copies. */
static void pack(struct gen_out *o, struct gen_at turned, struct gen_at packed, uint32_t step,
		 bool is_back, uint32_t before, uint32_t after)
{
	uint64_t bytes = o->p->bytes, done = 0;

	for (uint32_t i = 0; i < packed_runs(o, step); i++) {
		uint64_t first = (2ull * i + 1) * step;
		uint64_t size = (first + step < o->n ? step : o->n - first) * bytes;
		struct gen_at turned_at = gen_plus(turned, first * bytes),
			      packed_at = gen_plus(packed, done);
		uint32_t copied = is_back ? gen_copy(o, turned_at, packed_at, size)
					  : gen_copy(o, packed_at, turned_at, size);

		gen_requires(o, copied, before);
		gen_requires(o, after, copied);
		done += size;
	}
}

/* Block i has come from the rank i before: copies it to its place, in reverse order. */
static void rotate_back(struct gen_out *o, struct gen_at turned, uint32_t ready)
{
	uint64_t bytes = o->p->bytes;

	for (uint32_t i = 0; i < o->n; i++)
		gen_requires(o, gen_copy(o, gen_recv(gen_before(o, o->rank, i) * bytes),
					 gen_plus(turned, i * bytes), bytes), ready);
}

/*
 * Alltoall: block i of `turned` travels to the rank i after. In round k the blocks whose bit k is
 * set move 2^k ranks, packed into one message; they lie in runs of 2^k.
 */
void gen_bruck_alltoall(struct gen_out *o)
{
	uint64_t bytes = o->p->bytes;
	struct gen_at turned = gen_scratch(o, o->n * bytes);
	uint32_t tail = o->n - o->rank, ready = gen_nop(o), k = 0;

	gen_requires(o, ready, gen_copy(o, turned, gen_send(o->rank * bytes), tail * bytes));
	gen_requires(o, ready,
		     gen_copy(o, gen_plus(turned, tail * bytes), gen_send(0), o->rank * bytes));
	for (uint64_t step = 1; step < o->n; step *= 2, k++) {
		uint64_t size = packed_bytes(o, (uint32_t)step);
		struct gen_at out = gen_scratch(o, size), in = gen_scratch(o, size);
		uint32_t sent = gen_to(o, gen_after(o, o->rank, (uint32_t)step), k, k, out, size);
		uint32_t got = gen_from(o, gen_before(o, o->rank, (uint32_t)step), k, in, size);
		uint32_t packed = gen_nop(o), come = gen_nop(o);

		gen_requires(o, packed, ready);
		pack(o, turned, out, (uint32_t)step, false, ready, packed);
		gen_requires(o, sent, packed);
		/* received blocks take the places of the blocks that were sent */
		gen_requires(o, come, packed);
		gen_requires(o, come, got);
		ready = gen_nop(o);
		gen_requires(o, ready, come);
		pack(o, turned, in, (uint32_t)step, true, come, ready);
	}
	rotate_back(o, turned, ready);
}
