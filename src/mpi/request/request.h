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
 *   request.c          the table of requests, nonblocking ones
 *   persistent.c       persistent ones     persistent_bufs.c  buffers of the host MPI's
 */
#ifndef SLUICE_MPI_REQUEST_H
#define SLUICE_MPI_REQUEST_H

#include <stdatomic.h>

#include "base/spin.h"
#include "mpi/coll/coll_op.h"
#include "rt/requests.h"


/* The whole of a nonblocking call: as coll_execute(). */
bool request_begin(struct coll_args *args, void *request, int *rc);
/* The whole of a persistent collective's initialisation. Collective: may wait for other ranks. */
bool request_init(const struct coll_args *args, void *request, int *rc);
extern _Atomic uint32_t request_persistent_count; /* requests of Sluice, active or not */
static inline bool request_has_persistent(void)
{
	return atomic_load_explicit(&request_persistent_count, memory_order_relaxed);
}

/* ---- for request_wait.c ------------------------------------------------------------------ */

extern _Atomic uint32_t request_active_count; /* requests of Sluice */
extern _Atomic uint32_t request_failed_count; /* ended in errors that the program has not got yet */

/* Is it an active request of Sluice? */
bool request_is_active(MPI_Request request);
/* For the trace: the program begins (or ends) a call that waits for or tests these. */
void request_trace_poll(int count, const void *requests, bool asks);
/* Progresses all requests once and completes those that have ended. Returns: did any advance? */
bool request_progress(void);
/* The error of a completed request, handed out once; 0: none. */
int request_take_error(MPI_Request request);

/* ---- for persistent.c -------------------------------------------------------------------- */

struct request {
	struct request *next; /* in its bucket, or among the unused */
	MPI_Request handle;
	struct coll_op op;
	struct rt_request *rt;
	MPI_Datatype *types;  /* duplicates: the program may free its own before the end */
	int type_count;
	int tag;              /* persistent: of the message that completes it; else 0 */
	int error;            /* for the program */
	bool is_active, is_freed, is_prepared, is_on_stack;
	bool is_completing; /* ended; the host MPI's request is being completed */
	struct trace_request trace;
};

/* All but `op` is zero. Without memory it is *spare, in the caller's frame: with it this rank can
 * still find out what other ranks do, and tell them that it cannot take part. */
struct request *request_get(struct request *spare);
void request_put(struct request *r);
/* Makes it known by its handle. */
void request_enter(struct request *r);
/* The persistent request of Sluice with this handle; NULL: there is none. */
struct request *request_find_persistent(MPI_Request handle);
/* Duplicates the datatypes that buffers are packed with. Returns: 0 or -errno. */
int request_hold_types(struct request *r);
void request_release_types(struct request *r);
/* Can it be executed while this rank is elsewhere? Not with a function that only the rank can call.
 */
bool request_can_run_detached(const struct request *r);
/* Sets a persistent request active. False: it was. request_deactivate() undoes it. */
bool request_activate(struct request *r);
void request_deactivate(struct request *r);
/* Completes the host MPI's request with this tag. */
void persistent_complete(int tag);
/* Gives back what only persistent requests have. */
void persistent_discard(struct request *r);

#endif
