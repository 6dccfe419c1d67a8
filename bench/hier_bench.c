/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives over several nodes: hier_bench KIND SECONDS SIZE... prints one JSON line a size, the
 * median and the least over calls of the slowest rank's time in a call. Buffers are the same in
 * each call; results are checked.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS_MAX = 4096, CALLS_MIN = 8 };

static int rank, ranks;
static double *in, *out;

static void call(const char *kind, int n, int k)
{
	if (!strcmp(kind, "bcast"))
		MPI_Bcast(rank ? out : in, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	else if (!strcmp(kind, "allreduce"))
		MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	else if (!strcmp(kind, "reduce"))
		MPI_Reduce(in, out, n, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	else if (!strcmp(kind, "allgather"))
		MPI_Allgather(in, n, MPI_DOUBLE, out, n, MPI_DOUBLE, MPI_COMM_WORLD);
	else if (!strcmp(kind, "gather"))
		MPI_Gather(in, n, MPI_DOUBLE, out, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	else
		MPI_Scatter(out, n, MPI_DOUBLE, in, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	(void)k;
}

static void check(const char *kind, int n)
{
	double want = !strcmp(kind, "bcast")       ? 1
		      : !strcmp(kind, "allgather") ? ranks
						   : ranks * (ranks + 1) / 2;
	double got = !strcmp(kind, "allgather") ? out[(size_t)n * (size_t)ranks - 1] : out[n - 1];
	int is_mine = strcmp(kind, "reduce") || !rank;

	if (!strstr("bcast allreduce reduce allgather", kind) || !is_mine ||
	    (!rank && !strcmp(kind, "bcast")))
		return;
	if (got != want) {
		fprintf(stderr, "rank %d: %s: %g is not %g\n", rank, kind, got, want);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static int compare(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1
						       : *(const double *)a > *(const double *)b;
}

static void measure(const char *kind, double seconds, int n)
{
	static double times[CALLS_MAX];
	double begin = MPI_Wtime(), t, mine;
	int calls = 0, more = 1;

	for (int i = 0; i < 4; i++)
		call(kind, n, i);
	for (; more; calls++) {
		MPI_Barrier(MPI_COMM_WORLD);
		t = MPI_Wtime();
		call(kind, n, calls);
		mine = MPI_Wtime() - t;
		MPI_Reduce(&mine, &times[calls], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
		more = calls + 1 < CALLS_MAX &&
		       (calls < CALLS_MIN || MPI_Wtime() - begin < seconds);
		MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	check(kind, n);
	qsort(times, (size_t)calls, sizeof(*times), compare);
	if (!rank)
		printf("{\"kind\": \"%s\", \"bytes\": %zu, \"us\": %.1f, \"best_us\": %.1f, "
		       "\"calls\": %d}\n",
		       kind, (size_t)n * sizeof(*in), times[calls / 2] * 1e6, times[0] * 1e6,
		       calls);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 3; i < argc; i++) {
		size_t n = strtoul(argv[i], NULL, 0) / sizeof(*in);

		in = malloc(n * sizeof(*in));
		out = calloc(n * (size_t)ranks, sizeof(*out));
		for (size_t k = 0; k < n; k++)
			in[k] = rank + 1;
		measure(argv[1], atof(argv[2]), (int)n);
		free(in);
		free(out);
	}
	MPI_Finalize();
	return 0;
}
