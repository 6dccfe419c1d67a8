/* SPDX-License-Identifier: BSD-3-Clause */
/* Flat trees: one level, the root talks to everyone. Inside a node, where whoever waits helps to copy,
 * deeper trees would only copy more. */
#include "coll/coll.h"

enum { TAG_BCAST = 1, TAG_GATHER = 2 };

void coll_bcast(struct goal_build *b, int rank, int ranks, int root, uint64_t off, uint64_t bytes)
{
	if (rank != root) {
		goal_recv(b, (uint32_t)root, TAG_BCAST, COLL_SEND, off, bytes);
		return;
	}
	for (int k = 1; k < ranks; k++) {
		int leaf = (root + k) % ranks;

		goal_send(b, (uint32_t)leaf, TAG_BCAST, 0, COLL_SEND, off, bytes);
	}
}

/* The number of the root's receive from `rank`: it posts them by rank, leaving itself out. */
static uint32_t gather_match(int rank, int root) { return (uint32_t)(rank < root ? rank : rank - 1); }

void coll_gather(struct goal_build *b, int rank, int ranks, int root, const struct coll_gather_shape *s)
{
	if (rank != root) {
		goal_send(b, (uint32_t)root, TAG_GATHER, gather_match(rank, root), COLL_SEND, s->send_off, s->bytes);
		return;
	}
	for (int r = 0; r < ranks; r++)
		if (r != root)
			goal_recv(b, (uint32_t)r, TAG_GATHER, COLL_RECV,
				  s->recv_off + (uint64_t)r * s->recv_stride, s->bytes);
	if (!s->in_place)
		goal_copy(b, COLL_RECV, s->recv_off + (uint64_t)root * s->recv_stride, COLL_SEND, s->send_off, s->bytes);
}
