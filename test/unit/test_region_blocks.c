/* SPDX-License-Identifier: BSD-3-Clause */
/* Large blocks of malloc, adopted with their edge pages: the allocator's bytes there do not change.
 * */
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

#include "region/blocks.h"
#include "region_case.h"
#include "region_stats.h"

static void (*volatile give)(void *) = free;
static void *(*volatile resize)(void *, size_t) = realloc;
static void *(*volatile get_zeroed)(size_t, size_t) = calloc;

/* A sanitizer's allocator has other headers. */
static void blocks_begin(void)
{
	region_begin(NULL, NULL);
	if (!blocks_are_known)
		unit_skip("the allocator is not the C library's");
}

static bool is_whole(const struct region_desc *d)
{
	return d->flags & REGION_DESC_MAPPED && !d->head && !d->tail;
}

REGION_TEST(a_large_block_is_adopted_with_its_edges)
{
	static const size_t sizes[] = { 256 << 10,  (256 << 10) + 1, MIB,
					MIB - 16,   MIB - 24,        MIB - 40,
					MIB + 4080, MIB + 123,       3 * MIB + 4096 + 9 };

	blocks_begin();
	for (size_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
		size_t bytes = sizes[i];
		char *p = block_get(bytes), *view;
		struct region_desc d;
		uintptr_t start, end;

		CHECK_EQ((uintptr_t)p % PAGE, 16);
		fill(p, bytes, 1);
		d = ADOPT(p, bytes);
		CHECK(is_whole(&d));
		region_desc_pages(&d, &start, &end);
		CHECK_EQ(start, base_round_down((uintptr_t)p, PAGE));
		CHECK_EQ(end, base_round_up((uintptr_t)p + bytes, PAGE));
		CHECK(is_shared(p) && is_shared(p + bytes - 1));
		view = peer_view(&d);
		CHECK(!memcmp(view, p, bytes));
		view[0] = 7;
		view[bytes - 1] = 8;
		CHECK(p[0] == 7 && p[bytes - 1] == 8);
		/* the same the next time, found without adopting */
		region_describe(p, bytes, REGION_LOOKUP, &d);
		CHECK(is_whole(&d) && peer_view(&d) == view);
		region_release(&d);
		CHECK(malloc_usable_size(p) >= bytes);
		give(p);
		CHECK_EQ(active(), 0);
		CHECK(!is_mapped(p));
		mallopt(M_MMAP_THRESHOLD, 128 << 10); /* freeing one has raised it */
	}
}

REGION_TEST(a_buffer_that_is_a_part_of_a_block_leaves_the_rest_alone)
{
	size_t bytes = MIB + 123;
	struct region_desc d;
	uintptr_t start, end;
	char *p;

	blocks_begin();
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	p = block_get(bytes);
	fill(p, bytes, 1);
	/* the rest of the page in which it ends is the program's */
	d = ADOPT(p, bytes - 1000);
	CHECK_EQ(d.head, 0);
	CHECK_EQ(d.tail, ((uintptr_t)p + bytes - 1000) % PAGE);
	region_desc_pages(&d, &start, &end);
	CHECK_EQ(end, base_round_down((uintptr_t)p + bytes - 1000, PAGE));
	CHECK(start <= (uintptr_t)p);
	/* inside: found in the same region, with edges on both sides */
	region_describe(p + 5000, MIB / 2, REGION_LOOKUP, &d);
	CHECK(d.flags & REGION_DESC_MAPPED);
	CHECK_EQ(d.head, PAGE - ((uintptr_t)p + 5000) % PAGE);
	CHECK_EQ(d.tail, ((uintptr_t)p + 5000 + MIB / 2) % PAGE);
	CHECK(!memcmp(peer_view(&d), p + 5000 + d.head, MIB / 2 - d.head - d.tail));
	region_release(&d);
	/* the whole block needs one page more, and replaces the region */
	d = ADOPT(p, bytes);
	CHECK(is_whole(&d));
	give(p);
	p = block_get(bytes);
	fill(p, bytes, 1);
	ADOPT(p, MIB / 2);
	for (int i = 0; i < 40; i++)
		ADOPT(block_get(MIB), MIB);
	d = ADOPT(p, bytes);
	CHECK(is_whole(&d));
	CHECK_FILLED(p, bytes, 1);
	give(p);
	/* a buffer that begins inside a block keeps its edges */
	p = block_get(MIB);
	d = ADOPT(p + 8, MIB / 2);
	CHECK(d.head && d.tail);
	give(p);
}

