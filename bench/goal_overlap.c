/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures how far a started schedule advances while its ranks compute, by the method of NBCBench:
 * the schedule alone takes t_s; a loop sized to 2 t_s takes t_c; start, loop, wait take t; the
 * overlap is 1 - (t - t_c) / t_s. Alone, two cores execute the schedule; one that executes it for
 * both ranks needs 2 t_s, hence the loop (an argument gives another factor). The schedule of two
 * ranks is a chain of exchanges, each of which requires the one before. Cases: both ranks compute
 * on the cores that they have; the other rank waits for the schedule; the other rank sleeps while
 * rank 0 computes; the other rank has started all its runs and sleeps all the time, so that its
 * core is free. Prints one JSON object per line: medians, and quartiles of the overlap, of rank 0.
 *
 *   ninja bench/goal_overlap && bench/goal_overlap
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "goal/sched/sched.h"

enum { ROUNDS = 31, WARMUP = 400, STAGES_MAX = 200, AHEAD_NS = 3000, FREE_US = 2000 };
enum other { COMPUTES, WAITS, SLEEPS, FREE, CASES };

static struct bench bench;
static _Atomic uint32_t *rounds_done; /* FREE: futex */
static double factor = 2;

static void fail(const char *what)
{
	fprintf(stderr, "goal_overlap: %s\n", what);
	exit(1);
}

/* A chain of `stages` exchanges of `bytes`. */
static struct sched_inst *open_chain(struct sched_group *g, uint32_t stages, char *buf,
				     uint64_t bytes)
{
	static struct goal_op ops[2 * STAGES_MAX];
	static struct goal_edge edges[4 * STAGES_MAX];
	uint32_t peer = 1 - (uint32_t)bench.rank;
	struct goal_build b;
	struct sched_inst *s = NULL;
	struct goal_block *block;
	void *buffers[] = { buf };
	uint64_t cap, all = 2 * bytes;

	goal_build_init(&b, ops, 2 * STAGES_MAX, edges, 4 * STAGES_MAX);
	for (uint32_t i = 0; i < stages; i++) {
		goal_send(&b, peer, i, 0, GOAL_USER, 0, bytes);
		goal_recv(&b, peer, i, GOAL_USER, bytes, bytes);
		if (!i)
			continue;
		goal_requires(&b, 2 * i, 2 * i - 1);
		goal_requires(&b, 2 * i + 1, 2 * i - 1);
	}
	cap = goal_block_bytes(b.op_count, b.edge_count, b.segment_count);
	block = malloc(cap);
	if (!block || goal_compile(&b, block, cap) ||
	    sched_open(g,
		       &(struct sched_open){ .block = block,
					     .block_bytes = cap,
					     .buffers = buffers,
					     .buffer_bytes = &all,
					     .buffer_count = 1,
					     .name = "goal_overlap" },
		       &s))
		fail("cannot open a schedule");
	free(block);
	return s;
}

/* One loop for all callers, in registers: a loop over memory takes twice as long at some addresses
 * of the stack. */
__attribute__((noinline)) static void compute(uint64_t rounds)
{
	for (uint64_t i = 0; i < rounds; i++)
		__asm__ volatile("" : "+r"(i));
}

static void run_alone(struct sched_inst *s)
{
	if (sched_execute(s, UINT64_MAX))
		fail("a run has failed");
}

/* One measured run of this rank. Returns: ns. */
static double run_overlapped(struct sched_inst *s, enum other other, uint64_t rounds, double ns,
			     double *start_ns, double *wait_ns)
{
	struct timespec ts = { 0, (long)ns };
	uint64_t t0 = other == FREE ? bench_now_ns() : bench_start(&bench), t1, t2;

	if (!bench.rank && other != COMPUTES &&
	    other != FREE) { /* the other rank is there already */
		while (bench_now_ns() - t0 < AHEAD_NS)
			;
		t0 = bench_now_ns();
	}
	if (sched_run(s))
		fail("cannot start");
	t1 = bench_now_ns();
	if (!bench.rank || other == COMPUTES)
		compute(rounds);
	else if (other == SLEEPS)
		nanosleep(&ts, NULL);
	t2 = bench_now_ns();
	if (sched_wait(s, UINT64_MAX))
		fail("a run has failed");
	*start_ns = (double)(t1 - t0);
	*wait_ns = (double)(bench_now_ns() - t2);
	return (double)(bench_now_ns() - t0);
}

