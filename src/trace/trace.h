/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace: records what each collective of this process did and why, in a mapped file (format.h).
 * SLUICE_TRACE turns it on, which `sluice trace` sets; `sluice trace report` reads the files.
 *
 *   rt            trace_start ... trace_stop
 *   mpi           trace_call_begin ... trace_call_end   one record per call; trace_small_*
 *   rt            trace_admitted, trace_early_reason, trace_detached, trace_touch
 *   mpi, message  trace_message_begin ... trace_message_copied ... trace_message_end
 *   mpi           trace_request, trace_request_poll ... trace_request_poll_end, trace_request_end
 *                                                       a request, from its call to its end
 *   exec          trace_op                              number of the collective in its group
 *   xfer, reduce  trace_copied                          who moved or reduced a fragment
 *
 * A hook in another folder is one line. With tracing off it is one predictable branch; with tracing
 * on a call costs two reads of the time-stamp counter and, in a loop, 12 bytes of the file. No hook
 * takes a lock, allocates memory or fails. Each thread writes into chunks of its own. Texts must be
 * constants, as their addresses identify them.
 *
 * Signals: all hooks but trace_start, trace_stop and trace_call_begin are async-signal-safe.
 * Fork: a child is not traced; the file belongs to its parent.
 */
#ifndef SLUICE_TRACE_H
#define SLUICE_TRACE_H

#include "base/base.h"
#include "os/os.h"
#include "trace/format.h"

extern bool trace_on; /* written by trace_start, trace_stop and a forked child */
static inline bool trace_is_on(void) { return base_unlikely(trace_on); }

/* Opens the file in the folder SLUICE_TRACE, once, before the first collective. A failure is one
 * message, and nothing is traced. */
__attribute__((cold)) void trace_start(int world_rank);
/* Completes the file. No thread may be inside a traced call. */
__attribute__((cold)) void trace_stop(void);

/* The time in records of calls, copies and requests. */
uint64_t trace_ticks(void);

/* ---- calls (mpi/) ------------------------------------------------------------------------ */

/*
 * Begins a call of `name` that returns to `site`, or (Fortran) to the caller of the MPI library's
 * function. Calls do not nest: an inner call is not traced. frame: position on the stack; a call
 * begun below it was left by longjmp(), as error handlers do.
 */
void trace_call_begin_on(const char *name, const void *site, const void *frame);
void trace_call_end_on(int rc);
static inline void trace_call_begin(const char *name, const void *site, const void *frame)
{
	if (trace_is_on())
		trace_call_begin_on(name, site, frame);
}
/* rc: the result of the call. Returns: rc. */
static inline int trace_call_end(int rc)
{
	if (trace_is_on())
		trace_call_end_on(rc);
	return rc;
}
/* Sets the reason why the host MPI executes the current call; the first one counts. Returns:
 * false. */
static inline bool trace_rejected(const char *why);
/* Sets the bytes of one rank's message in the current call. */
static inline void trace_bytes(uint64_t bytes);

/*
 * Counts a call below the threshold, and times and records a sample. type: handle of a predefined
 * datatype; size_of: returns its size when it is not known yet. Returns: 0, or a value for
 * trace_small_end().
 */
uint64_t trace_small_begin(const char *name, const void *site, const void *frame, uint64_t count,
			   uintptr_t type, uint64_t (*size_of)(uintptr_t type));
void trace_small_end(uint64_t since);

/* ---- messages (libsluice-profile.so, message/) -------------------------------------------- */

/*
 * Counts and times a call that sends, receives or waits for messages; only sums are kept. bytes:
 * of its buffer. Returns: 0, or a value for trace_message_end(). Context: not in signal handlers;
 * nested calls are not counted.
 */
uint64_t trace_message_begin(const char *name, const void *site, const void *frame,
			     uint64_t bytes);
void trace_message_end(uint64_t since);
/* Adds a copy from another rank to the thread's present call. result: its bytes, or negative;
 * served: those from mapped memory. */
void trace_message_copied_on(uint64_t since, int64_t result, uint64_t served);
static inline uint64_t trace_message_copy(void) { return trace_is_on() ? trace_ticks() : 0; }
static inline void trace_message_copied(uint64_t since, int64_t result, uint64_t served)
{
	if (base_unlikely(since))
		trace_message_copied_on(since, result, served);
}

/* ---- a call that was taken (rt/, exec/) -------------------------------------------------- */

/* The row of copies of this thread, see trace_row_begin(). */
struct trace_row {
	const void *of;               /* the transfer; NULL: no row is open */
	uint64_t op;
	struct trace_record *record;
	bool has_followers;           /* the record's end is not known yet */
};

