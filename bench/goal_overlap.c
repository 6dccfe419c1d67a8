/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures how far a started schedule advances while its ranks compute, by the method of NBCBench:
 * the schedule alone takes t_s; a loop sized to 2 t_s takes t_c; start, loop, wait take t; the
 * overlap is 1 - (t - t_c) / t_s. Alone, two cores execute the schedule; one that executes it for
 * both ranks needs 2 t_s, hence the loop (an argument gives another factor; 0: delays only). The
 * schedule of two ranks is a chain of exchanges, each of which requires the one before. Cases: both
 * ranks compute on the cores that they have; the other rank waits for the schedule; the other rank
 * sleeps while rank 0 computes; the other rank has started all its runs and sleeps all the time, so
 * that its core is free. Prints one JSON object per line: medians, and quartiles of the overlap, of
 * rank 0.
 * When both ranks compute, "of_sum" is the time of both divided by that of both loops and of the
 * schedule alone on both: what all of it costs where every core is busy.
 *
 * Then the delay with every core busy: how long after its last dependency a run ends, beyond the
 * time that it takes alone. The last dependency is the start of rank 1, which comes late, or the
 * end of a calc; both ranks compute meanwhile. "delay_us": median, 90 %, maximum.
 *
 *   ninja bench/goal_overlap && bench/goal_overlap
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "quantile.h"
#include "schedule.h"

enum { ROUNDS = 31, WARMUP = 400, STAGES_MAX = 200, AHEAD_NS = 3000, FREE_US = 2000 };
enum { DELAYS = 201, LATE_NS = 300000, CALC_NS = 500000, AFTER_NS = 1000000 };
enum other { COMPUTES, WAITS, SLEEPS, FREE, CASES };

/* Mapped by both ranks. */
struct common {
	_Atomic uint32_t rounds_done; /* FREE: futex */
	double time[2], ready;        /* of a rank in a round; read after bench_sync() */
};

static struct bench bench;
static struct common *common;
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

	goal_build_init(&b, ops, 2 * STAGES_MAX, edges, 4 * STAGES_MAX);
	for (uint32_t i = 0; i < stages; i++) {
		goal_send(&b, peer, i, 0, GOAL_USER, 0, bytes);
		goal_recv(&b, peer, i, GOAL_USER, bytes, bytes);
		if (!i)
			continue;
		goal_requires(&b, 2 * i, 2 * i - 1);
		goal_requires(&b, 2 * i + 1, 2 * i - 1);
	}
	return bench_open(g, &b, buf, 2 * bytes, 0);
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

/* One measured run of this rank. parts: what start and wait take, or NULL, which saves two looks at
 * the clock. Returns: ns. */
static double run_overlapped(struct sched_inst *s, enum other other, uint64_t rounds, double ns,
			     double parts[2])
{
	struct timespec ts = { 0, (long)ns };
	uint64_t t0 = other == FREE ? bench_now_ns() : bench_start(&bench), t1 = 0, t2 = 0;

	if (!bench.rank && other != COMPUTES &&
	    other != FREE) { /* the other rank is there already */
		while (bench_now_ns() - t0 < AHEAD_NS)
			;
		t0 = bench_now_ns();
	}
	if (sched_run(s))
		fail("cannot start");
	if (parts)
		t1 = bench_now_ns();
	if (!bench.rank || other == COMPUTES)
		compute(rounds);
	else if (other == SLEEPS)
		nanosleep(&ts, NULL);
	if (parts)
		t2 = bench_now_ns();
	if (sched_wait(s, UINT64_MAX))
		fail("a run has failed");
	if (parts) {
		parts[0] = (double)(t1 - t0);
		parts[1] = (double)(bench_now_ns() - t2);
	}
	return (double)(bench_now_ns() - t0);
}

/* Rank 1 starts all its runs, and sleeps until rank 0 has measured. */
static void leave_core(struct sched_group *g, uint32_t stages, uint64_t bytes, char *buf)
{
	static struct sched_inst *runs[WARMUP + 2 * ROUNDS];

	atomic_store(&common->rounds_done, 0);
	for (int k = 0; k < WARMUP + 2 * ROUNDS; k++)
		runs[k] = open_chain(g, stages, buf, bytes);
	for (int k = 0; k < WARMUP + 2 * ROUNDS; k++)
		if (sched_run(runs[k]))
			fail("cannot start");
	bench_sync(&bench);
	while (!atomic_load(&common->rounds_done))
		os_futex_wait(&common->rounds_done, 0, OS_FOR_EVER);
	for (int k = 0; k < WARMUP + 2 * ROUNDS; k++)
		if (sched_wait(runs[k], UINT64_MAX) || sched_close(runs[k]))
			fail("a run has failed");
}

