/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives inside a node that have been returned from early, and what a collective over all
 * nodes then does with the same memory, untouched by the program: as if they had ended. Wants
 * SLUICE_EARLY=on; NODES names each rank's node.
 */
#include "check.h"

#include <unistd.h>

enum { N = 300000 };

static MPI_Comm near;
static int me, p;

static void begin(void)
{
	const char *nodes = getenv("NODES");

	MPI_Comm_split(MPI_COMM_WORLD, nodes ? nodes[rank] : 0, rank, &near);
	MPI_Comm_rank(near, &me);
	MPI_Comm_size(near, &p);
}

/* A rank of the node is late now and then, so that others leave. */
static void be_late(int round)
{
	if (round % 3 == 2 && me == round % p)
		usleep(2000);
}

static int word(int from, int round, int i) { return from * 1000003 + round * 101 + i; }

/* Data received inside the node is sent on, by the node's root or as each rank's part. */
BEHAVIOUR(what_is_pending_is_sent_on, 2)
{
	int *at = check_alloc(N * sizeof(*at)), *all = check_alloc(N * sizeof(*all) * (size_t)size);

	begin();
	for (int round = 0; round < 12; round++) {
		int root = round % size, first;

		for (int i = 0; i < N; i++)
			at[i] = me ? -1 : word(rank, round, i);
		first = rank;
		MPI_Bcast(&first, 1, MPI_INT, 0, near);
		be_late(round);
		MPI_Bcast(at, N, MPI_INT, 0, near);
		if (round % 2) {
			MPI_Allgather(at, N, MPI_INT, all, N, MPI_INT, MPI_COMM_WORLD);
			for (int i = 0; i < N && !check_failed(); i++)
				EXPECT(all[rank * N + i] == word(first, round, i));
		} else {
			int from = first;

			MPI_Bcast(&from, 1, MPI_INT, root, MPI_COMM_WORLD);
			MPI_Bcast(at, N, MPI_INT, root, MPI_COMM_WORLD);
			for (int i = 0; i < N && !check_failed(); i++)
				EXPECT(at[i] == word(from, round, i));
		}
	}
	MPI_Comm_free(&near);
	free(at);
	free(all);
}

/* A buffer that is still read inside the node is received into, or combined with other data. */
BEHAVIOUR(what_is_pending_is_received_into, 2)
{
	int *at = check_alloc(N * sizeof(*at)), *all = check_alloc(N * sizeof(*all) * (size_t)size);

	begin();
	for (int round = 0; round < 12; round++) {
		for (int i = 0; i < N; i++)
			at[i] = word(rank, round, i);
		be_late(round);
		MPI_Gather(at, N, MPI_INT, all, N, MPI_INT, round % p,
			   near); /* reads `at` behind the others' backs */
		if (round % 2)
			MPI_Allreduce(MPI_IN_PLACE, at, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		else
			MPI_Bcast(at, N, MPI_INT, round % size, MPI_COMM_WORLD);
		for (int i = 0; i < N && !check_failed(); i++)
			EXPECT(at[i] == (round % 2 ? 1000003 * (size * (size - 1) / 2) +
							     size * (round * 101 + i)
						   : word(round % size, round, i)));
		for (int k = 0; k < p && me == round % p && !check_failed(); k++)
			EXPECT((all[k * N + 7] - round * 101 - 7) % 1000003 == 0 &&
			       all[k * N + N - 1] == all[k * N + 7] + N - 8);
	}
	MPI_Comm_free(&near);
	free(at);
	free(all);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
