/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives over contiguous buffers, for tests. */
#ifndef SLUICE_TEST_RT_CASE_H
#define SLUICE_TEST_RT_CASE_H

#include "rt/collective.h"

enum { RT_CASE_RANKS_MAX = 64 };

static inline int rt_bcast(struct rt_comm *c, const struct rt_buf *buf, int root, const void *site)
{
	struct rt_part part = { 0, buf->bytes };
	struct rt_call call = { .kind = RT_BCAST, .root = root, .send = { *buf, &part, 1 }, .bytes = buf->bytes,
				.name = "MPI_Bcast", .site = site };

	return rt_collective(c, &call);
}

/* send == NULL: in place; recv: at the root, `size` parts of `bytes`. */
static inline int rt_gather(struct rt_comm *c, const struct rt_buf *send, const struct rt_buf *recv, uint64_t bytes,
			    int root, const void *site)
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

#endif
