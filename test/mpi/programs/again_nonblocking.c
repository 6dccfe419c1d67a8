/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nonblocking collectives that are taken only while all ranks use their buffers again, as they
 * agreed in the last blocking one: whatever ranks do with their memory, and however far one is
 * ahead, all of them come to the same for each call, or the job would hang, and the data is right.
 *
 * Run alone: mpiexec -n 2 sluice run again_nonblocking used_again
 */
#include <unistd.h>

#include "check.h"

enum { BLOCK = 300000, CALLS = 200 };

struct exchange {
	char *send, *recv;
	int call;
	MPI_Request request;
};

static void get(struct exchange *x)
{
	size_t bytes = (size_t)BLOCK * size;

	x->send = check_alloc(bytes);
	x->recv = check_alloc(bytes);
}

static void put(struct exchange *x)
{
	free(x->send);
	free(x->recv);
}

static void start(struct exchange *x, int call)
{
	x->call = call;
	for (int r = 0; r < size; r++)
		check_fill(x->send + (size_t)r * BLOCK, BLOCK, check_seed(call, rank * 100 + r));
	MPI_Ialltoall(x->send, BLOCK, MPI_BYTE, x->recv, BLOCK, MPI_BYTE, MPI_COMM_WORLD,
		      &x->request);
}

static void finish(struct exchange *x)
{
	MPI_Wait(&x->request, MPI_STATUS_IGNORE);
	for (int r = 0; r < size; r++)
		check_same(x->recv + (size_t)r * BLOCK, BLOCK, check_seed(x->call, r * 100 + rank),
			   "exchange");
}

/* Short, and of several kinds: each is one at which ranks may agree. */
static void meet(int call)
{
	int in = call, out = -1;

	switch (call % 3) {
	case 0:
		MPI_Barrier(MPI_COMM_WORLD);
		break;
	case 1:
		MPI_Bcast(&in, 1, MPI_INT, call % size, MPI_COMM_WORLD);
		break;
	default:
		MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		if (out != call * size)
			check_fail("call %d: the sum is %d", call, out);
	}
}

BEHAVIOUR(used_again, 2)
{
	struct exchange x;

	get(&x);
	for (int i = 0; i < CALLS; i++) {
		start(&x, i);
		finish(&x);
		meet(i);
	}
	put(&x);
}

BEHAVIOUR(new_each_time, 2)
{
	for (int i = 0; i < CALLS; i++) {
		struct exchange x;

		get(&x);
		start(&x, i);
		finish(&x);
		put(&x);
		meet(i);
	}
}

/* Only one rank's are new. */
BEHAVIOUR(one_rank_is_different, 2)
{
	struct exchange x;

	get(&x);
	for (int i = 0; i < CALLS; i++) {
		start(&x, i);
		finish(&x);
		if (rank == size - 1) {
			put(&x);
			get(&x);
		}
		meet(i);
	}
	put(&x);
}

/* Two are in flight, also over what ranks agree in; each rank now and then takes other memory, when
 * it likes, and is late. */
BEHAVIOUR(ranks_change_their_minds, 2)
{
	uint64_t luck = check_seed(7, rank), common = 11;
	struct exchange x[2];

	get(&x[0]);
	get(&x[1]);
	start(&x[0], 0);
	for (int i = 1; i < CALLS; i++) {
		start(&x[i % 2], i);
		if (check_random(&common) % 3 == 0)
			meet(i);
		finish(&x[(i + 1) % 2]);
		if (check_random(&luck) % 24 == 0) {
			put(&x[(i + 1) % 2]);
			get(&x[(i + 1) % 2]);
		}
		if (check_random(&luck) % 8 == 0)
			usleep(200);
	}
	finish(&x[(CALLS + 1) % 2]);
	put(&x[0]);
	put(&x[1]);
}

/* Nobody can ask whether it is still so: what was taken is passed on after a while. */
BEHAVIOUR(no_blocking_call_any_more, 2)
{
	struct exchange x;

	get(&x);
	for (int i = 0; i < 2 * CALLS; i++) {
		start(&x, i);
		finish(&x);
		if (i < CALLS)
			meet(i);
	}
	put(&x);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
