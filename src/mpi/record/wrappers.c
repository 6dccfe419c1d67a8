/* SPDX-License-Identifier: BSD-3-Clause */
/* The exported functions, made from functions.table. */
#include "mpi/record/record.h"

#define RECORD_EXPORT  __attribute__((visibility("default")))
#define RECORD_LACKING 16 /* an MPI error code other than MPI_SUCCESS: the host MPI lacks it */

#include "recorders.h"
