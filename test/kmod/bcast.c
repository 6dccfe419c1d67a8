/* SPDX-License-Identifier: BSD-3-Clause */
/* Broadcasts, gathers and allgathers of which each byte is looked at, with work between call and
 * look. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BYTES = 4 << 20, ALL_BYTES = 1 << 20, ROUNDS = 8 };

static char *memory(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static char value(int round, int rank, size_t i)
{
	return (char)(i / 64 + (size_t)round * 3 + (size_t)rank * 5);
}

static void fill(char *p, int round, int rank)
{
	for (size_t i = 0; i < BYTES; i++)
		p[i] = value(round, rank, i);
}

static int wrong(const char *p, size_t bytes, int round, int rank)
{
	int n = 0;

	for (size_t i = 0; i < bytes; i++)
		n += p[i] != value(round, rank, i);
	return n;
}

static double work(void)
{
	volatile double x = 1;

	for (int i = 0; i < 300000; i++)
		x = x * 1.0000001 + 1e-9;
	return x;
}

static int collectives(char *buf, char *gathered, int round, int rank, int size)
{
	int bad = 0;

	if (!rank)
		fill(buf, round, 0);
	MPI_Bcast(buf, BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
	work();
	bad += wrong(buf, BYTES, round, 0);
	fill(buf, round, rank);
	MPI_Gather(buf, BYTES, MPI_CHAR, gathered, BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
	work();
	for (int r = 0; !rank && r < size; r++)
		bad += wrong(gathered + (size_t)r * BYTES, BYTES, round, r);
	MPI_Allgather(buf, ALL_BYTES, MPI_CHAR, gathered, ALL_BYTES, MPI_CHAR, MPI_COMM_WORLD);
	work();
	for (int r = 0; r < size; r++)
		bad += wrong(gathered + (size_t)r * ALL_BYTES, ALL_BYTES, round, r);
	return bad;
}

int main(int argc, char **argv)
{
	int rank, size, bad = 0, all = 0;
	char *buf, *gathered;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	buf = memory(BYTES);
	gathered = memory((size_t)BYTES * (size_t)size);
	if (!buf || !gathered)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int round = 0; round < ROUNDS; round++)
		bad += collectives(buf, gathered, round, rank, size);
	MPI_Allreduce(&bad, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (!rank)
		printf("BCAST %d wrong bytes\n", all);
	MPI_Finalize();
	return all != 0;
}
