/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions between processes against a reference that each rank computes alone: all kinds,
 * operations and types, operations of the program that may not be exchanged, results in place, at
 * odd addresses, parts without elements; waited for, stepped through, left. RANDOM_SEED=n plays
 * other sequences.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "coll/coll.h"
#include "exec_case.h"
#include "exec_mover.h"
#include "goal/local.h"

#define OPTIONS(...)                                                                               \
	((char *const[]){ "SLUICE_TEST=region_adopt_min=4K", __VA_ARGS__ __VA_OPT__(, ) NULL })

/* Parameters that all ranks draw alike. */
struct drawn {
	struct exec_reduce reduce;
	uint64_t starts[RANKS_MAX + 1];
	uint64_t key;
	bool has_own;
};

struct one {
	struct drawn d;
	struct case_side in, out;
	bool in_place;
	char what[128];
	char *expected;
	uint64_t expected_bytes;
};

/* ---- values ------------------------------------------------------------------------------ */

/* Small numbers, so that floating point is exact often, and never NaN. */
static void fill(char *to, const struct drawn *d, int rank)
{
	uint64_t x = d->key + (uint64_t)rank * 77;

	for (uint64_t i = 0; i < d->reduce.count; i++) {
		uint64_t v = ((x += 0x9e3779b97f4a7c15u) >> 40) % 7 + 1;
		float f = (float)v;
		double g = (double)v;

		if (d->has_own)
			for (uint64_t k = 0; k < d->reduce.element_bytes; k++)
				to[i * d->reduce.element_bytes + k] =
					(char)((x >> k % 31) % 3 * (unsigned)(rank + 1));
		else if (d->reduce.dtype == GOAL_F32)
			memcpy(to + 4 * i, &f, 4);
		else if (d->reduce.dtype == GOAL_F64)
			memcpy(to + 8 * i, &g, 8);
		else if (d->reduce.dtype == GOAL_F16)
			memcpy(to + 2 * i, &(uint16_t){ (uint16_t)(0x3c00 + v) }, 2);
		else if (d->reduce.dtype == GOAL_BF16)
			memcpy(to + 2 * i, &(uint16_t){ (uint16_t)(0x3f80 + v) }, 2);
		else
			memcpy(to + i * d->reduce.element_bytes, &v, d->reduce.element_bytes);
	}
}

/* The last that is not 0: associative, not commutative. */
static int last_counts(void *ctx, const void *in, void *inout, uint64_t count)
{
	const struct exec_reduce *f = ctx;
	const char *a = in;
	char *b = inout;

	for (uint64_t i = 0; i < count * f->element_bytes; i++)
		b[i] = b[i] ? b[i] : a[i];
	return 0;
}

/* sum = sum op next */
static void add(const struct drawn *d, char *sum, char *next)
{
	uint64_t bytes = d->reduce.count * d->reduce.element_bytes;

	if (d->has_own) {
		last_counts((void *)(uintptr_t)&d->reduce, sum, next, d->reduce.count);
		memcpy(sum, next, bytes);
	} else {
		goal_local(GOAL_ISA_BASE, d->reduce.type, d->reduce.dtype, sum, sum, next, bytes);
	}
}

static char *buffer_of(const struct drawn *d)
{
	char *p = malloc(d->reduce.count * d->reduce.element_bytes + 1);

	CHECK(p);
	return p;
}

/* sum = values [first, first + n), as a balanced tree. The first `pairs` values are those of two
 * ranks. */
static void add_tree(const struct drawn *d, char *sum, int first, int n, int pairs)
{
	bool is_pair = n == 1 && first < pairs;
	char *right = buffer_of(d);

	if (n > 1) {
		add_tree(d, sum, first, n / 2, pairs);
		add_tree(d, right, first + n / 2, n / 2, pairs);
	} else {
		fill(sum, d, first + (is_pair ? first : pairs));
		fill(right, d, 2 * first + 1);
	}
	if (n > 1 || is_pair)
		add(d, sum, right);
	free(right);
}