/* The allocator's header in the first page survives every end of a region. */
REGION_TEST(the_allocators_word_about_a_block_survives)
{
	void (*const ends[])(uintptr_t, uintptr_t) = { region_return, region_return_exclusive,
						       region_discard, NULL };
	size_t bytes = MIB + 123;

	blocks_begin();
	for (size_t i = 0; i < BASE_ARRAY_LEN(ends); i++) {
		char *p = block_get(bytes);
		size_t usable = malloc_usable_size(p);
		struct region_desc d;
		uintptr_t owned;

		fill(p, bytes, 2);
		d = ADOPT(p, bytes);
		CHECK(is_whole(&d));
		CHECK_EQ(malloc_usable_size(p), usable);
		if (ends[i]) /* the pages inside, as a program would */
			ends[i](base_round_up((uintptr_t)p, PAGE),
				base_round_down((uintptr_t)p + bytes, PAGE));
		CHECK_EQ(malloc_usable_size(p), usable);
		CHECK(block_begins_at((uintptr_t)p, bytes, &owned) && owned == bytes);
		if (ends[i] != region_discard) {
			CHECK_FILLED(p, bytes, 2);
		} else {
			CHECK_ZERO((char *)base_round_up((uintptr_t)p, PAGE), MIB - PAGE);
			check_part_at(__FILE__, __LINE__, p, 0, PAGE - 16, 2);
		}
		malloc_trim(0);
		mallinfo2();
		fill(p, bytes, 3);
		d = ADOPT(p, bytes); /* again */
		CHECK(is_whole(&d));
		CHECK_FILLED(p, bytes, 3);
		give(p);
		CHECK(!is_mapped(p));
		CHECK_EQ(active(), 0);
		mallopt(M_MMAP_THRESHOLD, 128 << 10);
	}
}

REGION_TEST(freed_blocks_leave_nothing_behind)
{
	struct region_stats s;
	int before;

	blocks_begin();
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	give(block_get(64)); /* the heap is there */
	before = unit_count_mappings();
	for (unsigned i = 0; i < 300; i++) {
		size_t bytes = MIB / 2 + i * 1000;
		char *p = block_get(bytes);

		fill(p, bytes, i);
		ADOPT(p, bytes);
		CHECK_FILLED(p, bytes, i);
		give(p);
		CHECK(!is_mapped(p));
	}
	CHECK(unit_count_mappings() <= before + 2);
	region_get_stats(&s);
	CHECK_EQ(s.active + s.returned, 0);
	CHECK_EQ(s.arena_used_bytes, 0);
}

REGION_TEST(zeroed_and_resized_blocks_are_whole_too)
{
	struct region_desc d;
	char *p;

	blocks_begin();
	p = get_zeroed(3, 100001);
	CHECK_ZERO(p, 300003);
	fill(p, 300003, 1);
	d = ADOPT(p, 300003);
	CHECK(is_whole(&d));
	p = resize(p, 2 * MIB + 5); /* moved, as it is adopted */
	CHECK_EQ(active(), 0);
	check_part_at(__FILE__, __LINE__, p, 0, 300000, 1);
	d = ADOPT(p, 2 * MIB + 5);
	CHECK(is_whole(&d));
	region_return_exclusive((uintptr_t)p, (uintptr_t)p + PAGE);
	CHECK_EQ(active(), 0);
	p = resize(p, 5 * MIB + 7); /* by the C library */
	check_part_at(__FILE__, __LINE__, p, 0, 300000, 1);
	d = ADOPT(p, 5 * MIB + 7);
	CHECK(is_whole(&d));
	CHECK(resize(p, 0) == NULL);
	CHECK_EQ(active(), 0);
	CHECK(!is_mapped(p));
}

