/* SPDX-License-Identifier: BSD-3-Clause */
/* The trace of a process: its calls, full files, full disks. */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trace_case.h"
#include "unit.h"

/* Returns: the number of repeats after a template; *out_ticks: their total time. */
static uint64_t repeats_of(const struct trace_record *alike, uint64_t *out_ticks)
{
	const struct trace_repeats *row = (const struct trace_repeats *)(alike + 1);
	uint64_t n = 0;

	*out_ticks = 0;
	for (uint32_t i = 0; i < TRACE_REPEAT_RECORDS * TRACE_REPEATS_PER_RECORD; i++) {
		uint64_t repeat =
			row[i / TRACE_REPEATS_PER_RECORD].each[i % TRACE_REPEATS_PER_RECORD];

		CHECK(row[i / TRACE_REPEATS_PER_RECORD].type == TRACE_REPEATS);
		n += repeat != 0;
		*out_ticks += repeat % TRACE_REPEAT_MOST_TICKS;
	}
	return n;
}

/* Counts the recorded calls and all calls of a function. */
static void count_calls(const char *base, uint64_t *out_records, uint64_t *out_calls,
			uint64_t *out_bytes)
{
	uint32_t chunks = (uint32_t)base_min_u64(trace_case_header(base)->chunk_next,
						 trace_case_header(base)->chunk_cap);

	*out_records = *out_calls = *out_bytes = 0;
	for (uint32_t i = 0; i < chunks; i++) {
		const struct trace_chunk *c = trace_case_chunk(base, i);
		const struct trace_record *r = (const struct trace_record *)(c + 1);
		const struct trace_totals *t = (const struct trace_totals *)(c + 1);

		for (uint32_t k = 0; k < TRACE_RECORDS_PER_CHUNK; k++) {
			uint64_t ticks, n = 0;

			if (c->kind == TRACE_CHUNK_TOTALS) {
				*out_calls += t[k].calls;
				*out_bytes += t[k].bytes;
			}
			if (c->kind != TRACE_CHUNK_RECORDS)
				continue;
			*out_records += r[k].type == TRACE_CALL;
			if (r[k].type == TRACE_TEMPLATE)
				n = repeats_of(&r[k], &ticks);
			*out_records += n;
			if (r[k].flags & TRACE_IS_COUNTED)
				n = 0;
			*out_calls += n;
			*out_bytes += n * r[k].call.bytes;
		}
	}
}

static void ten_calls(void)
{
	for (int i = 0; i < 10; i++)
		trace_case_call(100);
}

UNIT_TEST(a_killed_process_leaves_every_call)
{
	const char *base = trace_case_run(ten_calls, 8 << 20); /* the child ends by _exit() */
	uint64_t records, calls, bytes;

	count_calls(base, &records, &calls, &bytes);
	CHECK_EQ(trace_case_header(base)->state, TRACE_RUNNING);
	CHECK_EQ(trace_case_header(base)->rank, 3);
	CHECK_EQ(records, 10);
	CHECK_EQ(calls, 10);
	CHECK_EQ(bytes, 1000);
}

static void many_calls(void)
{
	for (int i = 0; i < 100000; i++)
		trace_case_call(7);
}

UNIT_TEST(old_records_make_room_and_sums_stay_exact)
{
	const char *base = trace_case_run(many_calls, 1 << 20);
	uint64_t records, calls, bytes;

	count_calls(base, &records, &calls, &bytes);
	CHECK_EQ(calls, 100000);
	CHECK_EQ(bytes, 700000);
	CHECK(records > 5000 && records < 100000);
	CHECK(trace_case_header(base)->overwritten > 0);
	CHECK_EQ(records + trace_case_header(base)->overwritten + trace_case_header(base)->dropped,
		 100000);
}

static void five_thousand_calls(void)
{
	for (int i = 0; i < 5000; i++)
		trace_case_call(1);
}

