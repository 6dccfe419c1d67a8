/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is bench/anympi/mpi.h right about this MPI? Compiled with the MPI's mpi.h next to it; what it
 * takes from headers of src/mpi/abi is compared by abi_check.c, the rest here. One rank.
 *
 *   mpicc -DSLUICE_ABI_MPICH -Isrc -Ibench bench_abi.c
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

#define SLUICE_ABI_TYPES_GIVEN
#include "anympi/mpi.h"

#ifdef ANYMPI_SYMBOLS
struct abi_ompi_symbols abi_ompi_symbols;
void *anympi_int, *anympi_double, *anympi_uint32, *anympi_sum;
#endif

#define CHECK(condition)                                    \
	do {                                                \
		if (!(condition)) {                         \
			printf("not so: %s\n", #condition); \
			failed = 1;                         \
		}                                           \
	} while (0)

int main(int argc, char **argv)
{
	int failed = 0;

	MPI_Init(&argc, &argv);
#ifdef ANYMPI_SYMBOLS
#define X(variable, symbol) variable = dlsym(RTLD_DEFAULT, symbol);
	ANYMPI_SYMBOLS(X)
#undef X
#endif
	CHECK(ANYMPI_INT == MPI_INT);
	CHECK(ANYMPI_DOUBLE == MPI_DOUBLE);
	CHECK(ANYMPI_UINT32 == MPI_UINT32_T);
	CHECK(ANYMPI_SUM == MPI_SUM);
	CHECK(MPI_MAX_LIBRARY_VERSION_STRING <= 8192);
	if (!failed)
		printf("ok bench abi\n");
	MPI_Finalize();
	return failed;
}
