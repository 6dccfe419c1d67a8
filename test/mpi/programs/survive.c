/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcasts of 64 MB without end; with argument "gather", gathers; with "requests", many
 * nonblocking collectives at once; with "away", likewise, while the ranks compute; with
 * "decisions", a few calls on ever new communicators, which are connected and tried meanwhile; with
 * "messages", messages around a ring, from the arena and from copies; with "asleep", each rank
 * waits for a message that never comes. Each rank writes its pid to HARNESS_PIDS/RANK after the
 * first few, so that a test can kill one in the middle.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void tell_pid(int rank)
{
	char path[4096], moved[4200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%d", getenv("HARNESS_PIDS"), rank);
	snprintf(moved, sizeof(moved), "%s.new", path);
	f = fopen(moved, "w");
	fprintf(f, "%d\n", (int)getpid());
	fclose(f);
	rename(moved, path);
}

enum { IN_FLIGHT = 24 };

/* Requests of all lengths, short ones too. */
static void start_many(char *buf, char *recv, int ranks, MPI_Request *requests)
{
	for (int i = 0; i < IN_FLIGHT; i++) {
		int bytes = 100 << i % 14;
		char *from = buf + i * (2 << 20), *to = recv + (long)i * (2 << 20) * ranks;

		if (i % 3 == 0)
			MPI_Ibcast(from, bytes, MPI_BYTE, i % ranks, MPI_COMM_WORLD, &requests[i]);
		else if (i % 3 == 1)
			MPI_Ialltoall(from, bytes / ranks, MPI_BYTE, to, bytes / ranks, MPI_BYTE,
				      MPI_COMM_WORLD, &requests[i]);
		else
			MPI_Iallreduce(from, to, bytes / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
				       &requests[i]);
	}
}

static void compute(char *buf, size_t bytes)
{
	volatile char *p = buf;

	for (size_t i = 0; i < bytes; i += 8)
		p[i]++;
}

static void run_requests(char *buf, char *recv, int ranks, int is_away)
{
	static char own[32 << 20];
	MPI_Request requests[IN_FLIGHT];
	int flag, index;

	start_many(buf, recv, ranks, requests);
	if (is_away)
		compute(own, sizeof(own));
	else
		MPI_Testany(IN_FLIGHT, requests, &index, &flag, MPI_STATUS_IGNORE);
	MPI_Waitall(IN_FLIGHT, requests, MPI_STATUSES_IGNORE);
}

/* A few calls of each kind and size, as many as trials and agreements take. */
static void run_decisions(char *buf, char *recv, int ranks)
{
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	for (int i = 0; i < 24; i++) {
		int bytes = i % 2 ? 100000 : 1000000;

		MPI_Bcast(buf, bytes, MPI_BYTE, i % ranks, comm);
		MPI_Allreduce(buf, recv, bytes / 4, MPI_INT, MPI_SUM, comm);
		MPI_Alltoall(buf, bytes / ranks, MPI_BYTE, recv, bytes / ranks, MPI_BYTE, comm);
	}
	MPI_Comm_free(&comm);
}

/* Long ones, and nonblocking short ones. */
static void run_messages(char *buf, char *recv, int rank, int ranks)
{
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, bytes = 16 << 10;
	MPI_Request requests[IN_FLIGHT];

	MPI_Sendrecv(buf, 8 << 20, MPI_BYTE, to, 1, recv, 8 << 20, MPI_BYTE, from, 1,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < IN_FLIGHT; i += 2) {
		MPI_Irecv(recv + i * bytes, bytes, MPI_BYTE, from, 2, MPI_COMM_WORLD, &requests[i]);
		MPI_Isend(buf + i * bytes, bytes, MPI_BYTE, to, 2, MPI_COMM_WORLD,
			  &requests[i + 1]);
	}
	MPI_Waitall(IN_FLIGHT, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv)
{
	size_t bytes = 64 << 20;
	int rank, size, gather = argc > 1 && !strcmp(argv[1], "gather");
	int away = argc > 1 && !strcmp(argv[1], "away"),
	    requests = away || (argc > 1 && !strcmp(argv[1], "requests"));
	int decisions = argc > 1 && !strcmp(argv[1], "decisions");
	int messages = argc > 1 && !strcmp(argv[1], "messages");
	char *buf, *recv = NULL;

	alarm(90);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (argc > 1 && !strcmp(argv[1], "asleep")) {
		tell_pid(rank);
		MPI_Recv(&size, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	buf = malloc(bytes);
	memset(buf, rank, bytes);
	if (gather || requests || decisions || messages)
		recv = calloc(size, bytes);
	for (int i = 0; requests && i < 8; i++) /* from now on requests are Sluice's */
		MPI_Bcast(buf, 1 << 20, MPI_BYTE, i % size, MPI_COMM_WORLD);
	for (long i = 0;; i++) {
		if (gather)
			MPI_Gather(buf, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, 0,
				   MPI_COMM_WORLD);
		else if (requests)
			run_requests(buf, recv, size, away);
		else if (decisions)
			run_decisions(buf, recv, size);
		else if (messages)
			run_messages(buf, recv, rank, size);
		else
			MPI_Bcast(buf, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		if (i == (messages ? 200 : 8))
			tell_pid(rank);
	}
}
