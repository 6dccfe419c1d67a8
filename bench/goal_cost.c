/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures running a compiled schedule: an operation that does nothing; a dissemination barrier of
 * two ranks against a handwritten one with two cache lines; a copy of 16 MB from one rank to
 * another against plain copies. The compared sides alternate, so that both see the same machine.
 * Prints one JSON object per line: the ratio's median and quartiles over the rounds, and both
 * times.
 *
 *   ninja bench/goal_cost && bench/goal_cost
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "quantile.h"
#include "schedule.h"

#define MIB ((uint64_t)1 << 20)
enum { ROUNDS = 41, NULL_OPS = 2000, BARRIERS = 1000, COPIES = 3 };
#define COPY_BYTES (16 * MIB)

static struct bench bench;

/* ---- a group of two forked processes ----------------------------------------------------- */

struct shared {
	_Alignas(128) _Atomic uint32_t flag[2][32];
	_Alignas(128) _Atomic uint32_t done; /* fragments of the copy by hand */
	_Alignas(128) _Atomic uint32_t next;
};
static struct shared *shared;

static uint32_t channel;

static struct sched_inst *open_block(struct sched_group *g, struct goal_build *b, void *buffer,
				     uint64_t bytes)
{
	return bench_open(g, b, buffer, bytes, channel);
}

static void run_once(struct sched_inst *s)
{
	if (sched_execute(s, UINT64_MAX)) {
		fprintf(stderr, "goal_cost: a run has failed\n");
		exit(1);
	}
}

/* Median and quartiles of n values. */
static void spread(double *v, int n, double out[3])
{
	for (int i = 0; i < 3; i++)
		out[i] = bench_quantile(v, n, 25 * (i + 1));
}

static void report(const char *what, double *ours, double *theirs, double line)
{
	double ratio[ROUNDS], r[3], a[3], b[3];

	for (int i = 0; i < ROUNDS; i++)
		ratio[i] = ours[i] / theirs[i];
	spread(ratio, ROUNDS, r);
	spread(ours, ROUNDS, a);
	spread(theirs, ROUNDS, b);
	printf("{\"what\": \"%s\", \"ratio\": %.2f, \"ratio_quartiles\": [%.2f, %.2f], \"ns\": "
	       "%.1f, "
	       "\"by_hand_ns\": %.1f, \"least_ns\": %.1f, \"least_by_hand_ns\": %.1f, \"line_ns\": "
	       "%.0f}\n",
	       what, r[1], r[0], r[2], a[1], b[1], ours[0], theirs[0],
	       line); /* sorted by spread() */
	fflush(stdout);
}

/* ---- operations that do nothing ---------------------------------------------------------- */

static void null_ops(struct sched_group *g)
{
	static struct goal_op ops[NULL_OPS];
	static struct goal_edge edges[NULL_OPS];
	struct goal_build b;
	double ns[ROUNDS], s[3];
	struct sched_inst *inst;

	goal_build_init(&b, ops, NULL_OPS, edges, NULL_OPS);
	for (uint32_t i = 0; i < NULL_OPS; i++) {
		goal_add(&b, &(struct goal_op){ .type = GOAL_NOP });
		if (i)
			goal_requires(&b, i, i - 1);
	}
	channel = 1; /* the other rank does not run it */
	inst = open_block(g, &b, NULL, 0);
	channel = 0;
	for (int k = 0; k < ROUNDS; k++) {
		uint64_t t0 = bench_now_ns();

		run_once(inst);
		ns[k] = (double)(bench_now_ns() - t0) / NULL_OPS;
	}
	spread(ns, ROUNDS, s);
	printf("{\"what\": \"null operation in a chain\", \"ns\": %.1f, \"quartiles\": [%.1f, "
	       "%.1f]}\n",
	       s[1], s[0], s[2]);
	fflush(stdout);
	sched_close(inst);
}

/* ---- barrier ----------------------------------------------------------------------------- */

static void barrier_by_hand(uint32_t number)
{
	_Atomic uint32_t *mine = &shared->flag[bench.rank][0],
			 *other = &shared->flag[1 - bench.rank][0];

	atomic_store_explicit(mine, number, memory_order_release);
	while ((int32_t)(atomic_load_explicit(other, memory_order_acquire) - number) < 0)
		;
}

