/* SPDX-License-Identifier: BSD-3-Clause */
/* When a system call fails: contents and table stay correct, and adoption works again. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/internal.h"
#include "region_case.h"
#include "region_stats.h"

enum { RW = PROT_READ | PROT_WRITE };

static void fault(const char *spec) { CHECK_EQ(base_fault_load(spec), 0); }

REGION_TEST(without_a_memfd_there_is_a_reason_and_no_adoption)
{
	char *p = pages_get(MIB);

	region_options("SLUICE_TEST=fault=memfd:all", NULL);
	CHECK(region_init() < 0);
	CHECK_HAS(region_init_error(), "memfd");
	CHECK_EQ(region_arena_fd(), -1);
	CHECK(!adopts(p, MIB));
	fault("");
	CHECK_EQ(region_init(), 0); /* it may work later */
	CHECK(adopts(p, MIB));
}

REGION_TEST(an_adoption_that_fails_leaves_memory_as_it_was)
{
	static const char *const points[] = { "extent:1", "adopt:1", "populate:1", "map:1" };
	char *p = pages_get(3 * MIB);

	region_begin(NULL, NULL);
	for (unsigned i = 0; i < BASE_ARRAY_LEN(points); i++) {
		struct region_stats before, after;

		fill(p, 3 * MIB, i);
		region_get_stats(&before);
		fault(points[i]);
		CHECK(!adopts(p, 3 * MIB));
		CHECK_FILLED(p, 3 * MIB, i);
		CHECK(is_anonymous(p));
		region_get_stats(&after);
		CHECK_EQ(after.active, 0);
		CHECK_EQ(after.arena_used_bytes, before.arena_used_bytes);
		fault("");
		ADOPT(p, 3 * MIB);
		CHECK_FILLED(p, 3 * MIB, i);
		region_return_exclusive((uintptr_t)p, (uintptr_t)p + 3 * MIB);
	}
}

/* Each end of a region, with each of its system calls failing once or always. */
REGION_TEST(an_end_that_fails_loses_nothing)
{
	static const char *const points[] = {
		"private:1", "private_copy:1",        "fresh:1",  "private:all", "private_copy:all",
		"fresh:all", "private:all,fresh:all", "punch:all"
	};

	region_begin(NULL, NULL);
	for (unsigned i = 0; i < BASE_ARRAY_LEN(points); i++) {
		for (int how = 0; how < 4; how++) {
			char *p = pages_get(3 * MIB);
			uintptr_t start = (uintptr_t)p, end = start + 3 * MIB;
			bool part_goes = how == 3;

			fill(p, 3 * MIB, i);
			ADOPT(p, 3 * MIB);
			fault(points[i]);
			if (how == 0)
				region_return(start, end);
			else if (how == 1)
				region_return_exclusive(start, end);
			else if (how == 2)
				region_drop(start, start + MIB); /* part of it lives on */
			else
				CHECK_EQ(munmap(p + 2 * MIB, MIB), 0);
			check_part_at(__FILE__, __LINE__, p, 0, 2 * MIB, i);
			fault("");
			/* a later user of the arena pages is not visible here */
			for (int k = 0; k < 2; k++) {
				char *q = pages_get(3 * MIB);

				memset(q, 0x99, 3 * MIB);
				ADOPT(q, 3 * MIB);
			}
			check_part_at(__FILE__, __LINE__, p, 0, 2 * MIB, i);
			ADOPT(p, 2 * MIB);
			check_part_at(__FILE__, __LINE__, p, 0, 2 * MIB, i);
			CHECK_EQ(munmap(p, part_goes ? 2 * MIB : 3 * MIB), 0);
		}
	}
}

REGION_TEST(an_mremap_of_what_cannot_be_ended_copies_or_changes_nothing)
{
	char *p, *q;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	fault("fresh:all");
	CHECK(mremap(p, 4 * MIB, 64 * MIB, 0) == MAP_FAILED);
	CHECK_EQ(errno, ENOMEM);
	reuse_the_arena(2 * MIB);
	check_middle(p, 0, 4 * MIB);
	CHECK(is_adopted(p + MIB, 2 * MIB));
	q = mremap(p, 4 * MIB, 64 * MIB, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED);
	CHECK(!is_mapped(p) && !is_shared(q + 2 * MIB));
	fault("");
	reuse_the_arena(2 * MIB);
	check_middle(q, 0, 4 * MIB);
	CHECK_ZERO(q + 4 * MIB, 60 * MIB);
}

REGION_TEST(memory_freed_while_nothing_can_be_mapped_is_usable)
{
	void *(*volatile get)(size_t) = malloc;
	void *(*volatile get_zeroed)(size_t, size_t) = calloc;
	char *p;

	region_begin(NULL, NULL);
	for (int i = 0; i < 5; i++) {
		p = get(MIB);
		memset(p, 0xdd, MIB);
		ADOPT(p, MIB);
		fault("fresh:all");
		free(p);
		fault("");
		p = get_zeroed(1, MIB);
		CHECK_ZERO(p, MIB);
		memset(p, 1, MIB);
		ADOPT(p, MIB);
		CHECK_EQ(p[MIB - 1], 1);
		free(p);
	}
	CHECK(active() <= 1); /* the C library unmapped one; it goes when something else is there */
}

