/* SPDX-License-Identifier: BSD-3-Clause */
/* The Open MPI ABI, as far as Sluice uses it. Predefined handles are addresses of objects of the
 * host MPI. test/mpi/programs/abi_check.c compares each value with the host MPIs' own mpi.h. */
#ifndef SLUICE_MPI_ABI_OMPI_H
#define SLUICE_MPI_ABI_OMPI_H

#include <stdbool.h>
#include <stdint.h>

#ifndef SLUICE_ABI_TYPES_GIVEN
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
	X(op_null, "ompi_mpi_op_null")                 \
	X(request_null, "ompi_request_null")           \
	X(bor, "ompi_mpi_op_bor")                      \
	X(byte, "ompi_mpi_byte")

struct abi_ompi_symbols {
#define X(field, symbol) void *field;
	ABI_SYMBOLS(X)
#undef X
};

extern struct abi_ompi_symbols abi_ompi_symbols;

#define ABI_COMM_NULL     ((MPI_Comm)abi_ompi_symbols.comm_null)
#define ABI_COMM_WORLD    ((MPI_Comm)abi_ompi_symbols.comm_world)
#define ABI_COMM_SELF     ((MPI_Comm)abi_ompi_symbols.comm_self)
#define ABI_DATATYPE_NULL ((MPI_Datatype)abi_ompi_symbols.datatype_null)
#define ABI_BYTE          ((MPI_Datatype)abi_ompi_symbols.byte)
#define ABI_IN_PLACE      ((void *)1)

#define ABI_STATUS_IGNORE ((MPI_Status *)0)
/* Length of a status and indexes of its members, in ints. */
#define ABI_STATUS_INTS   6
#define ABI_STATUS_SOURCE 0
#define ABI_STATUS_TAG    1
#define ABI_STATUS_ERROR  2
#define ABI_ANY_SOURCE    (-1)
#define ABI_ANY_TAG       (-1)

#define ABI_THREAD_MULTIPLE 3
#define ABI_UNDEFINED       (-32766)
#define ABI_ROOT            (-4)
#define ABI_GRAPH           2
#define ABI_CART            1
#define ABI_DIST_GRAPH      3
#define ABI_ERR_COUNT    2
#define ABI_ERR_TRUNCATE 15
#define ABI_ERR_OTHER    16
#define ABI_ERR_IN_STATUS 18
#define ABI_ERR_NO_MEM   39
#define ABI_ERR_CANCEL   7 /* result of canceling a collective: MPI_ERR_REQUEST */

#define ABI_COMBINER_DUP        1
#define ABI_COMBINER_CONTIGUOUS 2
#define ABI_COMBINER_RESIZED    17
#define ABI_COMBINER_VECTOR     3
#define ABI_COMBINER_HVECTOR    5
#define ABI_COMBINER_INDEXED    6
#define ABI_COMBINER_HINDEXED   8
#define ABI_COMBINER_INDEXED_BLOCK 9
#define ABI_COMBINER_HINDEXED_BLOCK 18
#define ABI_COMBINER_STRUCT     11
#define ABI_COMBINER_SUBARRAY   12
#define ABI_COMBINER_DARRAY     13
#define ABI_DISTRIBUTE_NONE      2
#define ABI_DISTRIBUTE_CYCLIC    1
#define ABI_DISTRIBUTE_DFLT_DARG (-1)
#define ABI_ORDER_C             0

/* No handle carries a size. Predefined objects lie in the image of the host MPI, or in the image
 * of the executable where the linker has copied them; other objects lie on the heap. ompi.c
 * fills in the two images. Initialises struct abi_predefined. */
#define ABI_PREDEFINED .sized_value = 1

/* Datatypes that rt computes with: X(name, end of the symbol after ompi_mpi_, rt's type). */
#define ABI_NUMBERS(X) \
	X(SIGNED_CHAR, "signed_char", GOAL_I8) X(SHORT, "short", GOAL_I16) \
	X(INT, "int", GOAL_I32) X(LONG, "long", GOAL_I64) \
	X(LONG_LONG, "long_long_int", GOAL_I64) X(INT8_T, "int8_t", GOAL_I8) \
	X(INT16_T, "int16_t", GOAL_I16) X(INT32_T, "int32_t", GOAL_I32) \
	X(INT64_T, "int64_t", GOAL_I64) X(UNSIGNED_CHAR, "unsigned_char", GOAL_U8) \
	X(UNSIGNED_SHORT, "unsigned_short", GOAL_U16) X(UNSIGNED, "unsigned", GOAL_U32) \
	X(UNSIGNED_LONG, "unsigned_long", GOAL_U64) \
	X(UNSIGNED_LONG_LONG, "unsigned_long_long", GOAL_U64) X(UINT8_T, "uint8_t", GOAL_U8) \
	X(UINT16_T, "uint16_t", GOAL_U16) X(UINT32_T, "uint32_t", GOAL_U32) \
	X(UINT64_T, "uint64_t", GOAL_U64) X(AINT, "aint", GOAL_I64) \
	X(OFFSET, "offset", GOAL_I64) X(COUNT, "count", GOAL_I64) X(FLOAT, "float", GOAL_F32) \
	X(DOUBLE, "double", GOAL_F64) X(INTEGER, "integer", GOAL_I32) \
	X(REAL, "real", GOAL_F32) X(DOUBLE_PRECISION, "dblprec", GOAL_F64) \
	X(INTEGER1, "integer1", GOAL_I8) X(INTEGER2, "integer2", GOAL_I16) \
	X(INTEGER4, "integer4", GOAL_I32) X(INTEGER8, "integer8", GOAL_I64) \
	X(REAL4, "real4", GOAL_F32) X(REAL8, "real8", GOAL_F64)

/* Operations that rt computes. */
#define ABI_OPS(X) \
	X(MAX, "op_max", GOAL_MAX) X(MIN, "op_min", GOAL_MIN) X(SUM, "op_sum", GOAL_ADD) \
	X(PROD, "op_prod", GOAL_MUL) X(BAND, "op_band", GOAL_AND) X(BOR, "op_bor", GOAL_OR) \
	X(BXOR, "op_bxor", GOAL_XOR)

#define ABI_BOR     ((MPI_Op)abi_ompi_symbols.bor)
#define ABI_OP_NULL ((MPI_Op)abi_ompi_symbols.op_null)
#define ABI_REQUEST_NULL ((MPI_Request)abi_ompi_symbols.request_null)

#endif
