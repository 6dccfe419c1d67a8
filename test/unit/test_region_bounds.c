/* SPDX-License-Identifier: BSD-3-Clause */
/* After how many uses memory is adopted, how many regions there may be, huge pages, numbers that
 * wrap around. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/uio.h>

#include "region/blocks.h"
#include "region/private.h"
#include "region_case.h"
#include "region_stats.h"

enum { RW = PROT_READ | PROT_WRITE };

/* ---- after how many uses ----------------------------------------------------------------- */

static bool use(void *p, size_t bytes)
{
	struct region_desc d;

	region_describe(p, bytes, REGION_USE, &d);
	region_release(&d);
	return d.flags & REGION_DESC_MAPPED;
}

REGION_TEST(a_buffer_is_adopted_after_so_many_uses)
{
	char *p = pages_get(MIB);

	region_begin("SLUICE_REGION_ADOPT_AFTER=3", NULL);
	for (int i = 0; i < 3; i++)
		CHECK(!use(p, MIB));
	CHECK(use(p, MIB));
	CHECK(!adopts(p, MIB) == false);
}

/* The lock costs two system calls, as much as the copy of a short buffer. */
REGION_TEST(a_buffer_that_has_not_earned_it_is_described_without_the_lock)
{
	char *p = pages_get(MIB), *adopted = pages_get(MIB);
	uint64_t version;

	region_begin("SLUICE_REGION_ADOPT_AFTER=3", NULL);
	for (int i = 0; i < 4; i++)
		use(adopted, MIB);
	CHECK(is_adopted(adopted, MIB));
	version = atomic_load(&region_table.head->version);
	for (int i = 0; i < 3; i++)
		CHECK(!use(p, MIB));
	CHECK_EQ(atomic_load(&region_table.head->version), version);
	CHECK(use(p, MIB));
	CHECK(atomic_load(&region_table.head->version) != version);
}

REGION_TEST(a_buffer_too_short_to_be_adopted_is_described_without_the_lock)
{
	char *p = pages_get(MIB);
	uint64_t version;

	region_begin("SLUICE_REGION_ADOPT_AFTER=0", "SLUICE_TEST=region_adopt_min=64K", NULL);
	CHECK(!use(p, 8 * PAGE));
	version = atomic_load(&region_table.head->version);
	CHECK(!use(p, 8 * PAGE));
	CHECK_EQ(atomic_load(&region_table.head->version), version);
	CHECK(use(p, 16 * PAGE));
	CHECK(use(p, 8 * PAGE)); /* part of a longer one that is */
}

static void *use_again_and_again(void *arg)
{
	for (int i = 0; i < 20000; i++)
		use((char *)arg + i % 64 * PAGE, PAGE);
	return NULL;
}

REGION_TEST(uses_by_many_threads_are_counted_or_lost_and_all_of_it_goes_on)
{
	pthread_t threads[4];
	char *p = pages_get(64 * PAGE);

	region_begin("SLUICE_REGION_ADOPT_AFTER=3", NULL);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, use_again_and_again, p), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	/* a thread that loses its CPU while it counts makes all others lose their uses */
	use_again_and_again(p);
	CHECK(is_adopted(p + 63 * PAGE, PAGE));
}

REGION_TEST(buffers_that_die_young_are_soon_left_alone)
{
	uint64_t adopted;

	region_begin("SLUICE_REGION_ADOPT_AFTER=3", NULL);
	for (int i = 0; i < 2000;
	     i++) { /* allocate, use four times, free: always the same address */
		char *p = block_get(MIB);

		for (int k = 0; k < 4; k++)
			use(p, MIB);
		free(p);
	}
	adopted = base_counters[BASE_CTR_ADOPTED];
	CHECK(adopted >= 1 && adopted < 16);
}

REGION_TEST(uses_are_counted_for_calls_that_are_passed_on_too)
{
	char *p = pages_get(MIB), *other = pages_get(MIB);

	region_begin("SLUICE_REGION_ADOPT_AFTER=3", NULL);
	for (int i = 0; i < 3; i++)
		CHECK(!region_is_reused(p, MIB, REGION_USE, 1));
	CHECK(region_is_reused(p, MIB, REGION_USE, 1));
	CHECK(!is_adopted(p, MIB)); /* nobody has to have it mapped yet */
	CHECK(!region_is_reused(other, MIB, REGION_USE, 1));
	CHECK(use(p, MIB));
	for (int i = 0; i < 3; i++)
		CHECK(region_is_reused(p, MIB, REGION_USE, 1));
	CHECK(region_is_reused(p + PAGE, MIB - PAGE, REGION_USE, 1));
	CHECK(!region_is_reused(p, MIB + PAGE, REGION_USE, 1)); /* more than is adopted */
}