static void left_by_longjmp(void)
{
	for (int i = 0; i < 5; i++) { /* an error handler left each call by longjmp(): none ends */
		trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&trace_case_call,
				 __builtin_frame_address(0));
		trace_current.frame = (char *)__builtin_frame_address(0) - 1000;
	}
	trace_case_call(1);
}

UNIT_TEST(calls_that_were_left_by_longjmp_do_not_hide_the_next)
{
	uint64_t records, calls, bytes;

	count_calls(trace_case_run(left_by_longjmp, 8 << 20), &records, &calls, &bytes);
	CHECK_EQ(records, 1);
}

static void *thread_calls(void *arg)
{
	five_thousand_calls();
	return arg;
}

static void in_threads(void)
{
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, thread_calls, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

UNIT_TEST(threads_write_side_by_side)
{
	const char *base = trace_case_run(in_threads, 16 << 20);
	uint64_t records, calls, bytes;

	count_calls(base, &records, &calls, &bytes);
	CHECK_EQ(records, 20000);
	CHECK_EQ(calls, 20000);
}

static uint64_t four(uintptr_t type)
{
	(void)type;
	return 4;
}

static void small_calls(void)
{
	for (int i = 0; i < 1000; i++) {
		uint64_t since = trace_small_begin("MPI_Bcast", "site", __builtin_frame_address(0),
						   3, 42, four);

		if (since)
			trace_small_end(since);
	}
}

UNIT_TEST(small_calls_are_all_counted_and_some_recorded)
{
	uint64_t records, calls, bytes;

	count_calls(trace_case_run(small_calls, 8 << 20), &records, &calls, &bytes);
	CHECK_EQ(calls, 1000);
	CHECK_EQ(bytes, 12000);
	CHECK_EQ(records, TRACE_ALWAYS_TIMED + (1000 - TRACE_ALWAYS_TIMED + 63) / 64);
}

static void child_calls(void)
{
	trace_case_call(1);
	if (!fork()) {
		ten_calls();
		_exit(0);
	}
	wait(NULL);
}

UNIT_TEST(a_forked_child_writes_nothing)
{
	uint64_t records, calls, bytes;

	count_calls(trace_case_run(child_calls, 8 << 20), &records, &calls, &bytes);
	CHECK_EQ(calls, 1);
}

/* ---- calls in a row ---------------------------------------------------------------------- */

/* Returns: the records of the only chunk that has any. */
static const struct trace_record *records_of(const char *base)
{
	uint32_t i = 0;

	while (trace_case_chunk(base, i)->kind != TRACE_CHUNK_RECORDS)
		i++;
	return (const struct trace_record *)(trace_case_chunk(base, i) + 1);
}

/* Returns: the first record of the type, and their number. */
static const struct trace_record *first_of(const char *base, enum trace_type type, int *out_count)
{
	const struct trace_record *r = records_of(base), *first = NULL;

	*out_count = 0;
	for (uint32_t i = 0; i < TRACE_RECORDS_PER_CHUNK; i++) {
		if (r[i].type != type)
			continue;
		first = first ? first : &r[i];
		++*out_count;
	}
	return first;
}

/* A call that copies `moved` bytes from rank 0, and its own part. */
static void taken_call(uint64_t op, uint32_t moved, uint32_t edges)
{
	trace_call_begin("MPI_Gather", (void *)(uintptr_t)&trace_case_call,
			 __builtin_frame_address(0));
	trace_bytes(4096);
	trace_admitted(TRACE_REGION_MAPPED, 1, true);
	trace_op(7, op, 1, 2);
	trace_copied(0, .bytes = 4096, .op = op, .group = 7, .src = 1, .dst = 1, .by = 1,
		     .mover = TRACE_CPU);
	if (edges)
		trace_copied(0, .bytes = edges, .op = op, .group = 7, .src = 0, .dst = 1, .by = 1,
			     .mover = TRACE_EDGES);
	for (int i = 0; moved && i < 2; i++) /* in two fragments */
		trace_copied(0, .bytes = moved / 2, .op = op, .group = 7, .src = 0, .dst = 1,
			     .by = 1, .mover = TRACE_CPU);
	trace_call_end(0);
}

static void one_taken_call(void) { taken_call(5, 1000, 96); }

UNIT_TEST(what_a_call_copied_itself_is_in_its_record)
{
	const char *base = trace_case_run(one_taken_call, 8 << 20);
	int calls, copies;
	const struct trace_record *r = first_of(base, TRACE_CALL, &calls);

	first_of(base, TRACE_COPY, &copies);
	CHECK_EQ(calls, 1);
	CHECK_EQ(copies, 0);
	CHECK_EQ(r->flags, TRACE_IS_ROOT | TRACE_OWN_PART);
	CHECK_EQ(r->call.moved, 1000);
	CHECK_EQ(r->call.more, 1);
	CHECK_EQ(r->call.edges, 96);
	CHECK_EQ(r->call.peer, 0);
	CHECK_EQ(r->rank, 1);
}

static void copies_of_others(void)
{
	trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&trace_case_call,
			 __builtin_frame_address(0));
	trace_bytes(4096);
	trace_admitted(TRACE_REGION_MAPPED, 1, false);
	trace_op(7, 5, 1, 4);
	trace_copied(0, .bytes = 1, .op = 5, .group = 7, .src = 1, .dst = 0, .by = 1,
		     .mover = TRACE_CPU);
	trace_copied(0, .bytes = 2, .op = 5, .group = 7, .src = 1, .dst = 2, .by = 1,
		     .mover = TRACE_CPU); /* another peer */
	trace_copied(0, .bytes = 3, .op = 5, .group = 7, .src = 0, .dst = 1, .by = 1,
		     .mover = TRACE_CPU); /* the other direction */
	trace_copied(0, .bytes = 4, .op = 5, .group = 7, .src = 2, .dst = 3, .by = 1,
		     .mover = TRACE_CPU); /* for other ranks */
	trace_copied(0, .bytes = 5, .op = 4, .group = 7, .src = 1, .dst = 0, .by = 1,
		     .mover = TRACE_CPU); /* of an earlier collective */
	trace_call_end(0);
	trace_copied(0, .bytes = 6, .op = 5, .group = 7, .src = 1, .dst = 0, .by = 1,
		     .mover = TRACE_CPU); /* after the call */
}

