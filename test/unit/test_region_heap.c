/* SPDX-License-Identifier: BSD-3-Clause */
/* The program's allocator on adopted memory: free, realloc, calloc. */
#include <malloc.h>

#include "region_case.h"

static void (*volatile give)(void *) = free;
static void *(*volatile resize)(void *, size_t) = realloc;
static void *(*volatile resize_array)(void *, size_t, size_t) = reallocarray;
static void *(*volatile get_zeroed)(size_t, size_t) = calloc;

/* A block inside the heap, with one above it, so that free() does not shrink the heap. */
static char *heap_block(size_t bytes)
{
	char *p;

	mallopt(M_MMAP_THRESHOLD, 256 << 20);
	p = block_get(bytes);
	block_get(64);
	return p;
}

/* First whole page inside the block. */
static char *page_in(void *p) { return (char *)base_round_up((uintptr_t)p, PAGE); }

REGION_TEST(the_buffer_keeps_its_contents_and_peers_see_them)
{
	size_t bytes = MIB + 123;
	char *p = block_get(bytes);
	struct region_desc d;

	region_begin(NULL, NULL);
	fill(p, bytes, 1);
	d = ADOPT(p, bytes);
	CHECK_FILLED(p, bytes, 1);
	CHECK_EQ(d.addr, (uintptr_t)p);
	CHECK_EQ(d.bytes, bytes);
	CHECK(d.head < PAGE && d.tail < PAGE);
	CHECK(!memcmp(peer_view(&d), p + d.head, bytes - d.head - d.tail));
	/* what either writes is seen by the other at once */
	peer_view(&d)[5] = 77;
	CHECK_EQ(p[d.head + 5], 77);
	p[d.head + 6] = 78;
	CHECK_EQ(peer_view(&d)[6], 78);
}

REGION_TEST(freed_memory_is_anonymous_again)
{
	char *p = heap_block(100 * KIB), *page = page_in(p);
	struct region_desc d;

	region_begin(NULL, NULL);
	fill(p, 100 * KIB, 1);
	d = ADOPT(p, 100 * KIB);
	CHECK(is_shared(page));
	give(p);
	CHECK_EQ(active(), 0);
	CHECK(is_anonymous(page));
	/* the heap gives the block out again; what a peer still writes stays with the peer */
	p = block_get(100 * KIB);
	CHECK(page_in(p) == page);
	fill(p, 100 * KIB, 2);
	memset(peer_view(&d), 0x5a, 64 * KIB);
	CHECK_FILLED(p, 100 * KIB, 2);
}

REGION_TEST(every_kind_of_block_is_given_back_by_free)
{
	static const size_t sizes[] = {
		3 * 4096, 40 << 10, 100 << 10, 128 << 10, 1 << 20, 33 << 20
	};

	region_begin(NULL, NULL);
	for (size_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
		size_t bytes = sizes[i];
		void *aligned = NULL;
		void *blocks[5];

		CHECK_EQ(posix_memalign(&aligned, 4096, bytes), 0);
		blocks[0] = block_get(bytes);
		blocks[1] = aligned;
		blocks[2] = aligned_alloc(1 << 16, base_round_up(bytes, 1 << 16));
		blocks[3] = memalign(64, bytes);
		blocks[4] = valloc(bytes);
		for (int k = 0; k < 5; k++) {
			fill(blocks[k], bytes, (unsigned)k);
			ADOPT(blocks[k], bytes);
		}
		CHECK_EQ(active(), 5);
		for (int k = 0; k < 5; k++) {
			CHECK_FILLED(blocks[k], bytes, (unsigned)k);
			give(blocks[k]);
		}
		CHECK_EQ(active(), 0);
	}
	CHECK(atomic_load(&region_hi) <= atomic_load(&region_lo));
}

REGION_TEST(free_of_neighbours_leaves_a_region_alone)
{
	char *below = heap_block(64 * KIB), *p = heap_block(256 * KIB),
	     *above = heap_block(64 * KIB);

	region_begin(NULL, NULL);
	fill(p, 256 * KIB, 1);
	ADOPT(p, 256 * KIB);
	give(below);
	give(above);
	CHECK_FILLED(p, 256 * KIB, 1);
	CHECK(is_adopted(p, 256 * KIB));
}

