/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the parameters of messages and local operations inside this node: schedules of one
 * operation a rank are executed as `sluice goal run` does. Where a process' memory lies differs
 * from start to start, so each figure is the median of rounds, and each round starts processes.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "goal_execute.h"
#include "goal_sim.h"

#define BURST 32u            /* messages of the schedule that measures o */
#define CPUS_MAX 64
#define ROUND_NS 8000000.0   /* runs of one schedule in a round take about that long */
#define RUNS_MIN   9.0
#define RUNS_MAX 400.0
#define WARM_MIN   8u /* first runs: pages are touched, and caches fill */
#define WARM_MAX  64u
#define WARM_NS   20000000ull
#define ROUNDS_MIN 5
#define PRECISE    0.1 /* of the median: distance from 10 to 90 % that needs no more rounds */
#define BUDGET_NS  5000000000ull /* no further round, beyond ROUNDS_MIN, begins after that */
/* The CPUs are busy: the round at hand, with few runs, is the last. */
#define BUSY_NS 15000000000ull

static const uint64_t lengths[] = { 8, 32, 64, 512, 2048, 4096, 8192, 16384, 32768, 65536, 131072,
				    262144, 524288, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20 };
enum { LENGTHS = sizeof lengths / sizeof *lengths, EMPTY = LENGTHS, BURSTS, POINTS };

/* A point's medians of its rounds in ns, by size, and their number. */
struct samples {
	double ns[GOAL_MEASURE_ROUNDS];
	int count;
};
struct all_samples {
	struct samples at[POINTS][SIM_NODE_COLUMNS];
	uint64_t began_ns;
};

static int cpus_allowed(void)
{
	cpu_set_t set;
	int cpus = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);

	return cpus < CPUS_MAX ? cpus : CPUS_MAX;
}

/* ---- schedules --------------------------------------------------------------------------- */

/* Returns: 2 ranks for ALONE, else one to each CPU, at least two. */
static uint32_t ranks_of(unsigned column, uint32_t cpus)
{
	return column == SIM_NODE_ALONE || cpus < 2 ? 2 : cpus;
}

static void put_rank(FILE *out, unsigned column, size_t point, uint32_t rank, uint32_t ranks)
{
	uint64_t bytes = point < LENGTHS ? lengths[point] : 8;

	fprintf(out, "rank %" PRIu32 " {\n", rank);
	for (unsigned i = 0; point == BURSTS && rank < 2 && i < BURST; i++)
		fprintf(out, rank ? "recv 8b from 0 tag %u\n" : "send 8b to 1 tag %u\n", i);
	if (point < LENGTHS && column == SIM_NODE_ALONE && rank < 2)
		fprintf(out, "%s %" PRIu64 "b %s tag 0\n", rank ? "recv" : "send", bytes,
			rank ? "from 0" : "to 1");
	else if (point < LENGTHS && column == SIM_NODE_TOGETHER)
		fprintf(out,
			"send %" PRIu64 "b to %" PRIu32 " tag 0 from user0\n"
			"recv %" PRIu64 "b from %" PRIu32 " tag 0 into user1\n",
			bytes, (rank + 1) % ranks, bytes, (rank + ranks - 1) % ranks);
	else if (point < LENGTHS && column == SIM_NODE_COPY)
		fprintf(out, "copy %" PRIu64 "b from user0 into user1\n", bytes);
	else if (point < LENGTHS && column == SIM_NODE_ADD)
		fprintf(out, "add f32 %" PRIu64 "b from user0, user1 into user2\n", bytes);
	fprintf(out, "}\n");
}

/* Returns: the program of a point, to be closed; a negative errno. */
static int open_program(struct goal_input *in, unsigned column, size_t point, uint32_t ranks)
{
	int fd = memfd_create("sluice-measure", MFD_CLOEXEC), ret;
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
	char path[40];

	if (!out)
		return -errno;
	fprintf(out, "num_ranks %" PRIu32 "\n", ranks);
	for (uint32_t r = 0; r < ranks; r++)
		put_rank(out, column, point, r, ranks);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ret = fflush(out) ? -errno : 0;
	if (!ret && goal_input_need(in, "sim", path))
		ret = -EIO;
	fclose(out);
	return ret;
}

/* ---- one point --------------------------------------------------------------------------- */

static int first_error(const struct goal_execution *x)
{
	for (uint32_t r = 0; r < x->program->ranks; r++)
		if (x->results[r].error)
			return x->results[r].error < 0 ? x->results[r].error : -EIO;
	return 0;
}

/* Returns: how often a point is run in a round. */
static double runs_of(size_t point)
{
	double bytes = point < LENGTHS ? (double)lengths[point] : 0;
	double runs = ROUND_NS / (1000 + bytes / 5);

	return runs < RUNS_MIN ? RUNS_MIN : runs > RUNS_MAX ? RUNS_MAX : runs;
}