UNIT_TEST(what_is_not_of_the_call_and_its_peer_has_records_of_its_own)
{
	const char *base = trace_case_run(copies_of_others, 8 << 20);
	struct trace_record r[8];
	int calls, n = trace_case_copies(base, r, 8);

	CHECK_EQ(first_of(base, TRACE_CALL, &calls)->call.moved, 1);
	CHECK_EQ(first_of(base, TRACE_CALL, &calls)->flags, TRACE_TO_PEER);
	CHECK_EQ(n, 5);
	for (int i = 0; i < n; i++)
		CHECK_EQ(r[i].copy.bytes, i + 2);
}

enum { ALIKE = 60 };
static const uint32_t moved_by[] = { 0, 1000, 1000, 0, 600, 1000, 200, 0, 600 };

static void alike_calls(void)
{
	for (uint64_t i = 0; i < ALIKE; i++)
		taken_call(100 + 3 * i, moved_by[i % 9], i % 2 ? 96 : 0);
}

UNIT_TEST(calls_that_are_alike_share_rows)
{
	const char *base = trace_case_run(alike_calls, 8 << 20);
	const struct trace_record *r = records_of(base);
	uint64_t at = 0, n = 0, last_begin = 0;

	for (uint32_t i = 0; i < TRACE_RECORDS_PER_CHUNK; i++) {
		const struct trace_repeats *row = (const struct trace_repeats *)&r[i + 1];

		if (r[i].type == TRACE_CALL) {
			CHECK_EQ(n++, 0); /* all others are in rows */
			CHECK_EQ(r[i].call.op, 100);
			last_begin = r[i].begin;
		}
		if (r[i].type != TRACE_TEMPLATE)
			continue;
		at = r[i].call.op;
		CHECK_EQ(at, 100 + 3 * (n - 1));
		CHECK_EQ(r[i].begin, last_begin);
		for (uint32_t k = 0; k < TRACE_REPEAT_RECORDS * TRACE_REPEATS_PER_RECORD; k++) {
			uint64_t repeat = row[k / TRACE_REPEATS_PER_RECORD]
						  .each[k % TRACE_REPEATS_PER_RECORD];
			uint64_t moved = repeat / TRACE_REPEAT_MOVED % 4;

			if (!repeat)
				break;
			at += repeat / (TRACE_REPEAT_MOST_TICKS * TRACE_REPEAT_MOST_BEGIN) %
			      TRACE_REPEAT_MOST_OPS;
			last_begin += repeat / TRACE_REPEAT_MOST_TICKS % TRACE_REPEAT_MOST_BEGIN;
			CHECK_EQ(at, 100 + 3 * n);
			CHECK_EQ(moved ? row[moved - 1].moved : 0, moved_by[n % 9]);
			CHECK_EQ(repeat & TRACE_REPEAT_HAS_EDGES ? r[i].call.edges : 0,
				 n % 2 ? 96 : 0);
			n++;
		}
	}
	CHECK_EQ(n, ALIKE);
}

