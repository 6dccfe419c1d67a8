/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * request: collectives of ours that the program waits for later, as requests of the library's.
 *
 *   MPI_Ibcast --request_begin()-->  a generalized request, completed when ours is over
 *   MPI_Bcast_init --request_init()-->  a persistent receive from ourselves; MPI_Start starts both,
 * and an empty message to ourselves completes it when ours is over (persistent.c)
 *
 * So the library knows every request of the program's, tells what is complete and what is not, and
 * frees it, in whatever call and language; nothing has to be hidden from it. What the calls on
 * requests add while some of ours are in flight (request_wait.c): they let ours progress, and
 * complete the library's for those that are over. While none are the trampolines lead around all of
 * this.
 */
#ifndef SLUICE_MPI_REQUEST_H
#define SLUICE_MPI_REQUEST_H

#include <stdatomic.h>

#include "base/spin.h"
#include "mpi/coll/coll_op.h"
#include "rt/requests.h"


/* The whole of a nonblocking call: as coll_execute(), and coll_passed(). */
bool request_begin(struct coll_args *args, void *request, int *rc);
/* Of the initialisation of a persistent one; collective, as MPI has it: it may wait for the others.
 */
bool request_init(const struct coll_args *args, void *request, int *rc);
extern _Atomic uint32_t request_persistent; /* ours that there are, active or not */
static inline bool request_is_any_persistent(void)
{
	return atomic_load_explicit(&request_persistent, memory_order_relaxed);
}

/* ---- for request_wait.c ------------------------------------------------------------------ */

extern _Atomic uint32_t request_flying; /* ours that are in flight */
extern _Atomic uint32_t request_failed; /* that have ended in errors nobody has been told of */

/* Is it ours and in flight? */
bool request_is_there(MPI_Request request);
/* For the trace: the program is in a call that waits for these, or tests them, from now on; or not
 * any more. */
void request_asked_on(int count, const void *requests, bool asks);
/* One pass; what is over is completed. True: something has moved. */
bool request_progress(void);
/* What the program is to hear of a request that has been completed; 0: nothing. Once. */
int request_take_error(MPI_Request request);

/* ---- for persistent.c -------------------------------------------------------------------- */

struct request {
	struct request *next; /* in its bucket, or among the unused */
	MPI_Request handle;
	struct coll_op op;
	struct rt_request *rt;
	MPI_Datatype *types;  /* that the program may free before we are done with them */
	int type_count;
	int tag;              /* persistent: of the message that completes it; else 0 */
	int error;            /* what the program is to hear */
	bool is_flying, is_freed, is_prepared, is_spare;
	bool is_ending; /* it is over, and whoever found that out is about to tell the library */
	struct trace_request trace;
};

/* All but `taken` is zero. Without memory it is *spare, with which this rank finds out what the
 * others do now, to say that it cannot take part. request_put() knows. */
struct request *request_get(struct request *spare);
void request_put(struct request *r);
/* Its handle is known from now on. */
void request_enter(struct request *r);
/* The persistent one of ours with this handle, which stays until its owner frees it; NULL: there is
 * none. */
struct request *request_find_persistent(MPI_Request handle);
/* The datatypes of what is packed get names of our own. 0 or -errno. */
int request_hold_types(struct request *r);
void request_release_types(struct request *r);
/* Can what it computes be computed while this rank is away? */
bool request_may_fly(const struct request *r);
/* It flies from now on. False: it did. land: it does not, after all. */
bool request_take_off(struct request *r);
void request_land(struct request *r);
/* The library's request with this tag is to be complete. */
void persistent_complete(int tag);
/* What a persistent one has beside others. */
void persistent_discard(struct request *r);

#endif
