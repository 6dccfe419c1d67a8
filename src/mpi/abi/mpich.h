/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPICH ABI (MPICH, Intel MPI, MVAPICH, Cray MPICH), as far as Sluice uses it. Handles are
 * integers: 2 bits kind, 4 bits object, the rest index or, for built-in datatypes, size and
 * index. test/mpi/programs/abi_check.c compares each value with the host MPIs' own mpi.h. */
#ifndef SLUICE_MPI_ABI_MPICH_H
#define SLUICE_MPI_ABI_MPICH_H

#include <stdbool.h>
#include <stdint.h>

#ifndef SLUICE_ABI_TYPES_GIVEN
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
/* Length of a status and indexes of its members, in ints. */
#define ABI_STATUS_INTS   5
#define ABI_STATUS_SOURCE 2
#define ABI_STATUS_TAG    3
#define ABI_STATUS_ERROR  4
#define ABI_ANY_SOURCE    (-2)
#define ABI_ANY_TAG       (-1)

#define ABI_THREAD_MULTIPLE 3
#define ABI_UNDEFINED       (-32766)
#define ABI_ROOT            (-3)
#define ABI_GRAPH           1
#define ABI_CART            2
#define ABI_DIST_GRAPH      3
#define ABI_ERR_COUNT    2
#define ABI_ERR_TRUNCATE 14
#define ABI_ERR_OTHER    15
#define ABI_ERR_IN_STATUS 17
#define ABI_ERR_NO_MEM   34
#define ABI_ERR_CANCEL   16 /* result of canceling a collective: MPI_ERR_INTERN */

#define ABI_COMBINER_DUP        2
#define ABI_COMBINER_CONTIGUOUS 3
#define ABI_COMBINER_RESIZED    18
#define ABI_COMBINER_VECTOR     4
#define ABI_COMBINER_HVECTOR    6
#define ABI_COMBINER_INDEXED    7
#define ABI_COMBINER_HINDEXED   9
#define ABI_COMBINER_INDEXED_BLOCK 10
#define ABI_COMBINER_HINDEXED_BLOCK 19
#define ABI_COMBINER_STRUCT     12
#define ABI_COMBINER_SUBARRAY   13
#define ABI_COMBINER_DARRAY     14
#define ABI_DISTRIBUTE_NONE      123
#define ABI_DISTRIBUTE_CYCLIC    122
#define ABI_DISTRIBUTE_DFLT_DARG (-49767)
#define ABI_ORDER_C             56

/* Handles of datatypes carry the size; operations have a kind of their own. Initialises struct
 * abi_predefined. */
#define ABI_PREDEFINED \
	.sized_mask = 0xfc000000, .sized_value = 0x4c000000, .shift = 8, .size_bits = 0xff, \
	.ops = { { 0x58000000, 0x01000000 } }

/* Datatypes that rt computes with: X(name, handle, rt's type). */
#define ABI_NUMBERS(X) \
	X(SIGNED_CHAR, 0x4c000118, GOAL_I8) X(SHORT, 0x4c000203, GOAL_I16) \
	X(INT, 0x4c000405, GOAL_I32) X(LONG, 0x4c000807, GOAL_I64) \
	X(LONG_LONG, 0x4c000809, GOAL_I64) X(INT8_T, 0x4c000137, GOAL_I8) \
	X(INT16_T, 0x4c000238, GOAL_I16) X(INT32_T, 0x4c000439, GOAL_I32) \
	X(INT64_T, 0x4c00083a, GOAL_I64) X(UNSIGNED_CHAR, 0x4c000102, GOAL_U8) \
	X(UNSIGNED_SHORT, 0x4c000204, GOAL_U16) X(UNSIGNED, 0x4c000406, GOAL_U32) \
	X(UNSIGNED_LONG, 0x4c000808, GOAL_U64) X(UNSIGNED_LONG_LONG, 0x4c000819, GOAL_U64) \
	X(UINT8_T, 0x4c00013b, GOAL_U8) X(UINT16_T, 0x4c00023c, GOAL_U16) \
	X(UINT32_T, 0x4c00043d, GOAL_U32) X(UINT64_T, 0x4c00083e, GOAL_U64) \
	X(AINT, 0x4c000843, GOAL_I64) X(OFFSET, 0x4c000844, GOAL_I64) \
	X(COUNT, 0x4c000845, GOAL_I64) X(FLOAT, 0x4c00040a, GOAL_F32) \
	X(DOUBLE, 0x4c00080b, GOAL_F64) X(INTEGER, 0x4c00041b, GOAL_I32) \
	X(REAL, 0x4c00041c, GOAL_F32) X(DOUBLE_PRECISION, 0x4c00081f, GOAL_F64) \
	X(INTEGER1, 0x4c00012d, GOAL_I8) X(INTEGER2, 0x4c00022f, GOAL_I16) \
	X(INTEGER4, 0x4c000430, GOAL_I32) X(INTEGER8, 0x4c000831, GOAL_I64) \
	X(REAL4, 0x4c000427, GOAL_F32) X(REAL8, 0x4c000829, GOAL_F64)

/* Operations that rt computes. */
#define ABI_OPS(X) \
	X(MAX, 0x58000001, GOAL_MAX) X(MIN, 0x58000002, GOAL_MIN) X(SUM, 0x58000003, GOAL_ADD) \
	X(PROD, 0x58000004, GOAL_MUL) X(BAND, 0x58000006, GOAL_AND) \
	X(BOR, 0x58000008, GOAL_OR) X(BXOR, 0x5800000a, GOAL_XOR)

#define ABI_BOR     ((MPI_Op)0x58000008)
#define ABI_OP_NULL ((MPI_Op)0x18000000)
#define ABI_REQUEST_NULL ((MPI_Request)0x2c000000)

#endif
