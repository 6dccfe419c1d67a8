/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap_bench: one launch of one MPI program that measures what a blocking collective costs the
 * program around it; bench/run launches it plain, with Sluice's blocking form and with early return
 * in turn. An ordinary MPI program: no option says which side it is on.
 *
 *   comm   the collective, the data used at once      comp   the computation alone
 *   both   the collective, the computation, then the data used; of the rank that waits for data
 * also the time of the call and of the use by themselves
 *
 *   calibrate-X  comm, and how long one unit of computation takes on an idle core
 *   touch-X      comm
 *   overlap-X    comm; then comp and both in turn. who=all: every rank computes. who=one: the rank
 *                that waits for data does (leaf of a broadcast, root of a gather); the others leave
 *                their data alone and wait in the benchmark's barrier, asleep where cores are
 * shared late-X       comm; then comp and late in turn: the root calls delay_us after the others,
 * which compute as long before they touch. Times are of the last rank, which is never root.
 *   switch-X     the rank that waits for data computes for wait_us and then touches: the time of
 * the touch, and that of a copy of as many bytes by one process, between mapped buffers
 *
 * X is a collective (kinds). A nonblocking one is completed by MPI_Wait before the data is used.
 * Units of computation are rows of a product of two 64 x 64 matrices, on buffers of their own. The
 * owners rewrite their data before each call. A sample ends with the slowest rank; it begins at the
 * instant at which the last rank was there. With who=one on a shared core it is the time of the
 * rank that computes, which calls last. Samples in which somebody else had a core that the ranks
 * (or, with a core free for them, their threads) wanted are dropped and counted. Each timed call's
 * data is checked at the bytes that are read.
 *
 * Calls that are followed by a touch and calls that are followed by computation stand at different
 * places of the program, as they would in another program: whoever looks at call sites sees two.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "job.h"

#define LEAD_NS     300000 /* so much earlier the others call, where ranks share a core */
#define DROP_FACTOR 4      /* so many times max samples are tried at most */

enum part { COMM, COMP, BOTH, LATE, SWITCH, COPY, CALL, USE, PARTS };
static const char *const part_names[PARTS] = { "comm",  "comp", "both", "late",
					       "touch", "copy", "call", "use" };

struct options {
	const char *what;
	uint64_t sizes[JOB_MAX_LIST], units[JOB_MAX_LIST], delays_us[JOB_MAX_LIST];
	int size_count, unit_count, delay_count;
	uint64_t budget_ns;
	int warmup, min_calls, max_calls, nice;
	bool pin, shared, one, huge, raise;
};

struct job {
	struct options opt;
	struct bench b;
	const struct kind *kind;
	size_t bytes;
	uint64_t units, delay_ns;
	bool computes; /* this rank does */
	bool smears;   /* this rank writes what it has sent; else it is idle after the call */
	char *send, *recv;
	char *copy_src, *copy_dst;         /* of the pure copy */
	uint64_t returned_ns, computed_ns; /* instants in the last call with computation */
	MPI_Request request;
	uint64_t call, sum[BENCH_MAX_RANKS];
	struct job_watch watch;
	struct bench_samples samples[PARTS];
	int dropped[PARTS], calls[PARTS]; /* calls: all of them, warm-up too */
};

/* Whom of the ranks something concerns. */
enum who { NOBODY, ROOT, OTHERS, EVERYONE };

/* One collective, as a program would write it. The calls are separate functions: see the head. */
struct kind {
	const char *name;
	void (*call_and_touch)(struct job *j);
	void (*call_and_compute)(struct job *j);
	void (*call_late)(struct job *j);
	enum who sends, gets;
	bool from_all; /* who gets something gets it from each rank, else from root */
	bool cut;      /* each gets another part of what is sent */
	bool in_place; /* it is received where it would be sent from */
	bool sums;     /* only root's numbers are not 0 */
	bool nonblocking;
	int waiter;    /* the rank that waits for data (-1: any but 0) */
};


/* ---- the collectives --------------------------------------------------------------------- */

