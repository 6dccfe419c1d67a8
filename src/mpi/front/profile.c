/* SPDX-License-Identifier: BSD-3-Clause */
#include "mpi/front/profile.h"
#include "trace/trace.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT uint64_t sluice_profile_begin(const char *name, const void *site, const void *frame,
				     MPI_Count count, MPI_Datatype type)
{
	if (!trace_is_on())
		return 0;
	return trace_message_begin(name, site, frame,
				   count > 0 ? types_bytes(CANONICAL_OF(type), count) : 0);
}

EXPORT void sluice_profile_end(uint64_t since) { trace_message_end(since); }
