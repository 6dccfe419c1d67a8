/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Persistent collectives at their edges: where nothing is served, where a rank has no memory,
 * communicators freed between and during turns, canceling, threads, places that are used again by
 * other kinds, and requests that nobody frees.
 */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)

enum { N = 6000, TURNS = 4 };

static int value_of(int turn, int from, int i) { return turn * 100000 + from * 1000 + i; }

static void fill(int *at, int n, int turn, int from)
{
	for (int i = 0; i < n; i++)
		at[i] = value_of(turn, from, i);
}

static void same(const int *at, int n, int turn, int from)
{
	for (int i = 0; i < n; i++)
		if (at[i] != value_of(turn, from, i)) {
			check_fail("turn %d: word %d of %d is %d, not %d", turn, i, n, at[i],
				   value_of(turn, from, i));
			return;
		}
}

/* One turn of a broadcast's request. */
static void turn_bcast(MPI_Request *request, int *at, int n, int turn, int root, int me)
{
	fill(at, n, me == root ? turn : -1, root);
	MPI_Start(request);
	MPI_Wait(request, MPI_STATUS_IGNORE);
	same(at, n, turn, root);
}

/* ---- where nothing is served ------------------------------------------------------------- */

BEHAVIOUR(alone_on_its_communicator, 1)
{
	int in[3] = { 1, 2, 3 }, out[3];
	MPI_Request requests[2];

	MPI_Allreduce_init(in, out, 3, MPI_INT, MPI_SUM, MPI_COMM_SELF, MPI_INFO_NULL,
			   &requests[0]);
	MPI_Barrier_init(MPI_COMM_SELF, MPI_INFO_NULL, &requests[1]);
	for (int turn = 0; turn < TURNS; turn++) {
		in[1] = turn;
		MPI_Startall(2, requests);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		EXPECT(out[0] == 1 && out[1] == turn && out[2] == 3);
	}
	for (int i = 0; i < 2; i++)
		MPI_Request_free(&requests[i]);
}