#define CALLS(name, END, ...)                                                                      \
	static __attribute__((noinline)) void name##_and_touch(struct job *j)                      \
	{                                                                                          \
		__VA_ARGS__;                                                                       \
		END(&j->request, MPI_STATUS_IGNORE);                                               \
		__asm__ volatile("");                                                              \
	}                                                                                          \
	static __attribute__((noinline)) void name##_and_compute(struct job *j)                    \
	{                                                                                          \
		__VA_ARGS__;                                                                       \
		j->returned_ns = bench_now_ns();                                                   \
		if (j->computes)                                                                   \
			job_compute(j->units);                                                     \
		j->computed_ns = bench_now_ns();                                                   \
		END(&j->request, MPI_STATUS_IGNORE);                                               \
	}                                                                                          \
	static __attribute__((noinline)) void name##_late(struct job *j)                           \
	{                                                                                          \
		__VA_ARGS__;                                                                       \
		if (j->b.rank)                                                                     \
			job_compute(j->units);                                                     \
		END(&j->request, MPI_STATUS_IGNORE);                                               \
	}
#define NOTHING(...)
#define BLOCKING(name, ...)    CALLS(name, NOTHING, __VA_ARGS__)
#define NONBLOCKING(name, ...) CALLS(name, MPI_Wait, __VA_ARGS__)
#define N (int)j->bytes, MPI_BYTE
#define SUM (int)(j->bytes / 4), MPI_UINT32_T, MPI_SUM
#define WORLD MPI_COMM_WORLD

BLOCKING(bcast, MPI_Bcast(j->send, N, 0, WORLD))
BLOCKING(gather, MPI_Gather(j->send, N, j->recv, N, 0, WORLD))
BLOCKING(scatter, MPI_Scatter(j->send, N, j->recv, N, 0, WORLD))
BLOCKING(allgather, MPI_Allgather(j->send, N, j->recv, N, WORLD))
BLOCKING(alltoall, MPI_Alltoall(j->send, N, j->recv, N, WORLD))
BLOCKING(allreduce, MPI_Allreduce(j->send, j->recv, SUM, WORLD))
NONBLOCKING(ibcast, MPI_Ibcast(j->send, N, 0, WORLD, &j->request))
NONBLOCKING(igather, MPI_Igather(j->send, N, j->recv, N, 0, WORLD, &j->request))
NONBLOCKING(ialltoall, MPI_Ialltoall(j->send, N, j->recv, N, WORLD, &j->request))
NONBLOCKING(iallreduce, MPI_Iallreduce(j->send, j->recv, SUM, WORLD, &j->request))

#define NAMED(x)                                                                                   \
	.name = #x, .call_and_touch = x##_and_touch, .call_and_compute = x##_and_compute,          \
	.call_late = x##_late
#define BCAST     .sends = ROOT, .gets = OTHERS, .in_place = true, .waiter = -1
#define GATHER    .sends = EVERYONE, .gets = ROOT, .from_all = true, .waiter = 0
#define ALLTOALL  .sends = EVERYONE, .gets = EVERYONE, .from_all = true, .cut = true, .waiter = -1
#define ALLREDUCE .sends = EVERYONE, .gets = EVERYONE, .sums = true, .waiter = -1
static const struct kind kinds[] = {
	{ NAMED(bcast), BCAST },
	{ NAMED(gather), GATHER },
	{ NAMED(scatter), .sends = ROOT, .gets = EVERYONE, .cut = true, .waiter = -1 },
	{ NAMED(allgather), .sends = EVERYONE, .gets = EVERYONE, .from_all = true, .waiter = -1 },
	{ NAMED(alltoall), ALLTOALL },
	{ NAMED(allreduce), ALLREDUCE },
	{ NAMED(ibcast), BCAST, .nonblocking = true },
	{ NAMED(igather), GATHER, .nonblocking = true },
	{ NAMED(ialltoall), ALLTOALL, .nonblocking = true },
	{ NAMED(iallreduce), ALLREDUCE, .nonblocking = true },
};

