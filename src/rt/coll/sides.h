/* SPDX-License-Identifier: BSD-3-Clause */
/* The buffers of a call while it runs, and how the call ends. Shared by the files of rt/ only. */
#ifndef SLUICE_RT_SIDES_H
#define SLUICE_RT_SIDES_H

#include "rt/private.h"

enum side_memory {
	SIDE_ANY,    /* in place, whether peers have it mapped or not */
	SIDE_MAPPED, /* in place where peers have it mapped, else packed in scratch memory */
	SIDE_COPY,   /* always packed */
};

/* Sluice uses a contiguous buffer in place and whole, and a buffer with gaps by its packed form,
 * piece by piece. */
struct side {
	const struct coll_side *of;
	struct region_extent *scratch;
	struct region_desc desc;
	char *addr;
	bool is_packed;
	bool is_unmapped; /* peers have not mapped the program's own memory */
};

/* 0 or -errno; side_end() is due in any case. */
int side_begin(struct side *s, const struct coll_side *of, struct region_extent *scratch,
	       uint64_t scratch_bytes, enum side_memory memory);
void side_end(struct side *s);
enum trace_region side_region(const struct side *s);
/* Bytes [at, at + n) of each part, where they are in what takes part. */
void side_cut(const struct side *s, uint64_t at, uint64_t n, struct coll_part *out);
/* To and from the packed form, when there is one; of one part `only`, or all but `skip` (-1: all).
 * 0 or -errno. */
int side_pack(const struct side *s, uint64_t at, const struct coll_part *parts, int only);
int side_unpack(const struct side *s, uint64_t at, const struct coll_part *parts, int skip);
/* Convert bytes [at, at + n) of a buffer in one piece to and from the begin of the packed form. */
int side_pack_range(const struct side *s, uint64_t at, uint64_t n);
int side_unpack_range(const struct side *s, uint64_t at, uint64_t n);

/* Completes pending operations on the memory of a side, before a call uses it. */
void side_complete_pending(const struct coll_side *side);
/* Returns: the sum of the bytes of all parts. */
uint64_t side_bytes(const struct coll_side *side);

struct sides { struct side send, recv; };

/* How a call may end: `detached` is the result, set only where nothing has to be done afterwards.
 */
struct ending {
	struct detach detach;
	bool may_detach, detached;
};
/* in_one_run: it is not cut. Only then, and only when peers can do without this rank's memory being
 * open, may it detach: all bytes of each buffer are of the collective, and it takes part in place.
 */
void ending_begin(struct ending *end, const struct rt_comm *c, const struct coll_call *call,
		  const struct sides *s, bool in_one_run);
/* exec_wait(), or leaving. */
int ending_run(struct rt_comm *c, struct exec_run *r, struct ending *end, struct region_desc *send,
	       struct region_desc *recv);
/* reductions.c: all of it but what goes before and after any collective. */
int reduce_collective(struct rt_comm *c, const struct coll_call *call);
/* For exec: `bytes` of each rank's vector, from the beginning of its buffers on; without `starts`.
 */
void reduce_describe(const struct coll_call *call, uint64_t bytes, struct exec_reduce *out);

/* Does what a rank sends to itself fit where it goes? Peers' parts are looked at by both ends. */
bool call_own_part_fits(const struct coll_call *call, int rank);

/* Begins a run of `shape`. Returns: 0 with *out, or -errno. */
int run_shape(struct rt_comm *c, const struct exec_shape *shape, const struct side *send,
	      const struct side *recv, const char *name, struct exec_run **out);
/* exec_begin(), when so many are in flight that the oldest has to end first, too. */
int run_begin(struct rt_comm *c, const struct exec_call *call, struct exec_run **out);

#endif
