/* SPDX-License-Identifier: BSD-3-Clause */
/* Which memory is adopted or refused, and buffers that overlap. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <ucontext.h>

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
	region_return((uintptr_t)in_bss, (uintptr_t)in_bss + sizeof in_bss);
	region_return_exclusive((uintptr_t)in_data, (uintptr_t)in_data + sizeof in_data);
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

/* A stack of the default size, guarded, and right above it a block of the program: one mapping. */
REGION_TEST(a_block_right_above_a_threads_stack_is_adopted)
{
	size_t stack = 0;
	pthread_attr_t attr;
	char *p;

	region_begin(NULL, NULL);
	CHECK(!pthread_getattr_default_np(&attr) && !pthread_attr_getstacksize(&attr, &stack));
	p = pages_get(PAGE + stack + MIB);
	CHECK_EQ(mprotect(p, PAGE, PROT_NONE), 0);
	CHECK_REFUSED(p + PAGE + 4 * PAGE, MIB, "stack");
	CHECK_REFUSED(p + stack - MIB / 2, MIB, "stack");
	fill(p + PAGE + stack, MIB, 1);
	ADOPT(p + PAGE + stack, MIB);
	CHECK_FILLED(p + PAGE + stack, MIB, 1);
}

/* A stack as glibc 2.42 makes it: its guard consists of pages of its own mapping. */
REGION_TEST(stacks_with_guard_regions_are_refused)
{
	enum { GUARD_INSTALL = 102 };
	size_t stack = 0;
	pthread_attr_t attr;
	char *p;

	if (madvise(NULL, 0, GUARD_INSTALL))
		unit_skip("this kernel has no guard regions");
	region_begin(NULL, NULL);
	CHECK(!pthread_getattr_default_np(&attr) && !pthread_attr_getstacksize(&attr, &stack));
	p = pages_get(MIB + stack + 2 * MIB);
	/* as glibc, past the hooks */
	CHECK_EQ(syscall(SYS_madvise, p + MIB - PAGE, PAGE, GUARD_INSTALL), 0);
	CHECK_REFUSED(p + MIB, MIB, "stack");
	CHECK_REFUSED(p + MIB + stack - MIB, MIB, "stack");
	CHECK_REFUSED(p + MIB / 2, MIB, "stack"); /* the guard region lies inside */
	fill(p + MIB + stack, MIB, 1);
	ADOPT(p + MIB + stack, MIB);
	CHECK_FILLED(p + MIB + stack, MIB, 1);
	fill(p, MIB / 2, 2);
	ADOPT(p, MIB / 2);
	CHECK_FILLED(p, MIB / 2, 2);
}

/* A stack larger than the default is known to its own thread. */
REGION_TEST(the_callers_own_stack_is_refused_whatever_its_size)
{
	const char *why = NULL;
	pthread_attr_t attr;
	size_t stack = 0;
	pthread_t t;

	region_begin(NULL, NULL);
	CHECK(!pthread_attr_init(&attr) && !pthread_attr_getstacksize(&attr, &stack));
	CHECK_EQ(pthread_attr_setstacksize(&attr, stack + 16 * MIB), 0);
	CHECK_EQ(pthread_create(&t, &attr, try_own_stack, &why), 0);
	pthread_join(t, NULL);
	CHECK_HAS(why, "stack");
}

static struct {
	ucontext_t home, own;
	const char *why;
} coroutine;

static void run_coroutine(void)
{
	char on_stack[256 << 10];

	memset(on_stack, 1, sizeof on_stack);
	coroutine.why = adopts(on_stack, sizeof on_stack) ? "adopted" :
			region_refusal(on_stack, sizeof on_stack);
}

static void try_coroutine(char *stack, size_t bytes)
{
	coroutine.why = "";
	CHECK_EQ(getcontext(&coroutine.own), 0);
	coroutine.own.uc_stack.ss_sp = stack;
	coroutine.own.uc_stack.ss_size = bytes;
	coroutine.own.uc_link = &coroutine.home;
	makecontext(&coroutine.own, run_coroutine, 0);
	CHECK_EQ(swapcontext(&coroutine.home, &coroutine.own), 0);
	CHECK_HAS(coroutine.why, "stack");
}

/* No signal can be delivered on a stack that is closed. */
REGION_TEST(the_stack_of_a_coroutine_is_refused)
{
	char *p;

	region_begin(NULL, NULL);
	p = pages_get(4 * MIB);
	try_coroutine(p + MIB, 2 * MIB);
	ADOPT(p, 4 * MIB); /* outside of coroutines it is memory like any other */
	try_coroutine(block_get(2 * MIB), 2 * MIB);
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
	region_exclude((uintptr_t)p + 64 * KIB, (uintptr_t)p + 128 * KIB);
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
	region_exclude((uintptr_t)p, (uintptr_t)p + MIB);
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

	region_begin("SLUICE_TEST=region_adopt_min=8K", NULL);
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
	region_return((uintptr_t)p, (uintptr_t)p + 8 * MIB);
	check_part_at(__FILE__, __LINE__, p, 4 * MIB, 8 * MIB, 1);
}

/* ---- buffers that overlap ---------------------------------------------------------------- */

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

	region_begin("SLUICE_TEST=region_max=8", NULL);
	fill(p, BYTES, 1);
	for (int i = 0; i < TURNS; i++) {
		size_t from = (size_t)(rand_r(&seed) % (BYTES / 8)) * 8;
		size_t bytes = (size_t)(rand_r(&seed) % ((BYTES - (int)from) / 8 + 1)) * 8;
		struct region_desc d;

		if (i % 5 == 4) {
			region_return((uintptr_t)p + from, (uintptr_t)p + from + bytes);
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
