/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives on a buffer right after a broadcast or gather on it; their results are compared with
 * what was put in. Those of the rank alone (MPI_COMM_SELF) come while its peers are late. */
#include "observe.h"

#define SELF MPI_COMM_SELF

static void check_other(size_t bytes, uint64_t seed)
{
	check_same(observe_other, bytes, seed, "what a collective has read");
}

/* ---- reductions -------------------------------------------------------------------------- */

static void reads_allreduce(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Allreduce(buf, observe_other, (int)bytes, MPI_BYTE, MPI_BOR, SELF);
	check_other(bytes, seed);
}

static void writes_allreduce(char *buf, size_t bytes, uint64_t seed)
{
	check_fill(observe_other, bytes, seed);
	MPI_Allreduce(observe_other, buf, (int)bytes, MPI_BYTE, MPI_BOR, SELF);
}

BEHAVIOUR(allreduce, 2)
{
	observe(reads_allreduce, writes_allreduce);
}

static void reads_reduce_in_place(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Reduce(MPI_IN_PLACE, buf, (int)bytes, MPI_BYTE, MPI_BOR, 0, SELF);
	check_same(buf, bytes, seed, "reduced in place");
}

static void writes_reduce(char *buf, size_t bytes, uint64_t seed)
{
	check_fill(observe_other, bytes, seed);
	MPI_Reduce(observe_other, buf, (int)bytes, MPI_BYTE, MPI_BOR, 0, SELF);
}

BEHAVIOUR(reduce, 2)
{
	observe(reads_reduce_in_place, writes_reduce);
}

static void reads_scan(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Scan(buf, observe_other, (int)bytes, MPI_BYTE, MPI_BOR, SELF);
	check_other(bytes, seed);
}

static void writes_reduce_scatter(char *buf, size_t bytes, uint64_t seed)
{
	int count = (int)bytes;

	check_fill(observe_other, bytes, seed);
	MPI_Reduce_scatter(observe_other, buf, &count, MPI_BYTE, MPI_BOR, SELF);
}

BEHAVIOUR(scan_and_reduce_scatter, 2)
{
	observe(reads_scan, writes_reduce_scatter);
}

static void reads_reduce_scatter_block(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Reduce_scatter_block(buf, observe_other, (int)bytes, MPI_BYTE, MPI_BOR, SELF);
	check_other(bytes, seed);
}

