/* SPDX-License-Identifier: BSD-3-Clause */
/* Around a call of the program's that may be traced (trace/). Private to take.c and traced.c. */
#ifndef SLUICE_MPI_TRACED_H
#define SLUICE_MPI_TRACED_H

#include "mpi/abi/abi.h"
#include "trace/trace.h"


struct traced {
	const char *name;
	const void *site;
	uint64_t since; /* a small call that is timed */
	bool is_call;   /* another one that is traced */
};

bool traced_begin_on(struct traced *t, MPI_Datatype datatype, MPI_Count count,
		     uint64_t threshold_bytes);

/*
 * A call to the function `name` that will return to `site`; datatype and count: of one rank's
 * message. True: it is below the threshold, so the library's without another look (never when
 * nothing is traced). traced_end() is due in any case.
 */
static inline bool traced_begin(struct traced *t, const char *name, const void *site,
				MPI_Datatype datatype, MPI_Count count, uint64_t threshold_bytes)
{
	*t = (struct traced){ .name = name, .site = site };
	return trace_is_on() && traced_begin_on(t, datatype, count, threshold_bytes);
}

/* rc: what the call returns. Returns rc. */
static inline int traced_end(const struct traced *t, int rc)
{
	if (base_unlikely(t->is_call))
		return trace_call_end(rc);
	if (base_unlikely(t->since))
		trace_small_end(t->since);
	return rc;
}

#endif
