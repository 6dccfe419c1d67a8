/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions that libsluice-profile.so and libsluice-record.so find in libsluice.so by dlsym(): they
 * count the time of a call that sends, receives or waits for messages. Not for programs.
 */
#ifndef SLUICE_MPI_FRONT_PROFILE_H
#define SLUICE_MPI_FRONT_PROFILE_H

#include <stdint.h>

#include "mpi/abi/abi.h"

/* trace_message_begin() for a buffer of `count` elements; count: 0: none. */
uint64_t sluice_profile_begin(const char *name, const void *site, const void *frame,
			      MPI_Count count, MPI_Datatype type);
void sluice_profile_end(uint64_t since);

#endif
