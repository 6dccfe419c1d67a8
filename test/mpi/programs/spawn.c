/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Comm_spawn: children that run argv[1...] (a way to start this program), broadcasts and
 * gathers between parents and children, many all-to-alls, over the merged communicator, and among
 * each alone.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 400000 };

/* So many calls that ranks agree whether they connect. */
static int use_often(MPI_Comm comm, int seed)
{
	enum { BLOCK = 32768, TIMES = 1000, MOST = 16 };
	int size, rank, bad = 0, counts[MOST], starts[MOST];
	char *send, *recv;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	send = malloc((size_t)BLOCK * size);
	recv = malloc((size_t)BLOCK * size);
	for (int r = 0; r < size; r++) {
		counts[r] = BLOCK;
		starts[r] = BLOCK * r;
	}
	memset(send, seed + rank, (size_t)BLOCK * size);
	for (int i = 0; i < TIMES; i++) {
		memset(recv, 0, (size_t)BLOCK * size);
		if (i % 20)
			MPI_Alltoall(send, BLOCK, MPI_CHAR, recv, BLOCK, MPI_CHAR, comm);
		else
			MPI_Alltoallv(send, counts, starts, MPI_CHAR, recv, counts, starts,
				      MPI_CHAR, comm);
		for (int k = 0; k < BLOCK * size; k += BLOCK - 1)
			bad += recv[k] != seed + k / BLOCK;
	}
	free(send);
	free(recv);
	return bad;
}

static int use(MPI_Comm comm, int seed)
{
	int rank, size, bad = 0;
	char *buf = malloc(BYTES), *recv;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	recv = malloc((size_t)BYTES * size);
	for (int i = 0; i < 6; i++) {
		memset(buf, rank == i % size ? seed + i : 0, BYTES);
		MPI_Bcast(buf, BYTES, MPI_BYTE, i % size, comm);
		for (int k = 0; k < BYTES; k++)
			bad += buf[k] != seed + i;
		memset(buf, 60 + rank, BYTES);
		MPI_Gather(buf, BYTES, MPI_BYTE, recv, BYTES, MPI_BYTE, i % size, comm);
		for (int k = 0; rank == i % size && k < BYTES * size; k++)
			bad += recv[k] != 60 + k / BYTES;
	}
	bad += use_often(comm, seed);
	free(buf);
	free(recv);
	return bad;
}

int main(int argc, char **argv)
{
	MPI_Comm parent, inter, merged;
	int rank, bad, all, child;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_get_parent(&parent);
	child = parent != MPI_COMM_NULL;
	bad = use(MPI_COMM_WORLD, 10);
	if (!child && MPI_Comm_spawn(argv[1], argc > 2 ? argv + 2 : MPI_ARGV_NULL, 2, MPI_INFO_NULL,
				     0, MPI_COMM_WORLD, &parent, MPI_ERRCODES_IGNORE))
		return 1;
	inter = parent;
	MPI_Intercomm_merge(inter, child, &merged);
	bad += use(merged, 20);
	bad += use(MPI_COMM_WORLD, 30);
	MPI_Allreduce(&bad, &all, 1, MPI_INT, MPI_SUM, merged);
	MPI_Comm_free(&merged);
	MPI_Comm_disconnect(&inter);
	if (!rank && !child)
		printf("%s spawn\n", all ? "fail" : "ok");
	MPI_Finalize();
	return 0;
}
