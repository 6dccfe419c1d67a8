/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nbc_bench: how much of a nonblocking collective is hidden behind work, as NBCBench measures it. An ordinary MPI
 * program; no option says whose collectives it gets.
 *
 *   nbc_bench [-c ibcast,igather,ialltoall,iallreduce] [-n samples] [-w one|all] [-p] min max
 *
 *   comm      the call and the wait, one after the other
 *   work      a loop that takes as long as comm did, without calls to MPI
 *   both      the call, the loop, the wait
 *   overhead  both - work: what the collective costs a program that works
 *   overlap   1 - overhead / comm
 *
 * all: every rank works. one: the last rank does; the others sleep as long, so that with -p (ranks share CPU 0)
 * the other CPUs are free. Times are of the slowest rank that works; medians. Data is checked.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, size, samples = 51;
static int works; /* this rank does */

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- the collectives ------------------------------------------------------------------------------- */

static char *send, *recv;

static void launch(const char *what, size_t bytes, MPI_Request *r)
{
	int n = (int)bytes, root = 0;

	if (!strcmp(what, "ibcast"))
		MPI_Ibcast(send, n, MPI_BYTE, root, MPI_COMM_WORLD, r);
	else if (!strcmp(what, "igather"))
		MPI_Igather(send, n, MPI_BYTE, recv, n, MPI_BYTE, size - 1, MPI_COMM_WORLD, r);
	else if (!strcmp(what, "ialltoall"))
		MPI_Ialltoall(send, n / size, MPI_BYTE, recv, n / size, MPI_BYTE, MPI_COMM_WORLD, r);
	else
		MPI_Iallreduce(send, recv, n / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, r);
}

/* Bytes at a few places: reading all of it would be the larger part of a sample. */
static void write_marks(char *at, size_t bytes, int seed)
{
	for (size_t i = 0; i < bytes; i += 4096)
		at[i] = (char)(seed + (int)(i >> 12));
}

static int are_marks(const char *at, size_t bytes, int seed)
{
	for (size_t i = 0; i < bytes; i += 4096)
		if (at[i] != (char)(seed + (int)(i >> 12)))
			return 0;
	return 1;
}

static void prepare(const char *what, size_t bytes, int seed)
{
	if (!strcmp(what, "iallreduce")) {
		for (size_t i = 0; i < bytes / 8; i += 512)
			((double *)send)[i] = seed + rank;
		return;
	}
	if (strcmp(what, "ibcast") || !rank)
		write_marks(send, bytes, seed + (strcmp(what, "ibcast") ? rank : 0));
}

static int is_right(const char *what, size_t bytes, int seed)
{
	if (!strcmp(what, "ibcast"))
		return are_marks(send, bytes, seed);
	if (!strcmp(what, "igather"))
		return rank != size - 1 || (are_marks(recv, bytes, seed) &&
					    are_marks(recv + (size_t)(size - 1) * bytes, bytes, seed + size - 1));
	if (!strcmp(what, "ialltoall"))
		return recv[0] == (char)(seed + (int)((size_t)rank * (bytes / (size_t)size) >> 12)) ||
		       (bytes / (size_t)size) % 4096;
	return ((double *)recv)[0] == (double)size * seed + size * (size - 1) / 2.0;
}

/* ---- work ------------------------------------------------------------------------------------------------ */

static double per_turn_us;
static volatile double sink;

static void turns(long n)
{
	double x = 1.0000001;

	for (long i = 0; i < n; i++)
		x = x * 1.0000001 + 1e-9;
	sink = x;
}

static void calibrate(void)
{
	double best = 1e30;

	for (int i = 0; i < 20; i++) {
		double t = now_us();

		turns(200000);
		t = now_us() - t;
		best = t < best ? t : best;
	}
	per_turn_us = best / 200000;
}

static void work(double us)
{
	struct timespec t = { (time_t)(us / 1e6), (long)(us * 1e3) % 1000000000L };

	if (works)
		turns((long)(us / per_turn_us));
	else
		nanosleep(&t, NULL);
}

/* ---- samples ------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *t, int n)
{
	qsort(t, (size_t)n, sizeof(*t), by_value);
	return t[n / 2];
}

static double sample(const char *what, size_t bytes, double work_us, int seed)
{
	double begin, mine, slowest;
	MPI_Request r;

	prepare(what, bytes, seed);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	begin = now_us();
	launch(what, bytes, &r);
	if (work_us > 0)
		work(work_us);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	mine = works ? now_us() - begin : 0;
	if (!is_right(what, bytes, seed)) {
		fprintf(stderr, "rank %d: %s of %zu bytes: wrong data\n", rank, what, bytes);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return slowest;
}

static double sample_work(double us)
{
	double begin, mine, slowest;

	MPI_Barrier(MPI_COMM_WORLD);
	begin = now_us();
	work(us);
	mine = works ? now_us() - begin : 0;
	MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return slowest;
}

static void measure(const char *what, size_t bytes)
{
	double *comm = calloc((size_t)samples, sizeof(double)), *both = calloc((size_t)samples, sizeof(double)),
	       *alone = calloc((size_t)samples, sizeof(double)), c, b, a;

	for (int i = 0; i < 5; i++)
		sample(what, bytes, 0, i);
	for (int i = 0; i < samples; i++)
		comm[i] = sample(what, bytes, 0, i);
	c = median(comm, samples);
	for (int i = 0; i < samples; i++) {
		alone[i] = sample_work(c);
		both[i] = sample(what, bytes, c, i + 50);
	}
	a = median(alone, samples);
	b = median(both, samples);
	if (!rank)
		printf("%-10s %9zu  comm %9.1f  work %9.1f  both %9.1f  overhead %9.1f  overlap %6.3f\n", what, bytes, c, a,
		       b, b - a, 1 - (b - a) / c);
	fflush(stdout);
	free(comm);
	free(both);
	free(alone);
}

int main(int argc, char **argv)
{
	char *list = "ibcast,igather,ialltoall,iallreduce", *names, *name, *rest;
	size_t min, max;
	int all = 1, opt;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	while ((opt = getopt(argc, argv, "c:n:w:p")) != -1) {
		cpu_set_t one;

		CPU_ZERO(&one);
		CPU_SET(0, &one);
		if (opt == 'c')
			list = optarg;
		else if (opt == 'n')
			samples = atoi(optarg);
		else if (opt == 'w')
			all = strcmp(optarg, "one");
		else if (opt != 'p' || sched_setaffinity(0, sizeof(one), &one))
			MPI_Abort(MPI_COMM_WORLD, 2);
	}
	if (argc - optind != 2)
		MPI_Abort(MPI_COMM_WORLD, 2);
	min = strtoull(argv[optind], NULL, 0);
	max = strtoull(argv[optind + 1], NULL, 0);
	works = all || rank == size - 1;
	calibrate();
	send = aligned_alloc(4096, max * (size_t)size);
	recv = aligned_alloc(4096, max * (size_t)size);
	memset(send, 0, max * (size_t)size);
	memset(recv, 0, max * (size_t)size);
	names = strdup(list);
	for (name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
		for (size_t bytes = min; bytes <= max; bytes *= 4)
			measure(name, bytes);
	free(names);
	MPI_Finalize();
	return 0;
}
