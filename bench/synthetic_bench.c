/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * synthetic_bench: the application that the project's model paper measures (its Algorithm 1), as
 * far as its text tells; one launch, an ordinary MPI program.
 *
 *   root initialises A[0]; broadcast of A[0]
 *   for each iteration i
 *       root initialises A[i + 1] with random values
 *       broadcast of A[i + 1]                          may run on during the next line
 *       all: C = elementwise maximum of C and A[i]
 *       gather of C                                    may run on during the next initialisation
 *
 * A[i] and A[i + 1] are two buffers that change places. Elements are 4 bytes wide: order 512 is 1
 * MB, 2048 is 16 MB. Each rank sums up the time of its initialisation, broadcast, computation and
 * gather; what is asked for is the time of all iterations until every rank has used all data.
 *
 * After the run root checks that every C it gathered is its own, and its own against a second run
 * of the random numbers.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job.h"

/* Each rank's sums; BCAST_COMPUTE and GATHER_INIT are what may overlap. */
enum { INIT, BCAST, COMPUTE, GATHER, BCAST_COMPUTE, GATHER_INIT, PARTS };
#define PATIENCE_NS 8000000000ull /* how long undisturbed runs are tried for */
static const char *const part_names[PARTS] = { "init",   "bcast",	 "compute",
						"gather", "bcast_compute", "gather_init" };

struct job {
	struct bench b;
	uint64_t orders[JOB_MAX_LIST];
	int order_count, iterations, repeats, nice;
	bool pin, shared, raise;
	struct job_watch watch;
	int n; /* elements of a matrix */
	uint32_t *a[2], *c, *all;
	uint64_t part_ns[PARTS];
};

static uint32_t *matrix(size_t elements)
{
	uint32_t *m = job_memory(4 * elements);

	memset(m, 0, 4 * elements);
	return m;
}

/* A generator that costs about what a library's does, and can be run again. */
static void initialise(uint32_t *m, int n, uint32_t seed)
{
	uint32_t x = seed * 2654435761u + 1;

	for (int i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		m[i] = x;
	}
}

static __attribute__((noinline)) void maximum(uint32_t *c, const uint32_t *m, int n)
{
	for (int i = 0; i < n; i++)
		c[i] = m[i] > c[i] ? m[i] : c[i];
}

static uint64_t lap(struct job *j, int part, uint64_t since)
{
	uint64_t now = bench_now_ns();

	j->part_ns[part] += now - since;
	return now;
}

/* One run of the application; the time of this rank. */
static uint64_t application(struct job *j)
{
	struct job_cpu before;
	uint64_t t0, t;

	memset(j->c, 0, 4 * (size_t)j->n);
	memset(j->part_ns, 0, sizeof(j->part_ns));
	t0 = job_begin(&j->b, &j->watch, &before);
	if (j->b.rank == 0)
		initialise(j->a[0], j->n, 0);
	MPI_Bcast(j->a[0], j->n, MPI_UINT32_T, 0, MPI_COMM_WORLD);
	for (int i = 0; i < j->iterations; i++) {
		t = bench_now_ns();
		if (j->b.rank == 0)
			initialise(j->a[(i + 1) % 2], j->n, (uint32_t)i + 1);
		t = lap(j, INIT, t);
		MPI_Bcast(j->a[(i + 1) % 2], j->n, MPI_UINT32_T, 0, MPI_COMM_WORLD);
		t = lap(j, BCAST, t);
		maximum(j->c, j->a[i % 2], j->n);
		t = lap(j, COMPUTE, t);
		MPI_Gather(j->c, j->n, MPI_UINT32_T, j->all, j->n, MPI_UINT32_T, 0, MPI_COMM_WORLD);
		lap(j, GATHER, t);
	}
	j->part_ns[BCAST_COMPUTE] = j->part_ns[BCAST] + j->part_ns[COMPUTE];
	j->part_ns[GATHER_INIT] = j->part_ns[GATHER] + j->part_ns[INIT];
	/* used: the last matrix by the leaves, the last C by root, and C may be written again */
	if (j->b.rank)
		(void)bench_touch(j->a[j->iterations % 2], 4 * (size_t)j->n);
	else
		(void)bench_touch(j->all, 4 * (size_t)j->n * (size_t)j->b.ranks);
	*(volatile uint32_t *)j->c = 0;
	t = bench_now_ns() - t0;
	job_say(&j->b, &j->watch, &before, t);
	return t;
}

/* Root: is what was gathered what the random numbers say? */
static uint64_t wrong(const struct job *j)
{
	uint32_t *a = matrix((size_t)j->n), *c = matrix((size_t)j->n);
	uint64_t bad = 0;

	for (int i = 0; i < j->iterations; i++) {
		initialise(a, j->n, (uint32_t)i);
		maximum(c, a, j->n);
	}
	for (int r = 0; r < j->b.ranks; r++)
		bad += memcmp(j->all + (size_t)r * (size_t)j->n, c, 4 * (size_t)j->n) != 0;
	free(a);
	free(c);
	return bad;
}

