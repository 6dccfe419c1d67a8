/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nbc_bench: how much of a nonblocking collective is hidden behind work that calls nothing, after
 * NBCBench (Hoefler, Lumsdaine, Rehm: SC 2007). An ordinary MPI program: no option says whose
 * collectives it gets.
 *
 *   comm      the call and the wait, one after the other
 *   work      every rank works as long as comm took
 *   both      the call, the same work, the wait
 *   overhead  both - work: what the collective costs a program that works
 *   overlap   1 - overhead / comm
 *
 * work=100,200: also with twice that work. Who waits in a call of MPI may move data together with
 * whoever moves it while the program works, so that comm is less than what the latter need alone:
 * then 100 % of comm cannot hide it all, and the overhead with more work is what the program pays
 * in any case.
 *
 * Each is the time from the instant at which the last rank was there until the last rank that works
 * has its result, by a clock that all ranks share. Samples of work and of both take turns; overhead
 * is the median of the differences. Samples in which somebody else had a core are left out.
 *
 *   who=one             the last rank works, the others call and wait: their cores are free for
 * what they wait for who=all             every rank works who=one shared=1    all ranks are on CPU
 * 0, the others are free: the last rank works; the others have called before, and sleep outside of
 * MPI until it has its result (an MPI without progress of its own never ends there) who=all
 * shared=1    every rank works, one after the other, as they share a core; so most of what is
 * measured is how they hand it to each other
 *
 * how= says what is measured:
 *   nonblocking
 *   blocking    the blocking collective at the call, and no wait: overlap is 0 by definition
 *   ideal       no collective; the wait is over as long after the last call as comm=US says:
 * overlap is 1 but for the clock and who gets the core The last two measure the benchmark. Outside
 * of the samples there is a barrier now and then, as programs have them. Data is checked where it
 * was moved. Results are JSON lines on stdout.
 */
#include <mpi.h>
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "job.h"

#define MARK_STRIDE 4096
#define CALIBRATIONS 3
#define WARM_UPS                                                                                   \
	72 /* more than a communicator has places for collectives in flight: each is new once */
#define LEAD_NS      300000 /* so much earlier the others call */
#define STEP_CALLS   8      /* then there is a barrier, as between the steps of a program */
#define TRIES_MAX   6 /* times the samples that were asked for */

enum how { NONBLOCKING, BLOCKING, IDEAL };

struct nbc {
	struct bench b;
	struct job_watch watch;
	const char *what; /* a list of names */
	enum how how;
	uint64_t sizes[JOB_MAX_LIST], works_percent[JOB_MAX_LIST], ideal_ns;
	int size_count, percent_count, samples, nice;
	bool shared, one, works;
	char *send, *recv;
	double turn_ns;
	uint64_t worked_ns, call_ns, wait_ns; /* of this rank in its last sample */
	_Atomic uint64_t
		*called; /* ideal: how many calls there were, and when the last was; shared */
	uint64_t calls;
	int disturbed;
};

/* ---- the collectives --------------------------------------------------------------------- */

enum { IBCAST, IGATHER, IALLTOALL, IALLREDUCE, IBARRIER, KINDS };
static const char *const names[KINDS] = { "ibcast", "igather", "ialltoall", "iallreduce",
					  "ibarrier" };

/* It works in any case, and waits for data: the root of a gather, a leaf of a broadcast. */
static int last(const struct nbc *n) { return n->b.ranks - 1; }

static void call_nonblocking(const struct nbc *n, int kind, int bytes, MPI_Request *r)
{
	switch (kind) {
	case IBCAST:
		MPI_Ibcast(n->send, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, r);
		break;
	case IGATHER:
		MPI_Igather(n->send, bytes, MPI_BYTE, n->recv, bytes, MPI_BYTE, last(n),
			    MPI_COMM_WORLD, r);
		break;
	case IALLTOALL:
		MPI_Ialltoall(n->send, bytes, MPI_BYTE, n->recv, bytes, MPI_BYTE, MPI_COMM_WORLD,
			      r);
		break;
	case IALLREDUCE:
		MPI_Iallreduce(n->send, n->recv, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, r);
		break;
	default:
		MPI_Ibarrier(MPI_COMM_WORLD, r);
	}
}

