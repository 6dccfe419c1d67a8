/* SPDX-License-Identifier: BSD-3-Clause */
/* Touches of guarded memory, and the mappings after release. */
#include <dirent.h>

#include "guard_case.h"

/* 3 MiB, not aligned: a whole page table, and parts of page tables at both ends */
enum { MANY = 768, ODD = 300, FEW = 16 };

GUARD_TEST(a_load_sees_what_came_later)
{
	static struct owner o;

	owner_open(&o, MANY, ODD);
	owner_arm(&o, 0, MANY, GUARD_NO_ACCESS);
	CHECK_EQ(load(o.p + 5 * PAGE + 7), owner_byte(5 * PAGE + 7));
	CHECK_EQ(o.touches, 1);
	CHECK(o.last / PAGE == (uintptr_t)o.p / PAGE + 5);
	CHECK(!o.last_write);
	CHECK_OWNER(&o, 0, MANY);
	owner_settle(&o);
	CHECK(!guard_is_armed(&o.r));
}

GUARD_TEST(a_store_is_not_lost)
{
	static struct owner o;

	owner_open(&o, MANY, ODD);
	owner_arm(&o, 0, MANY, GUARD_NO_ACCESS);
	store(o.p + 100 * PAGE, 0x5A);
	CHECK_EQ(o.touches, 1);
	CHECK(o.last_write);
	CHECK_EQ(load(o.p + 100 * PAGE), 0x5A);
	CHECK_EQ((unsigned char)o.arena[100 * PAGE], 0x5A);
	CHECK_EQ(load(o.p + 100 * PAGE + 1), owner_byte(100 * PAGE + 1));
}

GUARD_TEST(bytes_beside_a_range_are_the_programs)
{
	static struct owner o;

	owner_open(&o, FEW, ODD);
	owner_arm(&o, 2, FEW - 4, GUARD_NO_ACCESS);
	store(o.p + 2 * PAGE - 1, 1);
	store(o.p + (FEW - 2) * PAGE, 2);
	CHECK_EQ(load(o.p - 1), 0xEE);
	CHECK_EQ(o.touches, 0);
	CHECK_EQ(load(o.p + 2 * PAGE), owner_byte(2 * PAGE));
	CHECK_EQ(load(o.p + 2 * PAGE - 1), 1);
	CHECK_EQ(load(o.p + (FEW - 2) * PAGE), 2);
	CHECK_EQ(load(o.p + FEW * PAGE), 0xEE);
}

GUARD_TEST(movers_read_and_write_meanwhile)
{
	static struct owner o;

	owner_open(&o, MANY, ODD);
	owner_arm(&o, 0, MANY, GUARD_NO_ACCESS);
	for (size_t i = 0; i < MANY; i++)
		CHECK_EQ((unsigned char)o.arena[i * PAGE], 0xEE);
	owner_finish(&o);
	CHECK_EQ(o.touches, 0);
	CHECK(owner_release_all(&o));
	CHECK_OWNER(&o, 0, MANY);
	CHECK_EQ(o.touches, 0);
}

GUARD_TEST(senders_pages_can_be_read)
{
	static struct owner o;
	unsigned sum = 0;

	owner_open(&o, MANY, ODD);
	owner_arm(&o, 0, MANY, GUARD_READ_ONLY);
	for (size_t i = 0; i < MANY; i++)
		sum += load(o.p + i * PAGE);
	CHECK_EQ(sum, MANY * 0xEE);
	CHECK_EQ(o.touches, 0);
	CHECK(guard_is_armed(&o.r));
	store(o.p + 77 * PAGE, 1);
	CHECK_EQ(o.touches, 1);
	CHECK(o.last_write);
	CHECK_EQ((unsigned char)o.arena[77 * PAGE], 1);
	CHECK_EQ((unsigned char)o.arena[77 * PAGE + 1], 0xEE);
}

GUARD_TEST(senders_pages_that_were_not_read_can_be_written)
{
	static struct owner o;

	owner_open(&o, MANY, ODD);
	owner_arm(&o, 0, MANY, GUARD_READ_ONLY);
	store(o.p, 1);
	CHECK_EQ(o.touches, 1);
	CHECK_EQ(load(o.p), 1);
	CHECK_EQ(load(o.p + 1), 0xEE);
}

