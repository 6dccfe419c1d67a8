/* SPDX-License-Identifier: BSD-3-Clause */
/* Around the host MPI's call in a wrapper of collectives.h: executes the call, or passes it on. Out
 * of line, as there is a wrapper for each collective in each of its forms. */
#ifndef SLUICE_MPI_LARGE_H
#define SLUICE_MPI_LARGE_H

#include "mpi/front/front.h"
#include "mpi/request/request.h"

static bool execute(struct coll_args *args, void *request, int *rc)
{
	switch (args->form) {
	case CALL_BLOCKING:
		return coll_execute(args, rc);
	case CALL_NONBLOCKING:
		return request_begin(args, request, rc);
	default:
		return request_init(args, request, rc);
	}
}

/* Begins a call in the wrapper with this frame. Returns: true, and *rc for the program: Sluice has
 * executed it; false: the wrapper calls the host MPI and gives its result to large_end(). */
__attribute__((noinline)) static bool large_begin(struct coll_args *args, void *request,
						  const void *frame, int *rc)
{
	host_bracket_unwind(frame);
	args->is_foreign = !abi_is_program_call(args->caller);
	if (!args->is_foreign) {
		if (execute(args, request, rc))
			return true;
		args->is_hosted = rt_has_pending();
		if (args->is_hosted)
			host_bracket_begin(frame);
	}
	wait_common_begin();
	return false;
}

/* Returns: rc. */
__attribute__((noinline)) static int large_end(const struct coll_args *args, const void *request,
					       int rc)
{
	wait_call_end_for(rc, WAIT_ALL);
	if (args->is_hosted)
		host_bracket_end(rc);
	if (args->is_foreign || args->form == CALL_PERSISTENT)
		return rc;
	return args->form == CALL_BLOCKING ? coll_passed(args, rc) :
					     request_passed(args, request, rc);
}

#endif