REGION_TEST(memory_that_cannot_be_adopted_is_never_used_again)
{
	char *p = pages_get(MIB);

	region_begin("SLUICE_REGION_ADOPT_AFTER=0", "SLUICE_TEST=region_adopt_min=64K", NULL);
	CHECK(!region_is_reused(p, 15 * PAGE, REGION_USE, 1)); /* too short */
	CHECK(region_is_reused(p, 16 * PAGE, REGION_USE, 1));
	base_opt.region_kind = BASE_REGION_CMA;
	CHECK(!region_is_reused(p, 16 * PAGE, REGION_USE, 1));
}

/* In a loop of malloc and free the address is the same each time, and adopting it gains nothing. */
REGION_TEST(a_block_that_malloc_gives_out_has_not_been_used_before)
{
	uintptr_t before = 0;
	char *p;
	int same = 0;

	if (!blocks_are_known)
		unit_skip("the allocator is not the C library's");
	region_begin("SLUICE_REGION_ADOPT_AFTER=3", NULL);
	for (int i = 0; i < 50; i++) {
		p = block_get(MIB);
		same += (uintptr_t)p == before;
		before = (uintptr_t)p;
		CHECK(!use(p, MIB));
		CHECK(!region_is_reused(p, MIB, REGION_USE, 1));
		free(p);
	}
	CHECK(same > 40);
	p = block_get(MIB);
	for (int i = 0; i < 3; i++)
		CHECK(!use(p, MIB));
	CHECK(use(p, MIB));
}

/* ---- how many regions there may be ------------------------------------------------------- */

REGION_TEST(the_least_recently_used_region_makes_room)
{
	char *p[5];

	region_begin("SLUICE_TEST=region_max=4", NULL);
	for (unsigned i = 0; i < 5; i++) {
		p[i] = pages_get(MIB + i * PAGE);
		fill(p[i], MIB, i);
	}
	for (int i = 0; i < 4; i++)
		ADOPT(p[i], MIB);
	ADOPT(p[0], MIB); /* used again */
	ADOPT(p[4], MIB);
	CHECK_EQ(active(), 4);
	CHECK(!is_adopted(p[1], MIB));
	CHECK(is_adopted(p[0], MIB) && is_adopted(p[2], MIB) && is_adopted(p[3], MIB));
	for (unsigned i = 0; i < 5; i++)
		CHECK_FILLED(p[i], MIB, i);
	CHECK(is_anonymous(p[1]));
}

REGION_TEST(no_region_makes_room_while_all_are_in_use)
{
	struct region_desc d[2];
	char *p[3];

	region_begin("SLUICE_TEST=region_max=2", NULL);
	for (int i = 0; i < 3; i++)
		p[i] = pages_get(MIB);
	for (int i = 0; i < 2; i++)
		region_describe(p[i], MIB, REGION_FORCE, &d[i]);
	CHECK(!adopts(p[2], MIB));
	region_release(&d[0]);
	CHECK(adopts(p[2], MIB));
	CHECK(is_adopted(p[1], MIB));
}

static void *idle(void *arg) { pause(); return arg; }