REGION_TEST(promised_zeros_come_also_where_holes_cannot_be_punched)
{
	static const char *const points[] = { "punch:all", "punch:all,remove:all" };

	region_begin(NULL, NULL);
	for (unsigned i = 0; i < BASE_ARRAY_LEN(points); i++) {
		struct region_extent e;
		char *p = pages_get(4 * MIB);

		memset(p, 0xab, 4 * MIB);
		ADOPT(p, 4 * MIB);
		munmap(p, 4 * MIB);
		fault(points[i]);
		CHECK_EQ(region_extent_get(4 * MIB, true, &e), 0);
		CHECK_ZERO((char *)region_arena_base() + e.offset, e.bytes);
		fault("");
		region_extent_put(&e);
	}
}

static void check_child(pid_t pid)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

static void *idle(void *arg) { pause(); return arg; }

/* A region that cannot be made private in the parent is made private in the child. */
REGION_TEST(a_fork_while_nothing_can_be_mapped_shares_nothing)
{
	char *p = pages_get(MIB);
	int go[2], ready[2];
	pthread_t t;
	pid_t pid;
	char c;

	region_begin(NULL, NULL);
	CHECK(!pipe(go) && !pipe(ready));
	fill(p, MIB, 1);
	ADOPT(p, MIB);
	CHECK_EQ(pthread_create(&t, NULL, idle, NULL), 0);
	fault("private:1,fresh:all"); /* the parent's attempts */
	pid = fork();
	if (!pid) {
		CHECK_EQ(write(ready[1], "x", 1), 1);
		CHECK_EQ(read(go[0], &c, 1), 1);
		CHECK_FILLED(p, MIB, 1);
		memset(p, 1, MIB);
		_exit(0);
	}
	CHECK_EQ(read(ready[0], &c, 1), 1);
	fault("");
	memset(p, 0x12, MIB);
	CHECK_EQ(write(go[1], "x", 1), 1);
	check_child(pid);
	for (size_t i = 0; i < MIB; i++)
		CHECK_EQ(p[i], 0x12);
}

/* ---- limits ------------------------------------------------------------------------------ */

static void limit(int what, rlim_t value)
{
	struct rlimit r = { value, value };

	CHECK_EQ(setrlimit(what, &r), 0);
}

REGION_TEST(a_small_file_size_limit_makes_a_small_arena)
{
	limit(RLIMIT_FSIZE, 64 << 20);
	region_begin(NULL, NULL);
	CHECK(region_arena_bytes() <= 64 << 20);
	CHECK(adopts(pages_get(MIB), MIB));
}

REGION_TEST(a_tiny_file_size_limit_is_a_reason)
{
	limit(RLIMIT_FSIZE, 1 << 20);
	region_options(NULL, NULL);
	CHECK_EQ(region_init(), -EFBIG);
	CHECK_HAS(region_init_error(), "ulimit -f");
	CHECK(!adopts(pages_get(MIB), MIB));
}

REGION_TEST(a_small_address_space_leaves_room_for_the_program)
{
	char *p;

	limit(RLIMIT_AS, (rlim_t)2 << 30);
	region_begin("SLUICE_REGION_ARENA=64G", NULL);
	CHECK(region_arena_bytes() <= (uint64_t)128 << 20);
	p = pages_get(512 * MIB);
	munmap(p, 512 * MIB);
	p = pages_get(MIB);
	fill(p, MIB, 1);
	ADOPT(p, MIB);
	CHECK_FILLED(p, MIB, 1);
}

