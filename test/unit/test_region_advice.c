/* SPDX-License-Identifier: BSD-3-Clause */
/* madvise, mprotect and mlock on adopted memory. */
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "os/os.h"
#include "region_case.h"

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
/* Older C libraries lack it; preload/advice.c has it in any case. */
ssize_t process_madvise(int process, const struct iovec *of, size_t n, int advice, unsigned flags);

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

enum { GUARD_INSTALL = 102, GUARD_REMOVE = 103 }; /* Linux 6.13 */
enum { RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

/* ---- madvise ----------------------------------------------------------------------------- */

/* Older kernels lack some. */
static bool is_known(int advice)
{
	char *p = pages_get(PAGE);
	bool known = !madvise(p, PAGE, advice);

	munmap(p, PAGE);
	return known;
}

static void discard(size_t from, size_t to, int advice)
{
	char *p = middle_adopted(NULL);

	CHECK_EQ(madvise(p + from, to - from, advice), 0);
	if (advice != MADV_FREE)
		CHECK_ZERO(p + from, to - from);
	check_middle(p, 0, from);
	check_middle(p, to, 4 * MIB);
	reuse_the_arena(2 * MIB);
	memset(p + from, 3, to - from);
	check_middle(p, 0, from);
	check_middle(p, to, 4 * MIB);
	for (size_t i = from; i < to; i++)
		CHECK(p[i] == 3);
	munmap(p, 4 * MIB);
}

REGION_TEST(dontneed_and_free_empty_exactly_their_range)
{
	static const int advices[] = { MADV_DONTNEED, MADV_FREE, MADV_DONTNEED_LOCKED };

	region_begin(NULL, NULL);
	for (size_t i = 0; i < BASE_ARRAY_LEN(advices); i++) {
		if (!is_known(advices[i]))
			continue;
		discard(0, 4 * MIB, advices[i]);
		discard(MIB, 3 * MIB, advices[i]);
		discard(0, 2 * MIB, advices[i]);
		discard(MIB + 5 * PAGE, 2 * MIB, advices[i]);
		discard(3 * MIB - PAGE, 4 * MIB, advices[i]);
	}
}

REGION_TEST(discarding_twice_or_after_a_fork_reads_zero)
{
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	region_return((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	CHECK_EQ(madvise(p, 2 * MIB, MADV_DONTNEED), 0);
	CHECK_ZERO(p, 2 * MIB);
	memset(p, 1, 2 * MIB);
	CHECK_EQ(madvise(p, 2 * MIB, MADV_DONTNEED), 0);
	CHECK_ZERO(p, 2 * MIB);
	check_middle(p, 2 * MIB, 4 * MIB);
	CHECK_EQ(madvise(p, 4 * MIB, MADV_FREE), 0);
	memset(p, 1, 4 * MIB);
}

REGION_TEST(memory_reads_zero_after_a_guard_in_it)
{
	static const size_t ends[][2] = { { 0, 4 * MIB },
					  { MIB, 3 * MIB },
					  { 0, 2 * MIB },
					  { MIB + 5 * PAGE, 2 * MIB },
					  { 3 * MIB - PAGE, 4 * MIB } };

	region_begin(NULL, NULL);
	region_set_read_by_peers();
	if (!is_known(GUARD_INSTALL))
		unit_skip("the kernel has no guard regions");
	for (size_t i = 0; i < BASE_ARRAY_LEN(ends); i++) {
		size_t from = ends[i][0], bytes = ends[i][1] - from;
		char *p = middle_adopted(NULL);

		CHECK_EQ(madvise(p + from, bytes, GUARD_INSTALL), 0);
		check_middle(p, 0, from);
		check_middle(p, from + bytes, 4 * MIB);
		CHECK_EQ(madvise(p + from, bytes, GUARD_REMOVE), 0);
		CHECK_ZERO(p + from, bytes);
		check_middle(p, 0, from);
		check_middle(p, from + bytes, 4 * MIB);
		munmap(p, 4 * MIB);
	}
}

REGION_TEST(process_madvise_of_oneself_empties_exactly_its_ranges)
{
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct iovec v[2] = { { pages_get(PAGE), PAGE } };
	char *p;

	if (syscall(SYS_process_madvise, self, v, 1, MADV_DONTNEED, 0) != PAGE)
		unit_skip("the kernel permits it of other processes only, or not at all");
	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	v[0] = (struct iovec){ p + PAGE, PAGE };
	v[1] = (struct iovec){ p + MIB + PAGE, MIB };
	CHECK_EQ(process_madvise(self, v, 2, MADV_DONTNEED, 0), PAGE + MIB);
	check_middle(p, 0, PAGE);
	CHECK_ZERO(p + PAGE, PAGE);
	check_middle(p, 2 * PAGE, MIB + PAGE);
	CHECK_ZERO(p + MIB + PAGE, MIB);
	check_middle(p, 2 * MIB + PAGE, 4 * MIB);
	close(self);
}

REGION_TEST(lasting_advice_of_process_madvise_is_about_private_memory)
{
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct iovec v = { pages_get(PAGE), PAGE };
	pid_t child;
	int status;
	char *p;

	if (syscall(SYS_process_madvise, self, &v, 1, MADV_WIPEONFORK, 0) != PAGE)
		unit_skip("the kernel permits it of other processes only, or not at all");
	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	v = (struct iovec){ p + MIB, 2 * MIB };
	CHECK_EQ(process_madvise(self, &v, 1, MADV_DONTFORK, 0), 2 * MIB);
	CHECK(!is_adopted(p + MIB, 2 * MIB));
	check_middle(p, 0, 4 * MIB);
	child = fork();
	if (!child)
		_exit(os_read_memory(p + MIB, &v, sizeof v) == -EFAULT ? 0 : 1);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	close(self);
}

/* The kernel refuses it, and the memory at these addresses here is not concerned. */
REGION_TEST(process_madvise_of_another_process_empties_nothing_here)
{
	struct iovec v;
	pid_t child;
	int other;
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	other = (int)syscall(SYS_pidfd_open, child, 0);
	v = (struct iovec){ p + MIB, MIB };
	CHECK_EQ(process_madvise(other, &v, 1, MADV_DONTNEED, 0), -1);
	check_middle(p, 0, 4 * MIB);
	close(other);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

REGION_TEST(an_madvise_that_fails_changes_nothing)
{
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	CHECK_EQ(madvise(p + MIB + 1, MIB, MADV_DONTNEED), -1); /* not page-aligned */
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(madvise(p + 2 * MIB, 0, MADV_DONTNEED), 0); /* nothing */
	CHECK_EQ(madvise(p, SIZE_MAX - PAGE, MADV_DONTNEED), -1);
	check_middle(p, 0, 4 * MIB);
	CHECK(is_adopted(p + MIB, 2 * MIB));
}

REGION_TEST(discarding_keeps_the_protection)
{
	struct os_vma v;
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	CHECK_EQ(mprotect(p + MIB, MIB, PROT_NONE), 0);
	CHECK_EQ(madvise(p, 4 * MIB, MADV_DONTNEED), 0);
	CHECK_EQ(os_vma_query(p + MIB, &v), 0);
	CHECK(!v.read && !v.write);
	CHECK_EQ(os_vma_query(p + 2 * MIB, &v), 0);
	CHECK(v.read && v.write);
}

REGION_TEST(harmless_advice_leaves_regions_alone)
{
	static const int advices[] = { MADV_NORMAL,
				       MADV_RANDOM,
				       MADV_SEQUENTIAL,
				       MADV_WILLNEED,
				       MADV_HUGEPAGE,
				       MADV_NOHUGEPAGE,
				       20 /* COLD */,
				       21 /* PAGEOUT */,
				       22 /* POPULATE_READ */,
				       23 /* POPULATE_WRITE */ };
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	for (size_t i = 0; i < BASE_ARRAY_LEN(advices); i++)
		if (is_known(advices[i]) &&
		    (advices[i] != MADV_HUGEPAGE || os_can_collapse()))
			CHECK_EQ(madvise(p, 4 * MIB, advices[i]), 0);
	check_middle(p, 0, 4 * MIB);
	CHECK(is_adopted(p + MIB, 2 * MIB));
}

REGION_TEST(advice_for_private_memory_ends_adoption_there)
{
	static const int advices[] = { MADV_DONTFORK, MADV_WIPEONFORK, MADV_MERGEABLE,
				       MADV_DONTDUMP };

	region_begin(NULL, NULL);
	for (size_t i = 0; i < BASE_ARRAY_LEN(advices); i++) {
		char *p = middle_adopted(NULL);
		int ret = madvise(p, 4 * MIB, advices[i]);

		CHECK(!ret ||
		      (advices[i] == MADV_MERGEABLE && errno == EINVAL)); /* kernels without KSM */
		check_middle(p, 0, 4 * MIB);
		CHECK(!is_shared(p + 2 * MIB));
		CHECK_REFUSED(p + MIB, 2 * MIB, "specially advised");
		/* and where the advice came first */
		p = pages_get(MIB);
		if (!madvise(p, MIB, advices[i]))
			CHECK_REFUSED(p, MIB, "specially advised");
	}
}

REGION_TEST(a_part_of_a_region_is_wiped_in_children)
{
	pid_t child;
	int status;
	char *p;

	region_begin(NULL, NULL);
	region_set_read_by_peers();
	p = middle_adopted(NULL);
	CHECK_EQ(madvise(p + 2 * MIB, MIB / 2, MADV_WIPEONFORK), 0);
	check_middle(p, 0, 4 * MIB);
	child = fork();
	if (!child) {
		CHECK_ZERO(p + 2 * MIB, MIB / 2);
		check_middle(p, 0, 2 * MIB);
		check_middle(p, 5 * MIB / 2, 4 * MIB);
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	check_middle(p, 0, 4 * MIB);
}

/* ---- protection -------------------------------------------------------------------------- */

static sigjmp_buf faulted;
static void on_fault(int sig) { siglongjmp(faulted, sig); }

static bool write_faults(volatile char *p)
{
	struct sigaction act = { .sa_handler = on_fault };

	sigaction(SIGSEGV, &act, NULL);
	if (sigsetjmp(faulted, 1))
		return true;
	*p = 1;
	return false;
}

REGION_TEST(mprotect_protects_and_unprotects)
{
	struct region_desc d;
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(&d);
	CHECK_EQ(mprotect(p, 2 * MIB, PROT_READ), 0);
	CHECK(write_faults(p + MIB + 100));
	check_middle(p, 0, 4 * MIB);
	/* no peer writes to what the program has made read-only */
	memset(peer_view(&d), 0, 2 * MIB);
	check_middle(p, 0, 4 * MIB);
	CHECK_REFUSED(p + MIB, 2 * MIB, "not readable and writable");
	CHECK_EQ(mprotect(p, 2 * MIB, RW), 0);
	CHECK(!write_faults(p + 100));
	fill(p, 4 * MIB, 1);
	ADOPT(p + MIB, 2 * MIB); /* it is ordinary memory again */
	check_middle(p, 0, 4 * MIB);
}

/* ---- memory whose pages may not be replaced ---------------------------------------------- */

REGION_TEST(locked_memory_is_not_adopted_and_given_back)
{
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	CHECK_EQ(mlock(p + 2 * MIB, PAGE), 0);
	check_middle(p, 0, 4 * MIB);
	CHECK(!is_shared(p + 2 * MIB));
	CHECK_REFUSED(p + MIB, 2 * MIB, "locked");
	p = pages_get(MIB);
	CHECK_EQ(mlock2(p, MIB, 0), 0);
	CHECK_REFUSED(p, MIB, "locked");
}

REGION_TEST(locking_the_same_memory_again_and_again_stops_nothing_else)
{
	char *p = pages_get(MIB), *q = pages_get(64 * MIB);

	region_begin(NULL, NULL);
	for (int i = 0; i < 2000; i++) {
		CHECK_EQ(mlock(p, PAGE), 0);
		munlock(p, PAGE);
	}
	/* many distinct ranges */
	for (int i = 0; i < 2000; i++) {
		mlock(q + (size_t)i * 2 * PAGE, PAGE);
		munlock(q + (size_t)i * 2 * PAGE, PAGE);
	}
	CHECK_REFUSED(q, MIB, "locked");
	ADOPT(pages_get(MIB), MIB);
}

REGION_TEST(memory_mapped_after_locked_memory_was_unmapped_is_like_any)
{
	char *p = pages_get(MIB);

	region_begin(NULL, NULL);
	mlock(p, MIB);
	CHECK_REFUSED(p, MIB, "locked");
	munmap(p, MIB);
	CHECK(mmap(p, MIB, RW, ANON | MAP_FIXED, -1, 0) == p);
	ADOPT(p, MIB);
}

REGION_TEST(mlockall_locks_the_program_and_not_the_arena)
{
	char *p;

	region_begin("SLUICE_REGION_ARENA=64G", NULL);
	p = middle_adopted(NULL);
	alarm(30);
	CHECK_EQ(mlockall(MCL_CURRENT), 0);
	check_middle(p, 0, 4 * MIB);
	CHECK(!is_shared(p + 2 * MIB));
	CHECK_REFUSED(p + MIB, 2 * MIB, "locked");
	CHECK(arena_file_bytes() < 16 * MIB); /* its 64G are address space, not memory */
	CHECK_EQ(munlockall(), 0);
}

/* Does /proc/self/smaps show this flag for the mapping at p? */
static bool has_flag(const void *p, const char *flag)
{
	char text[400];
	unsigned long start, end;
	bool inside = false, has = false;
	FILE *f = fopen("/proc/self/smaps", "r");

	while (f && fgets(text, sizeof text, f)) {
		if (sscanf(text, "%lx-%lx ", &start, &end) == 2)
			inside = (uintptr_t)p >= start && (uintptr_t)p < end;
		else if (inside && !strncmp(text, "VmFlags:", 8))
			has = strstr(text, flag) != NULL;
	}
	if (f)
		fclose(f);
	return has;
}

REGION_TEST(mlockall_on_fault_locks_what_is_there_and_populates_nothing)
{
	unsigned char is_there = 1;
	char *p, *locked;

	region_begin(NULL, NULL);
	p = pages_get(MIB);
	locked = pages_get(PAGE);
	CHECK_EQ(mlock2(locked, PAGE, MLOCK_ONFAULT), 0);
	alarm(30);
	CHECK_EQ(mlockall(MCL_CURRENT | MCL_ONFAULT), 0);
	/* older kernels do not tell the second */
	CHECK(has_flag(p, " lo") && has_flag(p, " lf") == has_flag(locked, " lf"));
	CHECK(!mincore(p + MIB / 2, PAGE, &is_there) && !(is_there & 1));
	CHECK_REFUSED(p, MIB, "locked");
	CHECK_EQ(munlockall(), 0);
}

REGION_TEST(mlockall_refuses_flags_as_ever)
{
	region_begin(NULL, NULL);
	CHECK(mlockall(MCL_CURRENT | 64) < 0 && errno == EINVAL);
}

REGION_TEST(memory_that_is_mapped_locked_is_not_adopted)
{
	char *p;

	region_begin(NULL, NULL);
	p = mmap(NULL, MIB, RW, ANON | MAP_LOCKED, -1, 0);
	if (p == MAP_FAILED)
		unit_skip("may not lock memory");
	CHECK_REFUSED(p, MIB, "locked");
	munmap(p, MIB);
	CHECK(mmap(p, MIB, RW, ANON | MAP_FIXED, -1, 0) == p);
	ADOPT(p, MIB);
}

REGION_TEST(no_arena_where_all_future_memory_is_locked)
{
	region_options(NULL, NULL);
	alarm(30);
	if (mlockall(MCL_FUTURE))
		unit_skip("may not lock memory");
	CHECK(region_init() < 0);
	CHECK_HAS(region_init_error(), "mlockall");
	munlockall();
}

REGION_TEST(no_arena_is_mapped_once_all_future_memory_is_locked)
{
	char *p;

	region_begin(NULL, NULL);
	p = region_map_arena(region_arena_fd(), 2 * REGION_UNIT);
	CHECK(p && !munmap(p, 2 * REGION_UNIT));
	if (mlockall(MCL_FUTURE))
		unit_skip("may not lock memory");
	CHECK(!region_map_arena(region_arena_fd(), 2 * REGION_UNIT));
	CHECK_EQ(errno, EPERM);
	munlockall();
}