static bool is_meant(const struct job *j, enum who who)
{
	return who == EVERYONE || (who != NOBODY && (who == ROOT) == (j->b.rank == 0));
}

static char *received_at(const struct job *j) { return j->kind->in_place ? j->send : j->recv; }

static size_t parts_sent(const struct job *j)
{
	return j->kind->cut ? (size_t)j->b.ranks : 1;
}

/* The seed of the data that a rank sends to another in this call. */
static uint64_t seed_of(const struct job *j, int from, int to)
{
	return bench_seed(j->call, j->kind->cut ? from * j->b.ranks + to : from);
}

static void prepare(struct job *j)
{
	for (size_t i = 0; is_meant(j, j->kind->sends) && i < parts_sent(j); i++)
		bench_fill(j->send + i * j->bytes, j->bytes, seed_of(j, j->b.rank, (int)i));
	if (j->kind->sums && j->b.rank)
		memset(j->send, 0, j->bytes);
}

static int parts_received(const struct job *j)
{
	return !is_meant(j, j->kind->gets) ? 0 : j->kind->from_all ? j->b.ranks : 1;
}

static void use(struct job *j)
{
	for (int r = 0; r < parts_received(j); r++)
		j->sum[r] = bench_touch(received_at(j) + j->bytes * (size_t)r, j->bytes);
	if (j->smears && is_meant(j, j->kind->sends) && received_at(j) != j->send)
		bench_smear(j->send, parts_sent(j) * j->bytes, 0xA5);
}

static uint64_t count_wrong(const struct job *j)
{
	uint64_t wrong = 0;

	for (int r = 0; r < parts_received(j); r++)
		wrong += j->sum[r] != bench_expect(j->bytes, seed_of(j, r, j->b.rank));
	return wrong;
}

static bool is_waiter(const struct job *j)
{
	return j->kind->waiter < 0 ? j->b.rank != 0 : j->b.rank == j->kind->waiter;
}

/* ---- samples ----------------------------------------------------------------------------- */

enum { SAYS_CALL = JOB_SAYS_LAST, SAYS_USE };

/* Keep the times of the call and of the use that the waiting rank has reported. */
static void keep_phases(struct job *j)
{
	const uint64_t *line = j->b.area->value[j->kind->waiter < 0 ? 1 : j->kind->waiter];

	for (int p = CALL; p <= USE; p++) {
		struct bench_samples *s = &j->samples[p];

		s->ns[s->count++] = line[p == CALL ? SAYS_CALL : SAYS_USE];
		j->calls[p]++;
	}
}

/* All ranks have said; rank 0 keeps the sample. The first: the rank from which on times count. */
static void collect(struct job *j, enum part part, int first, bool keep)
{
	struct bench_samples *s = &j->samples[part];
	uint64_t ns = 0;

	bench_sync(&j->b);
	for (int r = first; r < j->b.ranks; r++) {
		uint64_t theirs = j->b.area->value[r][JOB_SAYS_NS];

		ns = theirs > ns ? theirs : ns;
	}
	j->calls[part]++;
	if (j->b.rank == 0 && keep) {
		if (job_is_disturbed(&j->b, j->opt.shared, ns)) {
			j->dropped[part]++;
		} else {
			s->ns[s->count++] = ns;
			if (part == BOTH)
				keep_phases(j);
		}
	}
	bench_sync(&j->b);
}

static void note_wrong(struct job *j)
{
	uint64_t wrong = count_wrong(j);

	if (wrong)
		atomic_fetch_add_explicit(&j->b.area->mismatches, wrong, memory_order_relaxed);
}

static void wait_until(uint64_t at_ns)
{
	while (bench_now_ns() < at_ns)
		__builtin_ia32_pause();
}

/*
 * Ranks that share a core run one after the other, and a copy begins when the last of them has
 * called: where only one is to compute the others call first, as they would have on cores of their
 * own, and what is measured is its time from its own call on.
 */
static bool is_ordered(const struct job *j, enum part part)
{
	return j->opt.shared && (j->opt.one || part == SWITCH);
}

