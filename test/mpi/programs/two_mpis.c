/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Another MPI library is in the process, loaded before MPI_Init or after it, as plugins and Python
 * packages bring it about. argv: early|late, path of the other library.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 100000 };
static int data[COUNT];

static int load(const char *path)
{
	if (dlopen(path, RTLD_NOW | RTLD_LOCAL))
		return 0;
	printf("skip two_mpis: %s\n", dlerror());
	return -1;
}

static int broadcast(int rank, int value)
{
	for (int i = 0; i < COUNT; i++)
		data[i] = rank ? 0 : value + i;
	MPI_Bcast(data, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
	for (int i = 0; i < COUNT; i++)
		if (data[i] != value + i)
			return -1;
	return 0;
}

int main(int argc, char **argv)
{
	int rank, bad;

	if (argc != 3 || (!strcmp(argv[1], "early") && load(argv[2])))
		return argc != 3;
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	bad = broadcast(rank, 7);
	if (!strcmp(argv[1], "late") && load(argv[2])) {
		MPI_Finalize();
		return 0;
	}
	bad |= broadcast(rank, 9);
	if (!bad && !rank)
		printf("ok two_mpis\n");
	MPI_Finalize();
	return bad ? 1 : 0;
}
