/* SPDX-License-Identifier: BSD-3-Clause */
#include "mpi/front/profile.h"
#include "trace/trace.h"

#define EXPORT __attribute__((visibility("default")))

static uint64_t size_of(uintptr_t type)
{
	MPI_Count size = 0;

	return host.Type_size_x((MPI_Datatype)type, &size) || size < 0 ? 0 : (uint64_t)size;
}

EXPORT uint64_t sluice_profile_begin(const char *name, const void *site, const void *frame,
				     MPI_Count count, MPI_Datatype type)
{
	return trace_message_begin(name, site, frame, count > 0 ? (uint64_t)count : 0,
				   (uintptr_t)CANONICAL_OF(type), size_of);
}

EXPORT void sluice_profile_end(uint64_t since) { trace_message_end(since); }