GUARD_TEST(a_part_is_released_and_the_rest_waits)
{
	static struct owner o;

	owner_open(&o, MANY, ODD);
	o.by_page = true;
	owner_arm(&o, 0, MANY, GUARD_NO_ACCESS);
	CHECK_EQ(load(o.p + 5 * PAGE), owner_byte(5 * PAGE));
	CHECK_EQ(load(o.p + 5 * PAGE + 9), owner_byte(5 * PAGE + 9));
	CHECK_EQ(o.touches, 1);
	owner_settle(&o);
	CHECK_EQ(o.r.armed_pages, MANY - 1);
	for (size_t i = 0; i < MANY; i++)
		CHECK_EQ(load(o.p + i * PAGE), owner_byte(i * PAGE));
	owner_settle(&o);
	CHECK_EQ(o.touches, MANY);
	CHECK(!guard_is_armed(&o.r));
	CHECK_OWNER(&o, 0, MANY);
}

/* Whole page tables, and parts of page tables at both ends. */
GUARD_TEST(page_tables_of_large_ranges_are_moved)
{
	enum { LARGE = 4096, AT = 300, ROUNDS = 5 };
	static struct owner o;

	owner_open(&o, LARGE, AT);
	for (int i = 0; i < ROUNDS; i++) {
		enum guard_access access = i & 1 ? GUARD_READ_ONLY : GUARD_NO_ACCESS;

		memset(o.p, 0xEE, LARGE * PAGE);
		o.touches = 0;
		owner_arm(&o, 0, LARGE, access);
		/* `mremap` then tries the other way as well */
		if (!i && strcmp(guard_case_kind(), "mprotect"))
			CHECK(o.r.shadow != 0 && (o.r.shadow - o.r.start) % OS_HUGE == 0);
		if (access == GUARD_READ_ONLY)
			CHECK_EQ(load(o.p + 1000 * PAGE), 0xEE);
		CHECK_EQ(o.touches, 0);
		store(o.p + 700 * PAGE, owner_byte(700 * PAGE));
		CHECK_EQ(o.touches, 1);
		owner_settle(&o);
		if (access == GUARD_NO_ACCESS)
			CHECK_OWNER(&o, 0, LARGE);
		else
			CHECK_EQ(load(o.p + 1001 * PAGE), 0xEE);
	}
}

GUARD_TEST(releasing_again_changes_nothing)
{
	static struct owner o;

	owner_open(&o, FEW, ODD);
	owner_arm(&o, 0, FEW, GUARD_NO_ACCESS);
	owner_finish(&o);
	CHECK(!guard_release(&o.r, o.r.start, o.r.start + 4 * PAGE));
	CHECK(!guard_release(&o.r, o.r.start, o.r.start + 4 * PAGE));
	CHECK_EQ(o.r.armed_pages, FEW - 4);
	/* less than a page is nothing; more than the range is the range */
	CHECK(!guard_release(&o.r, o.r.start + 5 * PAGE + 1, o.r.start + 7 * PAGE - 1));
	CHECK_EQ(o.r.armed_pages, FEW - 4);
	CHECK(guard_release(&o.r, 0, UINTPTR_MAX));
	CHECK(owner_release_all(&o));
	CHECK_OWNER(&o, 0, FEW);
	CHECK_EQ(load(o.p + FEW * PAGE), 0xEE);
	CHECK_EQ(o.touches, 0);
}

