/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for requests, between processes without MPI: request/wait.c. */
#include <sched.h>

#include "ranks.h"
#include "rt/collective.h"
#include "rt/early.h"
#include "rt/requests.h"
#include "unit.h"

static struct {
	struct ranks *ranks;
	struct rt_comm *comm;
	struct rt_request *request;
} freed;

/* The program's calls are intercepted until the caller has told other threads of the result. */
static void take_result(void)
{
	int result;

	while (rt_request_next_done(&result) != &freed)
		rt_requests_progress();
	CHECK_EQ(result, 0);
	CHECK(!rt_has_requests());
	CHECK(rt_is_intercepting());
	rt_intercept_unref();
	CHECK(!rt_is_intercepting());
	rt_request_destroy(freed.request);
}

/*
 * The host MPI frees a communicator in any of its calls, once its last message is through. Another
 * thread has got the last request of Sluice meanwhile.
 */
static void free_within(void *ctx)
{
	if (freed.ranks->rank || !freed.comm)
		return;
	atomic_store(&freed.ranks->words[0], 1);
	take_result();
	rt_comm_destroy(freed.comm);
	freed.comm = NULL;
}

static void free_during_nap(struct ranks *r)
{
	const struct coll_call barrier = { .kind = COLL_BARRIER, .root = -1, .name = "nap" };
	struct node_oob oob = r->oob;
	struct rt_nap nap = { 0 };

	oob.progress = free_within;
	CHECK_EQ(rt_comm_create(&oob, &freed.comm), 0);
	freed.ranks = r;
	CHECK_EQ(rt_request_create(freed.comm, &barrier, &freed, &freed.request), 0);
	while (r->rank && !atomic_load(&r->words[0]))
		sched_yield();
	rt_request_start(freed.request);
	while (!r->rank && freed.comm)
		rt_requests_nap(&nap);
	if (r->rank) {
		take_result();
		rt_comm_destroy(freed.comm);
	}
	rt_requests_woke(&nap);
}

UNIT_TEST(a_communicator_may_be_freed_by_a_thread_that_waits)
{
	ranks_run(2, NULL, free_during_nap, NULL);
}
