/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace: what each collective of this process did and why, as records in a mapped file (format.h).
 * On with SLUICE_TRACE, which `sluice trace` sets; `sluice trace report` reads the files.
 *
 *   rt      trace_start ... trace_stop
 *   mpi     trace_call_begin ... trace_call_end       one record a call; trace_small for small ones
 *   rt      trace_region, trace_early_reason, trace_detached, trace_touch
 *   mpi     trace_request, trace_request_poll ... trace_request_poll_end, trace_request_end     a request, from its call to
 * its end exec    trace_op                                   which collective of which group it is
 *   xfer, reduce  trace_copied                           who moved or combined which fragment when
 *
 * Hooks of other folders are single lines. Off, each is one predictable branch; on, a call costs
 * two readings of the processor's counter and, in a loop, 12 bytes of the file. No hook takes a
 * lock, allocates memory or fails; all but start, stop and call_begin are async-signal-safe. Each
 * thread writes into chunks of its own; texts must be constants, as their addresses stand for them.
 *
 * A forked child is not traced: the file is its parent's.
 */
#ifndef SLUICE_TRACE_H
#define SLUICE_TRACE_H

#include "base/base.h"
#include "os/os.h"
#include "trace/format.h"

extern bool trace_on; /* written by start and stop, and in a forked child */
static inline bool trace_is_on(void) { return base_unlikely(trace_on); }

/* Open the file in the folder SLUICE_TRACE; a failure is one line, and nothing is traced. Once,
 * before collectives. */
void trace_start(int world_rank);
/* The file is complete. No thread is inside a traced call. */
void trace_stop(void);

/* The time, as records of calls, copies and requests have it. */
uint64_t trace_ticks(void);

/* ---- calls (mpi/) ------------------------------------------------------------------------ */

/*
 * A call of `name` begins, which returns to `site`, or to where that function of the MPI's was
 * called (Fortran). Calls do not nest: an inner one is not traced. frame: where the stack is; one
 * that was begun below it was left by longjmp(), as error handlers do.
 */
void trace_call_begin_on(const char *name, const void *site, const void *frame);
void trace_call_end_on(int rc);
static inline void trace_call_begin(const char *name, const void *site, const void *frame)
{
	if (trace_is_on())
		trace_call_begin_on(name, site, frame);
}
/* rc: what the call returns to the program. Returns rc. */
static inline int trace_call_end(int rc)
{
	if (trace_is_on())
		trace_call_end_on(rc);
	return rc;
}
/* Why the current call goes to the host MPI; the first reason counts. Returns false. */
static inline bool trace_rejected(const char *why);
/* One rank's message in it. */
static inline void trace_bytes(uint64_t bytes);

/*
 * A call below the threshold. Counted exactly; one of many is timed and recorded: *out_since is
 * then not 0 and trace_small_end() is to be called after it. type: handle of a predefined datatype,
 * whose size `size_of` tells when it is not known yet.
 */
uint64_t trace_small_begin(const char *name, const void *site, const void *frame, uint64_t count,
			   uintptr_t type, uint64_t (*size_of)(uintptr_t type));
void trace_small_end(uint64_t since);

/* ---- a call that was taken (rt/, exec/) -------------------------------------------------- */

/* What this thread copies now (see trace_row_begin()). */
struct trace_row {
	const void *of;               /* NULL: no row is open */
	uint64_t op;
	struct trace_record *record;
	bool has_followers;           /* its end is not known yet */
};

/* The call of this thread that is traced now, and what it copies. */
struct trace_recent;
struct trace_current {
	struct trace_record record;
	const char *why, *early_why;
	const void *frame;
	struct trace_recent *recent;  /* what was written last from its place */
	uint32_t depth;
	bool is_early, is_begun;
	_Atomic bool is_held;         /* what has been written stays where it is */
	_Atomic bool is_changing;     /* a handler that comes now has records of its own */
	struct trace_row row;
	struct trace_record *last_copy;
} __attribute__((aligned(BASE_CACHE_LINE)));
extern __thread struct trace_current trace_current __attribute__((tls_model("initial-exec")));

static inline bool trace_rejected(const char *why)
{
	if (trace_is_on() && !trace_current.why)
		trace_current.why = why;
	return false;
}
static inline void trace_bytes(uint64_t bytes)
{
	if (trace_is_on())
		trace_current.record.call.bytes = bytes;
}
static inline void trace_admitted(enum trace_region region, int root, bool is_root)
{
	if (!trace_is_on())
		return;
	trace_current.record.call.outcome = TRACE_ADMITTED;
	trace_current.record.call.region = region;
	trace_current.record.root = (uint16_t)root;
	trace_current.record.flags |= is_root ? TRACE_IS_ROOT : 0;
}
/* What the policy said about returning early. */
static inline void trace_early_reason(const char *why)
{
	if (trace_is_on())
		trace_current.early_why = why;
}
/* Which collective of the group it is; called once for each piece of a long one. */
static inline void trace_op(uint32_t group, uint64_t op, int rank, int ranks)
{
	if (!trace_is_on())
		return;
	if (!trace_current.record.call.ops++)
		trace_current.record.call.op = op;
	trace_current.record.call.group = group;
	trace_current.record.rank = (uint16_t)rank;
	trace_current.record.ranks = (uint16_t)ranks;
}
/* What names the current call in trace_detached() and trace_touch(). */
struct trace_name { uint32_t id, thread; };
struct trace_name trace_call_name_on(void);
static inline struct trace_name trace_call_name(void)
{
	return trace_is_on() ? trace_call_name_on() : (struct trace_name){ 0 };
}
static inline void trace_mark_early(void)
{
	if (trace_is_on())
		trace_current.is_early = true;
}

