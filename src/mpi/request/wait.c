/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that complete requests, while requests of Sluice are active or have failed. A wait for
 * one of them progresses Sluice and the host MPI until it has ended, then waits in the host MPI; a
 * wait for one of several tests instead. The host MPI alone says which requests are complete.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mpi/request/request.h"

static bool has_active(void)
{
	return atomic_load_explicit(&request_active_count, memory_order_acquire);
}

/* One round of a wait that found nothing complete. */
static void turn(struct rt_nap *nap)
{
	if (request_progress())
		rt_requests_woke(nap);
	else
		rt_requests_nap(nap);
}

static bool has_active_among(int count, const void *requests)
{
	for (int i = 0; requests && has_active() && i < count; i++)
		if (request_is_active(abi_handle_get(requests, i)))
			return true;
	return false;
}

/* The trace records that the program begins, and ends, to wait for or test these requests. */
static void poll_begin(int count, const void *requests)
{
	if (trace_is_on() && requests && has_active())
		request_trace_poll(count, requests, true);
}
static void poll_end(int count, const void *requests)
{
	if (trace_is_on() && requests && has_active())
		request_trace_poll(count, requests, false);
}

/* Progress of all active requests in a call that tests. */
static void progress(void)
{
	if (has_active())
		rt_requests_tested(request_progress());
}

static void progress_for(int count, const void *requests)
{
	poll_begin(count, requests);
	progress();
	poll_end(count, requests);
}

static void wait_for_ours(int count, const void *requests)
{
	struct rt_nap nap = { 0 };

	poll_begin(count, requests);
	for (int i = 0; requests && has_active() && i < count; i++)
		while (request_is_active(abi_handle_get(requests, i)))
			turn(&nap);
	if (nap.comm)
		rt_requests_woke(&nap);
}

/* ---- trials --------------------------------------------------------------------------------- */

/* Takes the begin of a call for the requests of running trials. */
static void time_begin(struct rt_poll *p, int count, const void *requests)
{
	p->n = 0;
	p->end_ns = 0;
	if (!atomic_load_explicit(&rt_timed_handles, memory_order_relaxed) || !requests)
		return;
	for (int i = 0; i < count; i++)
		rt_poll_add(p, i, (uintptr_t)abi_handle_get(requests, i));
}

/* Takes the end: the host MPI has overwritten the handles of requests that are complete. */
static void time_end(struct rt_poll *p, const void *requests)
{
	for (int i = 0; i < p->n; i++)
		rt_poll_end(p, i, (uintptr_t)abi_handle_get(requests, p->of[i].index) !=
					  p->of[i].handle);
}

#define RETURN_TIMED(count, requests, call)                                                        \
	do {                                                                                       \
		struct rt_poll poll;                                                               \
		int rc;                                                                            \
												   \
		time_begin(&poll, count, requests);                                                \
		rc = call;                                                                         \
		time_end(&poll, requests);                                                         \
		return rc;                                                                         \
	} while (0)

/* ---- errors of Sluice's requests: rare ---------------------------------------------------- */

/* Copies the handles before the host MPI completes some. Returns: NULL: none has failed, and no
 * other thread may make one fail, or there is no memory (the error handler has reported the error
 * in any case). */
static void *before(int count, const void *requests)
{
	void *copy;

	if (!(session_may_have_threads() && has_active()) &&
	    !atomic_load_explicit(&request_failed_count, memory_order_relaxed))
		return NULL;
	if (count <= 0 || !requests)
		return NULL;
	copy = malloc((size_t)count * abi.handle_bytes);
	if (copy)
		memcpy(copy, requests, (size_t)count * abi.handle_bytes);
	return copy;
}

/*
 * Acquires what another thread wrote to the program's memory before it completed the host MPI's
 * request. The host MPI synchronises, too, but not visibly for race checkers.
 */
static void see_ended(void) { (void)has_active(); }

/* The result of a call that completed request i. */
static int after(void *copy, int i, int rc)
{
	int error = !rc && copy && i >= 0 ? request_fetch_error(abi_handle_get(copy, i)) : 0;

	see_ended();
	free(copy);
	return error ? error : rc;
}

/*
 * The result of a call that completed `count` requests: statuses[i] belongs to copy[indices[i]],
 * or, without indices, to copy[i]. Where others have failed in the host MPI, it has completed those
 * of ours whose handles it has overwritten.
 */
static int after_several(void *copy, int count, const int indices[], const void *requests,
			 MPI_Status *statuses, int rc)
{
	bool any = false;

	see_ended();
	for (int i = 0; copy && i < count; i++) {
		int at = indices ? indices[i] : i, error;
		MPI_Request handle = abi_handle_get(copy, at);

		if (rc && abi_handle_get(requests, at) == handle)
			continue;
		error = request_fetch_error(handle);
		any |= error != 0;
		if ((error || !rc) && abi_are_statuses(statuses))
			abi_status_set_error(statuses, i, error);
	}
	free(copy);
	return any ? abi.err_in_status : rc;
}

/* ---- the calls --------------------------------------------------------------------------- */

static int wait(void *request, MPI_Status *status)
{
	void *copy;
	int rc;

	wait_for_ours(1, request);
	copy = before(1, request);
	rc = host.Wait(request, status);
	return after(copy, 0, rc);
}

int request_Wait(void *request, MPI_Status *status)
{
	RETURN_TIMED(1, request, wait(request, status));
}

