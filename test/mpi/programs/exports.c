/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks for functions of MPI 4 by weak symbols and by name. Prints one line for each. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

#define NAMES(X)                                                                                   \
	X(MPI_Bcast_init)                                                                          \
	X(MPI_Bcast_init_c) X(MPI_Alltoallw_init) X(PMPI_Barrier_init) X(MPI_Isendrecv)            \
		X(MPI_Isendrecv_c) X(MPI_Parrived)

#define X(name) extern char symbol_##name[] __asm__(#name) __attribute__((weak));
NAMES(X)
#undef X

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
#define X(name)                                                                                    \
	printf("%s %d %d\n", #name, symbol_##name != NULL, dlsym(RTLD_DEFAULT, #name) != NULL);
	NAMES(X)
#undef X
	MPI_Finalize();
	return 0;
}