/* ---- afterwards -------------------------------------------------------------------------- */

/* One touch, from begin_ns (CLOCK_MONOTONIC) until now. */
void trace_touch_on(struct trace_name call, uint64_t begin_ns, uintptr_t address, uintptr_t start,
		      int thread, bool is_write);
static inline void trace_touch(struct trace_name call, uint64_t begin_ns, uintptr_t address,
				 uintptr_t start, int thread, bool is_write)
{
	if (trace_is_on())
		trace_touch_on(call, begin_ns, address, start, thread, is_write);
}
/* An operation that was left has been retired, now. */
void trace_detached_on(struct trace_name call, uint64_t left_ns, uint64_t wanted_ns, uint64_t waited_ns,
		   uint32_t touches, bool is_called);
static inline void trace_detached(struct trace_name call, uint64_t left_ns, uint64_t wanted_ns,
			      uint64_t waited_ns, uint32_t touches, bool is_called)
{
	if (trace_is_on())
		trace_detached_on(call, left_ns, wanted_ns, waited_ns, touches, is_called);
}

/* ---- a collective that goes on after its call, until the program has waited for it (mpi/) ---- */

struct trace_request {
	struct trace_name call;
	uint64_t since, wanted, waited; /* ticks */
	uint64_t asking; /* the program is in a call that waits or tests since then; 0: in none */
	uint32_t asked;
};
/* Which collective of which group a request has been; group 0: none. */
struct trace_op { uint64_t op; uint32_t group; uint16_t rank, ranks; };

/* In its call. */
void trace_request_on(struct trace_request *b);
static inline void trace_request(struct trace_request *b)
{
	if (trace_is_on())
		trace_request_on(b);
}
/* The program waits for it or tests it, and, if it is not over, does no longer. */
void trace_request_poll(struct trace_request *b, uint64_t now);
void trace_request_poll_end(struct trace_request *b, uint64_t now);
void trace_request_end_on(const struct trace_request *b, const struct trace_op *op);
static inline void trace_request_end(const struct trace_request *b, const struct trace_op *op)
{
	if (trace_is_on() && b->since)
		trace_request_end_on(b, op);
}

/* ---- copies (xfer/) ---------------------------------------------------------------------- */

#define TRACE_TIMED_BYTES (32u << 10) /* shorter copies are counted, not timed; and copies of */
#define TRACE_TIMED_TRANSFER_BYTES                                                                 \
	(128u << 10) /* shorter transfers in rows: it would be 2 % of their time */

/* One unit, or a part of it, has been moved. */
struct trace_copy {
	uint64_t bytes, op;
	uint32_t group;
	uint32_t unit;
	int src, dst, by; /* ranks in the group */
	enum trace_mover mover;
	const void *row; /* NULL: it is in none */
	bool is_last;    /* of the transfer: the row ends */
};
void trace_copied_on(uint64_t since, const struct trace_copy *c);
/* Ticks, to be given to trace_copied() when the copy has ended; 0: it is not timed. */
static inline uint64_t trace_copy_begin(uint64_t bytes)
{
	return trace_is_on() && bytes >= TRACE_TIMED_BYTES ? trace_ticks() : 0;
}

/* The same for a transfer that one copy does. */
static inline uint64_t trace_transfer_begin(uint64_t bytes)
{
	return bytes >= TRACE_TIMED_TRANSFER_BYTES ? trace_copy_begin(bytes) : 0;
}

/*
 * Fragments of one transfer that a thread copies one after the other are a row, and share a record:
 * the clock is read when its first one begins and ends, and when its last one does. The row ends
 * with a fragment that is the last one that anybody can claim, or with trace_row_end(), or with the
 * touch or the call in which it was copied, or when the thread turns to another one. row: what is
 * the transfer's alone; bytes: of all of it. Returns what is to be given to trace_copied().
 */
#define TRACE_FOLLOWS 1u /* a fragment that is not the first of its row */
uint64_t trace_row_begin_on(const void *row, uint64_t op);
void trace_row_end_on(uint64_t now); /* 0: the clock is read, if it matters */
static inline uint64_t trace_row_begin(const void *row, uint64_t op, uint64_t bytes)
{
	if (!trace_is_on())
		return 0;
	if (trace_current.row.of == row && trace_current.row.op == op)
		return TRACE_FOLLOWS;
	return bytes >= TRACE_TIMED_TRANSFER_BYTES ? trace_row_begin_on(row, op) : 0;
}
/* There is nothing to copy any more. */
static inline void trace_row_end(const void *row)
{
	if (trace_is_on() && trace_current.row.of == row)
		trace_row_end_on(0);
}

#define trace_copied(since, ...) \
	do { \
		if (trace_is_on()) \
			trace_copied_on(since, &(struct trace_copy){ __VA_ARGS__ }); \
	} while (0)

/* ---- the rest ---------------------------------------------------------------------------- */

/* Something else that takes time: a group is made. */
void trace_span_on(const char *text, uint64_t begin_ns, uint64_t bytes);
static inline uint64_t trace_span_begin(void) { return trace_is_on() ? os_now_ns() : 0; }
static inline void trace_span(const char *text, uint64_t begin_ns, uint64_t bytes)
{
	if (trace_is_on())
		trace_span_on(text, begin_ns, bytes);
}
void trace_engine(const char *name);
void trace_guard(const char *name);

#endif
