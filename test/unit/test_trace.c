/* SPDX-License-Identifier: BSD-3-Clause */
/* The trace of a process: what is written, what makes room, what a full disk does. A child writes, as a
 * process starts its trace once. */
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

static const struct trace_header *header_of(const char *base) { return (const struct trace_header *)base; }

static const struct trace_chunk *chunk_of(const char *base, uint32_t i)
{
	return (const struct trace_chunk *)(base + TRACE_HEADER_BYTES + (uint64_t)i * TRACE_CHUNK_BYTES);
}

/* Calls of the function: records, and what the totals say. */
static void count_calls(const char *base, uint64_t *out_records, uint64_t *out_calls, uint64_t *out_bytes)
{
	uint32_t chunks = (uint32_t)base_min_u64(header_of(base)->chunk_next, header_of(base)->chunk_cap);

	*out_records = *out_calls = *out_bytes = 0;
	for (uint32_t i = 0; i < chunks; i++) {
		const struct trace_chunk *c = chunk_of(base, i);
		const struct trace_record *r = (const struct trace_record *)(c + 1);
		const struct trace_totals *t = (const struct trace_totals *)(c + 1);

		for (uint32_t k = 0; k < TRACE_RECORDS_PER_CHUNK; k++) {
			if (c->kind == TRACE_CHUNK_RECORDS)
				*out_records += r[k].type == TRACE_CALL;
			if (c->kind != TRACE_CHUNK_TOTALS)
				continue;
			*out_calls += t[k].calls;
			*out_bytes += t[k].bytes;
		}
	}
}

static void one_call(uint64_t bytes)
{
	trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&one_call, __builtin_frame_address(0));
	trace_bytes(bytes);
	trace_passed("a reason");
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
		trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&one_call, __builtin_frame_address(0));
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
		uint64_t since = trace_small_begin("MPI_Bcast", "site", 3, 42, four);

		if (since)
			trace_small_end("MPI_Bcast", "site", since);
	}
}

UNIT_TEST(small_calls_are_all_counted_and_some_recorded)
{
	uint64_t records, calls, bytes;

	count_calls(written_by(small_calls, 8 << 20), &records, &calls, &bytes);
	CHECK_EQ(calls, 1000);
	CHECK_EQ(bytes, 12000);
	CHECK_EQ(records, TRACE_EACH + (1000 - TRACE_EACH + 63) / 64);
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

/* ---- rows of copies ---------------------------------------------------------------------------------------- */

enum { FRAGMENT = 64 << 10, TRANSFER = 16 * FRAGMENT };

static char transfers[2]; /* any two addresses */

static void copy_fragment(int transfer, uint64_t op, bool is_last)
{
	uint64_t since = trace_row_begin(&transfers[transfer], op, TRANSFER);

	trace_copied(since, .bytes = FRAGMENT, .op = op, .group = 1, .src = 0, .dst = 1, .by = 1, .mover = TRACE_CPU,
		     .row = &transfers[transfer], .is_last = is_last);
}

/* The copies of a file, in their order. */
static int copies_of(const char *base, struct trace_record *out, int cap)
{
	const struct trace_chunk *c = chunk_of(base, 0);
	const struct trace_record *r = (const struct trace_record *)(c + 1);
	int n = 0;

	for (uint32_t i = 0; c->kind == TRACE_CHUNK_RECORDS && i < TRACE_RECORDS_PER_CHUNK && n < cap; i++)
		if (r[i].type == TRACE_COPY)
			out[n++] = r[i];
	return n;
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
	atomic_store(&trace_row.is_changing, true); /* a handler comes here */
	copy_fragment(0, 5, false);
	copy_fragment(1, 5, false);
	atomic_store(&trace_row.is_changing, false);
	copy_fragment(0, 5, true);
}

UNIT_TEST(a_handler_in_the_middle_of_a_row_has_records_of_its_own)
{
	struct trace_record r[8];

	CHECK_EQ(copies_of(written_by(interrupted_row, 8 << 20), r, 8), 3);
	CHECK_EQ(r[0].copy.bytes, 2 * FRAGMENT);
	CHECK_EQ(r[1].copy.bytes, FRAGMENT);
	CHECK_EQ(r[2].copy.bytes, FRAGMENT);
	CHECK(!r[1].begin && r[2].begin); /* the first of these two is of a row, whose clock was not read */
}
