/* SPDX-License-Identifier: BSD-3-Clause */
/* What is adopted, what is refused, and how much of it there may be. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/sysmacros.h>

#include "region_case.h"

enum { RW = PROT_READ | PROT_WRITE };

static char in_bss[3 << 20], in_data[1 << 20] = { 1 };
static const char in_text[64 << 10] = { 1 };

REGION_TEST(static_data_is_adopted)
{
	region_begin(NULL, NULL);
	fill(in_bss, sizeof in_bss, 1);
	fill(in_data, sizeof in_data, 2);
	ADOPT(in_bss, sizeof in_bss);
	ADOPT(in_data, sizeof in_data);
	CHECK_FILLED(in_bss, sizeof in_bss, 1);
	CHECK_FILLED(in_data, sizeof in_data, 2);
	region_keep((uintptr_t)in_bss, (uintptr_t)in_bss + sizeof in_bss);
	region_exclusive((uintptr_t)in_data, (uintptr_t)in_data + sizeof in_data);
	CHECK_FILLED(in_bss, sizeof in_bss, 1);
	CHECK_FILLED(in_data, sizeof in_data, 2);
}

REGION_TEST(constant_data_is_refused)
{
	region_begin(NULL, NULL);
	CHECK_REFUSED(in_text, sizeof in_text, "not readable and writable");
}

static void *try_own_stack(void *arg)
{
	char on_stack[256 << 10];

	memset(on_stack, 1, sizeof on_stack);
	*(const char **)arg = adopts(on_stack, sizeof on_stack) ? "adopted" :
			      region_refusal(on_stack, sizeof on_stack);
	return NULL;
}

static void *show_stack(void *arg)
{
	char on_stack[256 << 10];

	memset(on_stack, 1, sizeof on_stack);
	*(char *volatile *)arg = on_stack;
	pause();
	return arg;
}

REGION_TEST(stacks_are_refused)
{
	char on_stack[256 << 10];
	char *volatile other = NULL;
	const char *why = NULL;
	pthread_t t;

	region_begin(NULL, NULL);
	memset(on_stack, 1, sizeof on_stack);
	CHECK_REFUSED(on_stack, sizeof on_stack, "stack");
	CHECK_EQ(pthread_create(&t, NULL, try_own_stack, &why), 0);
	pthread_join(t, NULL);
	CHECK_HAS(why, "stack");
	CHECK_EQ(pthread_create(&t, NULL, show_stack, (void *)&other), 0);
	while (!other)
		usleep(100);
	CHECK_REFUSED(other, sizeof on_stack, "stack");
}

/* As the C library does: memory below what is there already, and one mapping with it. */
REGION_TEST(a_block_right_above_a_threads_stack_is_adopted)
{
	char *volatile stack = NULL;
	char *p = block_get(16 * MIB);
	pthread_t t;

	region_begin(NULL, NULL);
	memset(p, 1, 16 * MIB);
	CHECK_EQ(pthread_create(&t, NULL, show_stack, (void *)&stack), 0);
	while (!stack)
		usleep(100);
	ADOPT(p, 16 * MIB);
	CHECK_EQ(stack[0], 1);
}

struct kernel_stack_t { void *sp; int flags; size_t bytes; };
int sigaltstack(const struct kernel_stack_t *, struct kernel_stack_t *);

REGION_TEST(the_stack_for_signals_is_refused)
{
	struct kernel_stack_t s = { block_get(256 * KIB), 0, 256 * KIB };

	region_begin(NULL, NULL);
	CHECK_EQ(sigaltstack(&s, NULL), 0);
	CHECK_REFUSED(s.sp, s.bytes, "stack");
}

