/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that need more of an arena than there is. */
#include "check.h"

enum { BLOCK = 4096, BLOCKS = 18 << 10, BUFFERS = 24, INTS = 1 << 20 };

static MPI_Datatype with_gaps(void)
{
	MPI_Datatype t;

	MPI_Type_vector(BLOCKS, BLOCK, 2 * BLOCK, MPI_BYTE, &t);
	MPI_Type_commit(&t);
	return t;
}

static void fill_blocks(unsigned char *p, unsigned seed)
{
	for (size_t i = 0; i < BLOCKS; i++)
		memset(p + 2 * i * BLOCK, (int)((i + seed) & 0xff), BLOCK);
}

static void expect_blocks(const unsigned char *p, unsigned seed)
{
	for (size_t i = 0; i < BLOCKS; i++) {
		const unsigned char *b = p + 2 * i * BLOCK;

		if (b[0] != ((i + seed) & 0xff) || b[BLOCK - 1] != b[0] ||
		    (i + 1 < BLOCKS && b[BLOCK])) {
			check_fail("block %zu", i);
			return;
		}
	}
}

static void broadcast(bool is_nonblocking)
{
	unsigned char *p = calloc(2 * (size_t)BLOCKS, BLOCK);
	MPI_Datatype t = with_gaps();

	for (int i = 0; i < 4; i++) {
		MPI_Request r;

		if (rank == i % size)
			fill_blocks(p, (unsigned)i);
		if (is_nonblocking) {
			EXPECT(MPI_Ibcast(p, 1, t, i % size, MPI_COMM_WORLD, &r) == MPI_SUCCESS);
			EXPECT(MPI_Wait(&r, MPI_STATUS_IGNORE) == MPI_SUCCESS);
		} else {
			EXPECT(MPI_Bcast(p, 1, t, i % size, MPI_COMM_WORLD) == MPI_SUCCESS);
		}
		expect_blocks(p, (unsigned)i);
	}
	MPI_Type_free(&t);
	free(p);
}

BEHAVIOUR(large_packed_broadcast, 2) { broadcast(false); }
BEHAVIOUR(large_packed_ibcast, 2) { broadcast(true); }

/* Adopted buffers do not take what later calls need. */
BEHAVIOUR(copies_after_many_buffers, 2)
{
	int *p[BUFFERS];

	for (int i = 0; i < BUFFERS; i++) {
		p[i] = check_alloc(INTS * sizeof(int));
		for (int k = 0; k < 4; k++)
			EXPECT(MPI_Bcast(p[i], INTS, MPI_INT, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
	}
	for (int i = BUFFERS; i-- > 0;) {
		for (int k = 0; k < INTS; k++)
			p[i][k] = rank + k;
		EXPECT(MPI_Allreduce(MPI_IN_PLACE, p[i], INTS, MPI_INT, MPI_MAX, MPI_COMM_WORLD) ==
		       MPI_SUCCESS);
		EXPECT(p[i][0] == size - 1 && p[i][INTS - 1] == size + INTS - 2);
	}
	for (int i = 0; i < BUFFERS; i++)
		free(p[i]);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