struct kept {
	struct bench_samples total, parts[PARTS];
};

static void keep(struct kept *k, uint64_t ns, const uint64_t part_ns[PARTS])
{
	k->total.ns[k->total.count++] = ns;
	for (int p = 0; p < PARTS; p++)
		k->parts[p].ns[k->parts[p].count++] = part_ns[p];
}

static void forget(struct kept *k)
{
	k->total.count = 0;
	for (int p = 0; p < PARTS; p++)
		k->parts[p].count = 0;
}

static void print_result(const struct job *j, struct kept *kept, int dropped, uint64_t bad,
			 const double line[2])
{
	struct bench_samples *total = &kept->total, *parts = kept->parts;

	bench_sort(total);
	printf("{\"what\": \"synthetic\", \"who\": \"all\", \"bytes\": %zu, \"ranks\": %d, "
	       "\"iterations\": %d, \"mismatches\": %llu, \"line_before_ns\": %.1f, "
	       "\"line_after_ns\": %.1f, \"total\": {\"us\": %.1f, \"p0_us\": %.1f, \"p10_us\": "
	       "%.1f, "
	       "\"p90_us\": %.1f, \"p99_us\": %.1f, \"samples\": %d, \"dropped\": %d, \"calls\": "
	       "%d}",
	       4 * (size_t)j->n, j->b.ranks, j->iterations, (unsigned long long)bad, line[0],
	       line[1], bench_percentile_us(total, 50), bench_percentile_us(total, 0),
	       bench_percentile_us(total, 10), bench_percentile_us(total, 90),
	       bench_percentile_us(total, 99), total->count, dropped, total->count + dropped);
	for (int p = 0; p < PARTS; p++) {
		bench_sort(&parts[p]);
		printf(", \"%s\": {\"us\": %.1f}", part_names[p],
		       bench_percentile_us(&parts[p], 50));
	}
	printf("}\n");
	fflush(stdout);
}

static void measure(struct job *j, uint64_t order)
{
	static struct kept calm,
		others; /* others: disturbed; they count where there is nothing else */
	uint64_t since, ns, bad = 0, part_ns[PARTS];
	bool disturbed;
	double line[2];

	j->n = (int)(order * order);
	j->a[0] = matrix((size_t)j->n);
	j->a[1] = matrix((size_t)j->n);
	j->c = matrix((size_t)j->n);
	j->all = matrix(j->b.rank == 0 ? (size_t)j->n * (size_t)j->b.ranks : 1);
	application(j);
	job_watch_close(&j->watch); /* threads may have been started meanwhile */
	job_watch_open(&j->watch, j->raise);
	line[0] = bench_line_ns(&j->b);
	since = bench_now_ns();
	while (bench_agree(&j->b,
			   calm.total.count < j->repeats && others.total.count < BENCH_MAX_CALLS &&
				   bench_now_ns() - since < PATIENCE_NS)) {
		ns = bench_max(&j->b, application(j));
		disturbed = bench_agree(&j->b, job_is_disturbed(&j->b, j->shared, ns));
		for (int p = 0; p < PARTS; p++)
			part_ns[p] = bench_max(&j->b, j->part_ns[p]);
		bad += j->b.rank == 0 ? wrong(j) : 0;
		keep(disturbed ? &others : &calm, ns, part_ns);
		if (disturbed)
			usleep(20000); /* whoever it was may be done then */
	}
	line[1] = bench_line_ns(&j->b);
	if (j->b.rank == 0)
		print_result(j, calm.total.count ? &calm : &others, others.total.count, bad, line);
	forget(&calm);
	forget(&others);
	free(j->a[0]);
	free(j->a[1]);
	free(j->c);
	free(j->all);
}

int main(int argc, char **argv)
{
	static struct job j = { .iterations = 24, .repeats = 3 };
	const char *v;

	MPI_Init(&argc, &argv);
	for (int i = 1; i < argc; i++) {
		if ((v = job_value(argv[i], "orders")))
			j.order_count = job_parse_list(j.orders, v);
		else if ((v = job_value(argv[i], "iterations")))
			j.iterations = atoi(v);
		else if ((v = job_value(argv[i], "repeats")))
			j.repeats = atoi(v);
		else if ((v = job_value(argv[i], "nice")))
			j.nice = atoi(v);
		else if ((v = job_value(argv[i], "pin")))
			j.pin = atoi(v);
		else if ((v = job_value(argv[i], "shared")))
			j.shared = j.b.crowded = j.b.sleeps = atoi(v);
		else if ((v = job_value(argv[i], "raise")))
			j.raise = atoi(v);
		else
			job_die("arguments: orders iterations repeats nice pin shared raise");
	}
	if (j.nice)
		job_set_nice(j.nice);
	job_open(&j.b);
	if (j.pin && !j.b.crowded)
		bench_pin(j.b.rank);
	job_print_run(&j.b, j.pin && !j.b.crowded);
	for (int i = 0; i < j.order_count; i++)
		measure(&j, j.orders[i]);
	MPI_Finalize();
	return 0;
}
