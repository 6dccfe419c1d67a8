/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts what it calls, by calling function, so that a trace can be compared with it: each rank
 * prints "FUNCTION CALLS BYTES LARGE", bytes of one rank's message, LARGE those from 64 KiB on.
 *
 *   traced MODE    count | abort | kill | exit | hang | late | fork | threads (or nothing: count)
 */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT = 64 << 10, BIG = 1 << 20, ROUNDS = 30, SMALL_ROUNDS = 700 };

static int rank, size;
static char *buffer, *all;
static volatile double sink;

struct count {
	const char *name;
	unsigned long calls, bytes, large;
};
static struct count counts[4] = {
	{ "small_bcast" }, { "large_bcast" }, { "any_gather" }, { "strided_bcast" }
};

static void add(struct count *c, unsigned long bytes)
{
	c->calls++;
	c->bytes += bytes;
	c->large += bytes >= LIMIT;
}

__attribute__((noinline)) void small_bcast(int n)
{
	MPI_Bcast(buffer, n, MPI_INT, n % size, MPI_COMM_WORLD);
	add(&counts[0], 4ul * (unsigned)n);
}

__attribute__((noinline)) void large_bcast(int bytes)
{
	MPI_Bcast(buffer, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
	add(&counts[1], (unsigned)bytes);
	sink += buffer[bytes - 1];
}

__attribute__((noinline)) void any_gather(int bytes)
{
	MPI_Gather(buffer, bytes, MPI_CHAR, all, bytes, MPI_CHAR, size - 1, MPI_COMM_WORLD);
	add(&counts[2], (unsigned)bytes);
	sink += rank == size - 1 ? all[bytes] : 0;
}

__attribute__((noinline)) void strided_bcast(int blocks)
{
	MPI_Datatype t;

	MPI_Type_vector(blocks, 3, 5, MPI_INT, &t);
	MPI_Type_commit(&t);
	MPI_Bcast(buffer, 1, t, 0, MPI_COMM_WORLD);
	add(&counts[3], 12ul * (unsigned)blocks);
	MPI_Type_free(&t);
}

static void work(int i)
{
	large_bcast(BIG + 16 * i);
	any_gather(i % 2 ? 100 : BIG / 4);
	strided_bcast(i % 3 ? 10 : 20000);
	for (int k = 0; k < SMALL_ROUNDS / ROUNDS; k++)
		small_bcast(1 + k);
}

static void *other_thread(void *arg)
{
	sink += ((char *)arg)[77];
	return NULL;
}

static void misbehave(const char *mode)
{
	pthread_t t;

	if (!strcmp(mode, "abort") && rank == 1)
		abort();
	if (!strcmp(mode, "kill") && rank == 1)
		raise(SIGKILL);
	if (!strcmp(mode, "exit") && rank == 1)
		_exit(3);
	if (!strcmp(mode, "hang")) {
		printf("hangs\n");
		fflush(stdout);
		sleep(60);
	}
	if (!strcmp(mode, "fork") && !fork())
		_exit(buffer[5] == 99);
	if (!strcmp(mode, "fork"))
		wait(NULL);
	if (!strcmp(mode, "threads") && !pthread_create(&t, NULL, other_thread, buffer))
		pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "count";

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	buffer = calloc(2, BIG);
	all = calloc((size_t)size, BIG);
	for (int i = 0; i < ROUNDS; i++) {
		work(i);
		if (i == ROUNDS / 2)
			misbehave(mode);
	}
	for (int i = 0; i < 4; i++)
		printf("%s %lu %lu %lu\n", counts[i].name, counts[i].calls, counts[i].bytes,
		       counts[i].large);
	MPI_Finalize();
	fflush(stdout);
	if (!strcmp(mode, "late") && rank == 0)
		sleep(1);
	return 0;
}