/* Pages come back in any order, and none comes back early. */
GUARD_TEST(parts_in_any_order)
{
	enum { ROUNDS = 12 };
	static struct owner o;
	unsigned seed = 1;

	owner_open(&o, MANY, ODD);
	for (int round = 0; round < ROUNDS; round++) {
		bool open[MANY] = { false };
		bool done = false;

		owner_arm(&o, 0, MANY, GUARD_NO_ACCESS);
		owner_finish(&o);
		o.by_page = true;
		o.touches = 0;
		while (!done) {
			size_t at = rand_r(&seed) % MANY, n = 1 + rand_r(&seed) % 64,
			       end = at + n < MANY ? at + n : MANY;
			size_t probe = rand_r(&seed) % MANY;
			int before;

			done = guard_release(&o.r, o.r.start + at * PAGE, o.r.start + end * PAGE);
			for (size_t i = at; i < end; i++)
				open[i] = true;
			before = o.touches;
			CHECK_EQ(load(o.p + probe * PAGE + 1), owner_byte(probe * PAGE + 1));
			CHECK_EQ(o.touches - before, !open[probe]);
			open[probe] = true;
			done = done || !guard_is_armed(&o.r);
		}
		for (size_t i = 0; i < MANY; i++)
			CHECK(open[i]);
		CHECK_OWNER(&o, 0, MANY);
		memset(o.p, 0xEE, MANY * PAGE);
	}
}

GUARD_TEST(a_range_that_cannot_be_armed_is_as_it_was)
{
	struct guard_range bad;
	static struct owner o;
	int before;

	owner_open(&o, MANY, ODD);
	before = guard_case_mappings();
	owner_arm(&o, 8, 16, GUARD_NO_ACCESS);
	bad = (struct guard_range){ .start = (uintptr_t)o.p,
				    .end = (uintptr_t)o.p + 9 * PAGE,
				    .arg = &o };
	CHECK_EQ(guard_arm(&bad), -EEXIST);
	bad.start = (uintptr_t)o.p + 23 * PAGE;
	bad.end = bad.start + 5 * PAGE;
	CHECK_EQ(guard_arm(&bad), -EEXIST);
	CHECK_EQ(guard_arm(&o.r), -EINVAL);
	bad.start = bad.end;
	CHECK_EQ(guard_arm(&bad), -EINVAL);
	bad.start = (uintptr_t)o.p + 100;
	CHECK_EQ(guard_arm(&bad), -EINVAL);
	CHECK_EQ(load(o.p + 7 * PAGE), 0xEE);
	CHECK_EQ(load(o.p + 24 * PAGE), 0xEE);
	CHECK_EQ(o.touches, 0);
	owner_finish(&o);
	CHECK(owner_release_all(&o));
	CHECK_OWNER(&o, 8, 16);
	CHECK_EQ(guard_case_mappings(), before);
}

static bool is_writable(void *p)
{
	struct os_vma v;

	CHECK_EQ(os_vma_query(p, &v), 0);
	return v.write;
}

/* The program has replaced a part of the range. Kernels before 6.17 refuse to move it. */
GUARD_TEST(memory_of_two_mappings_is_refused_or_kept)
{
	struct guard_range r = { .access = GUARD_NO_ACCESS };
	static struct owner o;
	int before, ret;

	if (!strcmp(guard_case_kind(), "mprotect"))
		unit_skip("protects whatever is there");
	owner_open(&o, MANY, ODD);
	r.start = (uintptr_t)o.p;
	r.end = r.start + MANY * PAGE;
	CHECK_EQ(mprotect(o.p + 200 * PAGE, PAGE, PROT_READ), 0);
	before = guard_case_mappings();
	r.end = r.start + 600 * PAGE;
	ret = guard_arm(&r);
	CHECK(!ret || ret == -EFAULT);
	CHECK_EQ(guard_is_armed(&r), !ret);
	CHECK(guard_release(&r, r.start, r.end));
	CHECK(!is_writable(o.p + 200 * PAGE) && is_writable(o.p + 199 * PAGE));
	CHECK_EQ(guard_case_mappings(), before);
	CHECK_EQ(load(o.p + 200 * PAGE), 0xEE);
	store(o.p + 5 * PAGE, 1);
	CHECK_EQ(o.touches, 0);
}

static int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