static uint64_t begin(struct job *j, enum part part, struct job_cpu *before)
{
	struct timespec lead = { .tv_nsec = LEAD_NS };
	uint64_t t0 = job_begin(&j->b, &j->watch, before);

	if (!is_ordered(j, part) || !is_waiter(j))
		return t0;
	nanosleep(&lead, NULL);
	return bench_now_ns();
}

static void take(struct job *j, enum part part, bool keep)
{
	struct job_cpu before;
	uint64_t t0, ns;

	j->smears = j->computes || (part == COMM && !j->opt.one);
	if (part != COMP) {
		j->call++;
		prepare(j);
	}
	t0 = begin(j, part, &before);
	switch (part) {
	case COMM:
		j->kind->call_and_touch(j);
		break;
	case COMP:
		if (j->computes)
			job_compute(j->units);
		break;
	case LATE:
		if (j->b.rank == 0)
			wait_until(t0 + j->delay_ns);
		j->kind->call_late(j);
		break;
	default:
		j->kind->call_and_compute(j);
		if (part == SWITCH)
			t0 = bench_now_ns();
	}
	if (part != COMP)
		use(j);
	ns = bench_now_ns() - t0;
	if (part == BOTH) {
		j->b.area->value[j->b.rank][SAYS_CALL] = j->returned_ns - t0;
		j->b.area->value[j->b.rank][SAYS_USE] = t0 + ns - j->computed_ns;
	}
	if (is_ordered(j, part) && !is_waiter(j))
		ns = 0;
	job_say(&j->b, &j->watch, &before, part == SWITCH && !is_waiter(j) ? 0 : ns);
	if (part != COMP)
		note_wrong(j);
	collect(j, part, part == LATE || (part == COMP && j->delay_ns) ? 1 : 0, keep);
}

/* One process copies what another has written; both map the source. */
static void take_copy(struct job *j, bool keep)
{
	struct job_cpu before;
	uint64_t t0, ns = 0;

	if (j->b.rank == 0)
		bench_fill(j->copy_src, j->bytes, ++j->call);
	t0 = job_begin(&j->b, &j->watch, &before);
	if (j->b.rank == 1) {
		memcpy(j->copy_dst, j->copy_src, j->bytes);
		(void)bench_touch(j->copy_dst, j->bytes);
		ns = bench_now_ns() - t0;
	}
	job_say(&j->b, &j->watch, &before, ns);
	collect(j, COPY, 0, keep);
}

static bool one_more(struct job *j, enum part part, int done, uint64_t since_ns)
{
	const struct options *o = &j->opt;
	int kept = j->samples[part].count;
	uint64_t budget = o->budget_ns + 4 * (uint64_t)o->min_calls * j->delay_ns;
	bool late = bench_now_ns() - since_ns > (kept < o->min_calls ? 4 : 1) * budget;

	return bench_agree(&j->b, kept < o->max_calls && done < DROP_FACTOR * o->max_calls &&
					  (!late || done < o->min_calls));
}

/* Parts in turn, each with its warm-up. */
static void block(struct job *j, const enum part *parts, int count)
{
	uint64_t since = bench_now_ns();
	bool more = true;

	for (int i = 0; more; i++) {
		for (int p = 0; p < count; p++)
			parts[p] == COPY ? take_copy(j, false) : take(j, parts[p], false);
		if (j->kind->nonblocking) /* as programs have them between steps */
			MPI_Barrier(MPI_COMM_WORLD);
		more = bench_agree(&j->b, i + 1 < j->opt.warmup &&
						  bench_now_ns() - since < 4 * j->opt.budget_ns);
	}
	job_watch_close(&j->watch); /* threads may have been started meanwhile */
	job_watch_open(&j->watch, j->opt.raise);
	since = bench_now_ns();
	for (int i = 0; one_more(j, parts[count - 1], i, since); i++)
		for (int p = 0; p < count; p++)
			parts[p] == COPY ? take_copy(j, true) : take(j, parts[p], true);
}

/* ---- results ----------------------------------------------------------------------------- */