static int waitall(int count, void *requests, MPI_Status *statuses)
{
	void *copy;
	int rc;

	wait_for_ours(count, requests);
	copy = before(count, requests);
	rc = host.Waitall(count, requests, statuses);
	return after_several(copy, count, NULL, requests, statuses, rc);
}

int request_Waitall(int count, void *requests, MPI_Status *statuses)
{
	RETURN_TIMED(count, requests, waitall(count, requests, statuses));
}

static int test_any(int count, void *requests, int *index, int *flag, MPI_Status *status)
{
	void *copy = before(count, requests);
	int rc = host.Testany(count, requests, index, flag, status);

	return after(copy, !rc && *flag && *index != abi.undefined ? *index : -1, rc);
}

static int testany(int count, void *requests, int *index, int *flag, MPI_Status *status)
{
	int rc;

	poll_begin(count, requests);
	progress();
	rc = test_any(count, requests, index, flag, status);
	poll_end(count, requests);
	return rc;
}

int request_Testany(int count, void *requests, int *index, int *flag, MPI_Status *status)
{
	RETURN_TIMED(count, requests, testany(count, requests, index, flag, status));
}

/* Returns: the requests that Waitsome or Testsome has completed. */
static int listed(const int *outcount, int rc)
{
	return (!rc || rc == abi.err_in_status) && *outcount != abi.undefined ? *outcount : 0;
}

static int test_some(int count, void *requests, int *outcount, int indices[],
		     MPI_Status *statuses)
{
	void *copy = before(count, requests);
	int rc = host.Testsome(count, requests, outcount, indices, statuses);

	return after_several(copy, listed(outcount, rc), indices, requests, statuses, rc);
}

static int testsome(int count, void *requests, int *outcount, int indices[],
		   MPI_Status *statuses)
{
	int rc;

	poll_begin(count, requests);
	progress();
	rc = test_some(count, requests, outcount, indices, statuses);
	poll_end(count, requests);
	return rc;
}

int request_Testsome(int count, void *requests, int *outcount, int indices[],
		     MPI_Status *statuses)
{
	RETURN_TIMED(count, requests, testsome(count, requests, outcount, indices, statuses));
}

static int waitany(int count, void *requests, int *index, MPI_Status *status)
{
	struct rt_nap nap = { 0 };
	void *copy;
	int flag = 0, rc = 0;

	poll_begin(count, requests);
	while (has_active_among(count, requests)) {
		request_progress();
		rc = test_any(count, requests, index, &flag, status);
		if (rc || flag)
			break;
		turn(&nap);
	}
	if (nap.comm)
		rt_requests_woke(&nap);
	poll_end(count, requests);
	if (rc || flag)
		return rc;
	copy = before(count, requests);
	rc = host.Waitany(count, requests, index, status);
	return after(copy, !rc && *index != abi.undefined ? *index : -1, rc);
}

int request_Waitany(int count, void *requests, int *index, MPI_Status *status)
{
	RETURN_TIMED(count, requests, waitany(count, requests, index, status));
}

static int waitsome(int count, void *requests, int *outcount, int indices[],
		   MPI_Status *statuses)
{
	struct rt_nap nap = { 0 };
	void *copy;
	int rc = 0;

	*outcount = 0;
	poll_begin(count, requests);
	while (has_active_among(count, requests)) {
		request_progress();
		rc = test_some(count, requests, outcount, indices, statuses);
		if (rc || *outcount)
			break;
		turn(&nap);
	}
	if (nap.comm)
		rt_requests_woke(&nap);
	poll_end(count, requests);
	if (rc || *outcount)
		return rc;
	copy = before(count, requests);
	rc = host.Waitsome(count, requests, outcount, indices, statuses);
	return after_several(copy, listed(outcount, rc), indices, requests, statuses, rc);
}

int request_Waitsome(int count, void *requests, int *outcount, int indices[],
		     MPI_Status *statuses)
{
	RETURN_TIMED(count, requests, waitsome(count, requests, outcount, indices, statuses));
}

static int test(void *request, int *flag, MPI_Status *status)
{
	void *copy;
	int rc;

	progress_for(1, request);
	copy = before(1, request);
	rc = host.Test(request, flag, status);
	return after(copy, !rc && *flag ? 0 : -1, rc);
}

int request_Test(void *request, int *flag, MPI_Status *status)
{
	RETURN_TIMED(1, request, test(request, flag, status));
}

static int testall(int count, void *requests, int *flag, MPI_Status *statuses)
{
	void *copy;
	int rc;

	progress_for(count, requests);
	copy = before(count, requests);
	rc = host.Testall(count, requests, flag, statuses);
	return after_several(copy, rc || *flag ? count : 0, NULL, requests, statuses, rc);
}

int request_Testall(int count, void *requests, int *flag, MPI_Status *statuses)
{
	RETURN_TIMED(count, requests, testall(count, requests, flag, statuses));
}

int request_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
	progress_for(1, &request);
	return host.Request_get_status(request, flag, status);
}

int request_Request_get_status_any(int count, const void *requests, int *index, int *flag,
				   MPI_Status *status)
{
	progress_for(count, requests);
	return host.Request_get_status_any(count, requests, index, flag, status);
}

int request_Request_get_status_all(int count, const void *requests, int *flag,
				   MPI_Status *statuses)
{
	progress_for(count, requests);
	return host.Request_get_status_all(count, requests, flag, statuses);
}

int request_Request_get_status_some(int count, const void *requests, int *outcount,
				    int indices[], MPI_Status *statuses)
{
	progress_for(count, requests);
	return host.Request_get_status_some(count, requests, outcount, indices, statuses);
}