static void writes_iallreduce(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Request request;

	check_fill(observe_other, bytes, seed);
	MPI_Iallreduce(observe_other, buf, (int)bytes, MPI_BYTE, MPI_BOR, SELF, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

BEHAVIOUR(reduce_scatter_block_and_iallreduce, 2)
{
	observe(reads_reduce_scatter_block, writes_iallreduce);
}

/* ---- data from all to all ---------------------------------------------------------------- */

static void reads_allgather(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Allgather(buf, (int)bytes, MPI_BYTE, observe_other, (int)bytes, MPI_BYTE, SELF);
	check_other(bytes, seed);
}

static void writes_allgatherv(char *buf, size_t bytes, uint64_t seed)
{
	int count = (int)bytes, displacement = 0;

	check_fill(observe_other, bytes, seed);
	MPI_Allgatherv(observe_other, count, MPI_BYTE, buf, &count, &displacement, MPI_BYTE, SELF);
}

BEHAVIOUR(allgather, 2)
{
	observe(reads_allgather, writes_allgatherv);
}

static void reads_alltoall(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Alltoall(buf, (int)bytes, MPI_BYTE, observe_other, (int)bytes, MPI_BYTE, SELF);
	check_other(bytes, seed);
}

/* The buffer is said to begin elsewhere. */
static void writes_alltoallv(char *buf, size_t bytes, uint64_t seed)
{
	int count = (int)bytes, none = 0, displacement = 5000;

	check_fill(observe_other, bytes, seed);
	MPI_Alltoallv(observe_other, &count, &none, MPI_BYTE, buf - 5000, &count, &displacement,
		      MPI_BYTE, SELF);
}

BEHAVIOUR(alltoall, 2)
{
	observe(reads_alltoall, writes_alltoallv);
}

static void reads_alltoallw(char *buf, size_t bytes, uint64_t seed)
{
	int count = (int)bytes, none = 0, displacement = -100;
	MPI_Datatype type = MPI_BYTE;

	MPI_Alltoallw(buf + 100, &count, &displacement, &type, observe_other, &count, &none, &type,
		      SELF);
	check_other(bytes, seed);
}

static void writes_ialltoallw(char *buf, size_t bytes, uint64_t seed)
{
	int count = (int)bytes, none = 0;
	MPI_Datatype type = MPI_BYTE;
	MPI_Request request;

	check_fill(observe_other, bytes, seed);
	MPI_Ialltoallw(observe_other, &count, &none, &type, buf, &count, &none, &type, SELF,
		       &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

BEHAVIOUR(alltoallw, 2)
{
	observe(reads_alltoallw, writes_ialltoallw);
}

static void reads_gatherv(char *buf, size_t bytes, uint64_t seed)
{
	int count = (int)bytes, none = 0;

	MPI_Gatherv(buf, count, MPI_BYTE, observe_other, &count, &none, MPI_BYTE, 0, SELF);
	check_other(bytes, seed);
}

static void writes_scatterv(char *buf, size_t bytes, uint64_t seed)
{
	int count = (int)bytes, none = 0;

	check_fill(observe_other, bytes, seed);
	MPI_Scatterv(observe_other, &count, &none, MPI_BYTE, buf, count, MPI_BYTE, 0, SELF);
}

BEHAVIOUR(gatherv_and_scatterv, 2)
{
	observe(reads_gatherv, writes_scatterv);
}

static void reads_igather(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Request request;

	MPI_Igather(buf, (int)bytes, MPI_BYTE, observe_other, (int)bytes, MPI_BYTE, 0, SELF,
		    &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	check_other(bytes, seed);
}

static void writes_scatter(char *buf, size_t bytes, uint64_t seed)
{
	check_fill(observe_other, bytes, seed);
	MPI_Scatter(observe_other, (int)bytes, MPI_BYTE, buf, (int)bytes, MPI_BYTE, 0, SELF);
}

BEHAVIOUR(igather_and_scatter, 2)
{
	observe(reads_igather, writes_scatter);
}

/* ---- neighbours -------------------------------------------------------------------------- */

/* This rank, its own only neighbour. */
static void graph_of_one(MPI_Comm *graph)
{
	int self = 0;

	MPI_Dist_graph_create_adjacent(SELF, 1, &self, MPI_UNWEIGHTED, 1, &self, MPI_UNWEIGHTED,
				       MPI_INFO_NULL, 0, graph);
}

static void reads_neighbours(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Comm graph;

	graph_of_one(&graph);
	MPI_Neighbor_alltoall(buf, (int)bytes, MPI_BYTE, observe_other, (int)bytes, MPI_BYTE,
			      graph);
	MPI_Comm_free(&graph);
	check_other(bytes, seed);
}

static void writes_neighbours(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Datatype type = MPI_BYTE;
	MPI_Aint none = 0, at = 1000;
	int count = (int)bytes;
	MPI_Comm graph;

	check_fill(observe_other, bytes, seed);
	graph_of_one(&graph);
	MPI_Neighbor_alltoallw(observe_other, &count, &none, &type, buf - 1000, &count, &at, &type,
			       graph);
	MPI_Comm_free(&graph);
}

BEHAVIOUR(neighbours, 2)
{
	observe(reads_neighbours, writes_neighbours);
}

/* ---- several collectives of all ranks ---------------------------------------------------- */

/* One after the other on the same buffer, on two communicators in turn, with another rank late each
 * time. */
BEHAVIOUR(chains_on_one_buffer, 2)
{
	size_t n = OBSERVE_BYTES;
	char *buf = check_alloc(n), *all = check_alloc(n * size);
	MPI_Comm comms[2] = { MPI_COMM_WORLD };

	MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
	for (int round = 0; round < 12; round++) {
		MPI_Comm comm = comms[round % 2];
		int root = round % size;

		if (rank == root)
			check_fill(buf, n, 40 + round);
		observe_late(rank == (round + 1) % size);
		MPI_Bcast(buf, (int)n, MPI_BYTE, root, comm);
		MPI_Gather(buf, (int)n, MPI_BYTE, all, (int)n, MPI_BYTE, (root + 1) % size,
			   comms[0]);
		MPI_Allreduce(MPI_IN_PLACE, buf, (int)n, MPI_BYTE, MPI_BOR, comm);
		check_same(buf, n, 40 + round, "through three collectives");
		for (int r = 0; rank == (root + 1) % size && r < size; r++)
			check_same(all + r * n, n, 40 + round, "gathered");
	}
	MPI_Comm_free(&comms[1]);
	free(all);
	free(buf);
}

/* Many at once on buffers of their own, looked at in another order. */
BEHAVIOUR(many_pending_at_once, 2)
{
	enum { MANY = 24, BYTES = 100000 };
	char *bufs[MANY];
	MPI_Comm comms[2] = { MPI_COMM_WORLD };

	MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
	for (int i = 0; i < MANY; i++)
		bufs[i] = check_alloc(BYTES);
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < MANY; i++) {
			if (!rank)
				check_fill(bufs[i], BYTES, 1000 * round + i);
			else
				memset(bufs[i], 0, BYTES);
		}
		observe_late(round % 2 == !rank);
		for (int i = 0; i < MANY; i++)
			MPI_Bcast(bufs[i], BYTES, MPI_BYTE, 0, comms[i % 2]);
		for (int i = 0; i < MANY; i++) {
			int k = (i * 7 + round) % MANY;

			MPI_Allreduce(MPI_IN_PLACE, bufs[k], BYTES, MPI_BYTE, MPI_BOR, SELF);
			check_same(bufs[k], BYTES, 1000 * round + k, "one of many");
		}
	}
	for (int i = 0; i < MANY; i++)
		free(bufs[i]);
	MPI_Comm_free(&comms[1]);
}

/* Counts and displacements that have just been broadcast themselves. */
BEHAVIOUR(counts_that_were_broadcast, 2)
{
	enum { N = 40000 };
	int *table = check_alloc(2 * N * sizeof(int));
	char *out = check_alloc(size), *in = check_alloc(size);

	for (int round = 0; round < 6; round++) {
		memset(table, 0x55, 2 * N * sizeof(int));
		for (int i = 0; !rank && i < N; i++) {
			table[i] = 1;
			table[N + i] = i;
		}
		memset(out, 'a' + rank, size);
		observe_late(round % 2 == !rank);
		MPI_Bcast(table, 2 * N, MPI_INT, 0, MPI_COMM_WORLD);
		MPI_Alltoallv(out, table, table + N, MPI_BYTE, in, table, table + N, MPI_BYTE,
			      MPI_COMM_WORLD);
		for (int r = 0; r < size; r++)
			EXPECT(in[r] == 'a' + r);
	}
	free(in);
	free(out);
	free(table);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
