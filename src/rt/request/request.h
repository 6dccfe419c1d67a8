/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A request and its two implementations. Shared by the files of rt/request/ only.
 *
 *   requests.c   queue, passes over all communicators, collection
 *   large.c      requests by exec/
 *   small.c      requests by the mailbox
 *   lanes.c      an order of its own for each persistent request
 *   wait.c       waiting for requests, and testing them
 */
#ifndef SLUICE_RT_REQUEST_H
#define SLUICE_RT_REQUEST_H

#include "rt/private.h"
#include "rt/requests.h"

/*
 * States of a request. All changes happen under the lock of its communicator; COMPLETE -> INACTIVE
 * happens in the thread that collects the request.
 *
 *   from       event                                            to
 *   INACTIVE   rt_request_start()                               QUEUED
 *   INACTIVE   rt_request_start(), memory cannot be opened      COMPLETE with the error
 *   QUEUED     begin() finds no slot, or no room (-EBUSY)       QUEUED
 *   QUEUED     begin() publishes it                             ACTIVE
 *   ACTIVE     step() ends it                                   COMPLETE
 *   QUEUED or  begin(), step() or check() of any request of     COMPLETE with the error
 *   ACTIVE     the communicator fails
 *   COMPLETE   rt_request_next_done()                           INACTIVE
 */
enum request_state { REQUEST_INACTIVE, REQUEST_QUEUED, REQUEST_ACTIVE, REQUEST_COMPLETE };

/*
 * How a request moves its data: a large one by exec/, a small one by the mailbox. All ranks choose
 * the same. A member that is NULL has nothing to do.
 *
 *   create -> (open -> begin ... [queued] ... [active] -> step ... -> close) ... -> destroy
 */
struct request_ops {
	enum request_way { REQUEST_BY_EXEC, REQUEST_BY_MAILBOX } way;
	/* Allocates the resources that all starts share. Returns: 0 or -errno. destroy() frees
	 * them. */
	int (*create)(struct rt_request *r);
	void (*destroy)(struct rt_request *r);
	/* Pins or copies the memory of the call. Returns: 0 or -errno; close() is due in any case.
	 * Context: the thread that starts the request. */
	int (*open)(struct rt_request *r);
	/* Publishes the request. Returns: 0; -EBUSY: no slot or room at the moment; -errno.
	 * Context: the lock; this and all below but close() in any thread, threads of Sluice too.
	 */
	int (*begin)(struct rt_request *r);
	/* Prepares a request that stays queued for begin() in a thread of Sluice. Returns: 0 or
	 * -errno. Context: the thread that starts the request, under the lock. */
	int (*queued)(struct rt_request *r);
	/* Announces the work of an active request to other movers. Context: the lock. */
	void (*active)(struct rt_request *r);
	/* Moves the bytes that `copy` permits; EXEC_COPY_NOTHING: calls no function of the program.
	 * Returns: 1 when bytes have moved, 0, -errno. *out_ended: the request has ended. */
	int (*step)(struct rt_request *r, enum exec_copy copy, bool *out_ended);
	/* Checks after a long time without progress that the ranks live. Returns: 0, or -errno
	 * (reported) when the request can never end. */
	int (*check)(struct rt_request *r);
	/* Releases the memory of open(); is_good: copies the results to the program's memory first.
	 * Returns: 0 or -errno. Context: the thread that collects the request. */
	int (*close)(struct rt_request *r, bool is_good);
};
extern const struct request_ops request_large, request_small;

struct rt_request {
	const struct request_ops *ops;
	struct rt_comm *comm;
	const struct coll_call *call;
	void *owner;
	enum request_state state;
	int result;
	struct rt_request *next;
	int lane;           /* -1: none, the request is started once */
	uint64_t turn;      /* number of starts in the lane */
	uint64_t traced_op; /* number of the collective in the trace */

	/* large */
	struct buffers buffers;
	struct policy_reuse *reuse; /* learns whether peers had its memory mapped; may be NULL */
	uint64_t *starts;           /* first element of each rank's result in a reduce-scatter */
	struct coll_part *typed_parts[2]; /* of the sides; NULL: no side has layouts */
	struct exec_run *run;       /* while active */

	/* small */
	uint64_t number;            /* of the collective in the mailbox */
	struct mailbox_read read;
	struct mailbox_reduce reduce;
	char *image;                /* the result, where the program's memory cannot hold it yet */
	char *message;              /* packed input, while queued */
	uint32_t message_bytes;
};

/* Sets the number of the collective, for the trace of the request and of the call that starts it.
 */
static inline void request_set_traced(struct rt_request *r, uint64_t op)
{
	r->traced_op = op;
	if (trace_is_on() && r->comm->requests.in_call == r)
		trace_op(node_id(r->comm->group), op, r->comm->rank,
			 r->comm->size);
}

/* ---- requests.c: communicators that have requests ---------------------------------------- */

uint32_t requests_busy_count(void);
/* Returns: the i-th communicator, which stays until requests_busy_put(); NULL: there are fewer. */
struct rt_comm *requests_busy_get(int i);
void requests_busy_put(struct rt_comm *c);
/* Checks after a long time without progress that the ranks live. */
void requests_check_peers(struct rt_comm *c);

/* ---- lanes.c ----------------------------------------------------------------------------- */

/* Counts one more start in the lane of the request. */
void request_next_turn(struct rt_request *r);
/* Returns: the number for exec_begin(); 0: the request has no lane. */
uint64_t request_number(const struct rt_request *r);
void request_free_lane(struct rt_request *r);

static inline bool request_is_reduce(const struct rt_request *r)
{
	return coll_is_reduce(r->call->kind);
}
static inline bool request_is(const struct rt_request *r, enum coll pattern)
{
	return coll_pattern(r->call->kind) == pattern;
}

/* ---- small.c ----------------------------------------------------------------------------- */

/* Returns: whether every rank's message fits into the mailbox; the same on all ranks. */
bool request_is_small(const struct rt_comm *c, const struct coll_call *call);

#endif
