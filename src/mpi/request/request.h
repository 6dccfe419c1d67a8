/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi/request: nonblocking and persistent collectives, as requests of the host MPI.
 *
 *   MPI_Ibcast --request_begin()-->  a generalized request, completed when the collective ends
 *   MPI_Bcast_init --request_init()-->  a persistent receive from this process; MPI_Start starts
 *                                       both, an empty message completes it (persistent.c)
 *
 * So the host MPI knows every request of the program, says which are complete and frees them, in
 * any call and language. While requests of Sluice are active, calls on requests also make them
 * progress and complete the host MPI's requests of those that have ended (wait.c). Otherwise
 * trampolines lead past all of this.
 *
 *   request.c     the table of requests, nonblocking ones   state.h   states of a request
 *   persistent.c  persistent ones                           wait.c    calls that complete requests
 *   persistent_bufs.c  buffers of the host MPI's persistent requests
 */
#ifndef SLUICE_MPI_REQUEST_H
#define SLUICE_MPI_REQUEST_H

#include <stdatomic.h>

#include "base/spin.h"
#include "mpi/coll/coll_op.h"
#include "mpi/request/state.h"
#include "rt/requests.h"

/* Executes a nonblocking call, as coll_execute() executes a blocking one. */
bool request_begin(struct coll_args *args, void *request, int *rc);
/* The host MPI has executed a call that request_begin() passed on. Returns: rc. */
int request_passed(const struct coll_args *args, const void *request, int rc);
/* Initialises a persistent collective; result as of coll_execute(). Collective: may wait for other
 * ranks. */
bool request_init(const struct coll_args *args, void *request, int *rc);
/* Number of persistent requests of Sluice, active or not. */
extern _Atomic uint32_t request_persistent_count;
static inline bool request_has_persistent(void)
{
	return atomic_load_explicit(&request_persistent_count, memory_order_relaxed);
}

/* ---- for wait.c -------------------------------------------------------------------------- */

extern _Atomic uint32_t request_active_count; /* active requests of Sluice */
extern _Atomic uint32_t request_failed_count; /* requests whose error the program has not got yet */

/* Returns: whether this is an active request of Sluice. */
bool request_is_active(MPI_Request request);
/* Records for the trace that the program begins, or ends, to wait for or test these requests. */
void request_trace_poll(int count, const void *requests, bool is_begin);
/* Progresses all requests once and completes those that have ended. Returns: whether any
 * advanced. */
bool request_progress(void);
/* Returns: the error of a completed request, once; 0: none. */
int request_fetch_error(MPI_Request request);

/* ---- for persistent.c -------------------------------------------------------------------- */

struct request {
	struct request *next; /* in its bucket, or among the unused */
	MPI_Request handle;
	struct coll_op op;
	struct rt_request *rt;
	int tag;              /* persistent: of the message that completes it; else 0 */
	int error;            /* for the program */
	enum request_state state;
	int completing;       /* threads that complete the host MPI's request */
	bool is_on_stack;     /* there is no memory: it lies in the caller's frame */
	struct trace_request trace;
};

/* Makes a request; all members but `op` are zero. Without memory the result is *fallback, in the
 * caller's frame: with it this rank can still ask the other ranks, and tell them that it cannot
 * execute the call. */
struct request *request_get(struct request *fallback);
void request_put(struct request *r);
/* Puts the request into the table, by its handle. */
void request_enter(struct request *r);
/* Returns: the persistent request of Sluice with this handle; NULL: there is none. */
struct request *request_find_persistent(MPI_Request handle);
/* Returns: whether other ranks and threads can execute the call while this rank computes. A
 * reduction with a function that only this rank can call cannot. */
bool request_can_run_detached(const struct request *r);
/* Starts a turn of a persistent request. Returns: false: it is active already. */
bool request_activate(struct request *r);
/* Undoes request_activate(). */
void request_deactivate(struct request *r);
/* Completes the host MPI's request with this tag. */
void persistent_complete(int tag);
/* Frees the resources that only persistent requests have. */
void persistent_discard(struct request *r);

#endif
