/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcasts (or, with argument "gather", gathers) of 64 MB without end. Each rank writes its pid
 * to HARNESS_PIDS/RANK after the first few, so that a test can kill one in the middle.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void tell_pid(int rank)
{
	char path[4096], moved[4200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%d", getenv("HARNESS_PIDS"), rank);
	snprintf(moved, sizeof(moved), "%s.new", path);
	f = fopen(moved, "w");
	fprintf(f, "%d\n", (int)getpid());
	fclose(f);
	rename(moved, path);
}

int main(int argc, char **argv)
{
	size_t bytes = 64 << 20;
	int rank, size, gather = argc > 1 && !strcmp(argv[1], "gather");
	char *buf, *recv = NULL;

	alarm(90);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	buf = malloc(bytes);
	memset(buf, rank, bytes);
	if (gather)
		recv = calloc(size, bytes);
	for (long i = 0;; i++) {
		if (gather)
			MPI_Gather(buf, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, 0,
				   MPI_COMM_WORLD);
		else
			MPI_Bcast(buf, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		if (i == 8)
			tell_pid(rank);
	}
}