GUARD_TEST(a_thousand_cycles_leave_nothing)
{
	enum { CYCLES = 1000 };
	static struct owner o;
	int maps, fds, threads;

	owner_open(&o, MANY, ODD);
	maps = guard_case_mappings();
	fds = count_entries("/proc/self/fd");
	threads = count_entries("/proc/self/task");
	for (int i = 0; i < CYCLES; i++) {
		enum guard_access access = i & 1 ? GUARD_READ_ONLY : GUARD_NO_ACCESS;
		size_t n = i % 3 ? MANY : FEW;

		owner_arm(&o, (size_t)i % 7, n - 7, access);
		if (i % 25 == 0)
			store(o.p + 8 * PAGE, 1);
		if (i % 5 == 1)
			CHECK(!guard_release(&o.r, o.r.start + 3 * PAGE, o.r.start + 5 * PAGE));
		CHECK(owner_release_all(&o));
	}
	CHECK_EQ(guard_case_mappings(), maps);
	CHECK_EQ(count_entries("/proc/self/fd"), fds);
	CHECK_EQ(count_entries("/proc/self/task"), threads);
	CHECK_EQ(o.touches, CYCLES / 25);
}

/* Ranges of all sizes and addresses use one slot in turn; empty mappings do not accumulate. */
GUARD_TEST(what_stays_for_the_next_range_is_bounded)
{
	enum { CYCLES = 400, FEW_STAY = 24, OWNERS = 3 };
	static struct owner o[OWNERS];
	unsigned seed = 7;
	int maps;

	/* of several files, as mappings of one file would merge */
	for (int i = 0; i < OWNERS; i++)
		owner_open(&o[i], MANY, ODD);
	maps = unit_count_mappings();
	for (int i = 0; i < CYCLES; i++) {
		size_t n = 170 + rand_r(&seed) % (MANY - 170);

		owner_arm(&o[i % OWNERS], rand_r(&seed) % (MANY - n), n, GUARD_READ_ONLY);
		CHECK(owner_release_all(&o[i % OWNERS]));
		CHECK(unit_count_mappings() <= maps + FEW_STAY);
	}
	guard_fini();
	CHECK(unit_count_mappings() <= maps);
}

enum { RANGES = 200 };

static void use_many(struct owner *o)
{
	for (int i = 0; i < RANGES; i++)
		owner_arm(&o[i * 7 % RANGES], 1, o[i * 7 % RANGES].pages - 1, GUARD_NO_ACCESS);
	CHECK(guard_is_ready());
	for (int i = 0; i < RANGES; i += 3) {
		CHECK_EQ(load(o[i].p + 2 * PAGE), owner_byte(2 * PAGE));
		CHECK_EQ(o[i].touches, 1);
		o[i].touches = 0;
	}
	for (int i = 0; i < RANGES; i++) {
		if (i % 3)
			owner_finish(&o[i]);
		CHECK(owner_release_all(&o[i]));
		CHECK_OWNER(&o[i], 1, o[i].pages - 1);
		CHECK_EQ(load(o[i].p), 0xEE);
	}
	CHECK(guard_lo >= guard_hi);
}

GUARD_TEST(many_ranges_at_a_time)
{
	static struct owner o[RANGES];
	int maps;

	for (int i = 0; i < RANGES; i++)
		owner_open(&o[i], 4 + (i % 40 ? (size_t)i % 5 : 250), (size_t)i);
	use_many(o); /* threads that serve faults stay */
	maps = guard_case_mappings();
	for (int n = 0; n < 3; n++)
		use_many(o);
	CHECK_EQ(guard_case_mappings(), maps);
}

GUARD_TEST(bounds_cover_what_is_armed)
{
	static struct owner a, b;

	CHECK(guard_lo >= guard_hi);
	owner_open(&a, FEW, 0);
	owner_open(&b, FEW, 7);
	owner_arm(&a, 0, FEW, GUARD_NO_ACCESS);
	CHECK(guard_lo == a.r.start && guard_hi == a.r.end);
	owner_arm(&b, 0, FEW, GUARD_NO_ACCESS);
	CHECK(guard_may_touch(a.r.start, a.r.start + 1) && guard_may_touch(b.r.end - 1, b.r.end));
	CHECK(guard_lo == (a.r.start < b.r.start ? a.r.start : b.r.start));
	CHECK(guard_hi == (a.r.end > b.r.end ? a.r.end : b.r.end));
	CHECK(owner_release_all(&a));
	CHECK(guard_lo == b.r.start && guard_hi == b.r.end);
	CHECK(owner_release_all(&b));
	CHECK(guard_lo >= guard_hi);
	CHECK(!guard_may_touch(0, UINTPTR_MAX));
}