static void print_parts(struct job *j)
{
	for (int p = 0; p < PARTS; p++) {
		struct bench_samples *s = &j->samples[p];

		if (!j->calls[p])
			continue;
		bench_sort(s);
		printf(", \"%s\": {\"us\": %.3f, \"p0_us\": %.3f, \"p10_us\": %.3f, \"p90_us\": "
		       "%.3f, "
		       "\"p99_us\": %.3f, \"samples\": %d, \"dropped\": %d, \"calls\": %d}",
		       part_names[p], bench_percentile_us(s, 50), bench_percentile_us(s, 0),
		       bench_percentile_us(s, 10), bench_percentile_us(s, 90),
		       bench_percentile_us(s, 99), s->count, j->dropped[p], j->calls[p]);
	}
}

static void print_result(struct job *j, const char *what, double unit, const double line[2])
{
	if (j->b.rank == 0) {
		printf("{\"what\": \"%s\", \"who\": \"%s\", \"bytes\": %zu, \"ranks\": %d, "
		       "\"delay_us\": %.0f, \"units\": %llu, \"unit_ns\": %.2f, "
		       "\"line_before_ns\": %.1f, \"line_after_ns\": %.1f, "
		       "\"mismatches\": %llu, \"threads\": %d",
		       what, j->opt.one ? "one" : "all", j->bytes, j->b.ranks,
		       (double)j->delay_ns / 1000, (unsigned long long)j->units, unit, line[0],
		       line[1], (unsigned long long)atomic_load(&j->b.area->mismatches),
		       j->watch.count);
		print_parts(j);
		printf("}\n");
		fflush(stdout);
		atomic_store(&j->b.area->mismatches, 0);
	}
	for (int p = 0; p < PARTS; p++)
		j->samples[p].count = j->dropped[p] = j->calls[p] = 0;
}

/* ---- what to run ------------------------------------------------------------------------- */

static void run_calibrate(struct job *j, double line[2])
{
	block(j, (enum part[]){ COMM }, 1);
	line[1] = bench_line_ns(&j->b);
	print_result(j, "calibrate", job_unit_ns(&j->b), line);
}

static void run_touch(struct job *j, double line[2])
{
	block(j, (enum part[]){ COMM }, 1);
	line[1] = bench_line_ns(&j->b);
	print_result(j, j->opt.what, 0, line);
}

static void run_overlap(struct job *j, double line[2])
{
	j->computes = !j->opt.one || is_waiter(j);
	block(j, (enum part[]){ COMM }, 1);
	block(j, (enum part[]){ COMP, BOTH }, 2);
	line[1] = bench_line_ns(&j->b);
	print_result(j, j->opt.what, 0, line);
}

static void run_late(struct job *j, double line[2])
{
	double unit = job_unit_ns(&j->b);

	block(j, (enum part[]){ COMM }, 1);
	j->computes = j->b.rank != 0;
	for (int d = 0; d < j->opt.delay_count; d++) {
		j->delay_ns = j->opt.delays_us[d] * 1000;
		j->units = (uint64_t)((double)j->delay_ns / unit);
		block(j, (enum part[]){ COMP, LATE }, 2);
		line[1] = bench_line_ns(&j->b);
		print_result(j, j->opt.what, unit, line);
	}
	j->delay_ns = 0;
}

static void run_switch(struct job *j, double line[2])
{
	double unit = job_unit_ns(&j->b);

	j->copy_src = job_share(&j->b, j->bytes);
	madvise(j->copy_src, j->bytes, MADV_HUGEPAGE);
	j->copy_dst = job_buffer(j->opt.huge, j->bytes);
	j->computes = is_waiter(j);
	for (int d = 0; d < j->opt.delay_count; d++) {
		j->delay_ns = j->opt.delays_us[d] * 1000;
		j->units = (uint64_t)((double)j->delay_ns / unit);
		block(j, (enum part[]){ COPY, SWITCH }, 2);
		line[1] = bench_line_ns(&j->b);
		print_result(j, j->opt.what, unit, line);
	}
	j->delay_ns = 0;
	munmap(j->copy_src, j->bytes);
	free(j->copy_dst);
}

