/* SPDX-License-Identifier: BSD-3-Clause */
/* Adoption that its cost decides: when, how much at a time, and what ends a part of a buffer. */
#include <sys/wait.h>

#include "base/internal.h"
#include "region/private.h"
#include "region_case.h"
#include "region_stats.h"

enum { USES_MAX = 100000, PIECE = 4 };

static uint64_t bytes_adopted(void) { return base_counters[BASE_CTR_BYTES_ADOPTED]; }

static void begin_by_cost(uint32_t private_ps)
{
	region_begin("SLUICE_REGION_ADOPT_AFTER=-1", NULL);
	region_set_copy_rates(private_ps, 0);
}

static bool use(void *p, size_t bytes)
{
	struct region_desc d;

	region_describe(p, bytes, REGION_USE, &d);
	region_release(&d);
	return d.flags & REGION_DESC_MAPPED;
}

/* Uses the buffer until more bytes than `bytes` are adopted. Returns: the uses. */
static int use_until(void *p, size_t bytes, size_t adopted)
{
	int uses = 0;

	while (bytes_adopted() <= adopted && uses++ < USES_MAX)
		use(p, bytes);
	CHECK(uses < USES_MAX);
	return uses;
}

/* A buffer of 16 MiB with seed 1, of which a part is adopted. */
static char *partly_adopted(void)
{
	char *p;

	begin_by_cost(10000);
	p = pages_get_aligned(16 * MIB, 2 * MIB);
	fill(p, 16 * MIB, 1);
	use_until(p, 16 * MIB, 0);
	CHECK(is_shared(p) && !is_shared(p + 15 * MIB));
	CHECK(!is_adopted(p, 16 * MIB));
	CHECK_EQ(active(), 1);
	return p;
}

REGION_TEST(a_long_buffer_is_adopted_piece_by_piece)
{
	char *p = partly_adopted();

	while (bytes_adopted() < 16 * MIB) {
		uint64_t before = bytes_adopted();

		use_until(p, 16 * MIB, before);
		CHECK(bytes_adopted() - before <= PIECE * MIB);
		CHECK_FILLED(p, 16 * MIB, 1);
	}
	CHECK(use(p, 16 * MIB));
	CHECK(is_adopted(p, 16 * MIB) && is_shared(p + 16 * MIB - PAGE));
	CHECK_FILLED(p, 16 * MIB, 1);
	CHECK_EQ(active(), 1);
	CHECK_EQ(bytes_adopted(), 16 * MIB);
	munmap(p, 16 * MIB);
	CHECK_EQ(active(), 0);
}

REGION_TEST(calls_that_are_passed_on_adopt_as_well)
{
	char *p;
	int uses = 0;

	begin_by_cost(10000);
	p = pages_get(16 * MIB);
	fill(p, 16 * MIB, 2);
	while (!region_is_reused(p, 16 * MIB, REGION_USE, 1) && uses < USES_MAX)
		uses++;
	CHECK(uses >= 3 && uses < USES_MAX); /* four pieces */
	CHECK(is_adopted(p, 16 * MIB));
	CHECK_FILLED(p, 16 * MIB, 2);
}

/* A caller that looks at one of n calls counts n uses. */
REGION_TEST(many_uses_count_at_once)
{
	char *p;

	begin_by_cost(1000);
	p = pages_get(MIB);
	CHECK(!region_is_reused(p, MIB, REGION_USE, 1));
	CHECK(region_is_reused(p, MIB, REGION_USE, 1000));
}

REGION_TEST(memory_with_gaps_of_others_is_not_adopted)
{
	char *p;

	begin_by_cost(1000000);
	p = pages_get(MIB);
	for (int i = 0; i < 100; i++)
		CHECK(!region_is_reused(p, MIB, REGION_LOOKUP, 1));
	CHECK_EQ(bytes_adopted(), 0);
}

/* At no moment of the first 100 uses, after which no budget is needed, has adoption taken more than
 * 1/25 of the time of the uses, but for the last piece, which may have been dearer than expected.
 */