REGION_TEST(mappings_of_other_kinds_are_refused)
{
	int fd = memfd_create("file", MFD_CLOEXEC);
	char *p;

	region_begin(NULL, NULL);
	p = mmap(NULL, MIB, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK_REFUSED(p, MIB, "shared memory");
	CHECK_EQ(ftruncate(fd, MIB), 0);
	p = mmap(NULL, MIB, RW, MAP_SHARED, fd, 0);
	CHECK_REFUSED(p, MIB, "shared memory");
	p = mmap(NULL, MIB, RW, MAP_PRIVATE, fd, 0);
	CHECK_REFUSED(p, MIB, "private mapping of a file");
	close(fd);
	p = mmap(NULL, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK_REFUSED(p, MIB, "not readable and writable");
	p = mmap(NULL, MIB, RW | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p != MAP_FAILED)
		CHECK_REFUSED(p, MIB, "executable");
	p = pages_get(MIB);
	munmap(p + 64 * KIB, PAGE);
	CHECK_REFUSED(p, MIB, "cannot be found");
	p = mmap(NULL, 2 * MIB, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (p != MAP_FAILED)
		CHECK_REFUSED(p, 2 * MIB, "hugetlbfs");
}

REGION_TEST(memory_exposed_to_others_is_refused)
{
	char *p = pages_get(MIB);

	region_begin(NULL, NULL);
	fill(p, MIB, 1);
	ADOPT(p, MIB);
	region_keep_out((uintptr_t)p + 64 * KIB, (uintptr_t)p + 128 * KIB);
	CHECK_FILLED(p, MIB, 1);
	CHECK_REFUSED(p, MIB, "exposed to RMA");
	ADOPT(p + 128 * KIB, 512 * KIB);
}

REGION_TEST(memory_in_use_becomes_private_when_it_is_released)
{
	struct region_desc d, e;
	char *p = pages_get(MIB);

	region_begin(NULL, NULL);
	region_describe(p, MIB, REGION_FORCE, &d);
	region_describe(p, MIB, REGION_FORCE, &e);
	region_keep_out((uintptr_t)p, (uintptr_t)p + MIB);
	fill(peer_view(&d), MIB, 1); /* a transfer that goes on */
	CHECK_FILLED(p, MIB, 1);
	region_release(&d);
	CHECK(!adopts(p, MIB)); /* no new user */
	fill(peer_view(&e), MIB, 2);
	CHECK_FILLED(p, MIB, 2);
	region_release(&e);
	CHECK(!is_shared(p));
	CHECK_FILLED(p, MIB, 2);
}

REGION_TEST(too_little_is_not_adopted)
{
	char *p = pages_get(2 * PAGE);

	region_begin("SLUICE_REGION_ADOPT_MIN=8K", NULL);
	CHECK(!adopts(p + 1, 2 * PAGE - 2)); /* no whole page */
	CHECK_STR(region_refusal(p + 1, PAGE), "it holds no whole page");
	CHECK(!adopts(p, 2 * PAGE - 1)); /* less than the minimum */
	CHECK(!adopts(p, 0));
	CHECK(adopts(p, 2 * PAGE));
}

REGION_TEST(a_buffer_of_several_mappings_is_adopted)
{
	char *p = pages_get(MIB);

	region_begin(NULL, NULL);
	fill(p, MIB, 1);
	madvise(p + 256 * KIB, 256 * KIB, MADV_HUGEPAGE);
	madvise(p + 768 * KIB, 64 * KIB, MADV_RANDOM);
	CHECK_EQ(madvise(p + 512 * KIB, 64 * KIB, MADV_DODUMP), 0);
	ADOPT(p, MIB);
	CHECK_FILLED(p, MIB, 1);
	CHECK_EQ(munmap(p, MIB), 0);
}

REGION_TEST(neighbours_in_memory_and_in_the_arena_are_apart)
{
	char *p = pages_get_aligned(8 * MIB, 2 * MIB);

	region_begin(NULL, NULL);
	fill(p, 8 * MIB, 1);
	for (int i = 0; i < 4; i++) /* likely one mapping for the kernel */
		ADOPT(p + i * 2 * MIB, 2 * MIB);
	CHECK_EQ(active(), 4);
	CHECK_EQ(munmap(p + 2 * MIB, 2 * MIB), 0);
	CHECK_EQ(active(), 3);
	check_part_at(__FILE__, __LINE__, p, 0, 2 * MIB, 1);
	check_part_at(__FILE__, __LINE__, p, 4 * MIB, 8 * MIB, 1);
	CHECK(is_adopted(p, 2 * MIB) && is_adopted(p + 4 * MIB, 2 * MIB));
	CHECK(!is_adopted(p + 4 * MIB, 4 * MIB)); /* two regions are not one */
	region_keep((uintptr_t)p, (uintptr_t)p + 8 * MIB);
	check_part_at(__FILE__, __LINE__, p, 4 * MIB, 8 * MIB, 1);
}

/* ---- buffers that overlap ------------------------------------------------------------------------- */

REGION_TEST(a_buffer_inside_a_region_uses_it)
{
	char *p = pages_get(4 * MIB);
	struct region_desc all, part;

	region_begin(NULL, NULL);
	all = ADOPT(p, 4 * MIB);
	part = ADOPT(p + MIB + 100, MIB);
	CHECK_EQ(active(), 1);
	CHECK_EQ(part.arena_off - all.arena_off, MIB + PAGE);
	CHECK_EQ(part.head, PAGE - 100);
	CHECK_EQ(part.tail, 100);
	CHECK_EQ(part.id, all.id);
}

REGION_TEST(a_larger_buffer_takes_over_a_region_inside)
{
	char *p = pages_get(4 * MIB);

	region_begin(NULL, NULL);
	fill(p, 4 * MIB, 1);
	ADOPT(p + MIB, MIB);
	ADOPT(p + 2 * MIB + 64 * KIB, MIB);
	ADOPT(p, 4 * MIB);
	CHECK_EQ(active(), 1);
	CHECK_FILLED(p, 4 * MIB, 1);
	ADOPT(p + MIB, MIB);
	CHECK_EQ(active(), 1);
	CHECK_EQ(munmap(p, 4 * MIB), 0);
	CHECK_EQ(active(), 0);
}

REGION_TEST(buffers_that_overlap_in_part_do_not_chase_each_other)
{
	char *p = pages_get(3 * MIB);
	struct region_desc low, high;
	int adoptions = 0;

	region_begin(NULL, NULL);
	fill(p, 3 * MIB, 1);
	for (int i = 0; i < 200; i++) {
		uint64_t before = base_counters[BASE_CTR_ADOPTED];

		region_describe(p, 2 * MIB, REGION_FORCE, &low);
		region_release(&low);
		region_describe(p + MIB, 2 * MIB, REGION_FORCE, &high);
		region_release(&high);
		adoptions += base_counters[BASE_CTR_ADOPTED] != before;
	}
	CHECK(adoptions < 10);
	CHECK_FILLED(p, 3 * MIB, 1);
}

REGION_TEST(overlapping_memory_in_use_is_left_alone)
{
	char *p = pages_get(3 * MIB);
	struct region_desc low, high;

	region_begin(NULL, NULL);
	region_describe(p, 2 * MIB, REGION_FORCE, &low);
	CHECK(low.flags & REGION_DESC_MAPPED);
	for (int i = 0; i < 100; i++) { /* as long as it is pinned */
		region_describe(p + MIB, 2 * MIB, REGION_FORCE, &high);
		CHECK(!(high.flags & REGION_DESC_MAPPED));
		region_release(&high);
	}
	CHECK(is_shared(p));
	p[5] = 3;
	CHECK_EQ(peer_view(&low)[5], 3);
	region_release(&low);
}

REGION_TEST(overlapping_buffers_at_random_keep_their_contents)
{
	enum { BYTES = 2 << 20, TURNS = 2000 };
	char *p = pages_get(BYTES);
	unsigned seed = 1;

	region_begin("SLUICE_REGION_MAX=8", NULL);
	fill(p, BYTES, 1);
	for (int i = 0; i < TURNS; i++) {
		size_t from = (size_t)(rand_r(&seed) % (BYTES / 8)) * 8;
		size_t bytes = (size_t)(rand_r(&seed) % ((BYTES - (int)from) / 8 + 1)) * 8;
		struct region_desc d;

		if (i % 5 == 4) {
			region_keep((uintptr_t)p + from, (uintptr_t)p + from + bytes);
			continue;
		}
		region_describe(p + from, bytes, REGION_FORCE, &d);
		if (d.flags & REGION_DESC_MAPPED) /* the peer's view is the program's */
			CHECK(!memcmp(peer_view(&d), p + from + d.head, bytes - d.head - d.tail));
		region_release(&d);
		if (i % 100 == 0)
			CHECK_FILLED(p, BYTES, 1);
	}
	CHECK_FILLED(p, BYTES, 1);
	CHECK_EQ(munmap(p, BYTES), 0);
	CHECK_EQ(active(), 0);
}

/* ---- when adoption is earned ---------------------------------------------------------------------- */

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

REGION_TEST(buffers_that_die_young_are_soon_left_alone)
{
	uint64_t adopted;

	region_begin("SLUICE_REGION_ADOPT_AFTER=3", NULL);
	for (int i = 0; i < 2000; i++) { /* allocate, use four times, free: always the same address */
		char *p = block_get(MIB);

		for (int k = 0; k < 4; k++)
			use(p, MIB);
		free(p);
	}
	adopted = base_counters[BASE_CTR_ADOPTED];
	CHECK(adopted >= 1 && adopted < 16);
}

/* ---- how much there may be -------------------------------------------------------------------------- */

REGION_TEST(the_least_recently_used_region_makes_room)
{
	char *p[5];

	region_begin("SLUICE_REGION_MAX=4", NULL);
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

	region_begin("SLUICE_REGION_MAX=2", NULL);
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
	char *all = mmap(NULL, count * bytes, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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
	region_begin("SLUICE_REGION_MAX=64", NULL);
	many_buffers(10000, 2 * PAGE, 64);
}

REGION_TEST(many_live_buffers_of_a_program_with_threads_leave_few_mappings)
{
	pthread_t t;
	char *all;
	int before, refused = 0;

	region_begin("SLUICE_REGION_MAX=64", NULL);
	CHECK_EQ(pthread_create(&t, NULL, idle, NULL), 0);
	all = pages_get(4000 * 2 * PAGE);
	before = unit_count_mappings();
	for (size_t i = 0; i < 4000; i++) {
		memset(all + i * 2 * PAGE, (int)i, 64);
		refused += !adopts(all + i * 2 * PAGE, 2 * PAGE);
	}
	CHECK(refused > 0); /* what others may be writing to cannot be made one mapping again */
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

	region_begin("SLUICE_REGION_POOL=4M", NULL);
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

	region_begin("SLUICE_REGION_MAX=16384", "SLUICE_REGION_ARENA=64G", "SLUICE_REGION_POOL=0", NULL);
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

/* ---- huge pages ------------------------------------------------------------------------------------ */

/* Of the mapping that contains addr, from smaps, in KiB; -1 when there is no such line. */
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
	/* with ragged edges: those that are whole */
	q = pages_get_aligned(8 * MIB, 2 * MIB);
	fill(q, 8 * MIB, 2);
	ADOPT(q + 16 * KIB, 6 * MIB);
	CHECK_EQ(smaps_value(q + 16 * KIB, "ShmemPmdMapped"), 4 << 10);
	CHECK_FILLED(q, 8 * MIB, 2);
	/* and when it becomes the program's alone again */
	region_exclusive((uintptr_t)p, (uintptr_t)p + 8 * MIB);
	CHECK_EQ(smaps_value(p, "AnonHugePages"), 8 << 10);
	CHECK_FILLED(p, 8 * MIB, 1);
}

REGION_TEST(huge_pages_can_be_switched_off)
{
	char *p;

	region_begin("SLUICE_REGION_HUGE=off", NULL);
	p = pages_get_aligned(8 * MIB, 2 * MIB);
	fill(p, 8 * MIB, 1);
	ADOPT(p, 8 * MIB);
	CHECK(smaps_value(p, "ShmemPmdMapped") <= 0);
	CHECK_FILLED(p, 8 * MIB, 1);
}

/* A core dump has the program's memory, adopted or not, and no window of the arena. */
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
	region_keep((uintptr_t)p, (uintptr_t)p + MIB);
	CHECK(!has_flag(p, " dd"));
	CHECK(has_flag(region_arena_base(), " dd"));
	CHECK(has_flag(region_arena_base(), " dc")); /* nor do children inherit it */
}
