/* SPDX-License-Identifier: BSD-3-Clause */
/* The trace of a process: what is written, what makes room, what a full disk does. A child writes,
 * as a process starts its trace once. */
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trace/trace.h"
#include "unit.h"

static char folder[64];

/* What a child's file holds when it has run body(), mapped for this process. */
static const char *written_by(void (*body)(void), uint64_t limit_bytes)
{
	glob_t found;
	char pattern[128];
	struct stat st;
	const char *base;
	int fd, status;

	strcpy(folder, "/tmp/unit-trace-XXXXXX");
	CHECK(mkdtemp(folder));
	if (!fork()) {
		base_options_load((char *const[]){ NULL }, NULL, 0);
		base_opt.trace = folder;
		base_opt.trace_limit_bytes = limit_bytes;
		trace_start(3);
		body();
		_exit(!trace_on);
	}
	CHECK(wait(&status) > 0 && WIFEXITED(status));
	snprintf(pattern, sizeof pattern, "%s/rank-3.*.sluice", folder);
	CHECK_EQ(glob(pattern, 0, NULL, &found), 0);
	fd = open(found.gl_pathv[0], O_RDONLY);
	CHECK(fd >= 0 && !fstat(fd, &st));
	base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(base != MAP_FAILED);
	close(fd);
	unlink(found.gl_pathv[0]);
	globfree(&found);
	rmdir(folder);
	return base;
}

static const struct trace_header *header_of(const char *base)
{
	return (const struct trace_header *)base;
}

static const struct trace_chunk *chunk_of(const char *base, uint32_t i)
{
	return (const struct trace_chunk *)(base + TRACE_HEADER_BYTES +
					    (uint64_t)i * TRACE_CHUNK_BYTES);
}

/* Calls in a row: how many; *out_ticks: what they took. */
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

/* Calls of the function: recorded ones, and how many there were. */
static void count_calls(const char *base, uint64_t *out_records, uint64_t *out_calls,
			uint64_t *out_bytes)
{
	uint32_t chunks =
		(uint32_t)base_min_u64(header_of(base)->chunk_next, header_of(base)->chunk_cap);

	*out_records = *out_calls = *out_bytes = 0;
	for (uint32_t i = 0; i < chunks; i++) {
		const struct trace_chunk *c = chunk_of(base, i);
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

static void one_call(uint64_t bytes)
{
	trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&one_call, __builtin_frame_address(0));
	trace_bytes(bytes);
	trace_rejected("a reason");
	trace_call_end(0);
}

static void ten_calls(void)
{
	for (int i = 0; i < 10; i++)
		one_call(100);
}

UNIT_TEST(a_killed_process_leaves_every_call)
{
	const char *base = written_by(ten_calls, 8 << 20); /* it ends by _exit() */
	uint64_t records, calls, bytes;

	count_calls(base, &records, &calls, &bytes);
	CHECK_EQ(header_of(base)->state, TRACE_RUNNING);
	CHECK_EQ(header_of(base)->rank, 3);
	CHECK_EQ(records, 10);
	CHECK_EQ(calls, 10);
	CHECK_EQ(bytes, 1000);
}

static void many_calls(void)
{
	for (int i = 0; i < 100000; i++)
		one_call(7);
}

UNIT_TEST(old_records_make_room_and_sums_stay_exact)
{
	const char *base = written_by(many_calls, 1 << 20);
	uint64_t records, calls, bytes;

	count_calls(base, &records, &calls, &bytes);
	CHECK_EQ(calls, 100000);
	CHECK_EQ(bytes, 700000);
	CHECK(records > 5000 && records < 100000);
	CHECK(header_of(base)->overwritten > 0);
	CHECK_EQ(records + header_of(base)->overwritten + header_of(base)->dropped, 100000);
}

static void five_thousand_calls(void)
{
	for (int i = 0; i < 5000; i++)
		one_call(1);
}

static void left_by_longjmp(void)
{
	for (int i = 0; i < 5; i++) { /* an error handler left each by longjmp(): none ends */
		trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&one_call,
				 __builtin_frame_address(0));
		trace_current.frame = (char *)__builtin_frame_address(0) - 1000;
	}
	one_call(1);
}

UNIT_TEST(calls_that_were_left_by_longjmp_do_not_hide_the_next)
{
	uint64_t records, calls, bytes;

	count_calls(written_by(left_by_longjmp, 8 << 20), &records, &calls, &bytes);
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
	const char *base = written_by(in_threads, 16 << 20);
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

	count_calls(written_by(small_calls, 8 << 20), &records, &calls, &bytes);
	CHECK_EQ(calls, 1000);
	CHECK_EQ(bytes, 12000);
	CHECK_EQ(records, TRACE_ALWAYS_TIMED + (1000 - TRACE_ALWAYS_TIMED + 63) / 64);
}

static void child_calls(void)
{
	one_call(1);
	if (!fork()) {
		ten_calls();
		_exit(0);
	}
	wait(NULL);
}

UNIT_TEST(a_forked_child_writes_nothing)
{
	uint64_t records, calls, bytes;

	count_calls(written_by(child_calls, 8 << 20), &records, &calls, &bytes);
	CHECK_EQ(calls, 1);
}

