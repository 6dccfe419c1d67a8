/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * requests: nonblocking and persistent collectives.
 *
 *   create -> start -> (progress ... next_done) -> destroy
 *   create -> set_lane -> start -> (progress ... next_done) -> start ... -> destroy
 *
 * A request refers to a struct coll_call, which must not change until rt_request_destroy(). A
 * request starts once; a request with a lane starts again after each completion. Once the
 * collective is published every mover can move its data: a waiting rank, the worker process, a
 * channel. A communicator publishes at most EXEC_SLOTS requests; further requests are queued. A
 * peer that needs a queued request calls this process, where the progress thread moves the data of
 * those before it, and publishes it.
 *
 * Start, progress and wait advance all requests of the process. rt_request_next_done() returns each
 * completed request once, to the first thread that calls.
 *
 * Context: any thread, many at once, but one create or start at a time on one communicator, as MPI
 * demands; in MPI calls of the program, never in signal handlers.
 */
#ifndef SLUICE_RT_REQUESTS_H
#define SLUICE_RT_REQUESTS_H

#include <stdatomic.h>

#include "rt/collective.h"
#include "trace/trace.h"

struct rt_request;

/* Number of requests that rt_request_next_done() has still to return; 0: no call is needed. */
extern _Atomic uint32_t rt_requests;
static inline bool rt_has_requests(void)
{
	return __builtin_expect(atomic_load_explicit(&rt_requests, memory_order_relaxed) != 0, 0);
}

/*
 * Creates a request. rt_request_next_done() will return `owner`.
 * Returns: 0 with *out; -ENOMEM after this rank has withdrawn from the collective.
 * Owner: the caller keeps `call` until rt_request_destroy().
 */
int rt_request_create(struct rt_comm *c, const struct coll_call *call, void *owner,
		      struct rt_request **out);
/* Starts a request, in the order of the calls on the communicator. The result of the request
 * reports failures. Context: never waits for other ranks. */
void rt_request_start(struct rt_request *r);
/* Returns: the collective of the request for the trace; group 0: none yet. */
struct trace_op rt_request_op(const struct rt_request *r);
/* Context: a request that never started, or that rt_request_next_done() has returned. */
void rt_request_destroy(struct rt_request *r);

/*
 * Allocates a lane, the same on all ranks of a communicator of rt_comm_create_lanes(). *out_lane is
 * -1 on all ranks when no lane is free or a rank does not ask for one. rt_request_set_lane() comes
 * before the start; rt_request_destroy() frees the lane.
 * Returns: 0, or -errno of oob. Context: collective.
 */
int rt_lane_allocate(struct rt_comm *c, const struct node_oob *oob, bool asks, int *out_lane);
void rt_request_set_lane(struct rt_request *r, int lane);

/* Advances every active request once. Returns: whether any advanced. */
bool rt_requests_progress(void);
/* Returns: the owner of a completed request, with its result (0 or -errno); NULL: none now.
 * Owner: the caller has to call rt_intercept_unref() once other threads can see the result. */
void *rt_request_next_done(int *out_result);

/* Ends the active requests, before rt_comm_destroy(). A request that a peer never starts ends with
 * -ECANCELED after a limited time. */
void rt_requests_end(struct rt_comm *c);
/*
 * Decides whether to admit a nonblocking call (NULL: this rank cannot prepare it, or
 * rt_request_needs_buffers() is false). The answer is what ranks agreed on in the last blocking
 * collective of the communicator, as a nonblocking call must not wait for other ranks. Where
 * rt_requests_disagree(), the next blocking collective calls rt_requests_agree(), which is
 * collective.
 */
bool rt_request_admit(struct rt_comm *c, const struct rt_question *q,
		      const struct coll_call *call);
/* Returns: whether the host MPI executes the call, which was faster in the last trial, or whose
 * buffers are looked at rarely. Then rt_request_admit() must not follow. */
bool rt_request_passes(struct rt_comm *c, enum coll kind, uint64_t bytes);
bool rt_request_needs_buffers(struct rt_comm *c, enum coll kind, uint64_t bytes);
/* Returns: whether a persistent request may be made; the same on all ranks. */
bool rt_persistent_suits(const struct rt_comm *c, enum coll kind, uint64_t bytes);
bool rt_requests_disagree(const struct rt_comm *c);
void rt_requests_agree(struct rt_comm *c);
/* Returns: whether requests of the communicator may be admitted; the same on all ranks. */
bool rt_request_suits(const struct rt_comm *c);

/*
 * Trials take the times of some requests, of the host MPI and of Sluice. Where
 * rt_request_is_timed() after rt_request_admit(), rt_request_started() must follow the start, with
 * a handle that rt_poll_add() will get; 0: there is no request.
 */
bool rt_request_is_timed(const struct rt_comm *c);
void rt_request_started(struct rt_comm *c, uintptr_t handle);
/* One call of the program that tests or waits for requests. Zeroed memory is the initial state. */
#define RT_POLL_MAX 16
struct rt_poll {
	uint64_t begin_ns, end_ns;
	int n; /* timed requests among them */
	struct {
		int index;
		uint32_t serial;
		uintptr_t handle;
	} of[RT_POLL_MAX];
};
extern _Atomic uint64_t rt_timed_handles; /* 0: no request is timed */
void rt_poll_add(struct rt_poll *p, int index, uintptr_t handle);
/* Takes the time of the i-th timed request, for each i. */
void rt_poll_end(struct rt_poll *p, int i, bool is_complete);

/* State of one waiting thread; zeroed memory is the initial state. */
struct rt_nap {
	struct rt_comm *comm;
	uint64_t wait[6]; /* struct node_wait */
};
/* Progresses the host MPI and waits a moment, when no request advances. */
void rt_requests_nap(struct rt_nap *nap);
/* Ends a series of rt_requests_nap(): a request advanced, or the wait ended. */
void rt_requests_woke(struct rt_nap *nap);
/* Counts an MPI test after a pass. A program that tests needs the same service of peers as one that
 * waits. */
void rt_requests_tested(bool any);

#endif