static double quartile(double *v, int number) { return bench_quantile(v, ROUNDS, 25 * number); }

static double measure_alone(struct sched_inst *s)
{
	double ns[ROUNDS];

	for (int k = 0; k < ROUNDS; k++) {
		uint64_t t0 = bench_start(&bench);

		run_alone(s);
		ns[k] = (double)(bench_now_ns() - t0);
	}
	return quartile(ns, 2);
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

/* Returns: what the run costs both ranks, divided by what loop and schedule cost alone. */
static double of_sum(double total, double loop, double alone)
{
	double sum;

	common->time[bench.rank] = total;
	bench_sync(&bench);
	sum = common->time[0] + common->time[1];
	bench_sync(&bench);
	return sum / (2 * loop + 2 * alone);
}

struct results {
	double overlap[ROUNDS], total[ROUNDS], loop[ROUNDS], start[ROUNDS], wait[ROUNDS],
		of_sum[ROUNDS];
};

static void measure_rounds(struct sched_inst *s, enum other other, double alone, uint64_t rounds,
			   struct results *r)
{
	bool computes = !bench.rank || other == COMPUTES;
	double parts[2];

	for (int k = 0; other == FREE && k < WARMUP; k++) /* the progress thread finds the core */
		run_overlapped(s, FREE, rounds, 0, NULL);
	for (int k = 0; k < ROUNDS; k++) {
		if (other != FREE)
			bench_start(&bench);
		r->loop[k] = computes ? compute_ns(rounds) : 0;
		r->total[k] = run_overlapped(s, other, rounds, alone, NULL);
		r->overlap[k] = 1 - (r->total[k] - r->loop[k]) / alone;
		if (other == COMPUTES)
			r->of_sum[k] = of_sum(r->total[k], r->loop[k], alone);
		run_overlapped(s, other, rounds, alone, parts);
		r->start[k] = parts[0];
		r->wait[k] = parts[1];
	}
}

static void report(uint32_t stages, uint64_t bytes, enum other other, double alone,
		   struct results *r)
{
	static const char *const words[] = { "computes", "waits", "sleeps", "free" };

	printf("{\"stages\": %u, \"bytes\": %llu, \"other\": \"%s\", \"alone_us\": %.1f, "
	       "\"compute_us\": %.1f, \"start_us\": %.2f, \"wait_us\": %.2f, "
	       "\"together_us\": %.1f, "
	       "\"overlap\": %.2f, "
	       "\"quartiles\": [%.2f, %.2f]",
	       stages, (unsigned long long)bytes, words[other], alone / 1e3,
	       quartile(r->loop, 2) / 1e3, quartile(r->start, 2) / 1e3, quartile(r->wait, 2) / 1e3,
	       quartile(r->total, 2) / 1e3, quartile(r->overlap, 2), quartile(r->overlap, 1),
	       quartile(r->overlap, 3));
	if (other == COMPUTES)
		printf(", \"of_sum\": %.2f, \"of_sum_quartiles\": [%.2f, %.2f]",
		       quartile(r->of_sum, 2), quartile(r->of_sum, 1), quartile(r->of_sum, 3));
	puts("}");
	fflush(stdout);
}

static void measure(struct sched_group *g, uint32_t stages, uint64_t bytes, char *buf)
{
	struct sched_inst *s = open_chain(g, stages, buf, bytes);
	double alone = measure_alone(s);

	for (int other = 0; other < CASES; other++) {
		double per_round = least_compute_ns(100000) / 1e5;
		struct results r = { 0 };

		if (other == FREE && bench.rank) {
			leave_core(g, stages, bytes, buf);
			bench_sync(&bench);
			continue;
		}
		bench_sync(&bench);
		if (other == FREE)
			usleep(FREE_US); /* the other rank has gone to sleep */
		measure_rounds(s, (enum other)other, alone,
			       (uint64_t)(factor * alone / per_round) + 1, &r);
		if (bench.rank)
			continue;
		if (other == FREE) {
			atomic_store(&common->rounds_done, 1);
			os_futex_wake(&common->rounds_done, 1);
			bench_sync(&bench);
		}
		report(stages, bytes, (enum other)other, alone, &r);
	}
	bench_sync(&bench);
	sched_close(s);
}

/* ---- delay ------------------------------------------------------------------------------- */

static void compute_until(uint64_t ns)
{
	while (bench_now_ns() < ns)
		compute(100);
}

/* Rank 0 sends at the end of a calc. */
static struct sched_inst *open_calc(struct sched_group *g)
{
	struct goal_op ops[2];
	struct goal_edge edge;
	struct goal_build b;

	goal_build_init(&b, ops, 2, &edge, 1);
	if (bench.rank) {
		goal_recv(&b, 0, 0, GOAL_SCRATCH, 0, 0);
	} else {
		goal_add(&b, &(struct goal_op){ .type = GOAL_CALC, .bytes = CALC_NS });
		goal_send(&b, 1, 0, 0, GOAL_SCRATCH, 0, 0);
		goal_requires(&b, 1, 0);
	}
	return bench_open(g, &b, NULL, 0, 0);
}

/* Returns: how long after its last dependency, and alone_ns, the run had ended on both ranks. */
static double delay_of_run(struct sched_inst *s, uint32_t last, bool is_calc, double alone_ns)
{
	uint64_t t0 = bench_start(&bench), began;

	if (bench.rank && !is_calc)
		compute_until(t0 + LATE_NS);
	began = bench_now_ns();
	if (sched_run(s))
		fail("cannot start");
	compute_until(t0 + AFTER_NS);
	bench_sync(&bench); /* nobody has waited, so nobody has helped */
	if (sched_wait(s, UINT64_MAX))
		fail("a run has failed");
	common->time[bench.rank] = (double)(began + sched_times(s)[last].end_ns);
	if (bench.rank == !is_calc)
		common->ready =
			(double)(began + (is_calc ? sched_times(s)[0].begin_ns + CALC_NS : 0));
	bench_sync(&bench);
	return (common->time[0] > common->time[1] ? common->time[0] : common->time[1]) -
	       common->ready - alone_ns;
}

static void measure_delay(const char *what, struct sched_inst *s, uint32_t stages, uint64_t bytes)
{
	bool is_calc = !stages;
	double alone = is_calc ? 0 : measure_alone(s), delay[DELAYS];

	for (int k = 0; k < DELAYS; k++) {
		delay[k] = delay_of_run(s, is_calc ? !bench.rank : 2 * stages - 1, is_calc, alone);
		bench_sync(&bench);
	}
	if (!bench.rank) {
		printf("{\"last_dependency\": \"%s\", \"stages\": %u, \"bytes\": %llu, "
		       "\"alone_us\": %.1f, ",
		       what, stages, (unsigned long long)bytes, alone / 1e3);
		printf("\"delay_us\": [%.1f, %.1f, %.1f]}\n",
		       bench_quantile(delay, DELAYS, 50) / 1e3,
		       bench_quantile(delay, DELAYS, 90) / 1e3,
		       bench_quantile(delay, DELAYS, 100) / 1e3);
		fflush(stdout);
	}
	sched_close(s);
}

static void measure_delays(struct sched_group *g, char *buf)
{
	static const uint32_t stages[] = { 1, 10, 200 };

	sched_keep_times(g, true);
	measure_delay("end of a calc", open_calc(g), 0, 0);
	for (size_t k = 0; k < sizeof stages / sizeof stages[0]; k++)
		measure_delay("start of the other rank", open_chain(g, stages[k], buf, 8),
			      stages[k], 8);
	measure_delay("start of the other rank", open_chain(g, 10, buf, 65536), 10, 65536);
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
	for (size_t i = 0; factor && i < sizeof bytes / sizeof bytes[0]; i++)
		for (size_t k = 0; k < sizeof stages / sizeof stages[0]; k++)
			measure(g, stages[k], bytes[i], buf);
	measure_delays(g, buf);
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
	common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (bench.area == MAP_FAILED || common == MAP_FAILED)
		return 1;
	child = fork();
	bench.rank = child == 0;
	if (child < 0)
		return 1;
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* else it waits for a killed parent for ever */
		_exit(be_rank());
	}
	if (be_rank())
		return 1;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
