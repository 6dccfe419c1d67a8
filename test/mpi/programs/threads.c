/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_THREAD_MULTIPLE: several threads, each with its own communicator, at once. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 12 };

struct worker {
	pthread_t thread;
	int index;
	MPI_Comm comm;
	size_t bytes;
};

static int provided;

static void *work(void *arg)
{
	struct worker *w = arg;
	char *buf = check_alloc(w->bytes), *recv = check_alloc(w->bytes * size);

	for (int i = 0; i < ROUNDS; i++) {
		check_bcast(buf, w->bytes, i % size, w->comm, check_seed(w->index, i));
		check_gather(buf, recv, w->bytes, (i + 1) % size, w->comm,
			     check_seed(w->index, 100 + i));
		if (i % 4 == 3) { /* memory that comes and goes under the others' feet */
			free(buf);
			free(recv);
			buf = check_alloc(w->bytes);
			recv = check_alloc(w->bytes * size);
		}
	}
	free(buf);
	free(recv);
	return NULL;
}

BEHAVIOUR(threads_with_own_communicators, 1)
{
	struct worker workers[THREADS];

	MPI_Query_thread(&provided);
	if (provided < MPI_THREAD_MULTIPLE) {
		check_skip("MPI_THREAD_MULTIPLE is not provided");
		return;
	}
	for (int i = 0; i < THREADS; i++) {
		workers[i].index = i;
		workers[i].bytes = 90000 + (size_t)i * 222222;
		MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		MPI_Comm_free(&workers[i].comm);
	}
}

static void *point_to_point(void *arg)
{
	MPI_Comm comm = *(MPI_Comm *)arg;
	size_t bytes = 150000;
	char *out = check_alloc(bytes), *in = check_alloc(bytes);

	for (int i = 0; i < 20; i++) {
		check_fill(out, bytes, check_seed(i, rank));
		MPI_Sendrecv(out, (int)bytes, MPI_BYTE, (rank + 1) % size, 1, in, (int)bytes,
			     MPI_BYTE, (rank + size - 1) % size, 1, comm, MPI_STATUS_IGNORE);
		check_same(in, bytes, check_seed(i, (rank + size - 1) % size), "beside it");
	}
	free(out);
	free(in);
	return NULL;
}

BEHAVIOUR(point_to_point_beside_broadcasts, 2)
{
	pthread_t other;
	MPI_Comm dup;
	size_t bytes = 400000;
	char *buf = check_alloc(bytes);

	MPI_Query_thread(&provided);
	if (provided < MPI_THREAD_MULTIPLE) {
		check_skip("MPI_THREAD_MULTIPLE is not provided");
		free(buf);
		return;
	}
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	pthread_create(&other, NULL, point_to_point, &dup);
	for (int i = 0; i < 20; i++)
		check_bcast(buf, bytes, i % size, MPI_COMM_WORLD, i);
	pthread_join(other, NULL);
	MPI_Comm_free(&dup);
	free(buf);
}

/* A second thread reads its own part of the heap while the first one's buffers are shared. */
static _Atomic int stop;
static void *reader(void *arg)
{
	char *mine = check_alloc(1 << 20);

	(void)arg;
	check_fill(mine, 1 << 20, 5);
	while (!stop)
		check_same(mine, 1 << 20, 5, "another thread's memory");
	free(mine);
	return NULL;
}

BEHAVIOUR(other_threads_memory_stays, 2)
{
	pthread_t other;
	size_t bytes = 700000;

	stop = 0;
	pthread_create(&other, NULL, reader, NULL);
	for (int i = 0; i < 20; i++) {
		char *buf = check_alloc(bytes + 1000 * i);

		for (int k = 0; k < 3; k++)
			check_bcast(buf, bytes, i % size, MPI_COMM_WORLD, 3 * i + k);
		free(buf);
	}
	stop = 1;
	pthread_join(other, NULL);
}

/* The writing thread, and its progress. */
struct neighbour { volatile int *at; size_t part, parts; };

static void *write_between_parts(void *arg)
{
	const struct neighbour *n = arg;

	for (size_t k = 0; k + 1 < n->parts; k++) {
		for (size_t i = 0; i < n->part; i++) {
			n->at[(3 * k + 2) * n->part + i] =
				(int)i + 1; /* once: what is lost stays lost */
			for (volatile int pause = 0; pause < 10;)
				pause++;
		}
	}
	return NULL;
}

/* Between the parts that come lies other data of the program's, which another thread, or this one,
 * has not finished. */
BEHAVIOUR(between_parts_others_may_write, 2)
{
	enum { PART = 1 << 17 };
	int *counts = check_alloc((size_t)size * sizeof(int)),
	    *displs = check_alloc((size_t)size * sizeof(int));
	int *send = check_alloc(2 * PART * sizeof(int));
	size_t all = 3 * (size_t)size * PART * sizeof(int);

	for (int i = 0; i < 2 * PART; i++)
		send[i] = rank + i;
	for (int r = 0; r < size; r++) {
		counts[r] = 2 * PART;
		displs[r] = 3 * r * PART;
	}
	for (int round = 0; round < 12; round++) {
		int *at = check_alloc(all);
		struct neighbour n = { at, PART, (size_t)size };
		MPI_Request request;
		pthread_t thread;

		memset(at, 0, all);
		MPI_Barrier(MPI_COMM_WORLD);
		if (round % 2) {
			MPI_Iallgatherv(send, 2 * PART, MPI_INT, at, counts, displs, MPI_INT,
					MPI_COMM_WORLD, &request);
			write_between_parts(&n);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		} else {
			pthread_create(&thread, NULL, write_between_parts, &n);
			MPI_Allgatherv(send, 2 * PART, MPI_INT, at, counts, displs, MPI_INT,
				       MPI_COMM_WORLD);
			pthread_join(thread, NULL);
		}
		for (int r = 0; r < size; r++)
			for (int i = 0; i < 3 * PART && !check_failed(); i++)
				EXPECT(at[3 * r * PART + i] == (i < 2 * PART   ? r + i
								: r + 1 < size ? i - 2 * PART + 1
									       : 0));
		free(at);
	}
	free(counts);
	free(displs);
	free(send);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_MULTIPLE);
}