/* Many buffers, all alive at once. */
static void many_buffers(size_t count, size_t bytes, int max)
{
	char *all =
		mmap(NULL, count * bytes, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int before = unit_count_mappings();

	for (size_t i = 0; i < count; i++) {
		memset(all + i * bytes, (int)i, 64);
		ADOPT(all + i * bytes, bytes);
		CHECK(active() <= (uint32_t)max);
		if (i % 1000 == 0)
			CHECK(unit_count_mappings() <= before + 4 * max + 8);
	}
	CHECK(unit_count_mappings() <= before + 4 * max + 8);
	CHECK(arena_file_bytes() <= (uint64_t)max * 4 * MIB + 64 * MIB);
	for (size_t i = 0; i < count; i++)
		CHECK(all[i * bytes] == (char)i && all[i * bytes + 63] == (char)i);
	CHECK_EQ(munmap(all, count * bytes), 0);
	CHECK_EQ(active(), 0);
	CHECK(unit_count_mappings() <= before);
	CHECK(arena_file_bytes() <= 64 * MIB);
}

REGION_TEST(many_live_buffers_leave_few_mappings)
{
	region_begin("SLUICE_TEST=region_max=64", NULL);
	many_buffers(environment("UNIT_REGION_SECONDS") ? 100000 : 10000, PAGE, 64);
}

REGION_TEST(many_live_buffers_of_a_program_with_threads_leave_few_mappings)
{
	pthread_t t;
	char *all;
	int before, refused = 0;

	region_begin("SLUICE_TEST=region_max=64", NULL);
	CHECK_EQ(pthread_create(&t, NULL, idle, NULL), 0);
	all = pages_get(4000 * 2 * PAGE);
	before = unit_count_mappings();
	for (size_t i = 0; i < 4000; i++) {
		memset(all + i * 2 * PAGE, (int)i, 64);
		refused += !adopts(all + i * 2 * PAGE, 2 * PAGE);
	}
	CHECK(refused > 0); /* memory that other threads may write to stays a separate mapping */
	CHECK_EQ(active(), 64);
	CHECK(unit_count_mappings() <= before + 4 * 64 + 8);
	for (size_t i = 0; i < 4000; i++)
		CHECK(all[i * 2 * PAGE] == (char)i);
	CHECK_EQ(munmap(all, 4000 * 2 * PAGE), 0);
	CHECK_EQ(active(), 0);
	CHECK(unit_count_mappings() <= before);
	CHECK(adopts(pages_get(MIB), MIB));
}

REGION_TEST(many_short_lived_buffers_leave_nothing)
{
	int before = 0;

	region_begin(NULL, NULL);
	for (int i = 0; i < 5000; i++) {
		size_t bytes = 64 * KIB + (size_t)(i % 37) * 4096;
		char *p = block_get(bytes);

		p[0] = p[bytes - 1] = 1;
		ADOPT(p, bytes);
		free(p);
		if (i == 100)
			before = unit_count_mappings();
	}
	CHECK(unit_count_mappings() <= before + 2);
	CHECK_EQ(active(), 0);
	CHECK(arena_file_bytes() <= 64 * MIB);
}

REGION_TEST(the_pool_keeps_no_more_than_it_may)
{
	struct region_stats s;
	char *p;

	region_begin("SLUICE_TEST=region_pool=4M", NULL);
	p = pages_get(32 * MIB);
	memset(p, 1, 32 * MIB);
	ADOPT(p, 32 * MIB);
	CHECK(arena_file_bytes() >= 32 * MIB);
	munmap(p, 32 * MIB);
	region_get_stats(&s);
	CHECK(s.pool_bytes <= 4 * MIB);
	CHECK(arena_file_bytes() <= 4 * MIB);
	region_fini();
	CHECK_EQ(arena_file_bytes(), 0);
}

REGION_TEST(memory_given_back_is_there_once)
{
	char *p;

	region_begin("SLUICE_TEST=region_pool=0", NULL);
	p = pages_get(8 * MIB);
	memset(p, 1, 8 * MIB);
	ADOPT(p, 8 * MIB);
	region_return((uintptr_t)p, (uintptr_t)p + 8 * MIB);
	CHECK_EQ(arena_file_bytes(), 0);
	ADOPT(p, 8 * MIB);
	region_return_exclusive((uintptr_t)p, (uintptr_t)p + 8 * MIB);
	CHECK_EQ(arena_file_bytes(), 0);
}

REGION_TEST(recycled_pages_are_zero_where_zeros_are_promised)
{
	struct region_extent e;
	char *p;

	region_begin(NULL, NULL);
	p = pages_get(8 * MIB);
	memset(p, 0xab, 8 * MIB);
	ADOPT(p, 8 * MIB);
	munmap(p, 8 * MIB);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(region_extent_get(2 * MIB, true, &e), 0);
		CHECK_ZERO((char *)region_arena_base() + e.offset, e.bytes);
		memset((char *)region_arena_base() + e.offset, 0xcd, e.bytes);
		region_extent_put(&e);
	}
}