GUARD_TEST(libc_copies_guarded_memory)
{
	static char copy[MANY * PAGE];
	static struct owner o;

	owner_open(&o, MANY, ODD);
	o.by_page = true;
	owner_arm(&o, 0, MANY, GUARD_NO_ACCESS);
	memcpy(copy, o.p, sizeof copy);
	for (size_t i = 0; i < sizeof copy; i++)
		CHECK_EQ((unsigned char)copy[i], owner_byte(i));
	CHECK_EQ(o.touches, MANY);
	owner_settle(&o); /* a thread that serves faults may still hold the last page */
	owner_arm(&o, 0, MANY, GUARD_NO_ACCESS);
	memset(o.p, 3, MANY * PAGE);
	for (size_t i = 0; i < sizeof copy; i++)
		CHECK_EQ(o.arena[i], 3);
}

/* As many mappings as there may be. */
static void map_until_refused(void)
{
	char *p = mmap(NULL, (size_t)1 << 30, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(p != MAP_FAILED);
	for (size_t i = 1; i < (size_t)1 << 18; i += 2)
		if (mprotect(p + i * PAGE, PAGE, PROT_READ))
			return;
	unit_skip("no limit of mappings");
}

GUARD_TEST(with_too_many_mappings_all_comes_back_at_once)
{
	static struct owner o, other;

	owner_open(&o, MANY, ODD);
	owner_open(&other, MANY, ODD);
	o.by_page = true;
	o.all_after = 4;
	owner_arm(&o, 0, MANY, GUARD_NO_ACCESS);
	map_until_refused();
	/* within a mapping: three more are needed */
	other.r.start = (uintptr_t)other.p + PAGE;
	other.r.end = (uintptr_t)other.p + (MANY - 1) * PAGE;
	CHECK_EQ(guard_arm(&other.r), -ENOMEM);
	CHECK_EQ(load(other.p + 9 * PAGE), 0xEE);
	store(other.p + 9 * PAGE, 1);
	CHECK_EQ(load(o.p + 99 * PAGE), owner_byte(99 * PAGE));
	owner_settle(&o);
	CHECK(o.touches >= 4);
	CHECK(!guard_is_armed(&o.r));
	CHECK_OWNER(&o, 0, MANY);
}

GUARD_TEST(after_fini_memory_is_as_before)
{
	static struct owner o;

	owner_open(&o, MANY, ODD);
	owner_arm(&o, 0, MANY, GUARD_NO_ACCESS);
	owner_finish(&o);
	CHECK(owner_release_all(&o));
	guard_fini();
	CHECK_STR(guard_kind_name(), "none");
	CHECK(!guard_is_ready());
	CHECK_EQ(guard_arm(&o.r), -ENOTSUP);
	CHECK_OWNER(&o, 0, MANY);
	CHECK_EQ(count_entries("/proc/self/task"), 3); /* "." and ".." */
}

static void in_child(void *arg)
{
	struct owner *o = arg;

	CHECK(!guard_is_ready());
	CHECK_EQ(guard_case_init(guard_case_kind(), NULL), -ENOTSUP);
	CHECK_HAS(guard_reason(), "fork");
	CHECK_EQ(guard_arm(&o->r), -ENOTSUP);
	CHECK_OWNER(o, 0, MANY);
	store(o->p, 1);
}

GUARD_TEST(a_forked_child_guards_nothing)
{
	static struct owner o;

	owner_open(&o, MANY, ODD);
	owner_arm(&o, 0, MANY, GUARD_NO_ACCESS);
	owner_finish(&o);
	CHECK(owner_release_all(&o));
	CHECK_EQ(unit_fork(in_child, &o), 0);
	CHECK(guard_is_ready());
	owner_arm(&o, 0, MANY, GUARD_NO_ACCESS);
	CHECK_EQ(load(o.p), owner_byte(0));
}
