/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Folds between processes against a reference that each rank computes alone: all kinds, operations and
 * types, operations of the program that may not be exchanged, results in place, at odd addresses, parts without
 * elements; waited for, stepped through, left. RANDOM_SEED=n plays other sequences.
 */
#include <stdlib.h>

#include "exec_case.h"
#include "goal/local.h"

#define OPTIONS(...) ((char *const[]){ "SLUICE_REGION_ADOPT_MIN=4K", __VA_ARGS__ __VA_OPT__(, ) NULL })

/* What all ranks draw alike. */
struct drawn {
	struct exec_fold fold;
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

/* ---- values ---------------------------------------------------------------------------------- */

/* Small numbers, so that floating point is exact often, and never NaN. */
static void fill(char *to, const struct drawn *d, int rank)
{
	uint64_t x = d->key + (uint64_t)rank * 77;

	for (uint64_t i = 0; i < d->fold.count; i++) {
		uint64_t v = ranks_random(&x) % 7 + 1;
		float f = (float)v;
		double g = (double)v;

		if (d->has_own)
			for (uint64_t k = 0; k < d->fold.element_bytes; k++)
				to[i * d->fold.element_bytes + k] = (char)((x >> k % 31) % 3 * (unsigned)(rank + 1));
		else if (d->fold.dtype == GOAL_F32)
			memcpy(to + 4 * i, &f, 4);
		else if (d->fold.dtype == GOAL_F64)
			memcpy(to + 8 * i, &g, 8);
		else if (d->fold.dtype == GOAL_F16)
			memcpy(to + 2 * i, &(uint16_t){ (uint16_t)(0x3c00 + v) }, 2);
		else if (d->fold.dtype == GOAL_BF16)
			memcpy(to + 2 * i, &(uint16_t){ (uint16_t)(0x3f80 + v) }, 2);
		else
			memcpy(to + i * d->fold.element_bytes, &v, d->fold.element_bytes);
	}
}

/* The last that is not 0: associative, not commutative. */
static int last_counts(void *ctx, const void *in, void *inout, uint64_t count)
{
	const struct exec_fold *f = ctx;
	const char *a = in;
	char *b = inout;

	for (uint64_t i = 0; i < count * f->element_bytes; i++)
		b[i] = b[i] ? b[i] : a[i];
	return 0;
}

/* sum = sum op next */
static void add(const struct drawn *d, char *sum, char *next)
{
	uint64_t bytes = d->fold.count * d->fold.element_bytes;

	if (d->has_own) {
		last_counts((void *)(uintptr_t)&d->fold, sum, next, d->fold.count);
		memcpy(sum, next, bytes);
	} else {
		goal_local(GOAL_ISA_BASE, d->fold.type, d->fold.dtype, sum, sum, next, bytes);
	}
}

/* What this rank gets; NULL: nothing. */
static char *reference(const struct drawn *d, int rank, int ranks, uint64_t *out_bytes)
{
	uint64_t es = d->fold.element_bytes, bytes = d->fold.count * es;
	int last = d->fold.kind == FOLD_SCAN ? rank : d->fold.kind == FOLD_EXSCAN ? rank - 1 : ranks - 1;
	char *sum = malloc(bytes), *next = malloc(bytes);

	CHECK(sum && next);
	*out_bytes = last < 0 || (d->fold.kind == FOLD_REDUCE && rank != d->fold.root) ? 0 : bytes;
	fill(sum, d, 0);
	for (int r = 1; r <= last; r++) {
		fill(next, d, r);
		add(d, sum, next);
	}
	free(next);
	if (d->fold.kind == FOLD_REDUCE_SCATTER) {
		*out_bytes = (d->starts[rank + 1] - d->starts[rank]) * es;
		memmove(sum, sum + d->starts[rank] * es, *out_bytes);
	}
	return sum;
}

/* ---- drawing --------------------------------------------------------------------------------- */

static void draw_operation(struct exec_fold *f, uint64_t *common)
{
	if (ranks_below(common, 4) == 0) {
		uint64_t size = ranks_below(common, 12);

		f->type = GOAL_NOP;
		f->element_bytes = size < 10 ? 1 + ranks_below(common, 40) : size == 10 ? 4096 : 40000;
		return;
	}
	f->dtype = (uint32_t)ranks_below(common, GOAL_DTYPE_COUNT);
	f->type = GOAL_ADD + (uint32_t)ranks_below(common, (goal_dtype_is_float(f->dtype) ? GOAL_MIN : GOAL_XOR) - GOAL_ADD + 1);
	f->element_bytes = goal_dtype_bytes(f->dtype);
}

static void draw_starts(struct drawn *d, int ranks, uint64_t *common)
{
	uint64_t at = 0;

	for (int r = 0; r < ranks; r++) {
		uint64_t left = d->fold.count - at, n = ranks_below(common, 3) ? ranks_below(common, left + 1) : 0;

		d->starts[r] = at;
		at += r == ranks - 1 ? left : n;
	}
	d->starts[ranks] = at;
}

static void draw(struct drawn *d, int ranks, uint64_t max_bytes, uint64_t *common)
{
	struct exec_fold *f = &d->fold;
	uint64_t top;

	*d = (struct drawn){ .key = ranks_random(common) };
	f->kind = (enum fold_kind)ranks_below(common, FOLD_EXSCAN + 1);
	f->root = (int)ranks_below(common, (uint64_t)ranks);
	draw_operation(f, common);
	d->has_own = f->type == GOAL_NOP;
	top = 1ull << ranks_below(common, 64 - (uint64_t)__builtin_clzll(max_bytes));
	f->count = base_max_u64((top + ranks_below(common, top)) / f->element_bytes, 1);
	f->count = base_min_u64(f->count, base_max_u64(max_bytes / f->element_bytes, 1));
	if (ranks_below(common, 40) == 0)
		f->count = 0;
	if (f->kind == FOLD_REDUCE_SCATTER)
		draw_starts(d, ranks, common);
}

/* ---- one of them ------------------------------------------------------------------------------- */

static struct exec_run *one_begin(struct one *o, int place)
{
	struct ranks *r = exec_case.r;
	struct exec_fold *f = &o->d.fold;
	struct exec_call call = { .fold = f, .name = "fold" };
	uint64_t bytes = f->count * f->element_bytes;
	struct exec_run *run;

