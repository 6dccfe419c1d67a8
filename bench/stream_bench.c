/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stream_bench: what a computation that needs all of the memory's speed loses to a nonblocking
 * reduction beside it, and what it is disturbed by when nothing is pending. After STREAM
 * (McCalpin): a[i] = b[i] + s * c[i], over arrays of `array` bytes.
 *
 *   alone     `passes` triads
 *   beside    MPI_Iallreduce of `sizes` bytes, the same triads, MPI_Wait
 *   speed     (bytes of the triads + bytes that the reduction moves) / beside, over bytes of the
 * triads / alone: 1 where its bytes cost what the program's own do, more where they cost it less
 *   switches  of all threads of the process, in the triads of `alone`, after collectives; voluntary
 * ones are wake-ups
 *
 *   shared=0  every rank has a core, and works: nobody is free, and who waits moves the data
 *   shared=1  all ranks are on CPU 0, the others are free. The last rank works; the others have
 * called before, and sleep outside of MPI until it has its result (an MPI without progress of its
 * own never ends there)
 *
 * alone and beside take turns; medians. Samples in which somebody else had a core are left out. The
 * reduction's result is checked. An ordinary MPI program; results are JSON lines on stdout. Other
 * arguments: samples=, nice=.
 */
#include <mpi.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "job.h"

#define LEAD_NS  300000 /* so much earlier the others call */
#define WARM_UPS 72     /* more than a communicator has places for collectives in flight */
#define TRIES    4      /* times the samples that were asked for */
#define TRIAD_ARRAYS 3
#define REDUCE_PASSES  2  /* a rank's part is read from all, and written to all */

struct stream {
	struct bench b;
	struct job_watch watch;
	uint64_t sizes[JOB_MAX_LIST], array_bytes;
	int size_count, passes, samples, nice;
	bool shared;
	double *a, *b2, *c, *send, *recv;
};

static int last(const struct stream *s) { return s->b.ranks - 1; }

static bool works(const struct stream *s) { return !s->shared || s->b.rank == last(s); }

static __attribute__((noinline)) void triad(double *a, const double *b, const double *c, size_t n,
					    double by)
{
	for (size_t i = 0; i < n; i++)
		a[i] = b[i] + by * c[i];
}

static void triads(const struct stream *s)
{
	for (int i = 0; i < s->passes; i++)
		triad(s->a, s->b2, s->c, s->array_bytes / 8, 1.0 + i);
}

/* ---- context switches -------------------------------------------------------------------- */

struct switches { long voluntary, forced; };

static void add_thread(const char *tid, struct switches *s)
{
	char path[320], line[128];
	long n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", tid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
			s->voluntary += n;
		if (sscanf(line, "nonvoluntary_ctxt_switches: %ld", &n) == 1)
			s->forced += n;
	}
	if (f)
		fclose(f);
}

static struct switches count_switches(void)
{
	struct switches s = { 0 };
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			add_thread(e->d_name, &s);
	if (dir)
		closedir(dir);
	return s;
}

/* ---- samples ----------------------------------------------------------------------------- */

static void prepare(struct stream *s, size_t bytes, int seed)
{
	for (size_t i = 0; i < bytes / 8; i += 512)
		s->send[i] = seed + s->b.rank;
}

static void check(const struct stream *s, size_t bytes, int seed)
{
	int ranks = s->b.ranks;

	for (size_t i = 0; i < bytes / 8; i += 512)
		if (s->recv[i] != (double)ranks * seed + ranks * (ranks - 1) / 2.0)
			job_die("wrong data");
}

/* The time of the last rank, ns; the same on all. bytes 0: alone. */
static uint64_t sample(struct stream *s, size_t bytes, bool *out_disturbed)
{
	static int seed;
	MPI_Request r = MPI_REQUEST_NULL;
	struct job_cpu before;
	uint64_t begin, end, slowest = 0;

	seed = (seed + 1) % 50;
	prepare(s, bytes, seed);
	begin = job_begin(&s->b, &s->watch, &before);
	if (s->shared && works(s)) {
		nanosleep(&(struct timespec){ .tv_nsec = LEAD_NS }, NULL);
		begin = bench_now_ns();
	}
	if (bytes)
		MPI_Iallreduce(s->send, s->recv, (int)(bytes / 8), MPI_DOUBLE, MPI_SUM,
			       MPI_COMM_WORLD, &r);
	if (works(s))
		triads(s);
	else
		bench_sync(&s->b);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	end = bench_now_ns();
	if (s->shared && works(s))
		bench_sync(&s->b);
	job_say(&s->b, &s->watch, &before, end - begin);
	bench_sync(&s->b);
	for (int k = s->shared ? last(s) : 0; k < s->b.ranks; k++)
		if (s->b.area->value[k][JOB_SAYS_NS] > slowest)
			slowest = s->b.area->value[k][JOB_SAYS_NS];
	*out_disturbed = job_is_disturbed(&s->b, s->shared, slowest);
	if (bytes)
		check(s, bytes, seed);
	bench_sync(&s->b);
	return slowest;
}

