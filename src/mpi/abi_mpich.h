/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPICH ABI (MPICH, Intel MPI, MVAPICH, Cray MPICH): what the front end uses of it. Handles are
 * integers: 2 bits kind, 4 bits object, the rest index or, for built-in datatypes, size and index.
 * test/mpi/abi_check.c compares each value with the libraries' own mpi.h. */
#ifndef SLUICE_MPI_ABI_MPICH_H
#define SLUICE_MPI_ABI_MPICH_H

#include <stdint.h>

#ifndef SLUICE_ABI_CHECK
typedef int MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Errhandler;
typedef int MPI_Group;
typedef int MPI_Info;
typedef int MPI_Request;
typedef struct ADIOI_FileD *MPI_File;
typedef int MPI_Message;
typedef int MPI_Op;
typedef int MPI_Session;
typedef int MPI_Win;
typedef intptr_t MPI_Aint;
typedef int64_t MPI_Count;
typedef int64_t MPI_Offset;
typedef void MPI_Status;
#endif

#define ABI_COMM_NULL     ((MPI_Comm)0x04000000)
#define ABI_COMM_WORLD    ((MPI_Comm)0x44000000)
#define ABI_COMM_SELF     ((MPI_Comm)0x44000001)
#define ABI_DATATYPE_NULL ((MPI_Datatype)0x0c000000)
#define ABI_BYTE          ((MPI_Datatype)0x4c00010d)
#define ABI_IN_PLACE      ((void *)-1)

#define ABI_STATUS_IGNORE ((MPI_Status *)1)

#define ABI_THREAD_MULTIPLE 3
#define ABI_UNDEFINED       (-32766)
#define ABI_ROOT            (-3)
#define ABI_GRAPH           1
#define ABI_CART            2
#define ABI_DIST_GRAPH      3
#define ABI_ERR_COUNT    2
#define ABI_ERR_TRUNCATE 14
#define ABI_ERR_OTHER    15
#define ABI_ERR_NO_MEM   34

#define ABI_COMBINER_NAMED      1
#define ABI_COMBINER_DUP        2
#define ABI_COMBINER_CONTIGUOUS 3
#define ABI_COMBINER_RESIZED    18

/* Size of a predefined datatype, or more; 0 when the handle alone does not tell. */
static inline uint64_t abi_size_bound(MPI_Datatype datatype)
{
	if (((uint32_t)datatype >> 26) != 0x4c000000u >> 26)
		return 0;
	return ((uint32_t)datatype >> 8) & 0xff;
}

#endif