	o->expected = reference(&o->d, r->rank, r->size, &o->expected_bytes);
	o->in_place = f->kind != FOLD_REDUCE_SCATTER && o->expected_bytes == bytes && bytes &&
		      ranks_below(&exec_case.own, 3) == 0;
	snprintf(o->what, sizeof o->what, "kind %d, %u on %u, %" PRIu64 " of %" PRIu64 ", rank %d of %d%s", (int)f->kind,
		 f->type, f->dtype, f->count, f->element_bytes, r->rank, r->size, o->in_place ? ", in place" : "");
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
	call.desc[GOAL_USER] = o->in.desc;
	call.desc[GOAL_USER + 1] = o->out.desc;
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
			unit_fail(__FILE__, __LINE__, "%s: byte %" PRIu64 " of %" PRIu64 " is %d, not %d", o->what, i,
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
			runs[i] = one_begin(&ones[i], i);
		}
		exec_case_finish(runs, n, (enum case_how)ranks_below(&exec_case.own, CASE_HOWS));
		for (int i = 0; i < n; i++)
			one_end(&ones[i]);
	}
	exec_case_end();
}

static uint64_t seed_of(uint64_t number)
{
	const char *text = getenv("RANDOM_SEED");

	return number * 1000 + (text ? strtoull(text, NULL, 0) : 0);
}

UNIT_TEST(folds_give_what_one_rank_alone_would_compute)
{
	for (int ranks = 2; ranks <= 9; ranks++) {
		struct sequence q = { seed_of((uint64_t)ranks), ranks < 5 ? 1 << 20 : 200 << 10, ranks < 5 ? 40 : 25 };

		ranks_run(ranks, OPTIONS("SLUICE_FAULT=slots:all"), play, &q);
	}
}