static int measure_point(unsigned column, size_t point, uint32_t ranks, double runs, double *ns)
{
	uint32_t warm = runs > 4 * WARM_MAX ? WARM_MAX : WARM_MIN;
	struct goal_execution x = { .times = warm + (uint32_t)runs,
				    .warm = warm,
				    .warm_ns = WARM_NS };
	struct goal_durations d = { 0 };
	struct goal_input in;
	uint32_t rank;
	int ret = open_program(&in, column, point, ranks);

	if (ret)
		return ret;
	x.program = in.program;
	ret = goal_execution_prepare(&x);
	if (!ret)
		ret = goal_execute_all(&x, &rank);
	if (!ret)
		ret = first_error(&x);
	if (!ret)
		ret = goal_durations_all(&x, &d);
	*ns = (double)d.median;
	goal_execution_free(&x);
	goal_input_close(&in);
	return ret;
}

/* ---- all points -------------------------------------------------------------------------- */

static void insert(struct samples *s, double ns)
{
	int at = s->count++;

	for (; at && s->ns[at - 1] > ns; at--)
		s->ns[at] = s->ns[at - 1];
	s->ns[at] = ns;
}

static struct goal_measured summary(const struct samples *s, double minus)
{
	const int n = s->count, at[] = { n / 10, n / 2, n - 1 - n / 10 };
	double ns[3];

	for (int i = 0; i < 3; i++)
		ns[i] = s->ns[at[i]] > minus ? s->ns[at[i]] - minus : 0;
	return (struct goal_measured){ ns[0], ns[1], ns[2] };
}

static bool is_precise(const struct samples *s)
{
	struct goal_measured m = s->count ? summary(s, 0) : (struct goal_measured){ 0 };

	return s->count >= ROUNDS_MIN && m.high - m.low <= PRECISE * m.median;
}

static uint64_t since_ns(const struct all_samples *s) { return os_now_ns() - s->began_ns; }

static void summarise(const struct all_samples *s, struct goal_measure *out)
{
	double empty = summary(&s->at[EMPTY][0], 0).median, trip, burst;

	for (size_t i = 0; i < LENGTHS; i++)
		for (unsigned c = 0; c < SIM_NODE_COLUMNS; c++)
			out->row[i][c] = summary(&s->at[i][c], empty);
	out->start_ns = empty;
	trip = out->row[0][SIM_NODE_ALONE].median;
	burst = summary(&s->at[BURSTS][0], empty).median;
	/* the slower of sender and receiver; both are taken to cost that */
	out->overhead_ns = burst > trip ? (burst - trip) / (BURST - 1) : 0;
	if (2 * out->overhead_ns > trip)
		out->overhead_ns = trip / 2;
	out->latency_ns = trip - 2 * out->overhead_ns;
}

static int measure_round(struct goal_sim *g, struct all_samples *s, int round,
			 const struct goal_measure *out)
{
	const uint64_t all = POINTS * GOAL_MEASURE_ROUNDS;
	int ret = 0;

	for (size_t i = 0; i < POINTS && !ret; i++) {
		for (unsigned c = 0; c < (i < LENGTHS ? SIM_NODE_COLUMNS : 1) && !ret; c++) {
			double ns = 0, runs = since_ns(s) > BUSY_NS ? RUNS_MIN : runs_of(i);

			if (is_precise(&s->at[i][c]))
				continue;
			ret = measure_point(c, i, ranks_of(c, (uint32_t)out->cpus), runs, &ns);
			insert(&s->at[i][c], ns);
		}
		if (!ret && goal_sim_progress(g, "measuring", (uint64_t)round * POINTS + i, all))
			ret = -ECANCELED;
	}
	return ret;
}

int goal_measure(struct goal_sim *g, struct goal_measure *out)
{
	struct all_samples *s = calloc(1, sizeof *s);
	int ret = s ? 0 : -ENOMEM, round = 0;

	base_options_load(NULL, NULL, 0); /* a wrong SLUICE_ variable has its default */
	out->cpus = cpus_allowed();
	out->lengths = lengths;
	out->length_count = LENGTHS;
	if (s)
		s->began_ns = os_now_ns();
	for (; round < GOAL_MEASURE_ROUNDS && !ret; round++) {
		if (round && since_ns(s) > (round < ROUNDS_MIN ? BUSY_NS : BUDGET_NS))
			break;
		ret = measure_round(g, s, round, out);
	}
	if (!ret && round < ROUNDS_MIN)
		tool_say("goal sim: the CPUs are busy: %d of %d rounds measured", round,
			 ROUNDS_MIN);
	out->rounds = round;
	if (!ret)
		summarise(s, out);
	free(s);
	return ret;
}
