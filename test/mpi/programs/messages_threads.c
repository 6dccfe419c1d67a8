/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_THREAD_MULTIPLE: threads that send at once, from buffers of their own, which change as soon
 * as the send returns, and from one buffer of all. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 3, ROUNDS = 60, BYTES = 300000, LEAST = 9000 };

struct worker {
	pthread_t thread;
	pthread_barrier_t *barrier;
	int index;
	char *common;
};

static uint64_t seed_of(int index, int round, int sender)
{
	return check_seed((uint64_t)index * ROUNDS + (uint64_t)round, sender);
}

/* From any source: how long the message is, then the message. */
static void receive_own(int index, int round, char *in)
{
	for (int k = 1; k < size; k++) {
		MPI_Message message;
		MPI_Status status;
		int n;

		MPI_Recv(&n, 1, MPI_INT, MPI_ANY_SOURCE, index, MPI_COMM_WORLD, &status);
		memset(in, 0, BYTES);
		if (n % 2) {
			MPI_Mprobe(status.MPI_SOURCE, 10 + index, MPI_COMM_WORLD, &message,
				   &status);
			MPI_Mrecv(in, n, MPI_BYTE, &message, &status);
		} else {
			MPI_Recv(in, BYTES, MPI_BYTE, status.MPI_SOURCE, 10 + index, MPI_COMM_WORLD,
				 &status);
		}
		check_same(in, (size_t)n, seed_of(index, round, status.MPI_SOURCE), "own message");
	}
}

static void send_own(int index, int round, char *own)
{
	int n = LEAST + (round * 7919 + index * 104729 + rank * 1299709) % (BYTES - LEAST);

	check_fill(own, (size_t)n, seed_of(index, round, rank));
	MPI_Send(&n, 1, MPI_INT, 0, index, MPI_COMM_WORLD);
	MPI_Send(own, n, MPI_BYTE, 0, 10 + index, MPI_COMM_WORLD);
	memset(own, -1, (size_t)n);
}

static void *work(void *arg)
{
	const struct worker *w = arg;
	char *own = check_alloc(BYTES), *in = check_alloc(BYTES);
	MPI_Status status;

	for (int i = 0; i < ROUNDS; i++) {
		if (rank)
			send_own(w->index, i, own);
		else
			receive_own(w->index, i, in);
		pthread_barrier_wait(w->barrier);
		if (rank && w->index == 0)
			check_fill(w->common, BYTES, seed_of(THREADS, i, rank));
		pthread_barrier_wait(w->barrier);
		if (rank)
			MPI_Send(w->common, BYTES, MPI_BYTE, 0, 20 + w->index, MPI_COMM_WORLD);
		for (int k = 1; k < size && !rank; k++) {
			MPI_Recv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, 20 + w->index, MPI_COMM_WORLD,
				 &status);
			check_same(in, BYTES, seed_of(THREADS, i, status.MPI_SOURCE), "common");
		}
		pthread_barrier_wait(w->barrier);
		if (i % 8 == 7) {
			free(own);
			own = check_alloc(BYTES);
		}
	}
	free(own);
	free(in);
	return NULL;
}

BEHAVIOUR(threads_send_at_once, 2)
{
	struct worker workers[THREADS];
	pthread_barrier_t barrier;
	char *common = check_alloc(BYTES);
	int provided;

	MPI_Query_thread(&provided);
	if (provided < MPI_THREAD_MULTIPLE) {
		check_skip("MPI_THREAD_MULTIPLE is not provided");
		return;
	}
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .index = i, .barrier = &barrier, .common = common };
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	pthread_barrier_destroy(&barrier);
	free(common);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_MULTIPLE);
}