/* ---- calls in a row ---------------------------------------------------------------------- */

/* The records of the only chunk that has any. */
static const struct trace_record *records_of(const char *base)
{
	uint32_t i = 0;

	while (chunk_of(base, i)->kind != TRACE_CHUNK_RECORDS)
		i++;
	return (const struct trace_record *)(chunk_of(base, i) + 1);
}

/* The first record of the type, and how many there are. */
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

/* It copies `moved` bytes from rank 0, and its own part. */
static void taken_call(uint64_t op, uint32_t moved, uint32_t edges)
{
	trace_call_begin("MPI_Gather", (void *)(uintptr_t)&one_call, __builtin_frame_address(0));
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
	const char *base = written_by(one_taken_call, 8 << 20);
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

/* The copies of a file, in their order. */
static int copies_of(const char *base, struct trace_record *out, int cap)
{
	const struct trace_chunk *c = chunk_of(base, 0);
	const struct trace_record *r = (const struct trace_record *)(c + 1);
	int n = 0;

	for (uint32_t i = 0;
	     c->kind == TRACE_CHUNK_RECORDS && i < TRACE_RECORDS_PER_CHUNK && n < cap; i++)
		if (r[i].type == TRACE_COPY)
			out[n++] = r[i];
	return n;
}

static void copies_of_others(void)
{
	trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&one_call, __builtin_frame_address(0));
	trace_bytes(4096);
	trace_admitted(TRACE_REGION_MAPPED, 1, false);
	trace_op(7, 5, 1, 4);
	trace_copied(0, .bytes = 1, .op = 5, .group = 7, .src = 1, .dst = 0, .by = 1,
		     .mover = TRACE_CPU);
	trace_copied(0, .bytes = 2, .op = 5, .group = 7, .src = 1, .dst = 2, .by = 1,
		     .mover = TRACE_CPU); /* another peer */
	trace_copied(0, .bytes = 3, .op = 5, .group = 7, .src = 0, .dst = 1, .by = 1,
		     .mover = TRACE_CPU); /* other direction */
	trace_copied(0, .bytes = 4, .op = 5, .group = 7, .src = 2, .dst = 3, .by = 1,
		     .mover = TRACE_CPU); /* for others */
	trace_copied(0, .bytes = 5, .op = 4, .group = 7, .src = 1, .dst = 0, .by = 1,
		     .mover = TRACE_CPU); /* an earlier one */
	trace_call_end(0);
	trace_copied(0, .bytes = 6, .op = 5, .group = 7, .src = 1, .dst = 0, .by = 1,
		     .mover = TRACE_CPU); /* afterwards */
}

UNIT_TEST(what_is_not_of_the_call_and_its_peer_has_records_of_its_own)
{
	const char *base = written_by(copies_of_others, 8 << 20);
	struct trace_record r[8];
	int calls, n = copies_of(base, r, 8);

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
	const char *base = written_by(alike_calls, 8 << 20);
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
				 (char *)(uintptr_t)&one_call + i % 20, /* more than are kept */
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
	count_calls(written_by(unlike_calls, 8 << 20), &records, &calls, &bytes);
	CHECK_EQ(records, 200);
	CHECK_EQ(calls, 200);
	CHECK_EQ(bytes, want);
}

static void calls_for_other_reasons(void)
{
	for (int i = 0; i < 10; i++) {
		trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&one_call,
				 __builtin_frame_address(0));
		trace_rejected(i % 2 ? "a reason" : "another one");
		trace_call_end(0);
	}
}

UNIT_TEST(calls_that_are_passed_on_for_another_reason_are_not_alike)
{
	int own;

	first_of(written_by(calls_for_other_reasons, 8 << 20), TRACE_CALL, &own);
	CHECK_EQ(own, 10);
}

static void long_and_late_calls(void)
{
	for (int i = 0; i < 3; i++) {
		uint64_t end;

		trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&one_call,
				 __builtin_frame_address(0));
		trace_rejected("a reason");
		for (end = trace_ticks() + TRACE_REPEAT_MOST_TICKS; trace_ticks() <= end;)
			;
		trace_call_end(0);
	}
	for (int i = 0; i < 3; i++) {
		uint64_t end;

		one_call(8);
		for (end = trace_ticks() + TRACE_REPEAT_MOST_BEGIN; trace_ticks() <= end;)
			;
	}
}

UNIT_TEST(calls_whose_times_do_not_fit_have_records_of_their_own)
{
	const char *base = written_by(long_and_late_calls, 8 << 20);
	int rows, own;

	first_of(base, TRACE_TEMPLATE, &rows);
	first_of(base, TRACE_CALL, &own);
	CHECK_EQ(rows, 0);
	CHECK_EQ(own, 6);
}

/* ---- rows of copies ---------------------------------------------------------------------- */

enum { FRAGMENT = 64 << 10, TRANSFER = 16 * FRAGMENT };

static char transfers[2]; /* any two addresses */