static void add_all(const struct drawn *d, char *sum, int ranks)
{
	int power = 1;

	while (2 * power <= ranks)
		power *= 2;
	add_tree(d, sum, 0, power, ranks - power);
}

static void add_up_to(const struct drawn *d, char *sum, int last)
{
	char *next = buffer_of(d);

	fill(sum, d, 0);
	for (int r = 1; r <= last; r++) {
		fill(next, d, r);
		add(d, sum, next);
	}
	free(next);
}

/* Returns: the expected result of this rank, or NULL. */
static char *reference(const struct drawn *d, int rank, int ranks, uint64_t *out_bytes)
{
	uint64_t es = d->reduce.element_bytes, bytes = d->reduce.count * es;
	int last = d->reduce.kind == COLL_EXSCAN ? rank - 1 : rank;
	char *sum = buffer_of(d);

	*out_bytes =
		last < 0 || (d->reduce.kind == COLL_REDUCE && rank != d->reduce.root) ? 0 : bytes;
	if (coll_is_prefix(d->reduce.kind))
		add_up_to(d, sum, last);
	else
		add_all(d, sum, ranks);
	if (d->reduce.kind == COLL_REDUCE_SCATTER) {
		*out_bytes = (d->starts[rank + 1] - d->starts[rank]) * es;
		memmove(sum, sum + d->starts[rank] * es, *out_bytes);
	}
	return sum;
}

/* ---- drawing ----------------------------------------------------------------------------- */

static void draw_operation(struct exec_reduce *f, uint64_t *common)
{
	if (ranks_below(common, 4) == 0) {
		uint64_t size = ranks_below(common, 12);

		f->type = GOAL_NOP;
		f->element_bytes = size < 10    ? 1 + ranks_below(common, 40)
				   : size == 10 ? 4096
						: 40000;
		return;
	}
	f->dtype = (uint32_t)ranks_below(common, GOAL_DTYPE_COUNT);
	f->type = GOAL_ADD + (uint32_t)ranks_below(
				     common, (goal_dtype_is_float(f->dtype) ? GOAL_MIN : GOAL_XOR) -
						     GOAL_ADD + 1);
	f->element_bytes = goal_dtype_bytes(f->dtype);
}

static void draw_starts(struct drawn *d, int ranks, uint64_t *common)
{
	uint64_t at = 0;

	for (int r = 0; r < ranks; r++) {
		uint64_t left = d->reduce.count - at,
			 n = ranks_below(common, 3) ? ranks_below(common, left + 1) : 0;

		d->starts[r] = at;
		at += r == ranks - 1 ? left : n;
	}
	d->starts[ranks] = at;
}

static const enum coll kinds[] = { COLL_REDUCE, COLL_ALLREDUCE, COLL_REDUCE_SCATTER, COLL_SCAN,
				   COLL_EXSCAN };

static void draw(struct drawn *d, int ranks, uint64_t max_bytes, uint64_t *common)
{
	struct exec_reduce *f = &d->reduce;
	uint64_t top;

	*d = (struct drawn){ .key = ranks_random(common) };
	f->kind = kinds[ranks_below(common, BASE_ARRAY_LEN(kinds))];
	f->root = (int)ranks_below(common, (uint64_t)ranks);
	draw_operation(f, common);
	d->has_own = f->type == GOAL_NOP;
	top = 1ull << ranks_below(common, 64 - (uint64_t)__builtin_clzll(max_bytes));
	f->count = base_max_u64((top + ranks_below(common, top)) / f->element_bytes, 1);
	f->count = base_min_u64(f->count, base_max_u64(max_bytes / f->element_bytes, 1));
	if (ranks_below(common, 40) == 0)
		f->count = 0;
	if (f->kind == COLL_REDUCE_SCATTER)
		draw_starts(d, ranks, common);
}

/* ---- one of them ------------------------------------------------------------------------- */

static struct exec_run *one_begin(struct one *o, int place)
{
	struct ranks *r = exec_case.r;
	struct exec_reduce *f = &o->d.reduce;
	struct exec_call call = { .reduce = f, .name = "reduce" };
	uint64_t bytes = f->count * f->element_bytes;
	struct exec_run *run;

