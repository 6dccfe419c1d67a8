/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers of regions that wrap around while a peer reads. */
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include "message_case.h"
#include "region/private.h"

enum { RUNS = 8 };

/* The reader stops at two faults of its own memory. */
static struct ranks *reading;
static char *closed[2];

static void stop(int sig)
{
	uint64_t step = atomic_load(&reading->words[1]);

	atomic_store(&reading->words[1], step + 1);
	while (atomic_load(&reading->words[1]) == step + 1)
		sched_yield();
	CHECK(!mprotect(closed[step / 2], 4096, PROT_READ | PROT_WRITE));
}

static void wait_for_stop(struct ranks *r, uint64_t step)
{
	while (atomic_load(&r->words[1]) != step)
		sched_yield();
}

/* All numbers have been given meanwhile, as if so many regions had begun and ended. */
static void all_numbers_were_given(uint32_t before)
{
	region_table.last_id = before - 1;
	atomic_fetch_add(&region_table.head->version, UINT32_MAX * 2ull);
}

/* The pages of the region that rank 1 reads belong to another one at its first stop; at its second
 * the same bytes lie in a region with the same number and pages as the first. */
static void own(struct ranks *r)
{
	char *p = pages(3 * MIB), *other = p + REGION_UNIT; /* in the same pages of an extent */
	struct region_desc first, second;

	region_describe(p, MIB, REGION_FORCE, &first);
	region_release(&first);
	tell(r, p);
	ranks_barrier(r);
	wait_for_stop(r, 1);
	region_drop((uintptr_t)p, (uintptr_t)p + MIB);
	memset(other, 0xee, MIB);
	CHECK(is_mapped(other, MIB));
	atomic_store(&r->words[1], 2);
	wait_for_stop(r, 3);
	region_drop((uintptr_t)other, (uintptr_t)other + MIB);
	for (size_t i = 0; i < MIB; i++)
		p[i] = (char)byte_at(i);
	all_numbers_were_given(first.id);
	region_describe(p, MIB, REGION_FORCE, &second);
	region_release(&second);
	CHECK_EQ(second.id, first.id);
	CHECK_EQ(second.arena_off, first.arena_off);
	atomic_store(&r->words[1], 4);
}

/* Reads in runs, in their order, and stops in the second and in the last one. */
static void read_stopped(struct ranks *r)
{
	struct iovec to[RUNS], from;
	char *mine = pages(MIB);

	memset(mine, 0, MIB);
	for (int i = 0; i < RUNS; i++)
		to[i] = (struct iovec){ mine + i * MIB / RUNS, MIB / RUNS };
	closed[0] = mine + MIB / RUNS;
	closed[1] = mine + MIB - 4096;
	for (int i = 0; i < 2; i++)
		CHECK(!mprotect(closed[i], 4096, PROT_NONE));
	ranks_barrier(r);
	reading = r;
	signal(SIGSEGV, stop);
	from = (struct iovec){ (void *)atomic_load(&r->words[0]), MIB };
	CHECK_EQ(read_vectors(r->pids[0], to, RUNS, &from, 1), MIB);
	signal(SIGSEGV, SIG_DFL);
	CHECK_EQ(atomic_load(&r->words[1]), 4);
	for (size_t i = 0; i < MIB; i++)
		CHECK_EQ((uint8_t)mine[i], byte_at(i));
	CHECK_EQ(base_counter_value(BASE_CTR_MESSAGES_REPEATED), 1);
}

static void numbers_wrap(struct ranks *r)
{
	announce(r);
	if (r->rank)
		read_stopped(r);
	else
		own(r);
	ranks_barrier(r);
}

UNIT_TEST(a_region_with_the_number_of_one_that_has_ended_is_another)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), numbers_wrap, NULL);
}