REGION_TEST(an_arena_that_is_full_refuses_and_recovers)
{
	char *p[20];
	int n = 0;

	region_begin("SLUICE_REGION_ARENA=64M", NULL);
	for (unsigned i = 0; i < 20; i++) {
		p[i] = pages_get(8 * MIB);
		fill(p[i], 8 * MIB, i);
		n += adopts(p[i], 8 * MIB);
	}
	CHECK(n >= 4 && n <= 8);
	for (unsigned i = 0; i < 20; i++) {
		CHECK_FILLED(p[i], 8 * MIB, i);
		munmap(p[i], 8 * MIB);
	}
	ADOPT(pages_get(32 * MIB), 32 * MIB);
}

REGION_TEST(the_table_holds_as_many_regions_as_the_option_allows)
{
	enum { MAX = 16384, STEP = 2 * 4096 };
	char *p;

	if (!os_vma_query_is_cheap())
		unit_skip("every question reads 32,000 lines here");
	region_begin("SLUICE_TEST=region_max=16384", "SLUICE_REGION_ARENA=64G",
		     "SLUICE_TEST=region_pool=0", NULL);
	p = pages_get((size_t)(MAX + 100) * STEP);
	for (size_t i = 0; i < MAX + 100; i++) {
		p[i * STEP] = (char)i;
		ADOPT(p + i * STEP, PAGE);
	}
	CHECK_EQ(active(), MAX);
	for (size_t i = 0; i < MAX + 100; i++)
		CHECK(p[i * STEP] == (char)i);
	munmap(p, (size_t)(MAX + 100) * STEP);
	CHECK_EQ(active(), 0);
}

/* ---- huge pages -------------------------------------------------------------------------- */

/* A line of smaps for the mapping that contains addr, in KiB; -1 when there is no such line. */
static long smaps_value(const void *addr, const char *key)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[256];
	bool inside = false;
	long value = -1;

	while (f && fgets(line, sizeof line, f)) {
		unsigned long start, end;

		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = (uintptr_t)addr >= start && (uintptr_t)addr < end;
		else if (inside && !strncmp(line, key, strlen(key)))
			sscanf(line + strlen(key), ": %ld", &value);
	}
	if (f)
		fclose(f);
	return value;
}

static bool machine_collapses(void)
{
	char *p = pages_get_aligned(2 * MIB, 2 * MIB);
	bool ok;

	memset(p, 1, 2 * MIB);
	ok = !madvise(p, 2 * MIB, 25 /* MADV_COLLAPSE */);
	munmap(p, 2 * MIB);
	return ok;
}

REGION_TEST(memory_that_can_be_huge_pages_is)
{
	char *p, *q;

	region_begin(NULL, NULL);
	if (!machine_collapses())
		unit_skip("no huge pages here");
	p = pages_get_aligned(8 * MIB, 2 * MIB);
	fill(p, 8 * MIB, 1);
	ADOPT(p, 8 * MIB);
	CHECK_EQ(smaps_value(p, "ShmemPmdMapped"), 8 << 10);
	CHECK_FILLED(p, 8 * MIB, 1);
	/* with unaligned edges: the whole huge pages */
	q = pages_get_aligned(8 * MIB, 2 * MIB);
	fill(q, 8 * MIB, 2);
	ADOPT(q + 16 * KIB, 6 * MIB);
	CHECK_EQ(smaps_value(q + 16 * KIB, "ShmemPmdMapped"), 4 << 10);
	CHECK_FILLED(q, 8 * MIB, 2);
	/* and when it becomes the program's alone again */
	region_return_exclusive((uintptr_t)p, (uintptr_t)p + 8 * MIB);
	CHECK_EQ(smaps_value(p, "AnonHugePages"), 8 << 10);
	CHECK_FILLED(p, 8 * MIB, 1);
}

/* Peers read by system calls, which hold the pages; a pipe holds them here. */
REGION_TEST(a_reader_of_a_part_of_a_huge_page_keeps_its_bytes)
{
	char *p = pages_get_aligned(4 * MIB, 2 * MIB), got[PAGE];
	struct iovec page = { p + 2 * MIB, PAGE };
	struct region_desc d;
	int held[2];

	region_begin(NULL, NULL);
	if (!machine_collapses())
		unit_skip("no huge pages here");
	region_set_read_by_peers();
	fill(p, 4 * MIB, 1);
	ADOPT(p, 4 * MIB);
	CHECK_EQ(smaps_value(p, "ShmemPmdMapped"), 4 << 10);
	region_describe(p, 4 * MIB, REGION_USE, &d);
	CHECK_EQ(munmap(p + 3 * MIB, MIB), 0); /* it ends with its last pin: 1.5 huge pages */
	CHECK(!pipe(held) && vmsplice(held[1], &page, 1, 0) == (ssize_t)PAGE);
	region_release(&d);
	CHECK(!is_shared(p));
	CHECK_EQ(read(held[0], got, PAGE), PAGE);
	CHECK(!memcmp(got, p + 2 * MIB, PAGE));
	check_part_at(__FILE__, __LINE__, p, 0, 3 * MIB, 1);
}