REGION_TEST(adoption_stays_within_its_budget)
{
	uint64_t uses_us = 0, spent_us = 0;
	char *p;

	begin_by_cost(1000);
	p = pages_get(16 * MIB);
	for (int i = 0; i < USES_MAX && !is_adopted(p, 16 * MIB); i++) {
		uint64_t before = base_counters[BASE_CTR_ADOPT_US];

		use(p, 16 * MIB);
		uses_us += 16 * MIB / 1000;
		if (base_counters[BASE_CTR_ADOPT_US] != before && i < 100)
			CHECK(spent_us <= uses_us / 25);
		spent_us = base_counters[BASE_CTR_ADOPT_US];
	}
	CHECK_EQ(bytes_adopted(), 16 * MIB);
}

/* A use that saves little does not earn what it costs. */
REGION_TEST(a_buffer_has_to_save_the_price)
{
	char *p;

	begin_by_cost(1000);
	region_set_copy_rates(100000000, 99999999); /* a large budget, and 1 ps a byte saved */
	p = pages_get(2 * MIB);
	for (int i = 0; i < 10; i++)
		CHECK(!use(p, 2 * MIB));
	CHECK_EQ(bytes_adopted(), 0);
	region_set_copy_rates(1000000, 0);
	CHECK(use(p, 2 * MIB));
}

static bool use_packed(void *p, size_t bytes)
{
	struct region_desc d;

	region_describe(p, bytes, REGION_USE_PACKED, &d);
	region_release(&d);
	return d.flags & REGION_DESC_MAPPED;
}

/* A buffer with gaps saves what the calls take that pack it, once that has been measured. */
REGION_TEST(the_measured_time_of_packed_uses_counts)
{
	char *p;

	begin_by_cost(1000);
	p = pages_get(2 * MIB);
	region_set_packed_rate(1);
	for (int i = 0; i < 100; i++)
		CHECK(!use_packed(p, 2 * MIB));
	region_set_packed_rate(1000000);
	CHECK(use_packed(p, 2 * MIB));
	region_set_packed_rate(0);
}

/* Uses of the buffer alone would take thousands of them. */
REGION_TEST(savings_pay_for_adoption)
{
	char *p;

	begin_by_cost(100);
	p = pages_get(2 * MIB);
	for (int i = 0; i < 90; i++)
		CHECK(!use(p, 2 * MIB));
	for (int i = 0; i < 10; i++)
		region_earn(2000000);
	CHECK(use(p, 2 * MIB));
}

/* A loop of so many uses goes on. */
REGION_TEST(after_many_uses_a_long_buffer_needs_no_budget)
{
	char *shorter, *longer;

	begin_by_cost(100);
	shorter = pages_get(64 << 10);
	longer = pages_get(128 << 10);
	for (int i = 0; i < 100; i++)
		CHECK(!use(longer, 128 << 10));
	CHECK(use(longer, 128 << 10));
	/* these earn 26 us, less than the calls of an adoption take */
	for (int i = 0; i < 200; i++)
		CHECK(!use(shorter, 64 << 10));
}

/* The first adoption follows the price that the connection has measured. */
REGION_TEST(the_expected_price_counts_until_the_first_adoption)
{
	char *p;

	begin_by_cost(1000000);
	region_expect_price(10000000);
	p = pages_get(MIB);
	for (int i = 0; i < 9; i++)
		CHECK(!use(p, MIB));
	for (int i = 0; i < 1000 && !use(p, MIB); i++)
		;
	CHECK(is_adopted(p, MIB));
}

REGION_TEST(a_measured_rate_keeps_the_ratio_of_the_rates)
{
	char *p;

	begin_by_cost(1000);
	region_set_copy_rates(1000000, 999999); /* a use saves 1 ps a byte */
	region_set_private_rate(2000000);
	p = pages_get(2 * MIB);
	for (int i = 0; i < 99; i++)
		CHECK(!use(p, 2 * MIB));
	CHECK_EQ(bytes_adopted(), 0);
}

REGION_TEST(buffers_used_once_are_not_adopted)
{
	begin_by_cost(400);
	for (int i = 0; i < 200; i++) {
		char *p = pages_get(2 * MIB);

		use(p, 2 * MIB);
	}
	CHECK_EQ(bytes_adopted(), 0);
}

