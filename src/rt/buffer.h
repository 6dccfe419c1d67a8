/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * buffer: a buffer of the program while a run uses it. Shared by the files of rt/ only.
 *
 *   buffer_open -> (buffer_cut -> buffer_pack -> run -> buffer_unpack) ... -> buffer_close
 *
 * A run uses the program's memory in place, or a copy of it in the arena: in packed form where the
 * buffer has gaps. A buffer with gaps is typed when a run uses it in place, by the layouts of its
 * parts: then peers have mapped all of its hull, and movers copy from layout to layout. Each open
 * copy has an extent of its own, from one pool of the process.
 *
 * Context: in MPI calls of the program, any thread.
 */
#ifndef SLUICE_RT_BUFFER_H
#define SLUICE_RT_BUFFER_H

#include "coll/coll.h"
#include "region/region.h"
#include "trace/trace.h"

struct rt_comm;

enum buffer_memory {
	BUFFER_ANY,    /* in place, whether peers have it mapped or not */
	BUFFER_MAPPED, /* in place where peers have it mapped, else a copy */
	BUFFER_COPY,   /* always a copy */
};

struct buffer {
	const struct coll_side *side;
	struct region_extent copy; /* bytes 0: in place */
	struct region_desc desc;
	char *addr;                /* NULL: the call has no such buffer */
	bool is_unmapped;          /* peers have not mapped the program's memory */
	bool is_typed;             /* the parts of a run have layouts */
};
struct buffers { struct buffer send, recv; };

static inline bool buffer_is_copy(const struct buffer *b) { return b->copy.bytes; }

/* copy_bytes: the longest packed form that a run needs. A copy has no defined contents.
 * Returns: 0 or -errno; buffer_close() is due in any case. */
int buffer_open(struct buffer *b, const struct coll_side *side, uint64_t copy_bytes,
		enum buffer_memory memory);
/* As buffer_open(), but typed if possible: for runs whose parts are those of the side. */
int buffer_open_typed(struct buffer *b, const struct coll_side *side, uint64_t copy_bytes,
		      enum buffer_memory memory);
/* failed: the communicator, when a run on the buffer has failed; else NULL. Peers may still write
 * to the copy then, so the communicator keeps the copy until it is destroyed. */
void buffer_close(struct buffer *b, struct rt_comm *failed);
/* Returns: how peers reach the memory of a call, for the trace. */
enum trace_region buffers_region(const struct buffers *b);

/* Returns: the layouts of the parts of buffer_cut(); NULL: the buffer is not typed. */
static inline const struct layout *buffer_layouts(const struct buffer *b)
{
	return b->is_typed ? b->side->buf.layouts : NULL;
}
/* Stores in out[] bytes [at, at + n) of each part, as offsets in the memory that the run uses, or,
 * when typed, in the packed form of the part. */
void buffer_cut(const struct buffer *b, uint64_t at, uint64_t n, struct coll_part *out);
/*
 * Fill a copy from the program's memory, and the reverse; without a copy nothing happens. parts:
 * of buffer_cut(at); buffer_unpack() takes NULL for a copy with the layout of the buffer. only:
 * the one part to pack; skip: a part that is not unpacked (-1: none). sources: parts with a
 * negative source are not unpacked; NULL: every part has one.
 * Returns: 0 or -errno.
 */
int buffer_pack(const struct buffer *b, uint64_t at, const struct coll_part *parts, int only);
int buffer_unpack(const struct buffer *b, uint64_t at, const struct coll_part *parts, int skip,
		  const int *sources);
/* Convert bytes [at, at + n) of the buffer to and from the begin of the copy. */
int buffer_pack_range(const struct buffer *b, uint64_t at, uint64_t n);
int buffer_unpack_range(const struct buffer *b, uint64_t at, uint64_t n);

/* Returns: the sum of the bytes of all parts. */
uint64_t side_bytes(const struct coll_side *side);

/* Frees the extents of the pool. */
void buffer_pool_fini(void);

#endif
