/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial trees over the ranks counted from the root. The children of v are v + 2^k for all 2^k
 * below the lowest set bit of v, so the subtree of v is the run of ranks v ... v + extent - 1.
 * Largest subtrees come first on the way down and last on the way up.
 */
#include "private.h"

/* Returns: this rank's number counted from the root. */
static uint32_t place(const struct gen_out *o) { return gen_before(o, o->rank, o->p->root); }
static uint32_t rank_at(const struct gen_out *o, uint32_t place)
{
	return gen_after(o, place, o->p->root);
}

/* Returns: the power of two that exceeds all distances to children. */
static uint64_t reach(const struct gen_out *o, uint32_t v)
{
	uint64_t step = 1;

	if (v)
		return v & -v;
	while (step < o->n)
		step *= 2;
	return step;
}

/* Returns: the number of ranks in the subtree of v. */
static uint32_t extent(const struct gen_out *o, uint32_t v)
{
	uint64_t most = reach(o, v);

	return most < o->n - v ? (uint32_t)most : o->n - v;
}

/* Returns: the number of children of v. */
static uint32_t child_count(const struct gen_out *o, uint32_t v)
{
	uint32_t n = 0;

	for (uint64_t step = 1; step < reach(o, v) && v + step < o->n; step *= 2)
		n++;
	return n;
}

static uint32_t parent(uint32_t v) { return v & (v - 1); }

/* Returns: the position of v among its parent's children; the nearest is 0. */
static uint32_t child_number(uint32_t v) { return (uint32_t)__builtin_ctz(v); }

void gen_binomial_bcast(struct gen_out *o)
{
	uint32_t v = place(o), got = GOAL_NONE;

	if (v)
		got = gen_from(o, rank_at(o, parent(v)), 0, gen_send(0), o->p->bytes);
	for (uint32_t k = child_count(o, v); k-- > 0;)
		gen_requires(o,
			     gen_to(o, rank_at(o, v + (1u << k)), 0, 0, gen_send(0), o->p->bytes),
			     got);
}

void gen_binomial_reduce(struct gen_out *o)
{
	uint32_t v = place(o), children = child_count(o, v), last = GOAL_NONE;
	uint64_t bytes = o->p->bytes;
	struct gen_at sum = gen_send(0);

	for (uint32_t k = 0; k < children; k++) {
		struct gen_at in = gen_scratch(o, bytes);
		struct gen_at to = !v && k + 1 == children ? gen_recv(0) : in;
		uint32_t got = gen_from(o, rank_at(o, v + (1u << k)), 0, in, bytes);
		uint32_t added = gen_reduce(o, to, sum, in, bytes);

		gen_requires(o, added, got);
		gen_requires(o, added, last);
		last = added == GOAL_NONE ? got : added;
		sum = to;
	}
	if (v)
		gen_requires(o, gen_to(o, rank_at(o, parent(v)), 0, child_number(v), sum, bytes),
			     last);
	else if (!children)
		gen_copy(o, gen_recv(0), sum, bytes);
}

/* The blocks of ranks from v on lie in at most two runs of the root's buffer, as ranks wrap
 * around. */
static uint32_t first_run(const struct gen_out *o, uint32_t v)
{
	uint32_t to_end = o->n - rank_at(o, v);

	return extent(o, v) < to_end ? extent(o, v) : to_end;
}

/* The root receives the blocks of a subtree in place, or through scratch memory when they wrap
 * around. */
static void gather_at_root(struct gen_out *o, uint32_t child)
{
	uint64_t bytes = o->p->bytes, run = first_run(o, child) * bytes,
		 all = extent(o, child) * bytes;
	struct gen_at to = gen_recv(rank_at(o, child) * bytes);
	struct gen_at in = run == all ? to : gen_scratch(o, all);
	uint32_t got = gen_from(o, rank_at(o, child), 0, in, all);

	if (run == all)
		return;
	gen_requires(o, gen_copy(o, to, in, run), got);
	gen_requires(o, gen_copy(o, gen_recv(0), gen_plus(in, run), all - run), got);
}

void gen_binomial_gather(struct gen_out *o)
{
	uint32_t v = place(o), children = child_count(o, v), to_parent;
	uint64_t bytes = o->p->bytes;
	struct gen_at all = gen_send(0);

	if (!v) {
		gen_copy(o, gen_recv(o->rank * bytes), gen_send(0), bytes);
		for (uint32_t k = 0; k < children; k++)
			gather_at_root(o, 1u << k);
		return;
	}
	if (children)
		all = gen_scratch(o, extent(o, v) * bytes);
	to_parent = gen_to(o, rank_at(o, parent(v)), 0, child_number(v), all, extent(o, v) * bytes);
	if (children)
		gen_requires(o, to_parent, gen_copy(o, all, gen_send(0), bytes));
	for (uint32_t k = 0; k < children; k++) {
		uint32_t child = v + (1u << k);

		gen_requires(o, to_parent,
			     gen_from(o, rank_at(o, child), 0,
				      gen_plus(all, (uint64_t)(child - v) * bytes),
				      extent(o, child) * bytes));
	}
}

/* The blocks of a subtree at the root: in place, or copied to scratch memory when they wrap
 * around. */
static void scatter_from_root(struct gen_out *o, uint32_t child)
{
	uint64_t bytes = o->p->bytes, run = first_run(o, child) * bytes,
		 all = extent(o, child) * bytes;
	struct gen_at from = gen_send(rank_at(o, child) * bytes);
	struct gen_at out = run == all ? from : gen_scratch(o, all);
	uint32_t sent = gen_to(o, rank_at(o, child), 0, 0, out, all);

	if (run == all)
		return;
	gen_requires(o, sent, gen_copy(o, out, from, run));
	gen_requires(o, sent, gen_copy(o, gen_plus(out, run), gen_send(0), all - run));
}

void gen_binomial_scatter(struct gen_out *o)
{
	uint32_t v = place(o), children = child_count(o, v), got;
	uint64_t bytes = o->p->bytes;
	struct gen_at all = gen_recv(0);

	if (!v) {
		for (uint32_t k = children; k-- > 0;)
			scatter_from_root(o, 1u << k);
		gen_copy(o, gen_recv(0), gen_send(o->rank * bytes), bytes);
		return;
	}
	if (children)
		all = gen_scratch(o, extent(o, v) * bytes);
	got = gen_from(o, rank_at(o, parent(v)), 0, all, extent(o, v) * bytes);
	for (uint32_t k = children; k-- > 0;) {
		uint32_t child = v + (1u << k);

		gen_requires(o,
			     gen_to(o, rank_at(o, child), 0, 0,
				    gen_plus(all, (uint64_t)(child - v) * bytes),
				    extent(o, child) * bytes),
			     got);
	}
	if (children)
		gen_requires(o, gen_copy(o, gen_recv(0), all, bytes), got);
}