	o->expected = reference(&o->d, r->rank, r->size, &o->expected_bytes);
	o->in_place = f->kind != COLL_REDUCE_SCATTER && o->expected_bytes == bytes && bytes &&
		      exec_case.is_in_place;
	snprintf(o->what, sizeof o->what,
		 "kind %d, %u on %u, %" PRIu64 " of %" PRIu64 ", rank %d of %d%s",
		 (int)f->kind, f->type, f->dtype, f->count, f->element_bytes, r->rank, r->size,
		 o->in_place ? ", in place" : "");
	case_side_make(&o->in, place, 0, o->in_place ? 0 : bytes, 0);
	case_side_make(&o->out, place, 1, o->expected_bytes, 0x55);
	fill(o->in_place ? o->out.addr : o->in.addr, &o->d, r->rank);
	case_side_begin(&o->in);
	case_side_begin(&o->out);
	if (!bytes && !o->in_place) { /* memory there must be, without bytes too */
		o->in.desc.flags = o->out.desc.flags = REGION_DESC_MAPPED;
	}
	f->starts = o->d.starts;
	f->in_place = o->in_place;
	f->combine = last_counts;
	f->ctx = f;
	call.user[0] = o->in.used;
	call.user[1] = o->out.used;
	call.desc[COLL_SEND] = o->in.desc;
	call.desc[COLL_RECV] = o->out.desc;
	CHECK_EQ(exec_begin(exec_case.e, &call, &run), 0);
	return run;
}

static void one_end(struct one *o)
{
	char *brought = malloc(o->in.bytes + 1);

	case_side_end(&o->in, o->what);
	case_side_end(&o->out, o->what);
	for (uint64_t i = 0; i < o->expected_bytes; i++)
		if (o->out.addr[i] != o->expected[i])
			unit_fail(__FILE__, __LINE__,
				  "%s: byte %" PRIu64 " of %" PRIu64 " is %d, not %d", o->what, i,
				  o->expected_bytes, o->out.addr[i], o->expected[i]);
	CHECK(brought);
	if (o->in.bytes)
		fill(brought, &o->d, exec_case.r->rank);
	CHECK(!memcmp(brought, o->in.addr, o->in.bytes));
	memset(o->in.addr, 1, o->in.bytes); /* nobody may read it any more */
	memset(o->out.addr, 2, o->expected_bytes);
	free(brought);
	free(o->expected);
}

struct sequence { uint64_t seed, max_bytes; int rounds; };

static void play(struct ranks *r)
{
	const struct sequence *q = r->arg;
	uint64_t common = q->seed;
	static struct one ones[CASE_RUNS];

	exec_case_begin(r, q->seed);
	for (int round = 0; round < q->rounds; round++) {
		int n = ranks_below(&common, 3) ? 1 : 1 + (int)ranks_below(&common, CASE_RUNS);
		struct exec_run *runs[CASE_RUNS];

		for (int i = 0; i < n; i++) {
			draw(&ones[i].d, r->size, q->max_bytes / (uint64_t)n, &common);
			exec_case_dawdle();
			exec_case.is_in_place = ranks_below(&exec_case.own, 3) == 0;
			runs[i] = one_begin(&ones[i], i);
		}
		exec_case_finish(runs, n, (enum case_how)ranks_below(&exec_case.own, CASE_HOWS));
		for (int i = 0; i < n; i++)
			one_end(&ones[i]);
	}
	exec_case_end();
}

UNIT_TEST(reductions_give_what_one_rank_alone_would_compute)
{
	for (int ranks = 2; ranks <= 9; ranks++) {
		struct sequence q = { exec_case_seed((uint64_t)ranks),
				      ranks < 5 ? 300 << 10 : 100 << 10, ranks < 5 ? 40 : 20 };

		ranks_run(ranks, OPTIONS("SLUICE_TEST=fault=slots:all"), play, &q);
	}
}