/* Collectives without data, and without data from some ranks. */
BEHAVIOUR(nothing_is_sent, 2)
{
	int *counts = check_alloc((size_t)size * sizeof(int)),
	    *displs = check_alloc((size_t)size * sizeof(int));
	int in[4] = { 1, 2, 3, 4 }, out[4] = { 0 }, all[64] = { 0 }, nothing = 77, total = 0;
	MPI_Request requests[3];

	for (int i = 0; i < size; i++) {
		counts[i] = i % 2 ? 0 : 2;
		displs[i] = total;
		total += counts[i];
	}
	for (int i = 0; i < total; i++)
		all[i] = rank + i;
	MPI_Bcast_init(&nothing, 0, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
	MPI_Allgatherv_init(in, counts[rank], MPI_INT, all + 32, counts, displs, MPI_INT,
			    MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
	MPI_Reduce_scatter_init(all, out, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
				&requests[2]);
	for (int turn = 0; turn < TURNS; turn++) {
		in[0] = turn + rank;
		MPI_Startall(3, requests);
		MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
		for (int i = 0; i < total; i += 2)
			EXPECT(all[32 + i] == turn + i && all[33 + i] == 2);
		for (int i = 0; i < counts[rank]; i++)
			EXPECT(out[i] == size * (size - 1) / 2 + size * (displs[rank] + i));
	}
	EXPECT(nothing == 77);
	for (int i = 0; i < 3; i++)
		MPI_Request_free(&requests[i]);
	free(counts);
	free(displs);
}

BEHAVIOUR(between_two_groups, 2)
{
	int half = rank % 2, value, me, root;
	MPI_Comm own, both;
	MPI_Request request;

	MPI_Comm_split(MPI_COMM_WORLD, half, rank, &own);
	MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, 1 - half, 5, &both);
	MPI_Comm_rank(own, &me);
	root = half ? 0 : me ? MPI_PROC_NULL : MPI_ROOT;
	MPI_Bcast_init(&value, 1, MPI_INT, root, both, MPI_INFO_NULL, &request);
	for (int turn = 0; turn < TURNS; turn++) {
		value = half ? -1 : turn;
		MPI_Start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		EXPECT(value == turn);
	}
	MPI_Request_free(&request);
	MPI_Comm_free(&both);
	MPI_Comm_free(&own);
}

/* ---- communicators that go --------------------------------------------------------------- */

/* Each request is its communicator's last user: freed before the first turn, during one, between
 * two. */
BEHAVIOUR(communicators_are_freed_at_any_time, 2)
{
	int *at;

	if (check_library("Open MPI") && !check_serves_requests()) {
		check_skip("Open MPI's own do not outlive their communicator");
		return;
	}
	at = check_alloc(N * sizeof(int));
	for (int when = 0; when < 9; when++) {
		int n = when < 6 ? 5 : N;
		MPI_Request request;
		MPI_Comm comm;

		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		MPI_Bcast_init(at, n, MPI_INT, 0, comm, MPI_INFO_NULL, &request);
		for (int turn = 0; turn < TURNS; turn++) {
			if (turn == 0 && when % 3 == 0)
				MPI_Comm_free(&comm);
			fill(at, n, rank ? -1 : turn, 0);
			MPI_Start(&request);
			if (turn == 1 && when % 3 == 1)
				MPI_Comm_free(&comm);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
			same(at, n, turn, 0);
			if (turn == 2 && when % 3 == 2)
				MPI_Comm_free(&comm);
		}
		MPI_Request_free(&request);
	}
	free(at);
}

/* The root need not wait for anybody: it is through, and has given all back, before the others have
 * begun. */
BEHAVIOUR(a_root_has_gone, 2)
{
	for (int round = 0; round < 6; round++) {
		int values[2] = { 0 };
		MPI_Request request;
		MPI_Comm comm;

		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		MPI_Bcast_init(values, 2, MPI_INT, 0, comm, MPI_INFO_NULL, &request);
		if (rank)
			usleep(20000);
		for (int turn = 0; turn < 3; turn++)
			turn_bcast(&request, values, 2, turn + round, 0, rank);
		MPI_Request_free(&request);
		MPI_Comm_free(&comm);
	}
}

/* ---- what is wrong ----------------------------------------------------------------------- */

/* It is said, and the turn that goes on is not harmed. */
BEHAVIOUR(an_active_one_is_neither_started_nor_cancelled, 2)
{
	int *at = check_alloc(N * sizeof(int));
	MPI_Errhandler kept;
	MPI_Comm comm;

	if (!check_serves_requests()) {
		check_skip("libraries differ in what they do then");
		free(at);
		return;
	}
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	MPI_Comm_get_errhandler(MPI_COMM_SELF, &kept);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	for (int i = 0; i < 2; i++) {
		int n = i ? 5 : N;
		MPI_Request request;

		MPI_Bcast_init(at, n, MPI_INT, 0, comm, MPI_INFO_NULL, &request);
		for (int turn = 0; turn < TURNS; turn++) {
			fill(at, n, rank ? -1 : turn, 0);
			MPI_Start(&request);
			if (turn % 2)
				EXPECT(MPI_Start(&request) != MPI_SUCCESS);
			else
				EXPECT(MPI_Cancel(&request) != MPI_SUCCESS);
			EXPECT(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
			same(at, n, turn, 0);
		}
		MPI_Request_free(&request);
	}
	MPI_Comm_set_errhandler(MPI_COMM_SELF, kept);
	MPI_Errhandler_free(&kept);
	MPI_Comm_free(&comm);
	free(at);
}

/* ---- places are used again --------------------------------------------------------------- */

/* Short and long ones after one another, more often than there are places; now and then two at
 * once, given back in turns. */
BEHAVIOUR(made_and_freed_often, 2)
{
	int *at[2] = { check_alloc(N * sizeof(int)), check_alloc(N * sizeof(int)) };
	MPI_Request requests[2];

	for (int i = 0; i < 150; i++) {
		int n = i % 3 ? 7 : N, root = i % size;

		for (int k = 0; k < 2; k++)
			MPI_Bcast_init(at[k], n - k, MPI_INT, root, MPI_COMM_WORLD, MPI_INFO_NULL,
				       &requests[k]);
		for (int turn = 0; turn < i % 4; turn++) {
			for (int k = 0; k < 2; k++)
				fill(at[k], n - k, rank == root ? turn + i : -1, root);
			for (int k = 0; k < 2; k++)
				MPI_Start(&requests[rank % 2 ? 1 - k : k]);
			for (int k = 0; k < 2; k++) /* Intel MPI's own do not bear MPI_Waitall */
				MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
			for (int k = 0; k < 2; k++)
				same(at[k], n - k, turn + i, root);
		}
		MPI_Request_free(&requests[i % 2]);
		MPI_Request_free(&requests[1 - i % 2]);
	}
	free(at[0]);
	free(at[1]);
}

/* ---- threads ----------------------------------------------------------------------------- */

enum { THREADS = 3 };
static struct { MPI_Request request; int *at, n, root; } of_thread[THREADS];

static void *turns_of_thread(void *arg)
{
	int i = (int)(intptr_t)arg;

	for (int turn = 0; turn < 40; turn++)
		turn_bcast(&of_thread[i].request, of_thread[i].at, of_thread[i].n, turn,
			   of_thread[i].root, rank);
	return NULL;
}

/* Requests of one communicator, each started and waited for by a thread of its own. */
BEHAVIOUR(threads_start_their_own, 2)
{
	pthread_t threads[THREADS];
	int provided;

	MPI_Query_thread(&provided);
	if (provided < MPI_THREAD_MULTIPLE) {
		check_skip("MPI_THREAD_MULTIPLE is not provided");
		return;
	}
	for (int i = 0; i < THREADS; i++) {
		of_thread[i].n = i ? 9 : N;
		of_thread[i].root = i % size;
		of_thread[i].at = check_alloc(N * sizeof(int));
		MPI_Bcast_init(of_thread[i].at, of_thread[i].n, MPI_INT, of_thread[i].root,
			       MPI_COMM_WORLD, MPI_INFO_NULL, &of_thread[i].request);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, turns_of_thread, (void *)(intptr_t)i);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		MPI_Request_free(&of_thread[i].request);
		free(of_thread[i].at);
	}
}

/* ---- the end ----------------------------------------------------------------------------- */

/* Nobody frees these: one whose communicator there is, one whose has gone, one that was never
 * started. */
BEHAVIOUR(left_to_the_end, 2)
{
	static int at[3][4];
	MPI_Request requests[3];
	MPI_Comm comm;

	if (check_library("Open MPI") && !check_serves_requests()) {
		check_skip("Open MPI's own do not outlive their communicator");
		return;
	}
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	for (int i = 0; i < 3; i++)
		MPI_Bcast_init(at[i], 4, MPI_INT, 0, i == 1 ? comm : MPI_COMM_WORLD, MPI_INFO_NULL,
			       &requests[i]);
	MPI_Comm_free(&comm);
	for (int i = 0; i < 2; i++)
		turn_bcast(&requests[i], at[i], 4, i, 0, rank);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_MULTIPLE); }

#else

BEHAVIOUR(alone_on_its_communicator, 1) { check_skip("this MPI has no persistent collectives"); }

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }

#endif
