/* SPDX-License-Identifier: BSD-3-Clause */
/* Neighbours in a grid; ping-pong between two ranks. */
#include "private.h"

#define FACES (2 * GEN_DIMS_MAX)

/* Finds the neighbour after or before in dimension d; the last dimension runs fastest. Returns:
 * false when there is none. */
static bool neighbour(const struct gen_out *o, uint32_t dims, uint32_t d, bool is_after,
		      uint32_t *out)
{
	uint32_t stride = 1, at, size = o->p->dims[d];

	for (uint32_t i = d + 1; i < dims; i++)
		stride *= o->p->dims[i];
	at = o->rank / stride % size;
	if (!o->p->periodic && (is_after ? at + 1 == size : !at))
		return false;
	if (is_after)
		*out = at + 1 == size ? o->rank - at * stride : o->rank + stride;
	else
		*out = at ? o->rank - stride : o->rank + (size - 1) * stride;
	return true;
}

/* One round: send and receive the faces. The next round requires all messages and the computing. */
static uint32_t exchange_faces(struct gen_out *o, uint32_t dims, uint32_t round, uint32_t before)
{
	uint64_t bytes = o->p->bytes;
	uint32_t all = gen_nop(o), calc, peer;

	for (uint32_t face = 0; face < 2 * dims; face++) {
		/* a face is received under the name that its sender gives it: the opposite one */
		uint32_t tag = round * FACES + face, sent, got;

		if (!neighbour(o, dims, face / 2, face % 2, &peer))
			continue;
		sent = gen_to(o, peer, tag, 0, gen_send(face * bytes), bytes);
		got = gen_from(o, peer, tag ^ 1, gen_recv(face * bytes), bytes);
		gen_requires(o, sent, before);
		gen_requires(o, got, before);
		gen_requires(o, all, sent);
		gen_requires(o, all, got);
	}
	gen_requires(o, all, before);
	calc = gen_calc(o, o->p->calc_ns);
	gen_requires(o, calc, all);
	return calc == GOAL_NONE ? all : calc;
}

void gen_stencil(struct gen_out *o)
{
	uint32_t dims = o->p->dims[2] ? 3 : 2, rounds = o->p->rounds ? o->p->rounds : 1,
		 done = GOAL_NONE;

	for (uint32_t round = 0; round < rounds; round++)
		done = exchange_faces(o, dims, round, done);
}

void gen_pingpong(struct gen_out *o)
{
	uint32_t rounds = o->p->rounds ? o->p->rounds : 1, last = GOAL_NONE;
	uint64_t bytes = o->p->bytes;

	for (uint32_t i = 0; i < rounds && o->rank < 2; i++) {
		uint32_t peer = 1 - o->rank, sent, got;

		if (o->rank) {
			got = gen_from(o, peer, i, gen_recv(0), bytes);
			gen_requires(o, got, last);
			last = gen_to(o, peer, i, i, gen_recv(0), bytes);
			gen_requires(o, last, got);
		} else {
			sent = gen_to(o, peer, i, i, gen_send(0), bytes);
			gen_requires(o, sent, last);
			last = gen_from(o, peer, i, gen_recv(0), bytes);
			gen_requires(o, last, sent);
		}
	}
}
