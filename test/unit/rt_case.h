/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives over contiguous buffers, for tests. */
#ifndef SLUICE_TEST_RT_CASE_H
#define SLUICE_TEST_RT_CASE_H

#include "rt/collective.h"

enum { RT_CASE_RANKS_MAX = 64 };

static inline int rt_bcast(struct rt_comm *c, const struct coll_buf *buf, int root,
			   const void *site)
{
	struct coll_part part = { 0, buf->bytes };
	struct coll_call call = { .kind = COLL_BCAST,
				.root = root,
				.send = { *buf, &part, 1 },
				.bytes = buf->bytes,
				.name = "MPI_Bcast",
				.site = site };

	return rt_collective(c, &call);
}

/* send == NULL: in place; recv: at the root, `size` parts of `bytes`. */
static inline int rt_gather(struct rt_comm *c, const struct coll_buf *send,
			    const struct coll_buf *recv, uint64_t bytes, int root, const void *site)
{
	struct coll_part one = { 0, bytes }, all[RT_CASE_RANKS_MAX];
	struct coll_call call = { .kind = COLL_GATHER,
				  .root = root,
				  .bytes = bytes,
				  .in_place = !send,
				  .name = "MPI_Gather",
				  .site = site };

	if (send)
		call.send = (struct coll_side){ *send, &one, 1 };
	if (recv)
		call.recv = (struct coll_side){ *recv, all, (int)(recv->bytes / bytes) };
	for (int i = 0; i < call.recv.count; i++)
		all[i] = (struct coll_part){ (uint64_t)i * bytes, bytes };
	return rt_collective(c, &call);
}

/* Runs an all-to-all, or an allgather, with parts of `bytes` bytes; an allgather sends one part.
 * send: NULL for an allgather in place. */
static inline int rt_exchange(struct rt_comm *c, enum coll kind, char *send, char *recv,
			      uint64_t bytes, int ranks)
{
	struct coll_part all[RT_CASE_RANKS_MAX];
	struct coll_call call = {
		.kind = kind, .root = -1, .bytes = bytes, .in_place = !send, .name = "exchange"
	};
	int sent = kind == COLL_ALLTOALL ? ranks : 1;

	for (int i = 0; i < ranks; i++)
		all[i] = (struct coll_part){ (uint64_t)i * bytes, bytes };
	if (send)
		call.send = (struct coll_side){ { .addr = send, .bytes = (uint64_t)sent * bytes },
					      all,
					      sent };
	call.recv = (struct coll_side){ { .addr = recv, .bytes = (uint64_t)ranks * bytes },
					all,
					ranks };
	return rt_collective(c, &call);
}

/* Words are added up. */
static inline int rt_allreduce(struct rt_comm *c, uint64_t *send, uint64_t *recv, uint64_t count)
{
	struct coll_part part = { 0, count * sizeof *send };
	struct coll_call call = {
		.kind = COLL_ALLREDUCE,
		.root = -1,
		.bytes = part.bytes,
		.name = "allreduce",
		.send = { { .addr = send, .bytes = part.bytes }, &part, 1 },
		.recv = { { .addr = recv, .bytes = part.bytes }, &part, 1 },
		.reduce = { .op = GOAL_ADD,
			  .type = GOAL_U64,
			  .element_bytes = sizeof *send,
			  .commutes = true },
	};

	return rt_collective(c, &call);
}

#endif
