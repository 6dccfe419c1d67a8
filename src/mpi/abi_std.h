/* SPDX-License-Identifier: BSD-3-Clause */
/* The ABI of the MPI 5 standard (libmpi_abi): what the front end uses of it. Predefined handles are
 * small numbers in pointer types; those of fixed-size datatypes carry log2 of the size.
 * test/mpi/abi_check.c compares each value with the libraries' own mpi.h. */
#ifndef SLUICE_MPI_ABI_STD_H
#define SLUICE_MPI_ABI_STD_H

#include <stdint.h>

#ifndef SLUICE_ABI_CHECK
typedef struct abi_comm *MPI_Comm;
typedef struct abi_datatype *MPI_Datatype;
typedef struct abi_errhandler *MPI_Errhandler;
typedef struct abi_group *MPI_Group;
typedef struct abi_info *MPI_Info;
typedef struct abi_request *MPI_Request;
typedef struct abi_file *MPI_File;
typedef struct abi_message *MPI_Message;
typedef struct abi_op *MPI_Op;
typedef struct abi_session *MPI_Session;
typedef struct abi_win *MPI_Win;
typedef intptr_t MPI_Aint;
typedef int64_t MPI_Count;
typedef int64_t MPI_Offset;
typedef void MPI_Status;
#endif

#define ABI_COMM_NULL     ((MPI_Comm)0x100)
#define ABI_COMM_WORLD    ((MPI_Comm)0x101)
#define ABI_COMM_SELF     ((MPI_Comm)0x102)
#define ABI_DATATYPE_NULL ((MPI_Datatype)0x200)
#define ABI_BYTE          ((MPI_Datatype)0x247)
#define ABI_IN_PLACE      ((void *)1)

#define ABI_STATUS_IGNORE ((MPI_Status *)0)

#define ABI_THREAD_MULTIPLE 4096
#define ABI_UNDEFINED       (-32766)
#define ABI_ROOT            (-4)
#define ABI_CART            211
#define ABI_GRAPH           212
#define ABI_DIST_GRAPH      213
#define ABI_ERR_COUNT    2
#define ABI_ERR_TRUNCATE 15
#define ABI_ERR_OTHER    16
#define ABI_ERR_NO_MEM   39

#define ABI_COMBINER_NAMED      101
#define ABI_COMBINER_DUP        102
#define ABI_COMBINER_CONTIGUOUS 103
#define ABI_COMBINER_RESIZED    116

/* Size of a predefined datatype, or more; 0 when the handle alone does not tell. */
static inline uint64_t abi_size_bound(MPI_Datatype datatype)
{
	uintptr_t value = (uintptr_t)datatype;

	if (value >> 6 == 0x240 >> 6) /* 0b1001_sss_iii */
		return (uint64_t)1 << ((value >> 3) & 7);
	return value < 0x1000 ? 32 : 0; /* the largest have 32 bytes */
}

#endif
