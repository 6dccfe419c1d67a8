/* SPDX-License-Identifier: BSD-3-Clause */
/* From a datatype to a layout or type map (layout/). Shared by the files of mpi/abi/ only. */
#ifndef SLUICE_MPI_ABI_FLATTEN_H
#define SLUICE_MPI_ABI_FLATTEN_H

#include "layout/layout.h"
#include "mpi/abi/abi.h"

/* Stores size, extent and lower bound. Returns: 0 or -EIO. */
int types_measure(MPI_Datatype datatype, struct types_shape *out, MPI_Count *true_extent);
/* Stores where the bytes of one element lie, by its size: layout or type map, which *out then owns.
 * Returns: 0 or -errno. */
int flatten(MPI_Datatype datatype, struct types_shape *out);

#endif
