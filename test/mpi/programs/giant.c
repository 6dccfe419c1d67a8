/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One element of more than 1 GiB with gaps: more than the packing functions with int arguments take
 * at once. The other rank sees the same bytes without gaps.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 17 };
static const size_t block = (size_t)64 << 20, stride = (size_t)65 << 20;

static int is_filled(const char *at, size_t bytes, int value)
{
	for (size_t i = 0; i < bytes; i += 1021)
		if (at[i] != value)
			return 0;
	return 1;
}

static int check(const char *data, size_t spacing, int has_gaps)
{
	for (int i = 0; i < BLOCKS; i++) {
		if (!is_filled(data + i * spacing, block, i + 1))
			return -1;
		if (has_gaps && i < BLOCKS - 1 &&
		    !is_filled(data + i * spacing + block, spacing - block, 99))
			return -1;
	}
	return 0;
}

int main(void)
{
	MPI_Datatype one, all;
	char *data;
	int rank, bad = 0;

	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Type_contiguous((int)block, MPI_BYTE, &one);
	MPI_Type_commit(&one);
	MPI_Type_create_hvector(BLOCKS, 1, (MPI_Aint)stride, one, &all);
	MPI_Type_commit(&all);
	data = malloc(BLOCKS * stride);
	if (!data)
		MPI_Abort(MPI_COMM_WORLD, 3);

	for (int root = 0; root < 2; root++) {
		size_t spacing = rank ? block : stride;

		memset(data, 99, BLOCKS * stride);
		for (int i = 0; rank == root && i < BLOCKS; i++)
			memset(data + i * spacing, i + 1, block);
		if (rank)
			MPI_Bcast(data, BLOCKS, one, root, MPI_COMM_WORLD);
		else
			MPI_Bcast(data, 1, all, root, MPI_COMM_WORLD);
		bad |= check(data, spacing, !rank);
	}
	if (!bad && !rank)
		printf("ok giant\n");
	MPI_Type_free(&one);
	MPI_Type_free(&all);
	free(data);
	MPI_Finalize();
	return bad ? 1 : 0;
}
