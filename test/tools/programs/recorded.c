/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages for sluice trace --goal. Each mode counts what it sends; the sum is printed as "sent
 * MESSAGES BYTES". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank, ranks;
static long sent[2];
static char out[1 << 16], in[1 << 16];

static void count(int messages, long bytes)
{
	sent[0] += messages;
	sent[1] += messages * bytes;
}

static void compute(long us)
{
	double end = MPI_Wtime() + (double)us * 1e-6;

	while (MPI_Wtime() < end)
		;
}

/* Blocking messages in all modes around a ring, an even and an odd rank in turn. */
static void ring(void)
{
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;

	for (int i = 0; i < 5; i++) {
		if (rank % 2)
			MPI_Recv(in, 1000, MPI_DOUBLE, from, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (i == 1)
			MPI_Ssend(out, 10, MPI_DOUBLE, to, i, MPI_COMM_WORLD);
		else
			MPI_Send(out, 10, MPI_DOUBLE, to, i, MPI_COMM_WORLD);
		if (!(rank % 2))
			MPI_Recv(in, 1000, MPI_DOUBLE, from, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		compute(200);
		count(1, 80);
	}
	MPI_Sendrecv(out, 100, MPI_BYTE, to, 9, in, 100, MPI_BYTE, from, 9, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	MPI_Sendrecv_replace(out, 50, MPI_BYTE, rank ? MPI_PROC_NULL : 1, 10,
			     rank == 1 ? 0 : MPI_PROC_NULL, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	count(1, 100);
	count(!rank, 50);
}

/* A line of ranks: MPI_PROC_NULL at its ends, requests, persistent requests. */
static void stencil(void)
{
	int left = rank ? rank - 1 : MPI_PROC_NULL;
	int right = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
	int sides = (rank > 0) + (rank + 1 < ranks);
	MPI_Request r[4];

	for (int i = 0; i < 10; i++) {
		MPI_Irecv(in, 4096, MPI_BYTE, left, i % 2 ? 1 : MPI_ANY_TAG, MPI_COMM_WORLD, &r[0]);
		MPI_Irecv(in + 8192, 4096, MPI_BYTE, right, 2, MPI_COMM_WORLD, &r[1]);
		MPI_Isend(out, 4096, MPI_BYTE, left, 2, MPI_COMM_WORLD, &r[2]);
		MPI_Isend(out, 4096, MPI_BYTE, right, 1, MPI_COMM_WORLD, &r[3]);
		compute(50);
		MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
		count(sides, 4096);
	}
	MPI_Recv_init(in, 4096, MPI_BYTE, left, MPI_ANY_TAG, MPI_COMM_WORLD, &r[0]);
	MPI_Recv_init(in + 8192, 4096, MPI_BYTE, right, 2, MPI_COMM_WORLD, &r[1]);
	MPI_Send_init(out, 16, MPI_BYTE, left, 2, MPI_COMM_WORLD, &r[2]);
	MPI_Ssend_init(out, 16, MPI_BYTE, right, 1, MPI_COMM_WORLD, &r[3]);
	for (int i = 0; i < 3; i++) {
		MPI_Startall(4, r);
		for (int j = 0, n, at[4]; j < 4; j += n)
			MPI_Waitsome(4, r, &n, at, MPI_STATUSES_IGNORE);
		count(sides, 16);
	}
	for (int j = 0; j < 4; j++)
		MPI_Request_free(&r[j]);
	MPI_Irecv(in, 24, MPI_BYTE, left, 5, MPI_COMM_WORLD, &r[0]);
	MPI_Request_free(&r[0]); /* it goes on */
	MPI_Send(out, 24, MPI_BYTE, right, 5, MPI_COMM_WORLD);
	count(rank + 1 < ranks, 24);
}

static void must_fail(int error)
{
	if (!error)
		MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Receives that are too short for their messages, in a program that goes on. */
static void cut(void)
{
	int other = rank ^ 1, n, at[2];
	MPI_Request r[2];

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int i = 0; i < 6; i++) {
		r[0] = r[1] = MPI_REQUEST_NULL;
		if (rank % 2) {
			if (i == 2) /* its receive does not fail */
				MPI_Send(out, 10, MPI_BYTE, other, 100, MPI_COMM_WORLD);
			count(i == 2, 10);
			MPI_Send(out, 100, MPI_BYTE, other, i, MPI_COMM_WORLD);
			count(1, 100);
		} else if (!i) {
			must_fail(MPI_Recv(in, 10, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
					   MPI_COMM_WORLD, MPI_STATUS_IGNORE));
		} else if (i == 1) {
			MPI_Irecv(in, 10, MPI_BYTE, other, i, MPI_COMM_WORLD, r);
			must_fail(MPI_Wait(r, MPI_STATUS_IGNORE));
		} else if (i == 2) {
			MPI_Irecv(in, 10, MPI_BYTE, other, 100, MPI_COMM_WORLD, r);
			MPI_Irecv(in, 10, MPI_BYTE, other, i, MPI_COMM_WORLD, r + 1);
#ifdef OPEN_MPI /* its MPI_Waitall() of such a request never returns (4.1.4, 5.0) */
			MPI_Wait(r, MPI_STATUS_IGNORE);
			must_fail(MPI_Wait(r + 1, MPI_STATUS_IGNORE));
#else
			must_fail(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
#endif
		} else if (i == 3) {
			MPI_Irecv(in, 10, MPI_BYTE, other, i, MPI_COMM_WORLD, r);
			must_fail(MPI_Waitsome(2, r, &n, at, MPI_STATUSES_IGNORE));
		} else { /* requests after them have the same handles */
			MPI_Irecv(in, 100, MPI_BYTE, other, i, MPI_COMM_WORLD, r);
			MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
		}
		/* a receive from no rank, and a wrong call, are no messages */
		MPI_Recv(in, 10, MPI_BYTE, MPI_PROC_NULL, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		must_fail(MPI_Recv(in, 10, MPI_BYTE, ranks, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
	}
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* Rank 0 receives from any rank under any tag, in several communicators with equal tags. */
static void wild(void)
{
	MPI_Comm comms[3];
	MPI_Request *r = malloc(sizeof *r * (size_t)ranks);
	MPI_Message message;
	MPI_Status status;
	int index, flag = 0;

	comms[0] = MPI_COMM_WORLD;
	MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
	MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &comms[2]); /* ranks in reverse */
	for (int c = 0; c < 3 && rank; c++) {
		int root = c == 2 ? ranks - 1 : 0;

		MPI_Send(out, 8 * rank, MPI_BYTE, root, rank, comms[c]);
		MPI_Send(out, 7, MPI_BYTE, root, 100, comms[c]);
		count(1, 8 * rank);
		count(1, 7);
	}
	for (int c = 0; c < 3 && !rank; c++) {
		for (int i = 1; i < ranks; i++)
			MPI_Irecv(in + 1024 * i, 1024, MPI_BYTE, MPI_ANY_SOURCE, c == 2 ? 55 : i,
				  comms[c], &r[i - 1]);
		if (c == 2)
			for (int i = 1; i < ranks; i++) {
				MPI_Cancel(&r[i - 1]);
				MPI_Wait(&r[i - 1], MPI_STATUS_IGNORE);
				MPI_Mprobe(MPI_ANY_SOURCE, i, comms[c], &message, &status);
				MPI_Mrecv(in, 1024, MPI_BYTE, &message, MPI_STATUS_IGNORE);
			}
		else
			for (int i = 1; i < ranks; i++)
				MPI_Waitany(ranks - 1, r, &index, MPI_STATUS_IGNORE);
		for (int i = 1; i < ranks; i++) {
			MPI_Irecv(in, 64, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[c], &r[0]);
			for (flag = 0; !flag;)
				MPI_Test(&r[0], &flag, &status);
		}
	}
	MPI_Comm_free(&comms[1]);
	MPI_Comm_dup(comms[2], &comms[1]);
	MPI_Comm_rank(comms[1], &index);
	MPI_Sendrecv(out, 5, MPI_BYTE, (index + 1) % ranks, 3, in, 5, MPI_BYTE,
		     (index + ranks - 1) % ranks, 3, comms[1], MPI_STATUS_IGNORE);
	count(1, 5);
	MPI_Comm_free(&comms[1]);
	MPI_Comm_free(&comms[2]);
	free(r);
}

/* All kinds of collectives, also on halves of the ranks; counts nothing. */
static void collectives(void)
{
	static double a[1 << 14], b[1 << 14];
	int counts[64], displs[64];
	MPI_Request r[2];
	MPI_Comm half;

	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	for (int i = 0; i < ranks; i++)
		displs[i] = (counts[i] = i + 1) * 20;
	for (int i = 0; i < 3; i++) {
		MPI_Allreduce(a, b, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		compute(100);
		MPI_Bcast(a, 100, MPI_DOUBLE, ranks - 1, MPI_COMM_WORLD);
		MPI_Allreduce(MPI_IN_PLACE, a, 2000, MPI_DOUBLE, MPI_SUM, half);
	}
	MPI_Reduce(rank ? a : MPI_IN_PLACE, rank ? NULL : a, 3, MPI_DOUBLE, MPI_SUM, 0,
		   MPI_COMM_WORLD);
	MPI_Gather(a, 3, MPI_DOUBLE, b, 3, MPI_DOUBLE, 1, MPI_COMM_WORLD);
	MPI_Scatter(a, 3, MPI_DOUBLE, b, 3, MPI_DOUBLE, 1, MPI_COMM_WORLD);
	MPI_Allgather(a, 3, MPI_DOUBLE, b, 3, MPI_DOUBLE, half);
	MPI_Alltoall(a, 3, MPI_DOUBLE, b, 3, MPI_DOUBLE, MPI_COMM_WORLD);
	MPI_Gatherv(a, rank + 1, MPI_DOUBLE, b, counts, displs, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	MPI_Scatterv(a, counts, displs, MPI_DOUBLE, b, rank + 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	MPI_Allgatherv(a, rank + 1, MPI_DOUBLE, b, counts, displs, MPI_DOUBLE, MPI_COMM_WORLD);
	MPI_Reduce_scatter(a, b, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	MPI_Reduce_scatter_block(a, b, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	MPI_Scan(a, b, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	MPI_Exscan(a, b, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		counts[i] = 2;
	MPI_Alltoallv(a, counts, displs, MPI_DOUBLE, b, counts, displs, MPI_DOUBLE, MPI_COMM_WORLD);
	MPI_Iallreduce(a, b, 5, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &r[0]);
	MPI_Ibarrier(MPI_COMM_WORLD, &r[1]);
	MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Comm_free(&half);
}

/* One-sided operations under each synchronisation. Answers, and the operations of no bytes that end
 * others, are counted, too. */
static void onesided(void)
{
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, one = 1, two = 2, old;
	MPI_Group all, right, left;
	MPI_Request r[2];
	MPI_Win win;

	MPI_Win_create(in, sizeof in, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < 3; i++) {
		MPI_Put(out, 100, MPI_BYTE, to, 0, 100, MPI_BYTE, win);
		MPI_Accumulate(out, 10, MPI_INT, to, 0, 10, MPI_INT, MPI_SUM, win);
		MPI_Get(out, 300, MPI_BYTE, from, 512, 300, MPI_BYTE, win);
		MPI_Put(out, 8, MPI_BYTE, MPI_PROC_NULL, 0, 8, MPI_BYTE, win);
		compute(50);
		MPI_Win_fence(0, win);
		count(1, 100);
		count(1, 40);
		count(1, 0); /* asks for what it gets */
		count(1, 300);
	}
	MPI_Comm_group(MPI_COMM_WORLD, &all);
	MPI_Group_incl(all, 1, &to, &right);
	MPI_Group_incl(all, 1, &from, &left);
	MPI_Win_post(left, 0, win);
	MPI_Win_start(right, 0, win);
	MPI_Put(out, 7, MPI_BYTE, to, 0, 7, MPI_BYTE, win);
	MPI_Win_complete(win);
	MPI_Win_wait(win);
	count(2, 0);
	count(1, 7);
	MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
	MPI_Put(out, 9, MPI_BYTE, to, 0, 9, MPI_BYTE, win);
	MPI_Win_unlock(to, win);
	count(1, 9);
	count(2, 0); /* has it arrived? it has */
	MPI_Win_lock_all(0, win);
	MPI_Fetch_and_op(&one, &old, MPI_INT, 0, 4096, MPI_SUM, win);
	MPI_Win_flush(0, win);
	MPI_Compare_and_swap(&one, &two, &old, MPI_INT, 0, 4096, win);
	MPI_Win_flush_all(win);
	count(!!rank, 4);
	count(!!rank, 4);
	count(!!rank, 8);
	count(!!rank, 4);
	MPI_Rput(out, 11, MPI_BYTE, to, 0, 11, MPI_BYTE, win, &r[0]);
	MPI_Rget(out + 64, 12, MPI_BYTE, to, 0, 12, MPI_BYTE, win, &r[1]);
	MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
	MPI_Win_unlock_all(win);
	count(1, 11);
	count(1, 0);
	count(1, 12);
	count(2, 0);
	MPI_Group_free(&all);
	MPI_Group_free(&right);
	MPI_Group_free(&left);
	MPI_Win_free(&win);
}

#if MPI_VERSION >= 4 || OMPI_MAJOR_VERSION >= 5
/* MPI_Isendrecv, of MPI 4. */
static void exchange(void)
{
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
	MPI_Request r[3];

	for (int i = 0; i < 3; i++) {
		MPI_Isendrecv(out, 100, MPI_BYTE, to, 1, in, 100, MPI_BYTE, from, 1, MPI_COMM_WORLD,
			      &r[0]);
		MPI_Isendrecv_replace(out, 50, MPI_BYTE, to, 2, from, 2, MPI_COMM_WORLD, &r[1]);
		r[2] = MPI_REQUEST_NULL;
#if !defined MPICH_NUMVERSION || MPICH_NUMVERSION >= 40100000 /* 4.0 ends by a signal */
		MPI_Isendrecv(out, 30, MPI_BYTE, rank ? MPI_PROC_NULL : 1, 3, in, 30, MPI_BYTE,
			      rank == 1 ? 0 : MPI_PROC_NULL, 3, MPI_COMM_WORLD, &r[2]);
		count(!rank, 30);
#endif
		compute(50);
		MPI_Waitall(3, r, MPI_STATUSES_IGNORE);
		count(1, 100);
		count(1, 50);
	}
}

/* Counts nothing. */
static void persistent(void)
{
	static double a[64], b[64];
	MPI_Request r[2];

	MPI_Allreduce_init(a, b, 5, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &r[0]);
	MPI_Bcast_init(a, 6, MPI_DOUBLE, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &r[1]);
	for (int i = 0; i < 3; i++) {
		int first = rank % 2;
#ifdef I_MPI_NUMVERSION
		first = 0; /* MPI allows any order, but Intel MPI 2021.18 does not end then */
#endif
		MPI_Start(&r[first]);
		MPI_Start(&r[1 - first]);
		MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
	}
	MPI_Request_free(&r[0]);
	MPI_Request_free(&r[1]);
}

/* Messages under one tag, of which the receiver starts the last one first. Open MPI 5.0 does not
 * end with more than one. */
#ifdef OPEN_MPI
enum { MESSAGES = 1 };
#else
enum { MESSAGES = 2 };
#endif
static void partitioned(void)
{
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, parts[2] = { 3, 1 };
	MPI_Request r[2 * MESSAGES];

	for (int j = 0; j < MESSAGES; j++) {
		MPI_Psend_init(out + 64 * j, 4, 5 + j, MPI_BYTE, to, 7, MPI_COMM_WORLD,
			       MPI_INFO_NULL, &r[j]);
		MPI_Precv_init(in + 64 * j, 2, 10 + 2 * j, MPI_BYTE, from, 7, MPI_COMM_WORLD,
			       MPI_INFO_NULL, &r[MESSAGES + j]);
	}
	for (int i = 0; i < 3; i++) {
		MPI_Start(&r[2 * MESSAGES - 1]);
		MPI_Startall(2 * MESSAGES - 1, r);
		for (int j = 0; j < MESSAGES; j++) {
			MPI_Pready(0, r[j]);
			compute(20);
			MPI_Pready_list(2, parts, r[j]);
			MPI_Pready_range(2, 2, r[j]);
			count(1, 20 + 4 * j);
		}
		MPI_Waitall(2 * MESSAGES, r, MPI_STATUSES_IGNORE);
	}
	for (int j = 0; j < 2 * MESSAGES; j++)
		MPI_Request_free(&r[j]);
}
#else
static void exchange(void) { }
static void persistent(void) { }
static void partitioned(void) { }
#endif

int main(int argc, char **argv)
{
	int provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "ring"))
			ring();
		else if (!strcmp(argv[i], "stencil"))
			stencil();
		else if (!strcmp(argv[i], "wild"))
			wild();
		else if (!strcmp(argv[i], "cut"))
			cut();
		else if (!strcmp(argv[i], "exchange"))
			exchange();
		else if (!strcmp(argv[i], "persistent"))
			persistent();
		else if (!strcmp(argv[i], "partitioned"))
			partitioned();
		else if (!strcmp(argv[i], "onesided"))
			onesided();
		else if (!strcmp(argv[i], "collectives"))
			collectives();
	PMPI_Barrier(MPI_COMM_WORLD);
	printf("rank %d sent %ld %ld\n", rank, sent[0], sent[1]);
	MPI_Finalize();
	return 0;
}
