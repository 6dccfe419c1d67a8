/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages, windows and ends of ranks, some of which share an address space. */
#include "check.h"

#include <unistd.h>

#define LARGEST (1 << 20)

static int global;
static char *out, *in;

static char letter(int from, int i) { return (char)(from * 31 + i * 7 + 1); }

/* Each rank sends to the next and receives from the one before, every byte checked. */
static void ring(int bytes)
{
	int next = (rank + 1) % size, before = (rank + size - 1) % size, wrong = 0;
	MPI_Status status;

	for (int i = 0; i < bytes; i++)
		out[i] = letter(rank, i);
	memset(in, 0, (size_t)bytes);
	MPI_Sendrecv(out, bytes, MPI_CHAR, next, 1, in, bytes, MPI_CHAR, before, MPI_ANY_TAG,
		     MPI_COMM_WORLD, &status);
	for (int i = 0; i < bytes; i++)
		wrong += in[i] != letter(before, i);
	EXPECT(!wrong && status.MPI_SOURCE == before && status.MPI_TAG == 1);
}

BEHAVIOUR(messages, 2)
{
	out = malloc(LARGEST);
	in = malloc(LARGEST);
	for (int bytes = 1; bytes <= LARGEST; bytes *= 4)
		ring(bytes);
	free(out);
	free(in);
}

BEHAVIOUR(own_globals, 2)
{
	int all[64] = { 0 };

	global += rank;
	MPI_Allgather(&global, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size && i < 64; i++)
		EXPECT(all[i] == i);
}

BEHAVIOUR(windows, 2)
{
	int *base, value = rank + 1, next = (rank + 1) % size;
	MPI_Win win;

	MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
	*base = 0;
	MPI_Win_fence(0, win);
	MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	EXPECT(*base == (rank + size - 1) % size + 1);
	MPI_Win_free(&win);
}

BEHAVIOUR(processes, 2)
{
	int mine[2] = { getpid(), getppid() }, all[64][2];

	MPI_Allgather(mine, 2, MPI_INT, all, 2, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size && i < 32; i++)
		for (int k = 0; k < i; k++)
			EXPECT(all[i][0] != all[k][0]);
	if (rank == 0) /* the parent of an image is its carrier */
		for (int i = 0; i < size; i++)
			check_note("parent %d", all[i][1]);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
