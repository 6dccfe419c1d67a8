/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends messages in all ways between ranks 0 and 1, and counts: each rank prints "FUNCTION CALLS
 * BYTES", of what it called outside loops of tests. Then rank 1 is late five times.
 */
#include <mpi.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 20, LONG = 1 << 20, SHORT = 100, LATE = 5, LATE_US = 50000 };

static int rank;
static char *out, *in;
static jmp_buf back;

struct count {
	const char *name;
	unsigned long calls, bytes;
} counts[64];

static int count(const char *name, unsigned long bytes)
{
	struct count *c = counts;

	while (c->name && strcmp(c->name, name))
		c++;
	c->name = name;
	c->calls++;
	c->bytes += bytes;
	return 0;
}
#define COUNT(name, bytes, ...) (MPI_##name(__VA_ARGS__), count("MPI_" #name, bytes))

static void leave(MPI_Comm *comm, int *error, ...)
{
	(void)comm;
	(void)error;
	longjmp(back, 1);
}

static void blocking(int bytes)
{
	MPI_Status status;

	if (rank == 0) {
		COUNT(Send, (unsigned)bytes, out, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
		COUNT(Ssend, (unsigned)bytes, out, bytes / 4, MPI_INT, 1, 2, MPI_COMM_WORLD);
	} else {
		COUNT(Probe, 0, 0, 1, MPI_COMM_WORLD, &status);
		COUNT(Recv, (unsigned)bytes, in, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &status);
		COUNT(Recv, (unsigned)bytes, in, bytes, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG,
		      MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	COUNT(Sendrecv, (unsigned)bytes, out, bytes, MPI_CHAR, 1 - rank, 3, in, bytes, MPI_CHAR,
	      1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void nonblocking(int bytes)
{
	MPI_Request requests[3];

	COUNT(Irecv, (unsigned)bytes, in, bytes, MPI_CHAR, 1 - rank, 4, MPI_COMM_WORLD,
	      &requests[0]);
	COUNT(Isend, (unsigned)bytes, out, bytes, MPI_CHAR, 1 - rank, 4, MPI_COMM_WORLD,
	      &requests[1]);
	COUNT(Waitall, 0, 2, requests, MPI_STATUSES_IGNORE);
	MPI_Send_init(out, bytes, MPI_CHAR, 1 - rank, 5, MPI_COMM_WORLD, &requests[0]);
	MPI_Recv_init(in, bytes, MPI_CHAR, 1 - rank, 5, MPI_COMM_WORLD, &requests[1]);
	COUNT(Startall, 0, 2, requests);
	COUNT(Wait, 0, &requests[0], MPI_STATUS_IGNORE);
	COUNT(Wait, 0, &requests[1], MPI_STATUS_IGNORE);
	MPI_Request_free(&requests[0]);
	MPI_Request_free(&requests[1]);
}

/* Libraries use the handle of a freed type again. */
static void typed(int bytes)
{
	MPI_Datatype type;

	MPI_Type_contiguous(bytes, MPI_CHAR, &type);
	MPI_Type_commit(&type);
	if (rank == 0)
		COUNT(Send, (unsigned)bytes, out, 1, type, 1, 8, MPI_COMM_WORLD);
	else
		COUNT(Recv, (unsigned)bytes, in, 1, type, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Type_free(&type);
}

/* A message that is longer than the buffer: the error handler leaves the call. */
static void truncated(void)
{
	MPI_Errhandler handler;

	MPI_Comm_create_errhandler(leave, &handler);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
	if (rank == 0)
		COUNT(Send, SHORT, out, SHORT, MPI_CHAR, 1, 6, MPI_COMM_WORLD);
	else if (!setjmp(back))
		MPI_Recv(in, SHORT / 2, MPI_CHAR, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		count("MPI_Recv", SHORT / 2);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Errhandler_free(&handler);
}

__attribute__((noinline)) static void late(void)
{
	for (int i = 0; i < LATE; i++) {
		if (rank == 1)
			usleep(LATE_US);
		COUNT(Sendrecv, SHORT, out, SHORT, MPI_CHAR, 1 - rank, 7, in, SHORT, MPI_CHAR,
		      1 - rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
}

__attribute__((noinline)) static void collective(void)
{
	MPI_Bcast(out, LONG, MPI_CHAR, 0, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	out = calloc(1, LONG);
	in = calloc(1, LONG);
	truncated();
	for (int i = 0; i < ROUNDS; i++) {
		blocking(i % 2 ? LONG : SHORT);
		nonblocking(i % 2 ? LONG : SHORT);
		typed(LONG);
		typed(SHORT);
		collective();
	}
	late();
	for (const struct count *c = counts; c->name; c++)
		printf("%s %lu %lu\n", c->name, c->calls, c->bytes);
	MPI_Finalize();
	return 0;
}
