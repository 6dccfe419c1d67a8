/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The time of calls that send, receive or wait for messages, for `sluice trace`: a wrapper counts
 * in the trace file of libsluice.so (front/profile.h). libsluice-profile.so has nothing else, so
 * that collectives are called by the program itself.
 */
#ifndef SLUICE_MPI_RECORD_PROFILE_H
#define SLUICE_MPI_RECORD_PROFILE_H

#include <stdatomic.h>

#include "mpi/front/profile.h"

#define RECORD_EXPORT   __attribute__((visibility("default")))
#define PROFILE_LACKING 16 /* an MPI error code other than MPI_SUCCESS: the host MPI lacks it */

/* Context: as sluice_profile_begin() and _end(); without libsluice.so they do nothing. */
uint64_t profile_begin(const char *name, const void *site, const void *frame, MPI_Count count,
		       MPI_Datatype type);
void profile_end(uint64_t since);

#define PROFILED(name, site, count, type, call)                                                    \
	({                                                                                         \
		uint64_t since = profile_begin(name, site, __builtin_frame_address(0), count,      \
					       (MPI_Datatype)(type));                              \
		int result = (call);                                                               \
		if (since)                                                                         \
			profile_end(since);                                                        \
		result;                                                                            \
	})

#endif
