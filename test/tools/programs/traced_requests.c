/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives that go on after their calls, and such that combine, counted as they are called: each
 * rank prints "FUNCTION CALLS BYTES RECEIVED", bytes of one rank's message, and of what this rank
 * gets of all of them.
 *
 *   traced_requests ROUNDS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LARGE = 40000, SHORT = 100 }; /* doubles */

static int rank, size;
static double *mine, *results;
static MPI_Op largest;

struct count {
	const char *name;
	unsigned long calls, bytes, received;
};

static void add(struct count *c, unsigned long bytes, unsigned long received)
{
	c->calls++;
	c->bytes += bytes;
	c->received += received;
}

static void wait_for(MPI_Request *r)
{
	int flag = 0;

	for (int i = 0; i < 3 && !flag; i++)
		MPI_Test(r, &flag, MPI_STATUS_IGNORE);
	MPI_Wait(r, MPI_STATUS_IGNORE);
}

/* ---- begun ------------------------------------------------------------------------------- */

__attribute__((noinline)) void later_allreduce(struct count *c, int n)
{
	MPI_Request r;

	MPI_Iallreduce(mine, results, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &r);
	add(c, 8ul * (unsigned)n, 8ul * (unsigned)n);
	wait_for(&r);
}

__attribute__((noinline)) void later_reduce(struct count *c, int n)
{
	MPI_Request r;

	MPI_Ireduce(mine, results, n, MPI_DOUBLE, MPI_SUM, size - 1, MPI_COMM_WORLD, &r);
	add(c, 8ul * (unsigned)n, rank == size - 1 ? 8ul * (unsigned)n : 0);
	wait_for(&r);
}

__attribute__((noinline)) void later_bcast(struct count *c, int n)
{
	MPI_Request r;

	MPI_Ibcast(mine, n, MPI_DOUBLE, 0, MPI_COMM_WORLD, &r);
	add(c, 8ul * (unsigned)n, rank ? 8ul * (unsigned)n : 0);
	wait_for(&r);
}

__attribute__((noinline)) void later_gather(struct count *c, int n)
{
	MPI_Request r;

	MPI_Igather(mine, n, MPI_DOUBLE, results, n, MPI_DOUBLE, 0, MPI_COMM_WORLD, &r);
	add(c, 8ul * (unsigned)n, rank ? 0 : 8ul * (unsigned)n * (unsigned)size);
	wait_for(&r);
}

__attribute__((noinline)) void later_alltoall(struct count *c, int n)
{
	MPI_Request r;

	MPI_Ialltoall(mine, n, MPI_DOUBLE, results, n, MPI_DOUBLE, MPI_COMM_WORLD, &r);
	add(c, 8ul * (unsigned)n, 8ul * (unsigned)n * (unsigned)size);
	wait_for(&r);
}

__attribute__((noinline)) void later_barrier(struct count *c, int n)
{
	MPI_Request r;

	(void)n;
	MPI_Ibarrier(MPI_COMM_WORLD, &r);
	add(c, 0, 0);
	wait_for(&r);
}

/* Several at once, more than there are places for: the last are begun when others have ended. */
__attribute__((noinline)) void many_allreduces(struct count *c, int n)
{
	enum { MANY = 150 };
	static MPI_Request r[MANY];

	for (int i = 0; i < MANY; i++) {
		MPI_Iallreduce(mine, results + i * SHORT * 20, SHORT * 20, MPI_DOUBLE, MPI_SUM,
			       MPI_COMM_WORLD, &r[i]);
		add(c, 8ul * SHORT * 20, 8ul * SHORT * 20);
	}
	(void)n;
	MPI_Waitall(MANY, r, MPI_STATUSES_IGNORE);
}

/* Made once, started again and again: a call each time. */
__attribute__((noinline)) void again_bcast(struct count *c, int n)
{
	static MPI_Request r;

	(void)n;
	if (!c->calls)
		MPI_Bcast_init(mine, LARGE, MPI_DOUBLE, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &r);
	MPI_Start(&r);
	add(c, 8ul * LARGE, rank ? 8ul * LARGE : 0);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
}

/* ---- combined ---------------------------------------------------------------------------- */

static void take_larger(void *in, void *inout, int *n, MPI_Datatype *type)
{
	const double *a = in;
	double *b = inout;

	(void)type;
	for (int i = 0; i < *n; i++)
		b[i] = a[i] > b[i] ? a[i] : b[i];
}

__attribute__((noinline)) void now_allreduce(struct count *c, int n)
{
	MPI_Allreduce(mine, results, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	add(c, 8ul * (unsigned)n, 8ul * (unsigned)n);
}

__attribute__((noinline)) void own_allreduce(struct count *c, int n)
{
	MPI_Allreduce(mine, results, n, MPI_DOUBLE, largest, MPI_COMM_WORLD);
	add(c, 8ul * (unsigned)n, 8ul * (unsigned)n);
}

__attribute__((noinline)) void now_reduce(struct count *c, int n)
{
	MPI_Reduce(mine, results, n, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	add(c, 8ul * (unsigned)n, rank ? 0 : 8ul * (unsigned)n);
}

__attribute__((noinline)) void now_scan(struct count *c, int n)
{
	MPI_Scan(mine, results, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	add(c, 8ul * (unsigned)n, 8ul * (unsigned)n);
}

__attribute__((noinline)) void now_exscan(struct count *c, int n)
{
	MPI_Exscan(mine, results, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	add(c, 8ul * (unsigned)n, rank ? 8ul * (unsigned)n : 0);
}

__attribute__((noinline)) void now_scatter_sums(struct count *c, int n)
{
	MPI_Reduce_scatter_block(mine, results, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	add(c, 8ul * (unsigned)n, 8ul * (unsigned)n);
}

/* ---- all of them ------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*call)(struct count *c, int n);
} kinds[] = {
	{ "later_allreduce", later_allreduce }, { "later_reduce", later_reduce },
	{ "later_bcast", later_bcast },         { "later_gather", later_gather },
	{ "later_alltoall", later_alltoall },   { "later_barrier", later_barrier },
	{ "many_allreduces", many_allreduces }, { "again_bcast", again_bcast },
	{ "now_allreduce", now_allreduce },     { "own_allreduce", own_allreduce },
	{ "now_reduce", now_reduce },           { "now_scan", now_scan },
	{ "now_exscan", now_exscan },           { "now_scatter_sums", now_scatter_sums },
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

int main(int argc, char **argv)
{
	static struct count counts[KINDS];
	int rounds = argc > 1 ? atoi(argv[1]) : 4;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Op_create(take_larger, 1, &largest);
	mine = calloc((size_t)size * 10 * LARGE, 8);
	results = calloc((size_t)size * 10 * LARGE, 8);
	MPI_Allreduce(mine, results, LARGE, MPI_DOUBLE, MPI_SUM,
		      MPI_COMM_WORLD); /* a communicator is connected */
	for (int i = 0; i < rounds; i++)
		for (int k = 0; k < KINDS; k++)
			kinds[k].call(&counts[k], i % 2 ? SHORT : LARGE + i);
	for (int k = 0; k < KINDS; k++)
		printf("%s %lu %lu %lu\n", kinds[k].name, counts[k].calls, counts[k].bytes,
		       counts[k].received);
	fflush(stdout);
	MPI_Op_free(&largest);
	MPI_Finalize();
	return 0;
}
