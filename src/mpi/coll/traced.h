/* SPDX-License-Identifier: BSD-3-Clause */
/* Brackets around a call that trace/ may record. Private to mpi/coll. */
#ifndef SLUICE_MPI_TRACED_H
#define SLUICE_MPI_TRACED_H

#include "mpi/abi/abi.h"
#include "trace/trace.h"


struct traced {
	const char *name;
	const void *site;
	uint64_t since; /* start of a small call that is timed; else 0 */
	bool is_call;   /* a larger call that is recorded */
};

bool traced_begin_on(struct traced *t, MPI_Datatype datatype, MPI_Count count,
		     uint64_t threshold_bytes);

/*
 * Begins a call of the function `name` that returns to `site`; datatype and count describe one
 * rank's message. traced_end() must follow. Returns: true: the call is below the threshold and
 * goes to the host MPI without another check (never when the trace is off).
 */
static inline bool traced_begin(struct traced *t, const char *name, const void *site,
				MPI_Datatype datatype, MPI_Count count, uint64_t threshold_bytes)
{
	*t = (struct traced){ .name = name, .site = site };
	return trace_is_on() && traced_begin_on(t, datatype, count, threshold_bytes);
}

/* rc: result of the call. Returns: rc. */
static inline int traced_end(const struct traced *t, int rc)
{
	if (base_unlikely(t->is_call))
		return trace_call_end(rc);
	if (base_unlikely(t->since))
		trace_small_end(t->since);
	return rc;
}

#endif