REGION_TEST(regions_that_die_young_cost_twice_as_much)
{
	int first = 0, later = 0;

	begin_by_cost(60); /* one use saves less than the price */
	for (int i = 0; i < 11; i++) {
		char *p = mmap((char *)0x200000000000, 2 * MIB, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		int uses = 0;

		CHECK(p != MAP_FAILED);
		while (!use(p, 2 * MIB) && uses < USES_MAX)
			uses++;
		CHECK(uses < USES_MAX);
		munmap(p, 2 * MIB);
		first = i ? first : uses;
		later = uses;
	}
	CHECK(later > 2 * first); /* the price varies, but not by a factor of 512 */
}

/* ---- what ends a part -------------------------------------------------------------------- */

REGION_TEST(a_part_ends_when_the_buffer_is_unmapped)
{
	char *p = partly_adopted();

	munmap(p, 16 * MIB);
	CHECK_EQ(active(), 0);
	CHECK_EQ(arena_used_bytes_locked(), 0);
}

REGION_TEST(a_part_that_is_cut_does_not_grow)
{
	char *p = partly_adopted();

	munmap(p + MIB, MIB);
	CHECK(mmap(p + MIB, MIB, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == p + MIB);
	check_part_at(__FILE__, __LINE__, p, 0, MIB, 1);
	check_part_at(__FILE__, __LINE__, p, 2 * MIB, 16 * MIB, 1);
	for (int i = 0; i < 200; i++)
		use(p, 16 * MIB);
	check_part_at(__FILE__, __LINE__, p, 0, MIB, 1);
	CHECK_ZERO(p + MIB, MIB);
	check_part_at(__FILE__, __LINE__, p, 2 * MIB, 16 * MIB, 1);
}

REGION_TEST(a_part_keeps_its_contents_when_it_moves)
{
	char *p = partly_adopted(), *q = mremap(p, 16 * MIB, 24 * MIB, MREMAP_MAYMOVE);

	CHECK(q != MAP_FAILED);
	CHECK_FILLED(q, 16 * MIB, 1);
}

REGION_TEST(a_part_reads_as_zero_when_it_is_discarded)
{
	char *p = partly_adopted();

	CHECK_EQ(madvise(p, 16 * MIB, MADV_DONTNEED), 0);
	CHECK_ZERO(p, 16 * MIB);
}

REGION_TEST(a_part_is_private_in_a_child)
{
	char *p = partly_adopted();
	int status;
	pid_t pid = fork();

	if (!pid) {
		CHECK_FILLED(p, 16 * MIB, 1);
		memset(p, 0, 16 * MIB);
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	CHECK_FILLED(p, 16 * MIB, 1);
	use_until(p, 16 * MIB, bytes_adopted());
	CHECK_FILLED(p, 16 * MIB, 1);
}

REGION_TEST(a_part_does_not_grow_over_memory_that_is_excluded)
{
	char *p = partly_adopted();

	CHECK_EQ(mlock(p + 15 * MIB, PAGE), 0);
	for (int i = 0; i < 300; i++)
		CHECK(!use(p, 16 * MIB));
	CHECK(!is_shared(p + 15 * MIB));
	CHECK_FILLED(p, 16 * MIB, 1);
}

REGION_TEST(a_part_without_memory_to_grow_stays_a_part)
{
	char *p = partly_adopted();
	uint64_t before = bytes_adopted();

	CHECK_EQ(base_fault_load("populate:all"), 0);
	for (int i = 0; i < 100; i++)
		CHECK(!use(p, 16 * MIB));
	CHECK_EQ(bytes_adopted(), before);
	CHECK_FILLED(p, 16 * MIB, 1);
	CHECK_EQ(base_fault_load(""), 0);
	use_until(p, 16 * MIB, before);
	CHECK_FILLED(p, 16 * MIB, 1);
}

/* A shorter buffer inside the part, and a longer one that begins where the part does. */
REGION_TEST(other_buffers_at_the_same_address_are_buffers_of_their_own)
{
	char *p = partly_adopted();
	struct region_desc d;

	region_describe(p, MIB, REGION_USE, &d);
	CHECK(d.flags & REGION_DESC_MAPPED);
	CHECK(!memcmp(peer_view(&d), p, MIB));
	for (int i = 0; i < 50; i++) /* while the part is in use */
		CHECK(!use(p, 12 * MIB));
	CHECK_FILLED(p, 16 * MIB, 1);
	region_release(&d);
	for (int i = 0; i < 50; i++)
		use(p, 12 * MIB);
	CHECK_FILLED(p, 16 * MIB, 1);
}
