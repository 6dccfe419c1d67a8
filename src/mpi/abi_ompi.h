/* SPDX-License-Identifier: BSD-3-Clause */
/* The Open MPI ABI: what the front end uses of it. Predefined handles are addresses of objects of
 * the library. test/mpi/abi_check.c compares each value with the libraries' own mpi.h. */
#ifndef SLUICE_MPI_ABI_OMPI_H
#define SLUICE_MPI_ABI_OMPI_H

#include <stdint.h>

#ifndef SLUICE_ABI_CHECK
typedef struct ompi_communicator_t *MPI_Comm;
typedef struct ompi_datatype_t *MPI_Datatype;
typedef struct ompi_errhandler_t *MPI_Errhandler;
typedef struct ompi_group_t *MPI_Group;
typedef struct ompi_info_t *MPI_Info;
typedef struct ompi_request_t *MPI_Request;
typedef struct ompi_file_t *MPI_File;
typedef struct ompi_message_t *MPI_Message;
typedef struct ompi_op_t *MPI_Op;
typedef struct ompi_instance_t *MPI_Session;
typedef struct ompi_win_t *MPI_Win;
typedef intptr_t MPI_Aint;
typedef int64_t MPI_Count;
typedef int64_t MPI_Offset;
typedef void MPI_Status;
#endif

/* Filled at attach; X(field, symbol). */
#define ABI_SYMBOLS(X)                                 \
	X(comm_null, "ompi_mpi_comm_null")             \
	X(comm_world, "ompi_mpi_comm_world")           \
	X(comm_self, "ompi_mpi_comm_self")             \
	X(datatype_null, "ompi_mpi_datatype_null")     \
	X(byte, "ompi_mpi_byte")

struct abi_symbols {
#define X(field, symbol) void *field;
	ABI_SYMBOLS(X)
#undef X
	/* Predefined objects are in the image of the library, or copied into that of the executable by
	 * the linker; others are on the heap. */
	uintptr_t lo, hi, program_lo, program_hi;
};

extern struct abi_symbols abi_symbols;

#define ABI_COMM_NULL     ((MPI_Comm)abi_symbols.comm_null)
#define ABI_COMM_WORLD    ((MPI_Comm)abi_symbols.comm_world)
#define ABI_COMM_SELF     ((MPI_Comm)abi_symbols.comm_self)
#define ABI_DATATYPE_NULL ((MPI_Datatype)abi_symbols.datatype_null)
#define ABI_BYTE          ((MPI_Datatype)abi_symbols.byte)
#define ABI_IN_PLACE      ((void *)1)

#define ABI_STATUS_IGNORE ((MPI_Status *)0)

#define ABI_THREAD_MULTIPLE 3
#define ABI_UNDEFINED       (-32766)
#define ABI_ROOT            (-4)
#define ABI_GRAPH           2
#define ABI_CART            1
#define ABI_DIST_GRAPH      3
#define ABI_ERR_COUNT    2
#define ABI_ERR_TRUNCATE 15
#define ABI_ERR_OTHER    16
#define ABI_ERR_NO_MEM   39

#define ABI_COMBINER_NAMED      0
#define ABI_COMBINER_DUP        1
#define ABI_COMBINER_CONTIGUOUS 2
#define ABI_COMBINER_RESIZED    17

/* Size of a predefined datatype, or more; 0 when the handle alone does not tell. */
static inline uint64_t abi_size_bound(MPI_Datatype datatype)
{
	uintptr_t value = (uintptr_t)datatype;

	if (value - abi_symbols.lo < abi_symbols.hi - abi_symbols.lo ||
	    value - abi_symbols.program_lo < abi_symbols.program_hi - abi_symbols.program_lo)
		return 32; /* the largest have that many bytes */
	return 0;
}

#endif