REGION_TEST(hooks_leave_errno_alone)
{
	char *p = block_get(MIB), *q = pages_get(4 * MIB);

	region_begin(NULL, NULL);
	ADOPT(p, MIB);
	ADOPT(q, MIB);
	ADOPT(q + 2 * MIB, 2 * MIB);
	errno = 4711;
	give(p);
	CHECK_EQ(errno, 4711);
	CHECK_EQ(mprotect(q, PAGE, PROT_READ), 0);
	CHECK_EQ(madvise(q + 3 * MIB, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(mlock(q + 2 * MIB, PAGE), 0);
	CHECK_EQ(munmap(q, 4 * MIB), 0);
	CHECK_EQ(errno, 4711);
	CHECK_EQ(active(), 0);
}

/* calloc does not clear memory that it has just got from the kernel. */
REGION_TEST(calloc_after_free_is_zero)
{
	static const size_t sizes[] = { 64 << 10, 100 << 10, 200 << 10, 1 << 20, 8 << 20 };

	region_begin(NULL, NULL);
	mallopt(M_TRIM_THRESHOLD, 64 << 10);
	for (size_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
		for (int round = 0; round < 3; round++) {
			char *p = block_get(sizes[i]);

			memset(p, 0xff, sizes[i]);
			ADOPT(p, sizes[i]);
			give(p);
			malloc_trim(0);
			p = get_zeroed(1, sizes[i]);
			CHECK_ZERO(p, sizes[i]);
			give(p);
		}
	}
}

REGION_TEST(calloc_after_trim_of_a_thread_heap_is_zero)
{
	/* adopted memory inside a trimmed free block must not come back as "fresh" with old bytes
	 */
	char *p, *low = block_get(64 * KIB);

	region_begin(NULL, NULL);
	mallopt(M_MMAP_THRESHOLD, 256 << 20);
	p = block_get(4 * MIB);
	memset(p, 0xee, 4 * MIB);
	ADOPT(p + MIB, 2 * MIB);
	give(p);
	malloc_trim(0);
	p = get_zeroed(4, MIB);
	CHECK_ZERO(p, 4 * MIB);
	give(p);
	give(low);
}

static void resize_and_check(size_t from, size_t to)
{
	char *p = block_get(from), *q;

	fill(p, from, 3);
	ADOPT(p, from);
	q = resize(p, to);
	CHECK(q != NULL);
	CHECK(malloc_usable_size(q) >= to);
	if (to >= from) {
		CHECK_FILLED(q, from, 3);
	} else {
		char *same = block_get(from);

		fill(same, from, 3);
		CHECK(!memcmp(q, same, to));
		give(same);
	}
	memset(q, 1, to);
	CHECK_EQ(active(), 0);
	give(q);
}

REGION_TEST(realloc_grows_and_shrinks_with_the_contents)
{
	static const size_t sizes[] = { 100, 20 << 10, 127 << 10, 1 << 20, 5 << 20, 34 << 20 };

	region_begin(NULL, NULL);
	for (size_t i = 1; i < BASE_ARRAY_LEN(sizes); i++)
		for (size_t k = 0; k < BASE_ARRAY_LEN(sizes); k++)
			resize_and_check(sizes[i], sizes[k]);
}

REGION_TEST(realloc_to_zero_frees)
{
	char *p = heap_block(200 * KIB), *page = page_in(p);

	region_begin(NULL, NULL);
	fill(p, 200 * KIB, 1);
	ADOPT(p, 200 * KIB);
	CHECK(resize(p, 0) == NULL);
	CHECK_EQ(active(), 0);
	CHECK(is_anonymous(page));
}

REGION_TEST(realloc_that_fails_leaves_the_block_as_it_was)
{
	char *p = block_get(MIB);

	region_begin(NULL, NULL);
	fill(p, MIB, 1);
	ADOPT(p, MIB);
	errno = 0;
	CHECK(resize(p, SIZE_MAX / 2) == NULL);
	CHECK_EQ(errno, ENOMEM);
	CHECK_FILLED(p, MIB, 1);
	give(p);
	CHECK_EQ(active(), 0);
}

REGION_TEST(reallocarray_multiplies_and_refuses_overflow)
{
	char *p = block_get(MIB);

	region_begin(NULL, NULL);
	fill(p, MIB, 1);
	ADOPT(p, MIB);
	errno = 0;
	CHECK(resize_array(p, SIZE_MAX / 2, 3) == NULL);
	CHECK_EQ(errno, ENOMEM);
	CHECK_FILLED(p, MIB, 1);
	p = resize_array(p, 2, MIB);
	CHECK(p != NULL);
	CHECK_FILLED(p, MIB, 1);
	give(p);
	give(resize_array(NULL, 10, 10));
}

REGION_TEST(a_block_with_private_leftovers_can_be_resized)
{
	char *p = block_get(8 * MIB);

	region_begin(NULL, NULL);
	fill(p, 8 * MIB, 1);
	ADOPT(p + MIB, 2 * MIB);
	region_return((uintptr_t)p, (uintptr_t)p + 8 * MIB);
	p = resize(
		p,
		64 * MIB); /* the C library would mremap the block, which is several mappings now */
	CHECK(p != NULL);
	CHECK_FILLED(p, 8 * MIB, 1);
	give(p);
}