static void measure(struct stream *s, size_t bytes)
{
	double *alone = job_memory((size_t)s->samples * 8),
	       *beside = job_memory((size_t)s->samples * 8), a, b, own, moved;
	bool first, second;
	int count = 0, disturbed = 0;

	for (int i = 0; i < TRIES * s->samples && count < s->samples; i++) {
		double x = (double)sample(s, 0, &first), y = (double)sample(s, bytes, &second);

		disturbed += first || second;
		if ((first || second) && i < (TRIES - 1) * s->samples)
			continue;
		alone[count] = x;
		beside[count++] = y;
	}
	a = job_median(alone, count);
	b = job_median(beside, count);
	own = (double)s->passes * TRIAD_ARRAYS * (double)s->array_bytes;
	moved = (s->shared ? s->b.ranks : 1) * REDUCE_PASSES * (double)bytes;
	if (s->b.rank == last(s))
		printf("{\"what\": \"stream\", \"bytes\": %zu, \"shared\": %d, \"alone_us\": %.1f, "
		       "\"beside_us\": %.1f, "
		       "\"triad_gbps\": %.2f, \"slower\": %.4f, \"moved_share\": %.4f, \"speed\": "
		       "%.4f, \"samples\": %d, "
		       "\"disturbed\": %d}\n",
		       bytes, s->shared, a / 1e3, b / 1e3, own / a, b / a, moved / own,
		       (own + moved) / b / (own / a), count, disturbed);
	fflush(stdout);
	free(alone);
	free(beside);
}

/* Everything exists that collectives bring into being, and nothing is pending. */
static void measure_switches(struct stream *s)
{
	struct switches x, y;

	/* whoever looks for work before it sleeps has gone to sleep */
	nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
	bench_sync(&s->b);
	x = count_switches();
	if (works(s))
		for (int i = 0; i < 8; i++)
			triads(s);
	y = count_switches();
	if (s->b.rank == last(s))
		printf("{\"what\": \"switches\", \"shared\": %d, \"voluntary\": %ld, \"forced\": "
		       "%ld}\n",
		       s->shared, y.voluntary - x.voluntary, y.forced - x.forced);
	fflush(stdout);
	bench_sync(&s->b);
}

/* ---- all of it --------------------------------------------------------------------------- */

static void parse_one(struct stream *s, const char *arg)
{
	uint64_t one[JOB_MAX_LIST];
	const char *v;

	if ((v = job_value(arg, "sizes")))
		s->size_count = job_parse_list(s->sizes, v);
	else if ((v = job_value(arg, "array")) && job_parse_list(one, v) == 1)
		s->array_bytes = one[0] / 64 * 64;
	else if ((v = job_value(arg, "passes")))
		s->passes = atoi(v) > 0 ? atoi(v) : 1;
	else if ((v = job_value(arg, "samples")))
		s->samples = atoi(v) > 0 ? atoi(v) : 1;
	else if ((v = job_value(arg, "shared")))
		s->shared = atoi(v);
	else if ((v = job_value(arg, "nice")))
		s->nice = atoi(v);
	else
		job_die("arguments: sizes array passes samples shared nice");
}

static void set_up(struct stream *s)
{
	uint64_t most = 64 << 10;

	if (s->nice)
		job_set_nice(s->nice);
	s->b.crowded = s->b.sleeps = s->shared;
	job_open(&s->b);
	bench_pin(s->shared ? 0 : s->b.rank);
	for (int i = 0; i < s->size_count; i++)
		most = s->sizes[i] > most ? s->sizes[i] : most;
	s->a = job_buffer(false, s->array_bytes);
	s->b2 = job_buffer(false, s->array_bytes);
	s->c = job_buffer(false, s->array_bytes);
	s->send = job_buffer(false, most);
	s->recv = job_buffer(false, most);
	job_print_run(&s->b, !s->b.crowded);
	for (int i = 0; i < 3;
	     i++) /* a communicator is served from its first large blocking collectives on */
		MPI_Bcast(s->send, (int)most, MPI_BYTE, 0, MPI_COMM_WORLD);
	job_watch_open(&s->watch, false);
}

int main(int argc, char **argv)
{
	static struct stream s = { .sizes = { 1 << 20, 16 << 20 },
				   .size_count = 2,
				   .array_bytes = 64 << 20,
				   .passes = 4,
				   .samples = 15 };
	bool disturbed;
	int passes;

	MPI_Init(&argc, &argv);
	for (int i = 1; i < argc; i++)
		parse_one(&s, argv[i]);
	set_up(&s);
	for (int i = 0; i < s.size_count; i++) {
		passes = s.passes;
		s.passes = 0;
		for (int k = 0; k < WARM_UPS; k++)
			sample(&s, s.sizes[i], &disturbed);
		s.passes = passes;
		measure(&s, s.sizes[i]);
	}
	measure_switches(&s);
	job_watch_close(&s.watch);
	MPI_Finalize();
	return 0;
}
