/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion of pending operations that overlap memory that a call of the program names. Handles
 * are canonical; MPI_IN_PLACE names no memory. */
#ifndef SLUICE_MPI_FRONT_OBSERVE_H
#define SLUICE_MPI_FRONT_OBSERVE_H

#include "mpi/abi/abi.h"

void observe_all(void);
void observe_bytes(const void *at, MPI_Count bytes);
/* `count` elements; `count` elements for each of `which`. */
void observe_buf(const void *at, MPI_Count count, MPI_Datatype datatype);
void observe_each(const void *at, MPI_Count count, MPI_Datatype datatype, MPI_Comm comm,
		  enum members which);
/* One count for each: with displacements in elements; in bytes and with datatypes (handles in
 * the program's memory); one after the other. */
void observe_part(const void *at, struct list counts, struct list displs, MPI_Datatype datatype,
		  MPI_Comm comm, enum members which);
void observe_parts(const void *at, struct list counts, struct list displs, const void *datatypes,
		   MPI_Comm comm, enum members which);
void observe_sum(const void *at, struct list counts, MPI_Datatype datatype, MPI_Comm comm,
		 enum members which);

#endif
