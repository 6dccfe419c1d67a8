/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: consecutive fragments of one transfer share a record. */
#include <sys/mman.h>

#include "trace_case.h"
#include "unit.h"

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
	copy_fragment(0, 6, true); /* the same transfer address in the next collective */
}

UNIT_TEST(fragments_of_a_transfer_are_a_row_that_ends_with_the_last)
{
	struct trace_record r[8];
	const char *base;

	moment = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	base = trace_case_run(two_rows, 8 << 20);
	CHECK_EQ(trace_case_copies(base, r, 8), 2);
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

	CHECK_EQ(trace_case_copies(trace_case_run(rows_in_turn, 8 << 20), r, 8), 3);
	CHECK_EQ(r[0].copy.bytes, 2 * FRAGMENT);
	CHECK_EQ(r[1].copy.bytes, FRAGMENT);
	CHECK_EQ(r[2].copy.bytes, FRAGMENT);
	CHECK(r[0].end > r[0].begin && r[1].begin >= r[0].end && r[2].begin >= r[1].end);
}

static void row_that_others_end(void)
{
	copy_fragment(0, 5, false);
	copy_fragment(0, 5, false);
	trace_row_end(&transfers[1]); /* of another transfer */
	copy_fragment(0, 5, false);
	trace_row_end(&transfers[0]);
	*moment = trace_ticks();
}

UNIT_TEST(a_row_ends_when_others_have_claimed_the_rest)
{
	struct trace_record r[8];

	moment = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK_EQ(trace_case_copies(trace_case_run(row_that_others_end, 8 << 20), r, 8), 1);
	CHECK_EQ(r[0].copy.bytes, 3 * FRAGMENT);
	CHECK(r[0].end > r[0].begin && r[0].end <= *moment);
	munmap(moment, 4096);
}

static void row_in_a_call(void)
{
	trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&trace_case_call,
			 __builtin_frame_address(0));
	copy_fragment(0, 5, false);
	copy_fragment(0, 5, false); /* other ranks copy the rest */
	trace_call_end(0);
	copy_fragment(0, 5, true);  /* after the call, for example after a touch */
}

UNIT_TEST(a_row_ends_with_the_call_that_it_was_copied_in)
{
	struct trace_record r[8];
	const char *base = trace_case_run(row_in_a_call, 8 << 20);
	const struct trace_record *all =
		(const struct trace_record *)(trace_case_chunk(base, 0) + 1);
	uint64_t call_end = 0;

	for (uint32_t i = 0; i < TRACE_RECORDS_PER_CHUNK; i++)
		call_end = all[i].type == TRACE_CALL ? all[i].end : call_end;
	CHECK_EQ(trace_case_copies(base, r, 8), 2);
	CHECK_EQ(r[0].copy.bytes, 2 * FRAGMENT);
	CHECK_EQ(r[0].end, call_end);
	CHECK(r[1].begin >= call_end);
}

static void interrupted_row(void)
{
	copy_fragment(0, 5, false);
	atomic_store(&trace_current.is_changing, true); /* a signal handler interrupts here */
	copy_fragment(0, 5, false);
	copy_fragment(1, 5, false);
	atomic_store(&trace_current.is_changing, false);
	copy_fragment(0, 5, true);
}

UNIT_TEST(a_handler_in_the_middle_of_a_row_has_records_of_its_own)
{
	struct trace_record r[8];

	CHECK_EQ(trace_case_copies(trace_case_run(interrupted_row, 8 << 20), r, 8), 3);
	CHECK_EQ(r[0].copy.bytes, 2 * FRAGMENT);
	CHECK_EQ(r[1].copy.bytes, FRAGMENT);
	CHECK_EQ(r[2].copy.bytes, FRAGMENT);
	/* the first of these two belongs to a row, whose clock was not read */
	CHECK(!r[1].begin && r[2].begin);
}