/* ---- by a process that may be killed ----------------------------------------------------- */

enum { SERVED_COUNT = 60000, WORD_COME = 0, WORD_SERVED = 8 };

static void until(struct ranks *r, int word, uint64_t value)
{
	while (atomic_load(&r->words[word]) < value)
		usleep(100);
}

static void served_once(struct ranks *r, struct one *o, int round, bool in_place)
{
	int death = round % DEATHS, unit = round / DEATHS;
	bool has_work, is_whole;
	struct exec_run *run;

	memset(o, 0, sizeof *o);
	o->d = (struct drawn){ .key = (uint64_t)round,
			       .reduce = { .kind = COLL_ALLREDUCE,
					 .type = GOAL_ADD,
					 .dtype = GOAL_F32,
					 .count = SERVED_COUNT,
					 .element_bytes = 4 } };
	exec_case.is_in_place = in_place;
	run = one_begin(o, 0);
	atomic_fetch_add(&r->words[WORD_COME], 1);
	until(r, WORD_COME, (uint64_t)(round + 1) * (uint64_t)r->size);
	if (!r->rank) {
		serve_and_die(exec_case.e, run, death, unit, &is_whole);
		/* in place a unit that was half done cannot be done again: such are not served */
		CHECK_EQ(mover.bytes > 0, !in_place && (death == DIE_NEVER || unit));
		CHECK(!is_whole || in_place || death == DIE_NEVER);
		has_work = exec_work_bytes(run);
		CHECK(!has_work || !in_place);
		atomic_store(&r->words[WORD_SERVED], (uint64_t)round + 1);
	}
	until(r, WORD_SERVED, (uint64_t)round + 1);
	CHECK_EQ(exec_wait(run), 0);
	one_end(o);
}

static void body_served(struct ranks *r)
{
	static struct one one;

	exec_case_begin(r, 1);
	for (int round = 0; round < 4 * DEATHS; round++)
		served_once(r, &one, round, *(const bool *)r->arg);
	exec_case_end();
}

UNIT_TEST(reduce_survives_a_worker_that_is_killed_at_any_step)
{
	ranks_run(3, OPTIONS("SLUICE_TEST=fault=slots:all"), body_served, &(bool){ false });
}

UNIT_TEST(reduce_in_place_is_not_done_by_who_may_be_killed)
{
	ranks_run(3, OPTIONS("SLUICE_TEST=fault=slots:all"), body_served, &(bool){ true });
}

/* ---- trouble ----------------------------------------------------------------------------- */

static struct exec_run *begin_small(struct ranks *r, struct one *o, uint64_t count,
				    enum coll kind)
{
	memset(o, 0, sizeof *o);
	o->d.reduce = (struct exec_reduce){ .kind = kind,
					.type = GOAL_ADD,
					.dtype = GOAL_I32,
					.count = count,
					.element_bytes = 4 };
	exec_case.is_in_place = false;
	(void)r;
	return one_begin(o, 0);
}

static void body_dies(struct ranks *r)
{
	static struct one one;
	struct exec_run *run;

	exec_case_begin(r, 1);
	run = begin_small(r, &one, 9000, COLL_ALLREDUCE);
	CHECK_EQ(exec_wait(run), 0);
	one_end(&one);
	ranks_barrier(r);
	if (r->rank == 1)
		_exit(7);
	CHECK_EQ(exec_wait(begin_small(r, &one, 9000, COLL_SCAN)), -EOWNERDEAD);
	_exit(0);
}

UNIT_TEST(reduce_with_a_dead_peer_ends_with_an_error)
{
	int status[3];

	ranks_run_any(3, OPTIONS("SLUICE_TEST=fault=slots:all"), body_dies, NULL, status);
	CHECK_EQ(status[0], 0);
	CHECK_EQ(status[1], 7);
	CHECK_EQ(status[2], 0);
}

