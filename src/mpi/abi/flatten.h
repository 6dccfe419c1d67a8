/* SPDX-License-Identifier: BSD-3-Clause */
/* From a datatype to a layout (layout/). Shared by the files of mpi/abi/ only. */
#ifndef SLUICE_MPI_ABI_FLATTEN_H
#define SLUICE_MPI_ABI_FLATTEN_H

#include "layout/layout.h"
#include "mpi/abi/abi.h"

/* Stores size, extent and lower bound. Returns: 0 or -EIO. */
int types_measure(MPI_Datatype datatype, struct types_shape *out, MPI_Count *true_extent);
/* Stores the layout of one element, from the address of the buffer. Returns: 0; -ENOTSUP: the
 * element is no block that a few levels repeat; other -errno. */
int flatten(MPI_Datatype datatype, struct layout *out);

#endif
