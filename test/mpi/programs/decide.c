/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives that trials decide about: whatever each rank measures, all of them come to the same
 * for each call, or the job would hang, and the data is right.
 *
 * Run alone: SLUICE_DECIDE=measure mpiexec -n 3 sluice run decide one_kind
 */
#include "check.h"

#include <unistd.h>

enum { BYTES = 300000, CALLS = 100 };

static void bcast(char *buf, size_t bytes, int call)
{
	check_bcast(buf, bytes, call % size, MPI_COMM_WORLD, check_seed(call, 1));
}

static void alltoall(char *send, char *recv, size_t bytes, int call)
{
	for (int r = 0; r < size; r++)
		check_fill(send + (size_t)r * bytes, bytes, check_seed(call, rank * 100 + r));
	MPI_Alltoall(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
	for (int r = 0; r < size; r++)
		check_same(recv + (size_t)r * bytes, bytes, check_seed(call, r * 100 + rank),
			   "alltoall");
}

static void allreduce(char *send, char *recv, size_t bytes, int call)
{
	int n = (int)(bytes / sizeof(int)), *in = (int *)send, *out = (int *)recv;

	for (int i = 0; i < n; i++)
		in[i] = i * (rank + 1) + call;
	MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		if (out[i] != i * (size * (size + 1) / 2) + call * size) {
			check_fail("call %d: element %d is %d", call, i, out[i]);
			return;
		}
}

BEHAVIOUR(one_kind, 2)
{
	char *buf = check_alloc(BYTES);

	for (int i = 0; i < CALLS; i++)
		bcast(buf, BYTES, i);
	free(buf);
}

/* Trials of several classes begin while others run, and some never go on. */
BEHAVIOUR(many_kinds, 2)
{
	char *send = check_alloc((size_t)BYTES * size), *recv = check_alloc((size_t)BYTES * size);

	for (int i = 0; i < CALLS; i++) {
		size_t bytes = BYTES >> i % 3;

		if (i < 5)
			alltoall(send, recv, bytes, i);
		bcast(send, bytes, i);
		if (i % 2)
			allreduce(send, recv, bytes, i);
		check_gather(send, recv, bytes, i % size, MPI_COMM_WORLD, check_seed(i, 7));
	}
	free(send);
	free(recv);
}

BEHAVIOUR(late_and_slow_ranks, 2)
{
	char *send = check_alloc((size_t)BYTES * size), *recv = check_alloc((size_t)BYTES * size);

	for (int i = 0; i < CALLS / 4; i++) {
		if (rank == i % size)
			usleep(3000);
		alltoall(send, recv, BYTES, i);
		bcast(send, BYTES, i);
	}
	free(send);
	free(recv);
}

BEHAVIOUR(communicators_come_and_go, 2)
{
	char *send = check_alloc((size_t)BYTES * size), *recv = check_alloc((size_t)BYTES * size);
	MPI_Comm comm;

	for (int i = 0; i < 12; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		/* freed before, inside and after a trial */
		for (int k = 0; k < i; k++)
			check_gather(send, recv, BYTES, k % size, comm, check_seed(i, k));
		MPI_Comm_free(&comm);
	}
	free(send);
	free(recv);
}

/* The first trials of short calls come later, and few of the calls look whether trials are due. */
BEHAVIOUR(short_ones, 2)
{
	enum { SHORT = 24 << 10 };
	char *send = check_alloc((size_t)SHORT * size), *recv = check_alloc((size_t)SHORT * size);

	for (int i = 0; i < 30 * CALLS; i++) {
		alltoall(send, recv, SHORT, i);
		if (i % 3 == 0)
			allreduce(send, recv, 2 * SHORT, i);
	}
	free(send);
	free(recv);
}

/* Each rank knows its own bytes of an exchange only. */
BEHAVIOUR(exchanges, 2)
{
	char *send = check_alloc((size_t)BYTES * size), *recv = check_alloc((size_t)BYTES * size);
	int *counts = check_alloc(4 * sizeof(int) * (size_t)size), *displs = counts + size;
	int *from = displs + size, *at = from + size;

	for (int i = 0; i < CALLS; i++) {
		for (int r = 0; r < size; r++) {
			/* some ranks send nothing, and the lengths change in the middle */
			counts[r] = rank == 1 ? 0 : BYTES / (r + 1) / (i < CALLS / 2 ? 1 : 100);
			from[r] = r == 1 ? 0 : BYTES / (rank + 1) / (i < CALLS / 2 ? 1 : 100);
			displs[r] = at[r] = r * BYTES;
			check_fill(send + displs[r], (size_t)counts[r],
				   check_seed(i, rank * 100 + r));
		}
		MPI_Alltoallv(send, counts, displs, MPI_BYTE, recv, from, at, MPI_BYTE,
			      MPI_COMM_WORLD);
		for (int r = 0; r < size; r++)
			check_same(recv + at[r], (size_t)from[r], check_seed(i, r * 100 + rank),
				   "exchange");
	}
	free(counts);
	free(send);
	free(recv);
}

enum { PART = 30000 /* ints of one rank */ };

/* Parts of equal length, as lists. */
struct lists { int counts[64], at[64], *send, *recv; };

static void lists_create(struct lists *l)
{
	for (int r = 0; r < size && r < 64; r++) {
		l->counts[r] = PART;
		l->at[r] = r * PART;
	}
	l->send = check_alloc((size_t)PART * size * sizeof(int));
	l->recv = check_alloc((size_t)PART * size * sizeof(int));
	for (int i = 0; i < PART * size; i++)
		l->send[i] = i + rank;
}

static void lists_free(struct lists *l)
{
	free(l->send);
	free(l->recv);
}

/* Element i of the result is factor * i + base. */
static void check_list(const struct lists *l, int n, int factor, int base)
{
	for (int i = 0; i < n; i++)
		if (l->recv[i] != factor * i + base) {
			check_fail("element %d is %d", i, l->recv[i]);
			return;
		}
}

BEHAVIOUR(allgatherv_alone, 2)
{
	struct lists l;

	lists_create(&l);
	for (int i = 0; i < CALLS; i++) {
		MPI_Allgatherv(l.send, PART, MPI_INT, l.recv, l.counts, l.at, MPI_INT,
			       MPI_COMM_WORLD);
		check_list(&l, PART, 1, 0);
	}
	lists_free(&l);
}

BEHAVIOUR(gatherv_alone, 2)
{
	struct lists l;

	lists_create(&l);
	for (int i = 0; i < CALLS; i++) {
		MPI_Gatherv(l.send, PART, MPI_INT, l.recv, l.counts, l.at, MPI_INT, 0,
			    MPI_COMM_WORLD);
		check_list(&l, rank ? 0 : PART, 1, 0);
	}
	lists_free(&l);
}

BEHAVIOUR(scatterv_alone, 2)
{
	struct lists l;

	lists_create(&l);
	for (int i = 0; i < CALLS; i++) {
		MPI_Scatterv(l.send, l.counts, l.at, MPI_INT, l.recv, PART, MPI_INT, 0,
			     MPI_COMM_WORLD);
		check_list(&l, PART, 1, rank * PART);
	}
	lists_free(&l);
}

BEHAVIOUR(reduce_scatter_alone, 2)
{
	struct lists l;

	lists_create(&l);
	for (int i = 0; i < CALLS; i++) {
		MPI_Reduce_scatter(l.send, l.recv, l.counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		check_list(&l, PART, size, rank * PART * size + size * (size - 1) / 2);
	}
	lists_free(&l);
}

BEHAVIOUR(reduce_scatter_block_alone, 2)
{
	struct lists l;

	lists_create(&l);
	for (int i = 0; i < CALLS; i++) {
		MPI_Reduce_scatter_block(l.send, l.recv, PART, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		check_list(&l, PART, size, rank * PART * size + size * (size - 1) / 2);
	}
	lists_free(&l);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