REGION_TEST(an_address_space_that_is_full_does_not_hurt)
{
	char *p = block_get(4 * MIB);
	struct rlimit r = { 64 << 20, RLIM_INFINITY };

	region_begin(NULL, NULL);
	fill(p, 4 * MIB, 1);
	ADOPT(p, 4 * MIB);
	CHECK_EQ(setrlimit(RLIMIT_AS, &r), 0); /* less than is mapped already */
	region_return((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	CHECK_FILLED(p, 4 * MIB, 1);
	adopts(p, 4 * MIB);
	CHECK_FILLED(p, 4 * MIB, 1);
	region_return_exclusive((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	CHECK_FILLED(p, 4 * MIB, 1);
	adopts(p, 4 * MIB);
	free(p);
}

REGION_TEST(no_descriptor_left_is_a_reason)
{
	limit(RLIMIT_NOFILE, 8);
	while (dup(0) >= 0)
		continue;
	region_options(NULL, NULL);
	CHECK(region_init() < 0);
	CHECK_HAS(region_init_error(), "memfd_create");
}

REGION_TEST(regions_end_right_where_no_descriptor_is_left)
{
	char *p = block_get(MIB), *q = pages_get(MIB);

	region_begin(NULL, NULL);
	fill(p, MIB, 1);
	fill(q, MIB, 2);
	ADOPT(p, MIB);
	ADOPT(q, MIB);
	limit(RLIMIT_NOFILE, 3);
	region_return((uintptr_t)q, (uintptr_t)q + MIB);
	CHECK_FILLED(q, MIB, 2);
	CHECK_FILLED(p, MIB, 1);
	free(p);
	CHECK_EQ(active(), 0);
}

/* Daemons close every descriptor and open files, which get our numbers. */
REGION_TEST(a_program_may_close_all_descriptors)
{
	char *p = pages_get(MIB), *q = pages_get(MIB), *r = block_get(MIB), *file;
	int fd;

	region_begin(NULL, NULL);
	fill(p, MIB, 1);
	fill(q, MIB, 2);
	fill(r, MIB, 3);
	ADOPT(p, MIB);
	ADOPT(q, MIB);
	ADOPT(r, MIB);
	for (int i = 3; i < 64; i++)
		close(i);
	fd = memfd_create("mine", MFD_CLOEXEC);
	for (int i = 0; i < 16; i++)
		dup(fd);
	CHECK_EQ(ftruncate(fd, (off_t)2 << 30), 0);
	file = mmap(NULL, 64 * MIB, RW, MAP_SHARED, fd, 0);
	memset(file, 0x42, 64 * MIB);
	CHECK(is_adopted(p, MIB)); /* existing regions are not affected */
	region_return((uintptr_t)p, (uintptr_t)p + MIB);
	CHECK_FILLED(p, MIB, 1);
	CHECK(!is_shared(p));
	region_return_exclusive((uintptr_t)q, (uintptr_t)q + MIB);
	CHECK_FILLED(q, MIB, 2);
	CHECK_FILLED(r, MIB, 3);
	free(r);
	CHECK(!adopts(p, MIB));
	for (size_t i = 0; i < 64 * MIB; i += PAGE)
		CHECK_EQ(file[i], 0x42);
	if (!fork())
		_exit(0);
	CHECK(fcntl(fd, F_GETFD) >= 0);
}

/* ---- without ways to ask the kernel ------------------------------------------------------ */

static void fork_and_check(const char *p)
{
	pthread_t t;
	pid_t pid;

	CHECK_EQ(pthread_create(&t, NULL, idle, NULL), 0);
	ADOPT(p, 4 * MIB);
	pid = fork();
	if (!pid) {
		CHECK_FILLED(p, 4 * MIB, 1);
		CHECK(!is_shared(p + PAGE));
		_exit(0);
	}
	check_child(pid);
}

REGION_TEST(a_closed_librarys_data_is_not_used_again)
{
	char *p = pages_get_aligned(2 * MIB, 2 * MIB);

	if (!be_an_older_kernel())
		unit_skip("no seccomp here");
	region_begin(NULL, NULL);
	fill(p, 2 * MIB, 1);
	ADOPT(p, 2 * MIB);
	dlclose(dlopen("libm.so.6", RTLD_NOW));
	CHECK(is_adopted(p, 2 * MIB)); /* looked at */
	syscall(SYS_munmap, p, 2 * MIB);
	syscall(SYS_mmap, p, 2 * MIB, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0l);
	dlclose(dlopen("libm.so.6", RTLD_NOW));
	CHECK(!is_adopted(p, 2 * MIB));
	fill(p, 2 * MIB, 2);
	ADOPT(p, 2 * MIB);
	CHECK_FILLED(p, 2 * MIB, 2);
}

REGION_TEST(older_kernels_do_as_well)
{
	char *p = block_get(4 * MIB), *q = pages_get_aligned(4 * MIB, 2 * MIB);

	if (!be_an_older_kernel())
		unit_skip("no seccomp here");
	region_begin("SLUICE_TEST=region_max=2", NULL);
	CHECK(!os_vma_query_is_cheap());
	for (int i = 0; i < 3; i++) {
		fill(p, 4 * MIB, 1);
		ADOPT(p, 4 * MIB);
		CHECK_FILLED(p, 4 * MIB, 1);
		p = realloc(p, (5 + (size_t)i) * MIB);
		CHECK_FILLED(p, 4 * MIB, 1);
	}
	fill(q, 4 * MIB, 2);
	ADOPT(q + MIB, 2 * MIB);
	CHECK_EQ(munmap(q + 2 * MIB, 2 * MIB), 0);
	check_part_at(__FILE__, __LINE__, q, 0, 2 * MIB, 2);
	q = mremap(q, 2 * MIB, 64 * MIB, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED);
	check_part_at(__FILE__, __LINE__, q, 0, 2 * MIB, 2);
	for (int i = 0; i < 5; i++)
		ADOPT(pages_get(MIB), MIB);
	CHECK_EQ(active(), 2);
	fork_and_check(p);
	free(p);
}