static void copy_fragment(int transfer, uint64_t op, bool is_last)
{
	uint64_t since = trace_row_begin(&transfers[transfer], op, TRANSFER);

	trace_copied(since, .bytes = FRAGMENT, .op = op, .group = 1, .src = 0, .dst = 1, .by = 1,
		     .mover = TRACE_CPU, .row = &transfers[transfer], .is_last = is_last);
}

static void wait_a_tick(void)
{
	uint64_t since = trace_ticks();

	while (trace_ticks() == since)
		;
}

static uint64_t *moment; /* shared with the child */

static void two_rows(void)
{
	for (int i = 0; i < 8; i++)
		copy_fragment(0, 5, false);
	wait_a_tick();
	*moment = trace_ticks();
	copy_fragment(0, 5, true);
	copy_fragment(0, 6, true); /* the same place in the next collective */
}

UNIT_TEST(fragments_of_a_transfer_are_a_row_that_ends_with_the_last)
{
	struct trace_record r[8];
	const char *base;

	moment = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	base = written_by(two_rows, 8 << 20);
	CHECK_EQ(copies_of(base, r, 8), 2);
	CHECK_EQ(r[0].copy.bytes, 9 * FRAGMENT);
	CHECK_EQ(r[0].copy.more, 8);
	CHECK_EQ(r[0].copy.op, 5);
	CHECK(r[0].begin && r[0].begin < *moment && r[0].end >= *moment);
	CHECK_EQ(r[1].copy.bytes, FRAGMENT);
	CHECK_EQ(r[1].copy.op, 6);
	CHECK(r[1].begin >= r[0].end && r[1].end >= r[1].begin);
	munmap(moment, 4096);
}

static void rows_in_turn(void)
{
	copy_fragment(0, 5, false);
	copy_fragment(0, 5, false);
	copy_fragment(1, 5, false);
	copy_fragment(0, 5, true);
}

UNIT_TEST(a_row_ends_where_the_thread_turns_to_another)
{
	struct trace_record r[8];

	CHECK_EQ(copies_of(written_by(rows_in_turn, 8 << 20), r, 8), 3);
	CHECK_EQ(r[0].copy.bytes, 2 * FRAGMENT);
	CHECK_EQ(r[1].copy.bytes, FRAGMENT);
	CHECK_EQ(r[2].copy.bytes, FRAGMENT);
	CHECK(r[0].end > r[0].begin && r[1].begin >= r[0].end && r[2].begin >= r[1].end);
}

static void row_that_others_end(void)
{
	copy_fragment(0, 5, false);
	copy_fragment(0, 5, false);
	trace_row_end(&transfers[1]); /* not this one */
	copy_fragment(0, 5, false);
	trace_row_end(&transfers[0]);
	*moment = trace_ticks();
}

UNIT_TEST(a_row_ends_when_others_have_claimed_the_rest)
{
	struct trace_record r[8];

	moment = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK_EQ(copies_of(written_by(row_that_others_end, 8 << 20), r, 8), 1);
	CHECK_EQ(r[0].copy.bytes, 3 * FRAGMENT);
	CHECK(r[0].end > r[0].begin && r[0].end <= *moment);
	munmap(moment, 4096);
}

static void row_in_a_call(void)
{
	trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&one_call, __builtin_frame_address(0));
	copy_fragment(0, 5, false);
	copy_fragment(0, 5, false); /* others copy the rest */
	trace_call_end(0);
	copy_fragment(0, 5, true);  /* afterwards: after a touch, say */
}

UNIT_TEST(a_row_ends_with_the_call_that_it_was_copied_in)
{
	struct trace_record r[8];
	const char *base = written_by(row_in_a_call, 8 << 20);
	const struct trace_record *all = (const struct trace_record *)(chunk_of(base, 0) + 1);
	uint64_t call_end = 0;

	for (uint32_t i = 0; i < TRACE_RECORDS_PER_CHUNK; i++)
		call_end = all[i].type == TRACE_CALL ? all[i].end : call_end;
	CHECK_EQ(copies_of(base, r, 8), 2);
	CHECK_EQ(r[0].copy.bytes, 2 * FRAGMENT);
	CHECK_EQ(r[0].end, call_end);
	CHECK(r[1].begin >= call_end);
}

static void interrupted_row(void)
{
	copy_fragment(0, 5, false);
	atomic_store(&trace_current.is_changing, true); /* a handler comes here */
	copy_fragment(0, 5, false);
	copy_fragment(1, 5, false);
	atomic_store(&trace_current.is_changing, false);
	copy_fragment(0, 5, true);
}

UNIT_TEST(a_handler_in_the_middle_of_a_row_has_records_of_its_own)
{
	struct trace_record r[8];

	CHECK_EQ(copies_of(written_by(interrupted_row, 8 << 20), r, 8), 3);
	CHECK_EQ(r[0].copy.bytes, 2 * FRAGMENT);
	CHECK_EQ(r[1].copy.bytes, FRAGMENT);
	CHECK_EQ(r[2].copy.bytes, FRAGMENT);
	CHECK(!r[1].begin &&
	      r[2].begin); /* the first of these two is of a row, whose clock was not read */
}