/* The traced call of this thread, and its copies. */
struct trace_recent;
struct trace_current {
	struct trace_record record;
	const char *why, *early_why;
	const void *frame;
	struct trace_recent *recent;  /* the last record of its place */
	uint32_t depth;
	bool is_early, is_begun;
	_Atomic bool is_held;         /* no record may be overwritten */
	_Atomic bool is_changing;     /* a handler that interrupts now writes records of its own */
	struct trace_row row;
	struct trace_record *last_copy;
	/* trace_message_begin(): sums of the present call, NULL: none; a call begun below the
	 * frame was left by longjmp(). Here, as the loader's room for such variables is short. */
	struct trace_totals *message;
	const void *message_frame;
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
/* Returns: whether the current call is the program's, and its bytes are not known. */
static inline bool trace_needs_bytes(void)
{
	return trace_is_on() && trace_current.depth == 1 && !trace_current.record.call.bytes;
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
/* Sets the policy's reason about returning early. */
static inline void trace_early_reason(const char *why)
{
	if (trace_is_on())
		trace_current.early_why = why;
}
/* Sets the number of the collective in the group; called once for each segment of a long one. */
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
/* Identifies the current call in trace_detached() and trace_touch(). */
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

/* Records one touch, from begin_ns (CLOCK_MONOTONIC) until now. */
void trace_touch_on(struct trace_name call, uint64_t begin_ns, uintptr_t address, uintptr_t start,
		      int thread, bool is_write);
static inline void trace_touch(struct trace_name call, uint64_t begin_ns, uintptr_t address,
				 uintptr_t start, int thread, bool is_write)
{
	if (trace_is_on())
		trace_touch_on(call, begin_ns, address, start, thread, is_write);
}
/* Records that a detached operation has been retired now. */
void trace_detached_on(struct trace_name call, uint64_t detached_ns, uint64_t wanted_ns,
		       uint64_t waited_ns, uint32_t touches, bool is_called);
static inline void trace_detached(struct trace_name call, uint64_t detached_ns, uint64_t wanted_ns,
			      uint64_t waited_ns, uint32_t touches, bool is_called)
{
	if (trace_is_on())
		trace_detached_on(call, detached_ns, wanted_ns, waited_ns, touches, is_called);
}

/* ---- a collective that goes on after its call, until the program has waited for it (mpi/) ---- */

struct trace_request {
	struct trace_name call;
	uint64_t since, wanted, waited; /* ticks */
	uint64_t asking; /* start of the program's present wait or test; 0: none */
	uint32_t asked;
};
/* The collective of a request; group 0: none. */
struct trace_op { uint64_t op; uint32_t group; uint16_t rank, ranks; };

/* Records that the current call started a request. */
void trace_request_on(struct trace_request *b);
static inline void trace_request(struct trace_request *b)
{
	if (trace_is_on())
		trace_request_on(b);
}
/* The program begins, and ends, to wait for or test an incomplete request. */
void trace_request_poll(struct trace_request *b, uint64_t now);
void trace_request_poll_end(struct trace_request *b, uint64_t now);
void trace_request_end_on(const struct trace_request *b, const struct trace_op *op);
static inline void trace_request_end(const struct trace_request *b, const struct trace_op *op)
{
	if (trace_is_on() && b->since)
		trace_request_end_on(b, op);
}

/* ---- copies (xfer/) ---------------------------------------------------------------------- */

#define TRACE_TIMED_BYTES (32u << 10) /* shorter copies are counted, not timed; */
#define TRACE_TIMED_TRANSFER_BYTES                                                                 \
	(128u << 10) /* likewise rows of shorter transfers: timing would take 2 % of their time */

/* A fragment, or part of one, has been moved. */
struct trace_copy {
	uint64_t bytes, op;
	uint32_t group;
	uint32_t unit;
	int src, dst, by; /* ranks in the group */
	enum trace_mover mover;
	const void *row; /* the row that contains it; NULL: none */
	bool is_last;    /* last fragment of the transfer: the row ends */
};
void trace_copied_on(uint64_t since, const struct trace_copy *c);
/* Returns: ticks for trace_copied() after the copy; 0: the copy is not timed. */
static inline uint64_t trace_copy_begin(uint64_t bytes)
{
	return trace_is_on() && bytes >= TRACE_TIMED_BYTES ? trace_ticks() : 0;
}

/* As trace_copy_begin(), for a transfer that one copy executes. */
static inline uint64_t trace_transfer_begin(uint64_t bytes)
{
	return bytes >= TRACE_TIMED_TRANSFER_BYTES ? trace_copy_begin(bytes) : 0;
}

/*
 * A row: consecutive fragments of one transfer, copied by one thread, share a record. The clock is
 * read at the begin and end of the first fragment and at the end of the last. A row ends with the
 * last fragment that anybody can claim, with trace_row_end(), with the touch or call that contains
 * it, or when the thread turns to another transfer. row: address unique to the transfer; bytes: of
 * the transfer. Returns: a value for trace_copied().
 */
#define TRACE_FOLLOWS 1u /* a fragment after the first of its row */
uint64_t trace_row_begin_on(const void *row, uint64_t op);
void trace_row_end_on(uint64_t now); /* 0: reads the clock if needed */
static inline uint64_t trace_row_begin(const void *row, uint64_t op, uint64_t bytes)
{
	if (!trace_is_on())
		return 0;
	if (trace_current.row.of == row && trace_current.row.op == op)
		return TRACE_FOLLOWS;
	return bytes >= TRACE_TIMED_TRANSFER_BYTES ? trace_row_begin_on(row, op) : 0;
}
/* The transfer has no more fragments. */
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

/* Records another activity that takes time, such as making a group, for the current call if there
 * is one. */
void trace_activity_on(const char *text, uint64_t begin_ns, uint64_t bytes);
static inline uint64_t trace_activity_begin(void) { return trace_is_on() ? os_now_ns() : 0; }
static inline void trace_activity(const char *text, uint64_t begin_ns, uint64_t bytes)
{
	if (trace_is_on())
		trace_activity_on(text, begin_ns, bytes);
}
void trace_engine(const char *name);
void trace_guard(const char *name);

#endif