static void call_blocking(const struct nbc *n, int kind, int bytes)
{
	switch (kind) {
	case IBCAST:
		MPI_Bcast(n->send, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		break;
	case IGATHER:
		MPI_Gather(n->send, bytes, MPI_BYTE, n->recv, bytes, MPI_BYTE, last(n),
			   MPI_COMM_WORLD);
		break;
	case IALLTOALL:
		MPI_Alltoall(n->send, bytes, MPI_BYTE, n->recv, bytes, MPI_BYTE, MPI_COMM_WORLD);
		break;
	case IALLREDUCE:
		MPI_Allreduce(n->send, n->recv, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		break;
	default:
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

static void call_ideal(struct nbc *n)
{
	n->calls += (uint64_t)n->b.ranks;
	atomic_store_explicit(&n->called[1], bench_now_ns(), memory_order_relaxed);
	atomic_fetch_add_explicit(&n->called[0], 1, memory_order_release);
}

static void wait_ideal(const struct nbc *n)
{
	while (atomic_load_explicit(&n->called[0], memory_order_acquire) < n->calls ||
	       bench_now_ns() <
		       atomic_load_explicit(&n->called[1], memory_order_relaxed) + n->ideal_ns)
		if (n->shared)
			sched_yield();
}

/* ---- their data -------------------------------------------------------------------------- */

/* Values at a few places: all of it would take longer than the collective. */
static void mark(char *at, size_t bytes, int seed)
{
	for (size_t i = 0; i < bytes; i += MARK_STRIDE)
		at[i] = (char)(seed + (int)(i / MARK_STRIDE));
}

static bool is_marked(const char *at, size_t bytes, int seed)
{
	for (size_t i = 0; i < bytes; i += MARK_STRIDE)
		if (at[i] != (char)(seed + (int)(i / MARK_STRIDE)))
			return false;
	return true;
}

static void prepare(struct nbc *n, int kind, size_t bytes, int seed)
{
	int rank = n->b.rank;

	if (kind == IALLREDUCE)
		for (size_t i = 0; i < bytes / 8; i += MARK_STRIDE / 8)
			((double *)n->send)[i] = seed + rank;
	else if (kind == IALLTOALL)
		for (int r = 0; r < n->b.ranks; r++)
			mark(n->send + (size_t)r * bytes, bytes, seed + 3 * rank + 5 * r);
	else if (kind == IGATHER || (kind == IBCAST && !rank))
		mark(n->send, bytes, seed + 3 * rank);
}

static bool is_right(const struct nbc *n, int kind, size_t bytes, int seed)
{
	int ranks = n->b.ranks, rank = n->b.rank;
	bool right = true;

	if (n->how == IDEAL || kind == IBARRIER)
		return true;
	if (kind == IBCAST)
		return is_marked(n->send, bytes, seed);
	if (kind == IALLREDUCE) {
		for (size_t i = 0; i < bytes / 8; i += MARK_STRIDE / 8)
			right &= ((double *)n->recv)[i] ==
				 (double)ranks * seed + ranks * (ranks - 1) / 2.0;
		return right;
	}
	for (int r = 0; r < ranks && (kind == IALLTOALL || rank == last(n)); r++)
		right &= is_marked(n->recv + (size_t)r * bytes, bytes,
				   seed + 3 * r + (kind == IALLTOALL ? 5 * rank : 0));
	return right;
}

/* ---- work -------------------------------------------------------------------------------- */

static volatile double sink;

/* Each turn needs the one before: its time is the machine's, not the compiler's. */
static __attribute__((noinline)) void turns(uint64_t n)
{
	double x = 1.0000001;

	for (uint64_t i = 0; i < n; i++)
		x = x * 1.0000001 + 1e-9;
	sink = x;
}

static double turn_ns(struct bench *b)
{
	uint64_t best = UINT64_MAX;

	for (int turn = 0; turn < b->ranks; turn++) {
		bench_sync(b);
		for (int i = 0; turn == b->rank && i < 100; i++) {
			uint64_t t = bench_now_ns();

			turns(20000);
			t = bench_now_ns() - t;
			best = t < best ? t : best;
		}
	}
	b->area->value[b->rank][1] = best;
	bench_sync(b);
	for (int r = 0; r < b->ranks; r++)
		best = b->area->value[r][1] > best ? b->area->value[r][1] : best;
	bench_sync(b);
	return (double)best / 20000;
}

static void work(const struct nbc *n, double ns)
{
	turns((uint64_t)(ns / n->turn_ns));
}

/* ---- samples ----------------------------------------------------------------------------- */

static void start(struct nbc *n, int kind, size_t bytes, MPI_Request *r)
{
	*r = MPI_REQUEST_NULL;
	if (n->how == NONBLOCKING)
		call_nonblocking(n, kind, (int)bytes, r);
	else if (n->how == BLOCKING)
		call_blocking(n, kind, (int)bytes);
	else
		call_ideal(n);
}

static void finish(struct nbc *n, MPI_Request *r)
{
	if (n->how == IDEAL)
		wait_ideal(n);
	else
		MPI_Wait(r, MPI_STATUS_IGNORE);
}

/* The time of the last rank, ns; the same on all ranks. *out_disturbed: somebody else had a core.
 */
static uint64_t sample(struct nbc *n, int kind, size_t bytes, double work_ns, bool calls,
		       bool *out_disturbed)
{
	static int seed;
	uint64_t begin, called, worked, end, slowest = 0;
	struct job_cpu before;
	MPI_Request r;

	seed = (seed + 1) % 50;
	prepare(n, kind, bytes, seed);
	begin = job_begin(&n->b, &n->watch, &before);
	if (n->shared && n->one && n->b.rank == last(n)) {
		nanosleep(&(struct timespec){ .tv_nsec = LEAD_NS }, NULL);
		begin = bench_now_ns();
	}
	n->call_ns = bench_now_ns();
	if (calls)
		start(n, kind, bytes, &r);
	called = bench_now_ns();
	if (work_ns > 0 && n->works)
		work(n, work_ns);
	worked = bench_now_ns();
	if (n->shared && n->one && n->b.rank != last(n))
		bench_sync(&n->b);
	if (calls)
		finish(n, &r);
	end = bench_now_ns();
	if (n->shared && n->one && n->b.rank == last(n))
		bench_sync(&n->b);
	n->call_ns = called - n->call_ns;
	n->worked_ns = worked - called;
	n->wait_ns = end - worked;
	job_say(&n->b, &n->watch, &before, end - begin);
	bench_sync(&n->b);
	for (int k = n->one ? last(n) : 0; k < n->b.ranks; k++)
		if (n->b.area->value[k][JOB_SAYS_NS] > slowest)
			slowest = n->b.area->value[k][JOB_SAYS_NS];
	*out_disturbed = job_is_disturbed(&n->b, n->shared, slowest);
	if (calls && !is_right(n, kind, bytes, seed))
		job_die("wrong data");
	if (calls && n->how == NONBLOCKING && seed % STEP_CALLS == 0)
		MPI_Barrier(MPI_COMM_WORLD);
	bench_sync(&n->b);
	return slowest;
}

enum { COMM, ALONE, BOTH, OVER, CALL, WAIT, SERIES };

/* Undisturbed samples, as far as there are such; the same number on all ranks. */
static int sample_comm(struct nbc *n, int kind, size_t bytes, double *out)
{
	int count = 0;
	bool disturbed;

	for (int i = 0; i < TRIES_MAX * n->samples && count < n->samples; i++) {
		double ns = (double)sample(n, kind, bytes, 0, true, &disturbed);

		n->disturbed += disturbed;
		if (!disturbed || i >= (TRIES_MAX - 1) * n->samples)
			out[count++] = ns;
	}
	return count;
}

/* of[ALONE], [BOTH]; [CALL], [WAIT]: what the last rank spends in the two calls of `both`. */
static int sample_pairs(struct nbc *n, int kind, size_t bytes, double work_ns, double *of[])
{
	int count = 0;
	bool first, second;

	for (int i = 0; i < TRIES_MAX * n->samples && count < n->samples; i++) {
		double a = (double)sample(n, kind, bytes, work_ns, false, &first);
		double b = (double)sample(n, kind, bytes, work_ns, true, &second);

		n->disturbed += first || second;
		if ((first || second) && i < (TRIES_MAX - 1) * n->samples)
			continue;
		of[ALONE][count] = a;
		of[BOTH][count] = b;
		of[OVER][count] = b - a;
		of[CALL][count] = (double)n->call_ns;
		of[WAIT][count++] = (double)n->wait_ns;
	}
	return count;
}

/* A loop that takes at least so long, in this rank, without the clock at its ends. */
static double calibrated(struct nbc *n, int kind, double ns)
{
	double asked = ns;
	bool disturbed;

	for (int i = 0; i < CALIBRATIONS; i++) {
		double least = 1e30;

		for (int k = 0; k < 5; k++) {
			sample(n, kind, 0, asked, false, &disturbed);
			if (n->works && (double)n->worked_ns < least)
				least = (double)n->worked_ns;
		}
		asked *= n->works && least < ns ? ns / least : 1;
	}
	return asked;
}

static void measure_work(struct nbc *n, int kind, size_t bytes, double comm, double percent,
			 double *of[])
{
	double m[SERIES];
	int pairs = sample_pairs(n, kind, bytes, calibrated(n, kind, comm * percent / 100), of);

	for (int i = ALONE; i < SERIES; i++)
		m[i] = job_median(of[i], pairs) / 1e3;
	comm /= 1e3;
	if (n->b.rank == last(n))
		printf("{\"what\": \"%s\", \"bytes\": %zu, \"percent\": %.0f, \"comm_us\": %.2f, "
		       "\"work_us\": %.2f, "
		       "\"both_us\": %.2f, \"overhead_us\": %.2f, \"overlap\": %.4f, \"call_us\": "
		       "%.2f, "
		       "\"wait_us\": %.2f, \"samples\": %d, \"disturbed\": %d}\n",
		       names[kind], bytes, percent, comm, m[ALONE], m[BOTH], m[OVER],
		       1 - m[OVER] / comm, m[CALL], m[WAIT], pairs, n->disturbed);
	fflush(stdout);
}

static void measure(struct nbc *n, int kind, size_t bytes)
{
	double *of[SERIES], comm;
	bool disturbed;

	for (int i = 0; i < SERIES; i++)
		of[i] = job_memory((size_t)n->samples * sizeof(double));
	for (int i = 0; i < WARM_UPS; i++)
		sample(n, kind, bytes, 0, true, &disturbed);
	for (int i = 0; i < n->percent_count; i++) {
		n->disturbed = 0;
		comm = job_median(of[COMM], sample_comm(n, kind, bytes, of[COMM]));
		measure_work(n, kind, bytes, comm, (double)n->works_percent[i], of);
	}
	for (int i = 0; i < SERIES; i++)
		free(of[i]);
}

/* ---- all of it --------------------------------------------------------------------------- */

/* The ranks share CPU 0; threads that an MPI has made for its progress get the others. */
static void share_one_cpu(void)
{
	DIR *dir = opendir("/proc/self/task");
	cpu_set_t others;
	struct dirent *e;

	CPU_ZERO(&others);
	for (int cpu = 1; cpu < bench_cpus(); cpu++)
		CPU_SET(cpu, &others);
	while (dir && (e = readdir(dir)))
		if (atol(e->d_name) > 0 && atol(e->d_name) != syscall(SYS_gettid))
			sched_setaffinity((pid_t)atol(e->d_name), sizeof(others), &others);
	if (dir)
		closedir(dir);
	bench_pin(0);
}

static void parse_one(struct nbc *n, const char *arg)
{
	const char *v;

	if ((v = job_value(arg, "what")))
		n->what = v;
	else if ((v = job_value(arg, "sizes")))
		n->size_count = job_parse_list(n->sizes, v);
	else if ((v = job_value(arg, "work")))
		n->percent_count = job_parse_list(n->works_percent, v);
	else if ((v = job_value(arg, "samples")))
		n->samples = atoi(v) > 0 ? atoi(v) : 1;
	else if ((v = job_value(arg, "shared")))
		n->shared = atoi(v);
	else if ((v = job_value(arg, "who")))
		n->one = !strcmp(v, "one");
	else if ((v = job_value(arg, "nice")))
		n->nice = atoi(v);
	else if ((v = job_value(arg, "comm")))
		n->ideal_ns = strtoull(v, NULL, 10) * 1000;
	else if ((v = job_value(arg, "how")) && !strcmp(v, "blocking"))
		n->how = BLOCKING;
	else if (v && !strcmp(v, "ideal"))
		n->how = IDEAL;
	else if (!v || strcmp(v, "nonblocking"))
		job_die(arg);
}

static bool is_in(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = list; (at = strstr(at, name)); at += len)
		if ((at == list || at[-1] == ',') && (!at[len] || at[len] == ','))
			return true;
	return false;
}

static void measure_all(struct nbc *n)
{
	for (int kind = 0; kind < KINDS; kind++) {
		if (!is_in(n->what, names[kind]))
			continue;
		for (int i = 0; i < (kind == IBARRIER ? 1 : n->size_count); i++)
			measure(n, kind, kind == IBARRIER ? 0 : n->sizes[i]);
	}
}

/* A communicator is served from its first large blocking collective on. */
static void warm_up(struct nbc *n, size_t bytes)
{
	for (int i = 0; i < 3; i++)
		MPI_Bcast(n->send, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	static struct nbc n = { .what = "ibcast,igather,ialltoall,iallreduce,ibarrier",
				.samples = 51,
				.ideal_ns = 100000,
				.percent_count = 1,
				.works_percent = { 100 } };
	size_t max = 1 << 20;

	MPI_Init(&argc, &argv);
	for (int i = 1; i < argc; i++)
		parse_one(&n, argv[i]);
	if (n.nice)
		job_set_nice(n.nice);
	n.b.crowded = n.b.sleeps = n.shared;
	if (n.shared)
		share_one_cpu();
	job_open(&n.b);
	n.works = !n.one || n.b.rank == last(&n);
	if (!n.b.crowded)
		bench_pin(n.b.rank);
	for (int i = 0; i < n.size_count; i++)
		max = n.sizes[i] > max ? n.sizes[i] : max;
	n.called = job_share(&n.b, BENCH_PAGE);
	n.send = job_buffer(false, max * (size_t)n.b.ranks);
	n.recv = job_buffer(false, max * (size_t)n.b.ranks);
	n.turn_ns = turn_ns(&n.b);
	job_print_run(&n.b, !n.b.crowded);
	warm_up(&n, max);
	job_watch_open(&n.watch, false);
	measure_all(&n);
	job_watch_close(&n.watch);
	MPI_Finalize();
	return 0;
}
