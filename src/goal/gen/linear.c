/* SPDX-License-Identifier: BSD-3-Clause */
/* One message for each pair of ranks that have something for each other. */
#include "private.h"

void gen_linear_bcast(struct gen_out *o)
{
	if (o->rank != o->p->root) {
		gen_from(o, o->p->root, 0, gen_send(0), o->p->bytes);
		return;
	}
	for (uint32_t i = 1; i < o->n; i++)
		gen_to(o, gen_after(o, o->rank, i), 0, 0, gen_send(0), o->p->bytes);
}

void gen_linear_gather(struct gen_out *o)
{
	uint64_t bytes = o->p->bytes;
	uint32_t root = o->p->root;

	if (o->rank != root) {
		gen_to(o, root, 0, gen_before(o, o->rank, root) - 1, gen_send(0), bytes);
		return;
	}
	gen_copy(o, gen_recv(root * bytes), gen_send(0), bytes);
	for (uint32_t i = 1; i < o->n; i++) {
		uint32_t peer = gen_after(o, root, i);

		gen_from(o, peer, 0, gen_recv(peer * bytes), bytes);
	}
}

void gen_linear_scatter(struct gen_out *o)
{
	uint64_t bytes = o->p->bytes;
	uint32_t root = o->p->root;

	if (o->rank != root) {
		gen_from(o, root, 0, gen_recv(0), bytes);
		return;
	}
	for (uint32_t i = 1; i < o->n; i++) {
		uint32_t peer = gen_after(o, root, i);

		gen_to(o, peer, 0, 0, gen_send(peer * bytes), bytes);
	}
	gen_copy(o, gen_recv(0), gen_send(root * bytes), bytes);
}

/* Step i: send to the rank i after, receive from the rank i before. */
static void alltoall(struct gen_out *o, bool in_steps)
{
	uint64_t bytes = o->p->bytes;
	uint32_t sent = GOAL_NONE, got = GOAL_NONE;

	gen_copy(o, gen_recv(o->rank * bytes), gen_send(o->rank * bytes), bytes);
	for (uint32_t i = 1; i < o->n; i++) {
		uint32_t to = gen_after(o, o->rank, i), from = gen_before(o, o->rank, i);
		uint32_t out = gen_to(o, to, 0, i - 1, gen_send(to * bytes), bytes);
		uint32_t in = gen_from(o, from, 0, gen_recv(from * bytes), bytes);

		if (!in_steps)
			continue;
		gen_requires(o, out, sent);
		gen_requires(o, out, got);
		sent = out;
		got = in;
	}
}

void gen_linear_alltoall(struct gen_out *o) { alltoall(o, false); }
void gen_pairwise_alltoall(struct gen_out *o) { alltoall(o, true); }
