/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Are Sluice's own ABI headers right about this MPI? Compiled with the MPI's mpi.h next to ours:
 * values are compared at run time, signatures by the compiler (incompatible pointers are errors).
 *
 *   mpicc -DABI_HEADER='"mpi/abi/mpich.h"' -Werror=incompatible-pointer-types -Isrc -I<made>
 * abi_check.c
 *
 * <made>: the folder with functions.h and signatures.h by src/mpi/front/generate.py. One rank is
 * enough.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
typedef void *MPI_Session; /* it has none */
#endif
#define SLUICE_ABI_TYPES_GIVEN
#include ABI_HEADER
#include "functions.h"
#include "mpi/abi/predefined.h"
#include "signatures.h"

static int failed;

/* Open MPI: without the images of the library and of the program, which the driver knows */
static const struct abi_predefined predefined = { ABI_PREDEFINED };

#define BOUND(type) abi_size_bound(&predefined, (uintptr_t)(type))

#define CHECK(condition)                                                     \
	do {                                                                 \
		if (!(condition)) {                                          \
			printf("not so: %s\n", #condition);                  \
			failed = 1;                                          \
		}                                                            \
	} while (0)

#define SIGNATURE_3(name) .name = PMPI_##name,
/* MPICH 4.0 lacks a const in one of them, 4.2 in MPI_Request_get_status_some and two others. */
#if MPI_VERSION >= 4 && !defined(OPEN_MPI) &&                                                      \
	!(defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40300000)
#define SIGNATURE_4(name) .name = PMPI_##name,
#else
#define SIGNATURE_4(name)
#endif

/* never called: that it compiles is the check */
struct host_functions abi_check_host = {
#define X(name, since) SIGNATURE_##since(name)
	FRONT_SIGNATURES(X)
#undef X
};

#ifdef ABI_SYMBOLS
struct abi_ompi_symbols abi_ompi_symbols;

static void find_symbols(void)
{
#define X(field, symbol) abi_ompi_symbols.field = dlsym(RTLD_DEFAULT, symbol);
	ABI_SYMBOLS(X)
#undef X
}
#endif

static void check_handles(void)
{
	CHECK(ABI_COMM_NULL == MPI_COMM_NULL);
	CHECK(ABI_COMM_WORLD == MPI_COMM_WORLD);
	CHECK(ABI_COMM_SELF == MPI_COMM_SELF);
	CHECK(ABI_DATATYPE_NULL == MPI_DATATYPE_NULL);
	CHECK(ABI_BYTE == MPI_BYTE);
	CHECK(ABI_OP_NULL == MPI_OP_NULL);
	CHECK(ABI_REQUEST_NULL == MPI_REQUEST_NULL);
	CHECK(ABI_BOR == MPI_BOR);
	CHECK(ABI_IN_PLACE == MPI_IN_PLACE);
	CHECK(ABI_STATUS_IGNORE == MPI_STATUS_IGNORE);
	CHECK(sizeof(MPI_Status) == ABI_STATUS_INTS * sizeof(int));
	CHECK(offsetof(MPI_Status, MPI_SOURCE) == ABI_STATUS_SOURCE * sizeof(int));
	CHECK(offsetof(MPI_Status, MPI_TAG) == ABI_STATUS_TAG * sizeof(int));
	CHECK(offsetof(MPI_Status, MPI_ERROR) == ABI_STATUS_ERROR * sizeof(int));
	CHECK(MPI_BOTTOM == NULL);
}

/* The predefined datatypes and operations that Sluice computes with. Libraries may lack Fortran's.
 */
enum {
	GOAL_I8,
	GOAL_I16,
	GOAL_I32,
	GOAL_I64,
	GOAL_U8,
	GOAL_U16,
	GOAL_U32,
	GOAL_U64,
	GOAL_F32,
	GOAL_F64,
	GOAL_MAX,
	GOAL_MIN,
	GOAL_ADD,
	GOAL_MUL,
	GOAL_AND,
	GOAL_OR,
	GOAL_XOR,
};

#ifdef ABI_SYMBOLS
#define HANDLE(symbol) ((uintptr_t)dlsym(RTLD_DEFAULT, "ompi_mpi_" symbol))
#else
#define HANDLE(value) ((uintptr_t)(value))
#endif

static void check_computed(void)
{
	static const int bytes[] = { 1, 2, 4, 8, 1, 2, 4, 8, 4, 8 };
	int size;

#define X(name, handle, type)                                                \
	if (MPI_##name != MPI_DATATYPE_NULL) {                               \
		CHECK(HANDLE(handle) == (uintptr_t)MPI_##name);              \
		MPI_Type_size(MPI_##name, &size);                            \
		CHECK(size == bytes[type]);                                  \
	}
	ABI_NUMBERS(X)
#undef X
#define X(name, handle, op) CHECK(HANDLE(handle) == (uintptr_t)MPI_##name);
	ABI_OPS(X)
#undef X
#ifndef ABI_SYMBOLS /* elsewhere by the library's image, which is known to the loader only */
	CHECK(abi_is_predefined_op(&predefined, (uintptr_t)MPI_SUM) &&
	      abi_is_predefined_op(&predefined, (uintptr_t)MPI_MINLOC));
#endif
}

static void nothing(void *in, void *inout, int *n, MPI_Datatype *type)
{
	(void)in, (void)inout, (void)n, (void)type;
}

static void check_own_op(void)
{
	MPI_Op op;

	MPI_Op_create(nothing, 1, &op);
	CHECK(!abi_is_predefined_op(&predefined, (uintptr_t)op));
	MPI_Op_free(&op);
}

static void check_numbers(void)
{
	CHECK(MPI_SUCCESS == 0);
	CHECK(ABI_UNDEFINED == MPI_UNDEFINED);
	CHECK(ABI_ANY_SOURCE == MPI_ANY_SOURCE);
	CHECK(ABI_ANY_TAG == MPI_ANY_TAG);
	CHECK(ABI_ERR_IN_STATUS == MPI_ERR_IN_STATUS);
	CHECK(ABI_ROOT == MPI_ROOT);
	CHECK(ABI_CART == MPI_CART);
	CHECK(ABI_GRAPH == MPI_GRAPH);
	CHECK(ABI_DIST_GRAPH == MPI_DIST_GRAPH);
	CHECK(ABI_THREAD_MULTIPLE == MPI_THREAD_MULTIPLE);
	CHECK(ABI_ERR_COUNT == MPI_ERR_COUNT);
	CHECK(ABI_ERR_TRUNCATE == MPI_ERR_TRUNCATE);
	CHECK(ABI_ERR_OTHER == MPI_ERR_OTHER);
#ifdef OMPI_MAJOR_VERSION
	CHECK(ABI_ERR_CANCEL == MPI_ERR_REQUEST);
#else
	CHECK(ABI_ERR_CANCEL == MPI_ERR_INTERN);
#endif
	CHECK(ABI_ERR_NO_MEM == MPI_ERR_NO_MEM);
	CHECK(ABI_COMBINER_DUP == MPI_COMBINER_DUP);
	CHECK(ABI_COMBINER_CONTIGUOUS == MPI_COMBINER_CONTIGUOUS);
	CHECK(ABI_COMBINER_RESIZED == MPI_COMBINER_RESIZED);
	CHECK(ABI_COMBINER_VECTOR == MPI_COMBINER_VECTOR);
	CHECK(ABI_COMBINER_HVECTOR == MPI_COMBINER_HVECTOR);
	CHECK(ABI_COMBINER_INDEXED == MPI_COMBINER_INDEXED);
	CHECK(ABI_COMBINER_HINDEXED == MPI_COMBINER_HINDEXED);
	CHECK(ABI_COMBINER_INDEXED_BLOCK == MPI_COMBINER_INDEXED_BLOCK);
	CHECK(ABI_COMBINER_HINDEXED_BLOCK == MPI_COMBINER_HINDEXED_BLOCK);
	CHECK(ABI_COMBINER_STRUCT == MPI_COMBINER_STRUCT);
	CHECK(ABI_COMBINER_SUBARRAY == MPI_COMBINER_SUBARRAY);
	CHECK(ABI_ORDER_C == MPI_ORDER_C);
	CHECK(sizeof(MPI_Count) == 8);
	CHECK(sizeof(MPI_Aint) == 8);
	CHECK(sizeof(MPI_Offset) == 8);
	CHECK(sizeof(MPI_Status) <= 256); /* pack.c */
}

/* The size that the handle gives away is never less than the size; 0 where it says nothing. */
static void check_sizes(void)
{
	const MPI_Datatype types[] = {
		MPI_CHAR, MPI_SIGNED_CHAR, MPI_UNSIGNED_CHAR, MPI_BYTE, MPI_WCHAR, MPI_SHORT,
		MPI_UNSIGNED_SHORT, MPI_INT, MPI_UNSIGNED, MPI_LONG, MPI_UNSIGNED_LONG, MPI_FLOAT,
		MPI_DOUBLE, MPI_LONG_DOUBLE, MPI_LONG_LONG, MPI_UNSIGNED_LONG_LONG, MPI_PACKED,
		MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T, MPI_UINT16_T,
		MPI_UINT32_T, MPI_UINT64_T, MPI_C_BOOL, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX,
		MPI_C_LONG_DOUBLE_COMPLEX, MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_FLOAT_INT,
		MPI_DOUBLE_INT, MPI_LONG_INT, MPI_2INT, MPI_SHORT_INT, MPI_LONG_DOUBLE_INT,
		MPI_CHARACTER, MPI_LOGICAL, MPI_INTEGER, MPI_REAL, MPI_DOUBLE_PRECISION,
		MPI_COMPLEX, MPI_DOUBLE_COMPLEX
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		uint64_t bound = types[i] == MPI_DATATYPE_NULL ? 0 : BOUND(types[i]);
		int size = 0;

		if (types[i] == MPI_DATATYPE_NULL)
			continue;
		MPI_Type_size(types[i], &size);
		if (bound && ((uint64_t)size > bound ||
			      (abi_size_is_exact(&predefined, (uintptr_t)types[i]) &&
			       (uint64_t)size < bound))) {
			printf("datatype %zu: size %d, bound %d\n", i, size, (int)bound);
			failed = 1;
		}
	}
	CHECK(BOUND(MPI_DATATYPE_NULL) == 0 || ABI_DATATYPE_NULL == MPI_DATATYPE_NULL);
}

/* A derived datatype must never look predefined. */
static void check_derived(void)
{
	MPI_Datatype type;

	MPI_Type_contiguous(1000, MPI_INT, &type);
	CHECK(BOUND(type) == 0);
	MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
#ifdef ABI_SYMBOLS
	find_symbols();
#endif
	check_handles();
	check_numbers();
	check_sizes();
	check_derived();
	check_computed();
	check_own_op();
	if (!failed)
		printf("ok abi\n");
	MPI_Finalize();
	return failed;
}
