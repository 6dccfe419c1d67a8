/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that complete requests while another thread ends them: mpi/request/wait.c over a library
 * and requests of the test's. */
#include <string.h>

#include "mpi/abi/abi.h"
#include "mpi/coll/comm_state.h"
#include "mpi/request/request.h"
#include "unit.h"

enum { OURS = 3, FAILED = 42 };

struct abi abi = { .handle_bytes = 4, .status_ints = 5, .err_in_status = 17, .undefined = -1 };
struct host_functions host;
_Atomic uint32_t request_active_count, request_failed_count;
_Atomic uint64_t rt_timed_handles;

static bool is_active, is_multiple;

bool session_may_have_threads(void) { return is_multiple; }
bool request_is_active(MPI_Request r) { return is_active && (uintptr_t)r == OURS; }
void request_trace_poll(int count, const void *requests, bool is_begin) {}
bool request_progress(void) { return false; }
int request_fetch_error(MPI_Request r) { return (uintptr_t)r == OURS ? FAILED : 0; }
void rt_requests_nap(struct rt_nap *nap) {}
void rt_requests_woke(struct rt_nap *nap) {}
void rt_requests_tested(bool any) {}
void rt_poll_add(struct rt_poll *p, int index, uintptr_t handle) {}
void rt_poll_end(struct rt_poll *p, int i, bool is_complete) {}

/* Another thread ends the request with an error before the library looks at it. */
static void end(void *requests)
{
	is_active = false;
	request_failed_count = 1;
	request_active_count = 0;
	abi_handle_set(requests, 0, NULL);
}

static int end_test(void *request, int *flag, MPI_Status *status)
{
	end(request);
	*flag = 1;
	return 0;
}

static int end_testall(int count, void *requests, int *flag, MPI_Status *statuses)
{
	return end_test(requests, flag, statuses);
}

static int end_testany(int count, void *requests, int *index, int *flag, MPI_Status *status)
{
	*index = 0;
	return end_test(requests, flag, status);
}

static int end_testsome(int count, void *requests, int *outcount, int indices[], MPI_Status *s)
{
	int flag;

	indices[0] = 0;
	*outcount = 1;
	return end_test(requests, &flag, s);
}

static uint32_t *begin(void)
{
	static uint32_t handle;

	host = (struct host_functions){ .Test = end_test,
					.Testall = end_testall,
					.Testany = end_testany,
					.Testsome = end_testsome };
	is_active = is_multiple = true;
	request_active_count = 1;
	request_failed_count = 0;
	handle = OURS;
	return &handle;
}

UNIT_TEST(an_error_that_another_thread_finds_is_reported)
{
	int flag, index;

	CHECK_EQ(request_Test(begin(), &flag, NULL), FAILED);
	CHECK_EQ(request_Testany(1, begin(), &index, &flag, NULL), FAILED);
	CHECK_EQ(request_Testall(1, begin(), &flag, NULL), abi.err_in_status);
	CHECK_EQ(request_Testsome(1, begin(), &flag, &index, NULL), abi.err_in_status);
	CHECK_EQ(request_Waitany(1, begin(), &index, NULL), FAILED);
	CHECK_EQ(request_Waitsome(1, begin(), &flag, &index, NULL), abi.err_in_status);
}
