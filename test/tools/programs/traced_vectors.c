/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls v- and w-forms, each from a function of its own, and prints "FUNCTION BYTES": what this
 * rank sent, or received of a scatter.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64 };

static int rank, size, counts[MOST], places[MOST], byte_places[MOST];
static MPI_Datatype types[MOST];
static char *send, *recv;

static void set_counts(int bytes)
{
	for (int i = 0; i < size; i++) {
		counts[i] = bytes / 4;
		places[i] = i * bytes / 4;
		byte_places[i] = i * bytes;
		types[i] = MPI_INT;
	}
}

__attribute__((noinline)) static void do_alltoallv(void)
{
	MPI_Alltoallv(send, counts, places, MPI_INT, recv, counts, places, MPI_INT, MPI_COMM_WORLD);
}

__attribute__((noinline)) static void do_alltoallw(void)
{
	MPI_Alltoallw(send, counts, byte_places, types, recv, counts, byte_places, types,
		      MPI_COMM_WORLD);
}

__attribute__((noinline)) static void do_alltoallw_in_place(void)
{
	MPI_Alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, recv, counts, byte_places, types,
		      MPI_COMM_WORLD);
}

__attribute__((noinline)) static void do_gatherv(void)
{
	MPI_Gatherv(send, counts[rank], MPI_INT, recv, counts, places, MPI_INT, 0, MPI_COMM_WORLD);
}

__attribute__((noinline)) static void do_scatterv(void)
{
	MPI_Scatterv(send, counts, places, MPI_INT, recv, counts[rank], MPI_INT, 0, MPI_COMM_WORLD);
}

__attribute__((noinline)) static void do_ialltoallv(void)
{
	MPI_Request request;

	MPI_Ialltoallv(send, counts, places, MPI_INT, recv, counts, places, MPI_INT, MPI_COMM_WORLD,
		       &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static const struct {
	const char *name;
	void (*call)(void);
	int is_exchange;
} all[] = {
	{ "do_alltoallv", do_alltoallv, 1 },   { "do_alltoallw", do_alltoallw, 1 },
	{ "do_alltoallw_in_place", do_alltoallw_in_place, 1 },
	{ "do_ialltoallv", do_ialltoallv, 1 }, { "do_gatherv", do_gatherv, 0 },
	{ "do_scatterv", do_scatterv, 0 },
};

int main(int argc, char **argv)
{
	int bytes = argc > 1 ? atoi(argv[1]) : 80000;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	send = calloc((size_t)size, (size_t)bytes);
	recv = calloc((size_t)size, (size_t)bytes);
	set_counts(bytes);
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
		all[i].call();
		printf("%s %d\n", all[i].name, all[i].is_exchange ? size * bytes : bytes);
	}
	MPI_Finalize();
	return 0;
}