static void barriers(struct sched_group *g, double line)
{
	struct goal_op ops[2];
	struct goal_edge edge;
	struct goal_build b;
	double ours[ROUNDS], theirs[ROUNDS];
	uint32_t number = 0;
	struct sched_inst *inst;

	goal_build_init(&b, ops, 2, &edge, 1);
	goal_send(&b, 1 - (uint32_t)bench.rank, 0, 0, GOAL_SCRATCH, 0, 0);
	goal_recv(&b, 1 - (uint32_t)bench.rank, 0, GOAL_SCRATCH, 0, 0);
	inst = open_block(g, &b, NULL, 0);
	for (int k = 0; k < ROUNDS; k++) {
		uint64_t t0 = bench_start(&bench), t1;

		for (int i = 0; i < BARRIERS; i++)
			run_once(inst);
		t1 = bench_now_ns();
		ours[k] = (double)(t1 - t0) / BARRIERS;
		t0 = bench_start(&bench);
		for (int i = 0; i < BARRIERS; i++)
			barrier_by_hand(++number);
		theirs[k] = (double)(bench_now_ns() - t0) / BARRIERS;
	}
	if (!bench.rank)
		report("barrier of two ranks", ours, theirs, line);
	sched_close(inst);
}

/* ---- copies ------------------------------------------------------------------------------ */

#define FRAGMENT (256u << 10)

/* The receiver and the sender copy fragments in turn, as the best that can be done with two cores.
 */
static void copy_by_hand(char *dst, const char *src)
{
	uint32_t all = COPY_BYTES / FRAGMENT, i;

	bench_sync(&bench);
	while ((i = atomic_fetch_add(&shared->next, 1)) < all) {
		os_copy(dst + (uint64_t)i * FRAGMENT, src + (uint64_t)i * FRAGMENT, FRAGMENT,
			  os_copy_pick(FRAGMENT, COPY_BYTES));
		atomic_fetch_add(&shared->done, 1);
	}
	while (atomic_load(&shared->done) < all)
		;
	bench_sync(&bench);
	if (!bench.rank)
		atomic_store(&shared->next, 0), atomic_store(&shared->done, 0);
	bench_sync(&bench);
}

static void copies(struct sched_group *g, char *hand, double line)
{
	char *buf = sched_alloc(g, COPY_BYTES);
	struct goal_op op;
	struct goal_edge edge;
	struct goal_build b;
	double ours[ROUNDS], theirs[ROUNDS];
	struct sched_inst *inst;

	memset(buf, 1, COPY_BYTES);
	goal_build_init(&b, &op, 1, &edge, 1);
	if (bench.rank)
		goal_recv(&b, 0, 0, GOAL_USER, 0, COPY_BYTES);
	else
		goal_send(&b, 1, 0, 0, GOAL_USER, 0, COPY_BYTES);
	inst = open_block(g, &b, buf, COPY_BYTES);
	for (int k = 0; k < ROUNDS; k++) {
		uint64_t t0 = bench_start(&bench);

		for (int i = 0; i < COPIES; i++) {
			run_once(inst);
			bench_sync(&bench);
		}
		ours[k] = (double)(bench_now_ns() - t0) / COPIES;
		t0 = bench_start(&bench);
		for (int i = 0; i < COPIES; i++)
			copy_by_hand(hand + COPY_BYTES, hand);
		theirs[k] = (double)(bench_now_ns() - t0) / COPIES;
	}
	if (!bench.rank)
		report("16 MB from one rank to another", ours, theirs, line);
	sched_close(inst);
	sched_free(g, buf);
}

static int be_rank(char *hand)
{
	struct sched_group *g;
	double line;
	int ret;

	bench_pin(bench.rank);
	ret = sched_join("goal_cost", bench.rank, bench.ranks, 10000000000ull, &g);
	if (ret) {
		fprintf(stderr, "goal_cost: no group: %s\n", node_refusal());
		return 1;
	}
	line = bench_line_ns(&bench);
	bench_pin(bench.rank);
	if (!bench.rank)
		null_ops(g);
	barriers(g, line);
	copies(g, hand, line);
	sched_group_destroy(g);
	return 0;
}

static void *map_shared(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		exit(1);
	return p;
}

int main(void)
{
	char *hand = map_shared(2 * COPY_BYTES), problems[256];
	int status = 1;
	pid_t child;

	base_options_load(NULL, problems, sizeof problems);
	shared = map_shared(sizeof *shared);
	bench = (struct bench){ .area = map_shared(sizeof *bench.area), .ranks = 2 };
	child = fork();
	bench.rank = child == 0;
	if (child < 0)
		return 1;
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* else it waits for a killed parent for ever */
		_exit(be_rank(hand));
	}
	if (be_rank(hand))
		return 1;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