/* In place, the program has more of the last page than it had. */
REGION_TEST(a_block_that_grew_in_its_last_page_is_known_to_have)
{
	size_t bytes = MIB + 100;
	struct region_desc d;
	char *p, *q;

	blocks_begin();
	p = block_get(bytes);
	q = resize(p, bytes + 1000);
	CHECK(q == p);
	d = ADOPT(p, bytes);
	CHECK_EQ(d.head, 0);
	CHECK_EQ(d.tail, ((uintptr_t)p + bytes) % PAGE);
	region_describe(p, bytes + 1000, REGION_LOOKUP, &d);
	CHECK_EQ(d.head, 0);
	region_release(&d);
	give(p);
}

REGION_TEST(aligned_blocks_are_whole_too)
{
	static const size_t alignments[] = { 16, 32, 64, 1024, 4096, 8192, 1 << 21 };

	blocks_begin();
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	for (size_t i = 0; i < BASE_ARRAY_LEN(alignments); i++) {
		size_t a = alignments[i], bytes = MIB + 77;
		void *blocks[3] = { memalign(a, bytes), aligned_alloc(a, bytes), NULL };

		CHECK_EQ(posix_memalign(&blocks[2], a, bytes), 0);
		for (int k = 0; k < 3; k++) {
			char *p = blocks[k], *view;
			struct region_desc d;

			CHECK_EQ((uintptr_t)p % a, 0);
			fill(p, bytes, 4);
			d = ADOPT(p, bytes);
			CHECK(is_whole(&d));
			view = peer_view(&d);
			view[0] = 1;
			view[bytes - 1] = 2;
			CHECK(p[0] == 1 && p[bytes - 1] == 2);
			give(p);
			CHECK(!is_mapped(p));
		}
	}
	CHECK_EQ(active(), 0);
}

REGION_TEST(blocks_in_the_heap_keep_their_edges)
{
	struct region_desc d;
	char *p;

	blocks_begin();
	mallopt(M_MMAP_THRESHOLD, 256 << 20);
	p = block_get(MIB + 123);
	block_get(64);
	d = ADOPT(p, MIB + 123);
	CHECK(d.head + d.tail > 0);
	CHECK_EQ((d.addr + d.head) % PAGE, 0);
	give(p);
	CHECK_EQ(active(), 0);
}

/* Memory of the program's own that looks like a block of the C library's. */
REGION_TEST(what_only_looks_like_a_block_is_not_taken_for_one)
{
	size_t bytes = MIB + 123, all = base_round_up(bytes + 48, PAGE);
	struct region_desc d;
	char *real, *pool;

	blocks_begin();
	pool = pages_get(all);
	((size_t *)pool)[1] = all | 2; /* header only */
	d = ADOPT(pool + 16, bytes);
	CHECK_EQ(d.head, PAGE - 16);
	CHECK(d.tail > 0);
	munmap(pool, all);
	/* all of a real one, at another address */
	real = block_get(bytes);
	/* 24: glibc 2.43 and newer */
	CHECK(malloc_usable_size(real) == all - 16 || malloc_usable_size(real) == all - 24);
	pool = pages_get(all);
	memcpy(pool, real - 16, all);
	d = ADOPT(pool + 16, bytes);
	CHECK_EQ(d.head, PAGE - 16);
	/* sizes that point out of what is mapped, or around */
	for (unsigned i = 0; i < 4; i++) {
		static const size_t sizes[] = { SIZE_MAX - 4095, (size_t)1 << 60, 64 * MIB, 4096 };

		region_return_exclusive((uintptr_t)pool, (uintptr_t)pool + all);
		((size_t *)pool)[1] = sizes[i] | 2;
		d = ADOPT(pool + 16, bytes);
		CHECK_EQ(d.head, PAGE - 16);
	}
	give(real);
}

/* malloc_usable_size() allows it. */
REGION_TEST(a_program_that_uses_more_than_it_asked_for_is_noticed)
{
	size_t bytes = MIB + 123;
	struct region_desc d;
	char *p;

	blocks_begin();
	p = block_get(bytes);
	memset(p, 1, malloc_usable_size(p));
	d = ADOPT(p, bytes);
	CHECK_EQ(d.head, PAGE - 16);
	CHECK(d.tail > 0);
	give(p);
}

