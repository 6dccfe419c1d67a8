/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_THREAD_MULTIPLE: collectives that one thread starts and another waits for, while others do
 * the same. */
#include "check.h"

#include <pthread.h>

enum { PAIRS = 2, ROUNDS = 30, IN_FLIGHT = 5 };

#define BYTES ((size_t)70000 + 3)

/* A starter and a waiter; the requests go from one to the other in order. */
struct pair {
	pthread_t starter, waiter;
	MPI_Comm comm;
	int index;
	bool blocks; /* the starter calls blocking collectives on the communicator too */
	char *buf[IN_FLIGHT], *blocking;
	MPI_Request requests[IN_FLIGHT];
	int started, ended; /* how many; under the lock */
	pthread_mutex_t lock;
	pthread_cond_t moved;
};

static void note(struct pair *p, int *count)
{
	pthread_mutex_lock(&p->lock);
	++*count;
	pthread_cond_broadcast(&p->moved);
	pthread_mutex_unlock(&p->lock);
}

/* Until started - ended is below `room` (starter) or above 0 (waiter). */
static void wait_for(struct pair *p, int room)
{
	pthread_mutex_lock(&p->lock);
	while (room ? p->started - p->ended >= room : p->started == p->ended)
		pthread_cond_wait(&p->moved, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

static uint64_t seed_of(const struct pair *p, int i)
{
	return check_seed((uint64_t)p->index, (uint64_t)i);
}

static void *start(void *arg)
{
	struct pair *p = arg;

	for (int i = 0; i < ROUNDS; i++) {
		int k = i % IN_FLIGHT, root = i % size;

		wait_for(p, IN_FLIGHT);
		check_fill(p->buf[k], BYTES, rank == root ? seed_of(p, i) : 1);
		MPI_Ibcast(p->buf[k], (int)BYTES, MPI_BYTE, root, p->comm, &p->requests[k]);
		note(p, &p->started);
		if (!p->blocks)
			continue;
		check_fill(p->blocking, BYTES, rank == root ? seed_of(p, ROUNDS + i) : 1);
		MPI_Bcast(p->blocking, (int)BYTES, MPI_BYTE, root, p->comm);
		check_same(p->blocking, BYTES, seed_of(p, ROUNDS + i), "blocking broadcast");
	}
	return NULL;
}

static void *wait(void *arg)
{
	struct pair *p = arg;

	for (int i = 0; i < ROUNDS; i++) {
		int k = i % IN_FLIGHT, flag = 0;

		wait_for(p, 0);
		if (i % 2)
			MPI_Wait(&p->requests[k], MPI_STATUS_IGNORE);
		while (i % 2 == 0 && !flag)
			MPI_Test(&p->requests[k], &flag, MPI_STATUS_IGNORE);
		check_same(p->buf[k], BYTES, seed_of(p, i), "broadcast");
		note(p, &p->ended);
	}
	return NULL;
}

static void connect_comm(MPI_Comm comm)
{
	char *large = check_alloc((size_t)1 << 20);
	MPI_Request request;

	MPI_Ibcast(large, 1 << 20, MPI_BYTE, 0, comm, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Barrier(comm);
	free(large);
}

static void run_pairs(bool blocks)
{
	struct pair *pairs = check_alloc(PAIRS * sizeof(*pairs));
	int provided;

	MPI_Query_thread(&provided);
	if (provided < MPI_THREAD_MULTIPLE) {
		check_skip("MPI_THREAD_MULTIPLE is not provided");
		free(pairs);
		return;
	}
	for (int i = 0; i < PAIRS; i++) {
		struct pair *p = &pairs[i];

		memset(p, 0, sizeof(*p));
		p->index = i;
		p->blocks = blocks;
		p->blocking = check_alloc(BYTES);
		pthread_mutex_init(&p->lock, NULL);
		pthread_cond_init(&p->moved, NULL);
		MPI_Comm_dup(MPI_COMM_WORLD, &p->comm);
		connect_comm(p->comm);
		for (int k = 0; k < IN_FLIGHT; k++)
			p->buf[k] = check_alloc(BYTES);
	}
	for (int i = 0; i < PAIRS; i++) {
		pthread_create(&pairs[i].starter, NULL, start, &pairs[i]);
		pthread_create(&pairs[i].waiter, NULL, wait, &pairs[i]);
	}
	for (int i = 0; i < PAIRS; i++) {
		pthread_join(pairs[i].starter, NULL);
		pthread_join(pairs[i].waiter, NULL);
		for (int k = 0; k < IN_FLIGHT; k++)
			free(pairs[i].buf[k]);
		free(pairs[i].blocking);
		MPI_Comm_free(&pairs[i].comm);
	}
	free(pairs);
}

BEHAVIOUR(a_collective_is_started_in_one_thread_and_waited_for_in_another, 1) { run_pairs(false); }

/* One thread waits for requests in flight while another is in a blocking collective of the same
 * communicator. */
BEHAVIOUR(a_thread_waits_for_requests_beside_a_blocking_collective, 1) { run_pairs(true); }

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_MULTIPLE);
}