/* Rank 1 starts all its runs, and sleeps until rank 0 has measured. */
static void leave_core(struct sched_group *g, uint32_t stages, uint64_t bytes, char *buf)
{
	static struct sched_inst *runs[WARMUP + ROUNDS];

	atomic_store(rounds_done, 0);
	for (int k = 0; k < WARMUP + ROUNDS; k++)
		runs[k] = open_chain(g, stages, buf, bytes);
	for (int k = 0; k < WARMUP + ROUNDS; k++)
		if (sched_run(runs[k]))
			fail("cannot start");
	bench_sync(&bench);
	while (!atomic_load(rounds_done))
		os_futex_wait(rounds_done, 0, OS_FOR_EVER);
	for (int k = 0; k < WARMUP + ROUNDS; k++)
		if (sched_wait(runs[k], UINT64_MAX) || sched_close(runs[k]))
			fail("a run has failed");
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(double *v, int quarter)
{
	qsort(v, ROUNDS, sizeof *v, by_value);
	return v[ROUNDS * quarter / 4];
}

static double measure_alone(struct sched_inst *s)
{
	double ns[ROUNDS];

	for (int k = 0; k < ROUNDS; k++) {
		uint64_t t0 = bench_start(&bench);

		run_alone(s);
		ns[k] = (double)(bench_now_ns() - t0);
	}
	return quantile(ns, 2);
}

static double compute_ns(uint64_t rounds)
{
	uint64_t t0 = bench_now_ns();

	compute(rounds);
	return (double)(bench_now_ns() - t0);
}

static double least_compute_ns(uint64_t rounds)
{
	double least = compute_ns(rounds), ns;

	for (int k = 1; k < ROUNDS; k++)
		if ((ns = compute_ns(rounds)) < least)
			least = ns;
	return least;
}

static void measure(struct sched_group *g, uint32_t stages, uint64_t bytes, char *buf)
{
	static const char *const words[] = { "computes", "waits", "sleeps", "free" };
	struct sched_inst *s = open_chain(g, stages, buf, bytes);
	double alone = measure_alone(s);

	for (int other = 0; other < CASES; other++) {
		double overlap[ROUNDS], total[ROUNDS], loop[ROUNDS], start[ROUNDS], wait[ROUNDS];
		double per_round;
		uint64_t rounds;

		per_round = least_compute_ns(100000) / 1e5;
		rounds = (uint64_t)(factor * alone / per_round) + 1;
		if (other == FREE && bench.rank) {
			leave_core(g, stages, bytes, buf);
			bench_sync(&bench);
			continue;
		}
		bench_sync(&bench);
		if (other == FREE)
			usleep(FREE_US); /* the other rank has gone to sleep */
		for (int k = other == FREE ? -WARMUP : 0; k < ROUNDS; k++) {
			if (k < 0) { /* the progress thread finds the core */
				run_overlapped(s, FREE, rounds, 0, &start[0], &wait[0]);
				continue;
			}
			if (other != FREE)
				bench_start(&bench);
			loop[k] = bench.rank && other != COMPUTES ? 0 : compute_ns(rounds);
			total[k] = run_overlapped(s, (enum other)other, rounds, alone,
						  &start[k], &wait[k]);
			overlap[k] = 1 - (total[k] - loop[k]) / alone;
		}
		if (bench.rank)
			continue;
		if (other == FREE) {
			atomic_store(rounds_done, 1);
			os_futex_wake(rounds_done, 1);
			bench_sync(&bench);
		}
		printf("{\"stages\": %u, \"bytes\": %llu, \"other\": \"%s\", \"alone_us\": %.1f, "
		       "\"compute_us\": %.1f, \"start_us\": %.2f, \"wait_us\": %.2f, "
		       "\"together_us\": %.1f, "
		       "\"overlap\": %.2f, "
		       "\"quartiles\": [%.2f, %.2f]}\n",
		       stages, (unsigned long long)bytes, words[other], alone / 1e3,
		       quantile(loop, 2) / 1e3, quantile(start, 2) / 1e3,
		       quantile(wait, 2) / 1e3, quantile(total, 2) / 1e3, quantile(overlap, 2),
		       quantile(overlap, 1), quantile(overlap, 3));
		fflush(stdout);
	}
	bench_sync(&bench);
	sched_close(s);
}

static int be_rank(void)
{
	static const uint32_t stages[] = { 1, 10, 50, 200 };
	static const uint64_t bytes[] = { 8, 4096, 65536 };
	struct sched_group *g;
	char *buf;

	if (sched_join("goal_overlap", bench.rank, bench.ranks, 10000000000ull, &g))
		fail(node_refusal());
	bench_pin(bench.rank);
	buf = sched_alloc(g, 2 * bytes[2]);
	if (!buf)
		fail("no memory");
	memset(buf, 1, 2 * bytes[2]);
	for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++)
		for (size_t k = 0; k < sizeof stages / sizeof stages[0]; k++)
			measure(g, stages[k], bytes[i], buf);
	sched_group_destroy(g);
	return 0;
}

int main(int argc, char **argv)
{
	char problems[256];
	int status = 1;
	pid_t child;

	if (argc > 1)
		factor = atof(argv[1]);
	base_options_load(NULL, problems, sizeof problems);
	bench = (struct bench){ .area = mmap(NULL, sizeof *bench.area, PROT_READ | PROT_WRITE,
					     MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0),
				.ranks = 2 };
	rounds_done = mmap(NULL, sizeof *rounds_done, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (bench.area == MAP_FAILED || rounds_done == MAP_FAILED)
		return 1;
	child = fork();
	bench.rank = child == 0;
	if (child < 0)
		return 1;
	if (!child)
		_exit(be_rank());
	if (be_rank())
		return 1;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