REGION_TEST(whole_blocks_can_be_switched_off)
{
	struct region_desc d;
	char *p = block_get(MIB + 123);

	region_begin("SLUICE_TEST=region_whole=off", NULL);
	if (!blocks_are_known)
		unit_skip("the allocator is not the C library's");
	d = ADOPT(p, MIB + 123);
	CHECK_EQ(d.head, PAGE - 16);
	give(p);
	CHECK_EQ(active(), 0);
}

/* ---- children ---------------------------------------------------------------------------- */

static void *sleeper(void *arg) { pause(); return arg; }

static void use_in_child(char *p, size_t bytes)
{
	CHECK_FILLED(p, bytes, 1);
	if (!HEAP_AFTER_FORK)
		return;
	p = resize(p, 2 * bytes);
	CHECK_FILLED(p, bytes, 1);
	give(p);
	p = get_zeroed(1, bytes);
	CHECK_ZERO(p, bytes);
	give(p);
}

static void fork_case(bool threads, bool pinned, bool exec)
{
	char *p = block_get(MIB + 123), *argv[] = { "true", NULL };
	struct region_desc d;
	pthread_t t;
	int status;
	pid_t pid;

	if (threads)
		CHECK_EQ(pthread_create(&t, NULL, sleeper, NULL), 0);
	fill(p, MIB + 123, 1);
	region_describe(p, MIB + 123, REGION_FORCE, &d);
	CHECK(is_whole(&d));
	if (!pinned)
		region_release(&d);
	pid = fork();
	if (!pid) {
		if (exec)
			execvp("true", argv);
		use_in_child(p, MIB + 123);
		_exit(0);
	}
	if (!pinned) /* else the child copies first */
		memset(peer_view(&d), 9, MIB);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_FILLED(p, MIB + 123, 1);
	if (pinned)
		region_release(&d);
	give(p);
	CHECK(!is_mapped(p));
	CHECK_EQ(active(), 0);
}

REGION_TEST(children_use_and_free_blocks_of_their_parent)
{
	blocks_begin();
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	for (int i = 0; i < 8; i++)
		fork_case(i & 4, i & 1, i & 2);
}

/* ---- threads ----------------------------------------------------------------------------- */

static void *use_blocks(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	uintptr_t whole = 0;

	for (int i = 0; i < 150; i++) {
		size_t bytes = (256 << 10) + (size_t)(rand_r(&seed) % (512 << 10));
		char *p = block_get(bytes);
		struct region_desc d;

		memset(p, i, bytes);
		region_describe(p, bytes, REGION_FORCE, &d);
		if (is_whole(&d)) {
			whole++;
			peer_view(&d)[bytes - 1] = 5;
		}
		region_release(&d);
		if (p[0] != (char)i || (is_whole(&d) && p[bytes - 1] != 5))
			abort();
		if (i % 3 == 0)
			p = resize(p, bytes + (size_t)(rand_r(&seed) % (64 << 10)));
		if (p[bytes / 2] != (char)i)
			abort();
		give(p);
	}
	return (void *)whole;
}

REGION_TEST(threads_use_whole_blocks_at_once)
{
	pthread_t t[3];
	void *whole;

	blocks_begin();
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	for (uintptr_t i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, use_blocks, (void *)(i + 1)), 0);
	for (int i = 0; i < 3; i++) {
		pthread_join(t[i], &whole);
		CHECK(whole > (void *)10);
	}
	CHECK_EQ(active(), 0);
}

REGION_TEST(a_block_too_short_to_be_returned_from_early_keeps_its_edges)
{
	static const size_t sizes[] = { 256 << 10, MIB - 1, 3 * MIB,
					5 * MIB } /* each a mapping, whatever was freed before */;

	region_begin("SLUICE_EARLY_MIN=1M", NULL);
	if (!blocks_are_known)
		unit_skip("the allocator is not the C library's");
	for (size_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
		char *p = block_get(sizes[i]);
		struct region_desc d = ADOPT(p, sizes[i]);

		if (is_whole(&d) != (sizes[i] >= MIB))
			unit_fail(__FILE__, __LINE__, "%zu bytes: head %u, tail %u", sizes[i],
				  d.head, d.tail);
		CHECK(d.flags & REGION_DESC_MAPPED);
		give(p);
	}
}