REGION_TEST(huge_pages_can_be_switched_off)
{
	char *p;

	region_begin("SLUICE_TEST=region_huge=off", NULL);
	p = pages_get_aligned(8 * MIB, 2 * MIB);
	fill(p, 8 * MIB, 1);
	ADOPT(p, 8 * MIB);
	CHECK(smaps_value(p, "ShmemPmdMapped") <= 0);
	CHECK_FILLED(p, 8 * MIB, 1);
}

REGION_TEST(memory_that_would_lose_its_huge_pages_stays_private)
{
	char *p = pages_get_aligned(8 * MIB, 2 * MIB);

	CHECK_EQ(madvise(p, 8 * MIB, MADV_HUGEPAGE), 0);
	fill(p, 8 * MIB, 1);
	if (smaps_value(p, "AnonHugePages") != 8 << 10)
		unit_skip("no huge pages here");
	if (!os_vma_query_is_cheap())
		unit_skip("this kernel cannot be asked about a page");
	region_begin("SLUICE_TEST=region_huge=off", NULL);
	CHECK(!adopts(p, 8 * MIB));
	CHECK(!is_shared(p));
	CHECK_EQ(smaps_value(p, "AnonHugePages"), 8 << 10);
	CHECK(adopts(p, MIB)); /* no whole huge page */
	CHECK_FILLED(p, 8 * MIB, 1);
}

/* A core dump has the program's memory, adopted or not, and no mapping of the arena. */
static bool has_flag(const void *addr, const char *flag)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512];
	bool inside = false, found = false;

	while (f && fgets(line, sizeof line, f)) {
		unsigned long start, end;

		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = (uintptr_t)addr >= start && (uintptr_t)addr < end;
		else if (inside && !strncmp(line, "VmFlags:", 8))
			found = strstr(line, flag) != NULL;
	}
	if (f)
		fclose(f);
	return found;
}

REGION_TEST(core_dumps_hold_adopted_memory_and_no_windows)
{
	char *p = pages_get(MIB);

	region_begin(NULL, NULL);
	ADOPT(p, MIB);
	CHECK(!has_flag(p, " dd"));
	region_return((uintptr_t)p, (uintptr_t)p + MIB);
	CHECK(!has_flag(p, " dd"));
	CHECK(has_flag(region_arena_base(), " dd"));
	CHECK(has_flag(region_arena_base(), " dc")); /* nor do children inherit it */
}

/* ---- numbers that wrap around --------------------------------------------------------------- */

/* Behind the last number the first ones come again, without 0, which no region has, and without
 * those of regions that still exist. */
REGION_TEST(no_two_regions_have_one_number_when_numbers_begin_again)
{
	static const uint32_t numbers[] = { 1, 2, UINT32_MAX, 3 };
	struct region_desc d[4];
	char *p[4];

	region_begin(NULL, NULL);
	for (int i = 0; i < 4; i++) {
		p[i] = pages_get(MIB);
		if (i == 2)
			region_table.last_id = UINT32_MAX - 1;
		region_describe(p[i], MIB, REGION_FORCE, &d[i]);
		CHECK_EQ(d[i].id, numbers[i]);
	}
	for (int i = 0; i < 4; i++) { /* each region has its own pin */
		region_return((uintptr_t)p[i], (uintptr_t)p[i] + MIB);
		CHECK(is_shared(p[i]));
		region_release(&d[i]);
		CHECK(!is_shared(p[i]));
	}
}

REGION_TEST(a_region_is_unmapped_by_the_first_ticket_after_the_last)
{
	char *p = pages_get(2 * MIB);

	region_begin(NULL, NULL);
	for (int i = 0; i < 2; i++) {
		ADOPT(p + i * MIB, MIB);
		region_table.next_ticket = UINT32_MAX - 1 + (uint32_t)i;
		CHECK_EQ(munmap(p + i * MIB, MIB), 0);
		CHECK_EQ(region_table.next_ticket, i ? 1 : UINT32_MAX);
		CHECK_EQ(active(), 0);
	}
}
