/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that share an address space read each other's memory by pointers; others send messages.
 *
 *   mpicc -I$PREFIX/include endpoints.c -o endpoints
 *   mpiexec -n 4 sluice run --endpoints=2 ./endpoints
 *
 * Each rank sums the numbers of its right neighbour. The result is the same without Sluice.
 */
#include <mpi.h>
#include <sluice/endpoints.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1000 };

static double sum(const double *v)
{
	double total = 0;

	for (int i = 0; i < COUNT; i++)
		total += v[i];
	return total;
}

int main(int argc, char **argv)
{
	double *mine = malloc(COUNT * sizeof *mine), *received = malloc(COUNT * sizeof *received);
	const double *theirs;
	int rank, size, right, left, here[64], count;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	right = (rank + 1) % size;
	left = (rank + size - 1) % size;
	for (int i = 0; i < COUNT; i++)
		mine[i] = rank + 1;
	sluice_endpoints_offer(mine);
	MPI_Barrier(MPI_COMM_WORLD); /* all have offered */
	theirs = sluice_endpoints_pointer(right);
	/* every rank sends, as it does not know whether its left neighbour has its address space */
	MPI_Sendrecv(mine, COUNT, MPI_DOUBLE, left, 0, received, COUNT, MPI_DOUBLE, right, 0,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	count = sluice_endpoints_here(here, 64);
	printf("rank %d: sum %.0f of rank %d by %s; %d other %s here\n", rank,
	       sum(theirs ? theirs : received), right, theirs ? "pointer" : "message", count,
	       count == 1 ? "rank" : "ranks");
	MPI_Barrier(MPI_COMM_WORLD); /* nobody reads any more */
	free(mine);
	free(received);
	MPI_Finalize();
	return 0;
}
