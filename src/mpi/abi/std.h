/* SPDX-License-Identifier: BSD-3-Clause */
/* The ABI of the MPI 5 standard (libmpi_abi), as far as Sluice uses it. Predefined handles are
 * small numbers in pointer types; handles of fixed-size datatypes carry log2 of the size.
 * test/mpi/programs/abi_check.c compares each value with the host MPIs' own mpi.h. */
#ifndef SLUICE_MPI_ABI_STD_H
#define SLUICE_MPI_ABI_STD_H

#include <stdbool.h>
#include <stdint.h>

#ifndef SLUICE_ABI_TYPES_GIVEN
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
/* Length of a status and indexes of its members, in ints. */
#define ABI_STATUS_INTS   8
#define ABI_STATUS_SOURCE 0
#define ABI_STATUS_TAG    1
#define ABI_STATUS_ERROR  2
#define ABI_ANY_SOURCE    (-1)
#define ABI_ANY_TAG       (-2)

#define ABI_THREAD_MULTIPLE 4096
#define ABI_UNDEFINED       (-32766)
#define ABI_ROOT            (-4)
#define ABI_CART            211
#define ABI_GRAPH           212
#define ABI_DIST_GRAPH      213
#define ABI_ERR_COUNT    2
#define ABI_ERR_TRUNCATE 15
#define ABI_ERR_OTHER    16
#define ABI_ERR_IN_STATUS 19
#define ABI_ERR_NO_MEM   39
#define ABI_ERR_CANCEL   17 /* result of canceling a collective: MPI_ERR_INTERN, as in MPICH */

#define ABI_COMBINER_DUP        102
#define ABI_COMBINER_CONTIGUOUS 103
#define ABI_COMBINER_RESIZED    116
#define ABI_COMBINER_VECTOR     104
#define ABI_COMBINER_HVECTOR    105
#define ABI_COMBINER_INDEXED    106
#define ABI_COMBINER_HINDEXED   107
#define ABI_COMBINER_INDEXED_BLOCK 108
#define ABI_COMBINER_HINDEXED_BLOCK 109
#define ABI_COMBINER_STRUCT     110
#define ABI_COMBINER_SUBARRAY   111
#define ABI_COMBINER_DARRAY     112
#define ABI_DISTRIBUTE_NONE      16
#define ABI_DISTRIBUTE_CYCLIC    18
#define ABI_DISTRIBUTE_DFLT_DARG 19
#define ABI_ORDER_C             12

/* Fixed-size datatypes, 0b1001_sss_iii, carry log2 of the size. Initialises struct abi_predefined.
 */
#define ABI_PREDEFINED \
	.sized_mask = ~(uintptr_t)0x3f, .sized_value = 0x240, .shift = 3, .size_bits = 7, \
	.is_log2 = true, .types = { { 0, 0x1000 } }, .ops = { { 0, 0x1000 } }

/* Datatypes that rt computes with: X(name, handle, rt's type). */
#define ABI_NUMBERS(X) \
	X(SIGNED_CHAR, 0x244, GOAL_I8) X(SHORT, 0x208, GOAL_I16) X(INT, 0x209, GOAL_I32) \
	X(LONG, 0x20a, GOAL_I64) X(LONG_LONG, 0x20b, GOAL_I64) X(INT8_T, 0x240, GOAL_I8) \
	X(INT16_T, 0x248, GOAL_I16) X(INT32_T, 0x250, GOAL_I32) X(INT64_T, 0x258, GOAL_I64) \
	X(UNSIGNED_CHAR, 0x245, GOAL_U8) X(UNSIGNED_SHORT, 0x20c, GOAL_U16) \
	X(UNSIGNED, 0x20d, GOAL_U32) X(UNSIGNED_LONG, 0x20e, GOAL_U64) \
	X(UNSIGNED_LONG_LONG, 0x20f, GOAL_U64) X(UINT8_T, 0x241, GOAL_U8) \
	X(UINT16_T, 0x249, GOAL_U16) X(UINT32_T, 0x251, GOAL_U32) X(UINT64_T, 0x259, GOAL_U64) \
	X(AINT, 0x201, GOAL_I64) X(OFFSET, 0x203, GOAL_I64) X(COUNT, 0x202, GOAL_I64) \
	X(FLOAT, 0x210, GOAL_F32) X(DOUBLE, 0x214, GOAL_F64) X(INTEGER, 0x219, GOAL_I32) \
	X(REAL, 0x21a, GOAL_F32) X(DOUBLE_PRECISION, 0x21c, GOAL_F64) \
	X(INTEGER1, 0x2c1, GOAL_I8) X(INTEGER2, 0x2c9, GOAL_I16) X(INTEGER4, 0x2d1, GOAL_I32) \
	X(INTEGER8, 0x2d9, GOAL_I64) X(REAL4, 0x2d2, GOAL_F32) X(REAL8, 0x2da, GOAL_F64)

/* Operations that rt computes. */
#define ABI_OPS(X) \
	X(MAX, 0x23, GOAL_MAX) X(MIN, 0x22, GOAL_MIN) X(SUM, 0x21, GOAL_ADD) \
	X(PROD, 0x24, GOAL_MUL) X(BAND, 0x28, GOAL_AND) X(BOR, 0x29, GOAL_OR) \
	X(BXOR, 0x2a, GOAL_XOR)

#define ABI_BOR     ((MPI_Op)0x29)
#define ABI_OP_NULL ((MPI_Op)0x20)
#define ABI_REQUEST_NULL ((MPI_Request)0x180)

#endif