static void unlike_calls(void)
{
	for (uint64_t i = 0; i < 200; i++) {
		trace_call_begin(i % 3 ? "MPI_Bcast" : "MPI_Gather",
				 /* more places than are remembered */
				 (char *)(uintptr_t)&trace_case_call + i % 20,
				 __builtin_frame_address(0));
		trace_bytes(i % 7);
		trace_rejected(i % 2 ? "a reason" : "another one");
		trace_call_end(i % 11 == 0);
	}
}

UNIT_TEST(calls_that_are_not_alike_are_all_there)
{
	uint64_t records, calls, bytes, want = 0;

	for (uint64_t i = 0; i < 200; i++)
		want += i % 7;
	count_calls(trace_case_run(unlike_calls, 8 << 20), &records, &calls, &bytes);
	CHECK_EQ(records, 200);
	CHECK_EQ(calls, 200);
	CHECK_EQ(bytes, want);
}

static void calls_for_other_reasons(void)
{
	for (int i = 0; i < 10; i++) {
		trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&trace_case_call,
				 __builtin_frame_address(0));
		trace_rejected(i % 2 ? "a reason" : "another one");
		trace_call_end(0);
	}
}

UNIT_TEST(calls_that_are_passed_on_for_another_reason_are_not_alike)
{
	int own;

	first_of(trace_case_run(calls_for_other_reasons, 8 << 20), TRACE_CALL, &own);
	CHECK_EQ(own, 10);
}

static void long_and_late_calls(void)
{
	for (int i = 0; i < 3; i++) {
		uint64_t end;

		trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&trace_case_call,
				 __builtin_frame_address(0));
		trace_rejected("a reason");
		for (end = trace_ticks() + TRACE_REPEAT_MOST_TICKS; trace_ticks() <= end;)
			;
		trace_call_end(0);
	}
	for (int i = 0; i < 3; i++) {
		uint64_t end;

		trace_case_call(8);
		for (end = trace_ticks() + TRACE_REPEAT_MOST_BEGIN; trace_ticks() <= end;)
			;
	}
}

UNIT_TEST(calls_whose_times_do_not_fit_have_records_of_their_own)
{
	const char *base = trace_case_run(long_and_late_calls, 8 << 20);
	int rows, own;

	first_of(base, TRACE_TEMPLATE, &rows);
	first_of(base, TRACE_CALL, &own);
	CHECK_EQ(rows, 0);
	CHECK_EQ(own, 6);
}