/* Each time at another place, perhaps in the middle of a unit. */
static void body_killed(struct ranks *r)
{
	const struct itimerval soon = { .it_value = { .tv_usec = *(const int *)r->arg } };
	static struct one one;
	uint64_t common = 7;
	int ret = 0;

	exec_case_begin(r, 1);
	ranks_barrier(r);
	if (r->rank == 1)
		setitimer(ITIMER_REAL, &soon, NULL);
	while (!ret) {
		memset(&one, 0, sizeof one);
		one.d.reduce = (struct exec_reduce){ .kind = kinds[ranks_below(&common, 3)],
						 .type = GOAL_ADD,
						 .dtype = GOAL_I32,
						 .count = 20000,
						 .element_bytes = 4 };
		draw_starts(&one.d, r->size, &common);
		ret = exec_wait(one_begin(&one, 0));
		if (!ret)
			one_end(&one);
	}
	CHECK_EQ(ret, -EOWNERDEAD);
	_exit(0);
}

UNIT_TEST(reduce_ends_with_an_error_when_a_rank_is_killed)
{
	for (int us = 500; us < 20000; us += 2700) {
		int status[5];

		ranks_run_any(5, OPTIONS("SLUICE_TEST=fault=slots:all"), body_killed, &us, status);
		for (int r = 0; r < 5; r++)
			CHECK_EQ(status[r], r == 1 ? 128 + SIGALRM : 0);
	}
}

static void body_disagrees(struct ranks *r)
{
	static struct one one;

	exec_case_begin(r, 1);
	CHECK_EQ(exec_wait(begin_small(r, &one, r->rank ? 9000 : 9001, COLL_ALLREDUCE)),
		 -EREMOTEIO);
	ranks_barrier(r);
	_exit(0);
}

UNIT_TEST(reductions_of_different_lengths_end_with_an_error)
{
	ranks_run(2, OPTIONS("SLUICE_TEST=fault=slots:all"), body_disagrees, NULL);
}

static void body_refused(struct ranks *r)
{
	const uint64_t starts[] = { 0, 5, 4 };
	const struct exec_reduce wrong[] = {
		{ .kind = COLL_ALLREDUCE,
		  .type = GOAL_ADD,
		  .dtype = GOAL_F32,
		  .count = 4,
		  .element_bytes = 8 },
		{ .kind = COLL_ALLREDUCE,
		  .type = GOAL_XOR,
		  .dtype = GOAL_F32,
		  .count = 4,
		  .element_bytes = 4 },
		{ .kind = COLL_ALLREDUCE,
		  .type = GOAL_COPY,
		  .dtype = GOAL_F32,
		  .count = 4,
		  .element_bytes = 4 },
		{ .kind = COLL_ALLREDUCE, .type = GOAL_NOP, .count = 4, .element_bytes = 4 },
		{ .kind = COLL_REDUCE,
		  .root = 2,
		  .type = GOAL_ADD,
		  .dtype = GOAL_F32,
		  .count = 4,
		  .element_bytes = 4 },
		{ .kind = COLL_REDUCE_SCATTER,
		  .type = GOAL_ADD,
		  .dtype = GOAL_F32,
		  .count = 4,
		  .element_bytes = 4 },
		{ .kind = COLL_REDUCE_SCATTER,
		  .type = GOAL_ADD,
		  .dtype = GOAL_F32,
		  .count = 4,
		  .element_bytes = 4,
		  .starts = starts },
	};
	static struct one one;
	struct exec_run *run;

	exec_case_begin(r, 1);
	for (unsigned i = 0; i < BASE_ARRAY_LEN(wrong); i++) {
		const struct exec_call call = { .reduce = &wrong[i], .name = "wrong" };

		CHECK_EQ(exec_begin(exec_case.e, &call, &run), -EINVAL);
	}
	run = begin_small(r, &one, 100, COLL_ALLREDUCE);
	CHECK_EQ(exec_wait(run), 0);
	one_end(&one);
	exec_case_end();
}

UNIT_TEST(reductions_that_cannot_be_are_refused_and_do_not_count)
{
	ranks_run(2, OPTIONS("SLUICE_TEST=fault=slots:all"), body_refused, NULL);
}