static const struct measure {
	const char *name;
	void (*run)(struct job *j, double line[2]);
} measures[] = {
	{ "calibrate", run_calibrate }, { "touch", run_touch },   { "overlap", run_overlap },
	{ "late", run_late },           { "switch", run_switch },
};

static void run(struct job *j, const struct measure *m)
{
	double line[2];

	for (int s = 0; s < j->opt.size_count; s++) {
		j->bytes = j->opt.sizes[s];
		j->units = s < j->opt.unit_count ? j->opt.units[s] : 0;
		j->send = job_buffer(j->opt.huge, j->bytes * parts_sent(j));
		j->recv = job_buffer(j->opt.huge, received_at(j) == j->send
							  ? 0
							  : j->bytes * (size_t)parts_received(j));
		line[0] = bench_line_ns(&j->b);
		m->run(j, line);
		free(j->send);
		free(j->recv);
	}
}

static void find_and_run(struct job *j)
{
	const char *dash = strchr(j->opt.what, '-');

	for (size_t i = 0; dash && i < sizeof(measures) / sizeof(measures[0]); i++) {
		if (strncmp(j->opt.what, measures[i].name, (size_t)(dash - j->opt.what)))
			continue;
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
			j->kind = &kinds[k];
			if (!strcmp(dash + 1, kinds[k].name))
				return run(j, &measures[i]);
		}
	}
	job_die("what= is calibrate-, touch-, overlap-, late- or switch- bcast, gather, scatter, "
		"allgather, "
		"alltoall, allreduce, ibcast, igather, ialltoall or iallreduce");
}

static void parse_one(struct options *o, const char *arg)
{
	const char *v;

	if ((v = job_value(arg, "what")))
		o->what = v;
	else if ((v = job_value(arg, "sizes")))
		o->size_count = job_parse_list(o->sizes, v);
	else if ((v = job_value(arg, "units")))
		o->unit_count = job_parse_list(o->units, v);
	else if ((v = job_value(arg, "delays")))
		o->delay_count = job_parse_list(o->delays_us, v);
	else if ((v = job_value(arg, "ms")))
		o->budget_ns = strtoull(v, NULL, 10) * 1000000;
	else if ((v = job_value(arg, "warmup")))
		o->warmup = atoi(v);
	else if ((v = job_value(arg, "min")))
		o->min_calls = atoi(v);
	else if ((v = job_value(arg, "max")))
		o->max_calls = atoi(v);
	else if ((v = job_value(arg, "nice")))
		o->nice = atoi(v);
	else if ((v = job_value(arg, "pin")))
		o->pin = atoi(v);
	else if ((v = job_value(arg, "shared")))
		o->shared = atoi(v); /* the ranks share a core, the others are free */
	else if ((v = job_value(arg, "who")))
		o->one = !strcmp(v, "one");
	else if ((v = job_value(arg, "pages")))
		o->huge = !strcmp(v, "huge");
	else if ((v = job_value(arg, "raise")))
		o->raise = atoi(v);
	else
		job_die("arguments: what sizes units delays ms warmup min max nice pin shared who "
			"pages");
}

int main(int argc, char **argv)
{
	static struct job j = { .opt = { .what = "",

					 .budget_ns = 100000000,
					 .warmup = 8,
					 .min_calls = 5,
					 .max_calls = 400 } };

	MPI_Init(&argc, &argv);
	for (int i = 1; i < argc; i++)
		parse_one(&j.opt, argv[i]);
	if (j.opt.nice)
		job_set_nice(j.opt.nice);
	j.b.crowded = j.b.sleeps = j.opt.shared;
	job_open(&j.b);
	if (j.opt.pin && !j.b.crowded)
		bench_pin(j.b.rank);
	job_compute_init();
	job_print_run(&j.b, j.opt.pin && !j.b.crowded);
	job_watch_open(&j.watch, j.opt.raise);
	find_and_run(&j);
	MPI_Finalize();
	return 0;
}
