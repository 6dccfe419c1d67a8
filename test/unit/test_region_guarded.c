/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions with parts that are closed to the program, as a guard does: protected, or unmapped. Which
 * changes call region_set_before_change()'s function, and which mappings do not change.
 */
#include <dlfcn.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "region/blocks.h"
#include "region/private.h"
#include "region_case.h"

enum { RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

/* ---- calls before a change --------------------------------------------------------------- */

/* volatile: libc declares brk() as a leaf, which changes nothing of this file, but our hook calls
 * tell(). */
static volatile struct {
	int calls;
	uintptr_t start, end;
	bool locked;
	void (*also)(void);
} told;

static void tell(uintptr_t start, uintptr_t end)
{
	told.calls++;
	told.start = start;
	told.end = end;
	told.locked |= region_is_locked_here();
	if (told.also)
		told.also();
}

static bool was_told(const char *p, size_t bytes)
{
	bool right =
		told.calls == 1 && told.start <= (uintptr_t)p && told.end >= (uintptr_t)p + bytes;

	if (!right)
		fprintf(stderr, "told %d times, last of %#" PRIxPTR " to %#" PRIxPTR "\n",
			told.calls, told.start, told.end);
	told.calls = 0;
	return right;
}

static void (*volatile give)(void *) = free;
static void *(*volatile resize)(void *, size_t) = realloc;

static void set_errno(void) { errno = ETIMEDOUT; }

/* free() changes errno neither in the C library nor here, where fn waits for partners. */
REGION_TEST(a_wait_before_a_change_does_not_change_errno)
{
	char *p;

	region_begin(NULL, NULL);
	region_set_before_change(tell);
	told.also = set_errno;
	p = block_get(MIB);
	ADOPT(p, MIB);
	errno = EDOM;
	give(p);
	CHECK_EQ(errno, EDOM);
	CHECK_EQ(told.calls, 1);
}

REGION_TEST(the_heap_tells_before_it_changes_a_region)
{
	char *p;

	region_begin(NULL, NULL);
	if (!blocks_are_known)
		unit_skip("the allocator is not the C library's");
	region_set_before_change(tell);
	for (int big = 0; big < 2; big++) {
		size_t bytes = big ? 3 * MIB : 100 * KIB;

		p = block_get(bytes);
		ADOPT(p, bytes);
		give(p);
		CHECK(was_told(p, bytes));
		p = block_get(bytes);
		ADOPT(p, bytes);
		give(resize(p, 2 * bytes));
		CHECK(told.calls >= 1 && told.start <= (uintptr_t)p + PAGE);
		told.calls = 0;
	}
	give(block_get(3 * MIB));
	give(block_get(100));
	CHECK_EQ(told.calls, 0);
	CHECK(!told.locked);
}

static void shmat_over(char *p)
{
	int id = shmget(IPC_PRIVATE, 2 * MIB, IPC_CREAT | 0600);

	if (id < 0) {
		munmap(p, 2 * MIB);
		return;
	}
	CHECK(shmat(id, p, SHM_REMAP) == p);
	shmctl(id, IPC_RMID, NULL);
}

static void do_munmap(char *p) { CHECK_EQ(munmap(p, PAGE), 0); }
static void do_mmap(char *p) { CHECK(mmap(p, PAGE, RW, ANON | MAP_FIXED, -1, 0) == p); }
static void do_mremap(char *p) { CHECK(mremap(p, PAGE, 2 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED); }
static void do_madvise(char *p) { CHECK_EQ(madvise(p, PAGE, MADV_DONTNEED), 0); }
static void do_madvise_lasting(char *p) { CHECK_EQ(madvise(p, PAGE, MADV_DONTFORK), 0); }
static void do_mprotect(char *p) { CHECK_EQ(mprotect(p, PAGE, PROT_READ), 0); }
static void do_pkey(char *p) { pkey_mprotect(p, PAGE, PROT_READ, -1); }
static void do_mlock(char *p) { mlock(p, PAGE); }
static void do_mlock2(char *p) { mlock2(p, PAGE, 0); }

static void do_mremap_onto(char *p)
{
	char *q = pages_get(PAGE);

	CHECK(mremap(q, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
}

REGION_TEST(mappings_are_told_of_whole_before_any_part_changes)
{
	void (*const calls[])(char *) = { do_munmap,          do_mmap,        do_mremap, do_madvise,
					  do_madvise_lasting, do_mprotect,    do_pkey,   do_mlock,
					  do_mlock2,          do_mremap_onto, shmat_over };

	region_begin(NULL, NULL);
	region_set_before_change(tell);
	for (size_t i = 0; i < BASE_ARRAY_LEN(calls); i++) {
		char *p = pages_get_aligned(2 * MIB, 2 * MIB),
		     *other = pages_get_aligned(2 * MIB, 2 * MIB);

		ADOPT(p, 2 * MIB);
		told.calls = 0;
		calls[i](other);
		CHECK_EQ(told.calls, 0);
		calls[i](p);
		CHECK(told.calls >= 1 && told.start <= (uintptr_t)p &&
		      told.end >= (uintptr_t)p + 2 * MIB);
		told.calls = 0;
	}
	CHECK(!told.locked);
}

REGION_TEST(the_heaps_end_and_libraries_are_told_of)
{
	char *low, *p;
	void *library;

	region_begin(NULL, NULL);
	region_set_before_change(tell);
	low = sbrk(0);
	p = (char *)base_round_up((uintptr_t)low, PAGE);
	CHECK(sbrk(p + 4 * MIB - low) == low);
	ADOPT(p, 4 * MIB);
	CHECK(sbrk(-(intptr_t)MIB) != (void *)-1);
	CHECK(was_told(p, 4 * MIB));
	ADOPT(p, MIB);
	told.calls = 0;
	CHECK_EQ(brk(p), 0);
	CHECK(was_told(p, MIB));
	ADOPT(pages_get(MIB), MIB);
	library = dlopen("libm.so.6", RTLD_NOW);
	if (library)
		dlclose(library);
	CHECK(!library || told.calls);
}

REGION_TEST(a_fork_tells_of_everything)
{
	char *p = pages_get(MIB);
	int status;
	pid_t pid;

	region_begin(NULL, NULL);
	region_set_before_change(tell);
	pid = fork();
	if (!pid)
		_exit(0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(told.calls, 0); /* there is nothing to tell of */
	ADOPT(p, MIB);
	pid = fork();
	if (!pid)
		_exit(told.calls == 1 ? 0 : 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(told.calls, 1);
	CHECK(told.start == 0 && told.end == UINTPTR_MAX);
}

static char *others[2];

static void change_others(void)
{
	munmap(others[0], MIB);
	mprotect(others[1], MIB, PROT_READ);
}

REGION_TEST(who_is_told_may_change_memory_and_is_not_told_of_it)
{
	char *p = pages_get(MIB);

	region_begin(NULL, NULL);
	region_set_before_change(tell);
	told.also = change_others;
	for (int i = 0; i < 2; i++)
		ADOPT(others[i] = pages_get_aligned(MIB, 2 * MIB), MIB);
	ADOPT(p, MIB);
	CHECK_EQ(munmap(p, MIB), 0);
	CHECK(was_told(p, MIB));
	CHECK_EQ(active(), 0);
}

/* ---- closed parts ------------------------------------------------------------------------ */

enum way { PROTECTED, READ_ONLY, MOVED_AWAY, WAYS };
static char *shadow;

static void close_part(enum way way, char *p, size_t bytes)
{
	long ret = 0;

	switch (way) {
	case PROTECTED:
		ret = syscall(SYS_mprotect, p, bytes, PROT_NONE);
		break;
	case READ_ONLY:
		ret = syscall(SYS_mprotect, p, bytes, PROT_READ);
		break;
	default:
		shadow = shadow ? shadow : pages_get_aligned(4 * MIB, 2 * MIB);
		ret = syscall(SYS_mremap, p, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, shadow) !=
		      (long)shadow;
		ret |= syscall(SYS_mmap, p, bytes, PROT_NONE, ANON | MAP_FIXED | MAP_NORESERVE, -1,
			       0l) != (long)p;
	}
	CHECK_EQ(ret, 0);
}

static void open_part(enum way way, char *p, size_t bytes)
{
	if (way == MOVED_AWAY)
		CHECK(syscall(SYS_mremap, shadow, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, p) ==
		      (long)p);
	else
		CHECK_EQ(syscall(SYS_mprotect, p, bytes, RW), 0);
}

/* 4 MiB adopted, filled with 1; the upper 2 MiB in use and closed. */
struct closed { char *p; struct region_desc upper; enum way way; };

static struct closed closed_upper(enum way way)
{
	struct closed c = { .p = pages_get_aligned(4 * MIB, 2 * MIB), .way = way };

	fill(c.p, 4 * MIB, 1);
	ADOPT(c.p, 4 * MIB);
	region_describe(c.p + 2 * MIB, 2 * MIB, REGION_FORCE, &c.upper);
	CHECK(c.upper.flags & REGION_DESC_MAPPED);
	close_part(way, c.p + 2 * MIB, 2 * MIB);
	return c;
}

/* The program's private memory has a peer's bytes, although the region ended before the peer wrote
 * them. */
static void open_and_check(struct closed *c, bool ended)
{
	char *p = c->p + 2 * MIB;

	memset(peer_view(&c->upper), 0x5b, 2 * MIB);
	open_part(c->way, p, 2 * MIB);
	for (size_t i = 0; i < 2 * MIB; i += 64)
		CHECK_EQ(p[i], 0x5b);
	CHECK(is_shared(p));
	region_release(&c->upper);
	CHECK_EQ(is_shared(p), !ended);
	reuse_the_arena(2 * MIB);
	for (size_t i = 0; i < 2 * MIB; i += 64)
		CHECK_EQ(p[i], 0x5b);
	munmap(c->p, 4 * MIB);
	region_suspect_all();
}

REGION_TEST(a_neighbour_of_closed_memory_is_described)
{
	region_begin(NULL, NULL);
	for (int way = 0; way < WAYS; way++) {
		struct closed c = closed_upper(way);
		struct region_desc d;
		uint32_t n = active();

		for (int suspect = 0; suspect < 2; suspect++) {
			region_describe(c.p, 2 * MIB, REGION_USE, &d);
			CHECK(d.flags & REGION_DESC_MAPPED);
			CHECK_EQ(d.id, c.upper.id);
			region_release(&d);
			region_describe(c.p + MIB, MIB / 2, REGION_FORCE, &d);
			CHECK_EQ(d.id, c.upper.id);
			region_release(&d);
			CHECK_EQ(active(), n);
			region_suspect_all();
		}
		open_and_check(&c, false);
	}
}

/* A look-up of it fails and changes nothing. */
REGION_TEST(closed_memory_itself_is_not_judged)
{
	region_begin(NULL, NULL);
	for (int way = 0; way < WAYS; way++) {
		struct closed c = closed_upper(way);

		is_adopted(c.p + 2 * MIB, 2 * MIB);
		adopts(c.p, 4 * MIB);
		region_suspect_all();
		is_adopted(c.p, 4 * MIB);
		check_part_at(__FILE__, __LINE__, c.p, 0, 2 * MIB, 1);
		memset(peer_view(&c.upper), 0x5b, 2 * MIB);
		open_part(way, c.p + 2 * MIB, 2 * MIB);
		CHECK_EQ(c.p[3 * MIB], 0x5b);
		region_release(&c.upper);
		CHECK_EQ(c.p[3 * MIB], 0x5b);
	}
}

static void lower_discard(char *p)
{
	CHECK_EQ(madvise(p, MIB, MADV_DONTNEED), 0);
	CHECK_ZERO(p, MIB);
	check_part_at(__FILE__, __LINE__, p, MIB, 2 * MIB, 1);
}

static void lower_protect(char *p)
{
	CHECK_EQ(mprotect(p, MIB, PROT_READ), 0);
	check_part_at(__FILE__, __LINE__, p, 0, 2 * MIB, 1);
}

static void lower_unmap(char *p)
{
	CHECK_EQ(munmap(p, 2 * MIB), 0);
	CHECK(!is_mapped(p));
	CHECK(mmap(p, 2 * MIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p);
	CHECK_ZERO(p, 2 * MIB);
}

static void lower_replace(char *p)
{
	CHECK(mmap(p + PAGE, MIB, RW, ANON | MAP_FIXED, -1, 0) == p + PAGE);
	CHECK_ZERO(p + PAGE, MIB);
	check_part_at(__FILE__, __LINE__, p, 0, PAGE, 1);
	check_part_at(__FILE__, __LINE__, p, MIB + PAGE, 2 * MIB, 1);
}

static void lower_replace_in_vain(char *p)
{
	CHECK(mmap(p, MIB, RW, MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED);
	check_part_at(__FILE__, __LINE__, p, 0, 2 * MIB, 1);
}

static void lower_keep_out(char *p)
{
	region_exclude((uintptr_t)p, (uintptr_t)p + PAGE);
	check_part_at(__FILE__, __LINE__, p, 0, 2 * MIB, 1);
}

static void lower_move(char *p)
{
	char *q = mremap(p, MIB, 8 * MIB, MREMAP_MAYMOVE);

	CHECK(q != MAP_FAILED);
	check_part_at(__FILE__, __LINE__, q, 0, MIB, 1);
	CHECK_ZERO(q + MIB, 7 * MIB);
	CHECK(!is_shared(q) && !is_mapped(p));
	check_part_at(__FILE__, __LINE__, p, MIB, 2 * MIB, 1);
	munmap(q, 8 * MIB);
}

static void lower_shrink(char *p)
{
	CHECK(mremap(p, MIB, 4 * PAGE, 0) == p);
	CHECK(!is_mapped(p + 4 * PAGE));
	check_part_at(__FILE__, __LINE__, p, 0, 4 * PAGE, 1);
	CHECK(mremap(p, MIB, 4 * MIB, 0) == MAP_FAILED);
	check_part_at(__FILE__, __LINE__, p, MIB, 2 * MIB, 1);
}

static void lower_drop(char *p) { region_drop((uintptr_t)p, (uintptr_t)p + MIB); }

REGION_TEST(one_part_may_end_while_another_is_in_use)
{
	void (*const changes[])(char *) = {
		lower_discard,  lower_protect, lower_unmap, lower_replace, lower_replace_in_vain,
		lower_keep_out, lower_drop,    lower_move,  lower_shrink
	};

	region_begin(NULL, NULL);
	for (int way = 0; way < WAYS; way++)
		for (size_t i = 0; i < BASE_ARRAY_LEN(changes); i++) {
			struct closed c = closed_upper(way);

			changes[i](c.p);
			open_and_check(&c, true);
		}
}

REGION_TEST(closed_memory_is_not_evicted)
{
	region_begin("SLUICE_TEST=region_max=1", NULL);
	for (int way = 0; way < WAYS; way++) {
		struct closed c = closed_upper(way);

		CHECK(!adopts(pages_get(MIB), MIB));
		memset(peer_view(&c.upper), 0x5b, 2 * MIB);
		open_part(way, c.p + 2 * MIB, 2 * MIB);
		CHECK_EQ(c.p[3 * MIB], 0x5b);
		region_release(&c.upper);
		CHECK(adopts(pages_get(MIB), MIB));
	}
}

static struct closed at_fork;

static void complete(void)
{
	if (!at_fork.p)
		return;
	memset(peer_view(&at_fork.upper), 0x5b, 2 * MIB);
	open_part(at_fork.way, at_fork.p + 2 * MIB, 2 * MIB);
	region_release(&at_fork.upper);
	at_fork.p = NULL;
}

REGION_TEST(a_child_finds_what_was_completed_for_it)
{
	region_begin(NULL, NULL);
	region_set_before_change(tell);
	told.also = complete;
	for (int way = 0; way < WAYS; way++) {
		struct closed c = at_fork = closed_upper(way);
		int status;
		pid_t pid = fork();

		if (!pid) {
			for (size_t i = 2 * MIB; i < 4 * MIB; i++)
				CHECK_EQ(c.p[i], 0x5b);
			check_part_at(__FILE__, __LINE__, c.p, 0, 2 * MIB, 1);
			_exit(0);
		}
		memset(c.p + 2 * MIB, 1, MIB);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
	}
}

/* A mapping of region_add_mapping() is neither a lost region nor the program's. */
REGION_TEST(windows_of_ours_are_left_alone)
{
	char *window, *p = pages_get(MIB), *other = pages_get_aligned(MIB, 2 * MIB);
	struct os_vma v;
	int status;
	pid_t pid;

	region_begin(NULL, NULL);
	window = mmap(NULL, 4 * MIB, RW, MAP_SHARED | MAP_NORESERVE, region_arena_fd(), 0);
	CHECK_EQ(region_add_mapping((uintptr_t)window, (uintptr_t)window + 4 * MIB), 0);
	CHECK(!os_vma_query(window, &v) && region_is_arena_mapping(&v));
	fill(p, MIB, 1);
	ADOPT(p, MIB);
	/* one that is lost, so that the parent looks for it too */
	CHECK(syscall(SYS_mremap, p, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, other) ==
	      (long)other);
	region_suspect_all();
	CHECK(!is_adopted(p, MIB));
	pid = fork();
	if (!pid)
		_exit(is_shared(other) ? 1 : 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK(is_shared(window));
	CHECK(!is_shared(other));
	CHECK_FILLED(other, MIB, 1);
}
