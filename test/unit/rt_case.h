/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives over contiguous buffers, for tests. */
#ifndef SLUICE_TEST_RT_CASE_H
#define SLUICE_TEST_RT_CASE_H

#include "rt/collective.h"

enum { RT_CASE_RANKS_MAX = 64 };

static inline int rt_bcast(struct rt_comm *c, const struct rt_buf *buf, int root, const void *site)
{
	struct rt_part part = { 0, buf->bytes };
	struct rt_call call = { .kind = RT_BCAST,
				.root = root,
				.send = { *buf, &part, 1 },
				.bytes = buf->bytes,
				.name = "MPI_Bcast",
				.site = site };

	return rt_collective(c, &call);
}

/* send == NULL: in place; recv: at the root, `size` parts of `bytes`. */
static inline int rt_gather(struct rt_comm *c, const struct rt_buf *send, const struct rt_buf *recv,
			    uint64_t bytes, int root, const void *site)
{
	struct rt_part one = { 0, bytes }, all[RT_CASE_RANKS_MAX];
	struct rt_call call = { .kind = RT_GATHER, .root = root, .bytes = bytes, .in_place = !send,
				.name = "MPI_Gather", .site = site };

	if (send)
		call.send = (struct rt_side){ *send, &one, 1 };
	if (recv)
		call.recv = (struct rt_side){ *recv, all, (int)(recv->bytes / bytes) };
	for (int i = 0; i < call.recv.count; i++)
		all[i] = (struct rt_part){ (uint64_t)i * bytes, bytes };
	return rt_collective(c, &call);
}

/* What all ranks send to all; send == NULL: in place, of an allgather. Each part `bytes`; an
 * allgather sends one. */
static inline int rt_exchange(struct rt_comm *c, enum rt_kind kind, char *send, char *recv,
			      uint64_t bytes, int ranks)
{
	struct rt_part all[RT_CASE_RANKS_MAX];
	struct rt_call call = {
		.kind = kind, .root = -1, .bytes = bytes, .in_place = !send, .name = "exchange"
	};
	int sent = kind == RT_ALLTOALL ? ranks : 1;

	for (int i = 0; i < ranks; i++)
		all[i] = (struct rt_part){ (uint64_t)i * bytes, bytes };
	if (send)
		call.send = (struct rt_side){ { .addr = send, .bytes = (uint64_t)sent * bytes },
					      all,
					      sent };
	call.recv =
		(struct rt_side){ { .addr = recv, .bytes = (uint64_t)ranks * bytes }, all, ranks };
	return rt_collective(c, &call);
}

/* Words are added up. */
static inline int rt_allreduce(struct rt_comm *c, uint64_t *send, uint64_t *recv, uint64_t count)
{
	struct rt_part part = { 0, count * sizeof *send };
	struct rt_call call = {
		.kind = RT_ALLREDUCE,
		.root = -1,
		.bytes = part.bytes,
		.name = "allreduce",
		.send = { { .addr = send, .bytes = part.bytes }, &part, 1 },
		.recv = { { .addr = recv, .bytes = part.bytes }, &part, 1 },
		.reduce = { .op = RT_SUM,
			  .type = RT_U64,
			  .element_bytes = sizeof *send,
			  .commutes = true },
	};

	return rt_collective(c, &call);
}

#endif
