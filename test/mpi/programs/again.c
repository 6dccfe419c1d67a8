/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives that are taken only while all ranks use their buffers again: whatever ranks do with
 * their memory, all of them come to the same for each call, or the job would hang, and the data is
 * right.
 *
 * Run alone: mpiexec -n 3 sluice run again used_again
 */
#include "check.h"

enum { BLOCK = 300000, CALLS = 150 };

struct buffers { char *send, *recv; };

static struct buffers get(void)
{
	size_t bytes = (size_t)BLOCK * size;

	return (struct buffers){ check_alloc(bytes), check_alloc(bytes) };
}

static void put(struct buffers *b)
{
	free(b->send);
	free(b->recv);
}

static void exchange(struct buffers *b, int call)
{
	for (int r = 0; r < size; r++)
		check_fill(b->send + (size_t)r * BLOCK, BLOCK, check_seed(call, rank * 100 + r));
	MPI_Alltoall(b->send, BLOCK, MPI_BYTE, b->recv, BLOCK, MPI_BYTE, MPI_COMM_WORLD);
	for (int r = 0; r < size; r++)
		check_same(b->recv + (size_t)r * BLOCK, BLOCK, check_seed(call, r * 100 + rank),
			   "exchange");
}

static void reduce(struct buffers *b, int call, int root)
{
	int n = BLOCK / 4, *in = (int *)b->send, *out = (int *)b->recv;

	for (int i = 0; i < n; i++)
		in[i] = i * (rank + 1) + call;
	MPI_Reduce(in, out, n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
	for (int i = 0; rank == root && i < n; i++)
		if (out[i] != i * (size * (size + 1) / 2) + call * size) {
			check_fail("call %d: element %d is %d", call, i, out[i]);
			return;
		}
}

BEHAVIOUR(used_again, 2)
{
	struct buffers b = get();

	for (int i = 0; i < CALLS; i++)
		exchange(&b, i);
	put(&b);
}

BEHAVIOUR(new_each_time, 2)
{
	for (int i = 0; i < CALLS; i++) {
		struct buffers b = get();

		exchange(&b, i);
		put(&b);
	}
}

/* Only one rank's are new. */
BEHAVIOUR(one_rank_is_different, 2)
{
	struct buffers kept = get();

	for (int i = 0; i < CALLS; i++) {
		struct buffers b = rank == size - 1 ? get() : kept;

		exchange(&b, i);
		if (rank == size - 1)
			put(&b);
	}
	put(&kept);
}

/* Each rank now and then takes other memory, when it likes; kinds and roots alternate, ranks are
 * late. */
BEHAVIOUR(ranks_change_their_minds, 2)
{
	uint64_t luck = check_seed(7, rank), common = 11;
	struct buffers b = get();

	for (int i = 0; i < CALLS; i++) {
		if (check_random(&luck) % 16 == 0) {
			put(&b);
			b = get();
		}
		if (check_random(&common) % 3)
			exchange(&b, i);
		else
			reduce(&b, i, i % size);
	}
	put(&b);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
