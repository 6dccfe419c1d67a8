/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of region/ with the hooks of preload/memory.c, which are linked into the test program.
 *
 *   REGION_TEST(freed_memory_is_private_again)
 *   {
 *           region_begin("SLUICE_TEST=region_max=4", NULL);      options, then an arena
 *           ...
 *   }
 *
 * Each test has a process of its own, with its own arena, limits and threads.
 */
#ifndef SLUICE_TEST_REGION_CASE_H
#define SLUICE_TEST_REGION_CASE_H

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "region/region.h"
#include "unit.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)OS_PAGE)

void region_case_run(void *body); /* for REGION_TEST */
const char *environment(const char *name); /* NULL: not set */
/* Has mappings looked up in /proc/self/maps from now on, as UNIT_REGION_OLDER_KERNEL=1 does in
 * every test. Returns: false when that is impossible. */
bool be_an_older_kernel(void);
/* Loads options ("NAME=value", NULL at the end) over the defaults of these tests (adoption at the
 * first use, from one page on) and makes an arena; region_options() makes none. */
void region_options(const char *first, ...) __attribute__((sentinel));
void region_begin(const char *first, ...) __attribute__((sentinel));

/* May a forked child of a process with threads use the heap? A sanitizer's stays locked. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEAP_AFTER_FORK false
#else
#define HEAP_AFTER_FORK true
#endif

/* Fills with bytes that depend on seed and length; no two pages are equal. */
void fill(void *p, size_t bytes, unsigned seed);
/* Fails the test at file:line when a byte is another. */
void check_filled_at(const char *file, int line, const void *p, size_t bytes, unsigned seed);
#define CHECK_FILLED(p, bytes, seed) check_filled_at(__FILE__, __LINE__, p, bytes, seed)
/* Checks bytes [from, to) of fill(), multiples of 8. */
void check_part_at(const char *file, int line, const void *p, size_t from, size_t to,
		   unsigned seed);
void check_zero_at(const char *file, int line, const void *p, size_t bytes);
#define CHECK_ZERO(p, bytes) check_zero_at(__FILE__, __LINE__, p, bytes)

/* malloc that the compiler cannot optimise away. */
void *block_get(size_t bytes);
/* Private anonymous pages. */
void *pages_get(size_t bytes);
/* Private anonymous pages at a multiple of `unit`, with readable neighbours. */
void *pages_get_aligned(size_t bytes, size_t unit);

/* Adopts the buffer and releases the region; fails the test when it is not adopted. */
struct region_desc adopt_at(const char *file, int line, const void *p, size_t bytes);
#define ADOPT(p, bytes) adopt_at(__FILE__, __LINE__, p, bytes)
bool is_adopted(const void *p, size_t bytes); /* as the table sees it */
bool is_shared(const void *p);                /* as the kernel sees it: a mapping of the arena */
bool is_anonymous(const void *p);             /* private, no file behind it, readable, writable */
bool is_mapped(const void *p);
/* Returns: a peer's address of byte 0 of the mapped middle. */
char *peer_view(const struct region_desc *d);
uint32_t active(void);
uint64_t arena_file_bytes(void); /* pages of the arena that exist */

#define CHECK_REFUSED(p, bytes, part)                                                     \
	do {                                                                              \
		CHECK_HAS(region_refusal(p, bytes), part);                                \
		CHECK(!is_adopted(p, bytes) && !adopts(p, bytes));                        \
	} while (0)
bool adopts(const void *p, size_t bytes); /* tries it */

/* Returns: 4 MiB of pages, filled with seed 1, whose middle 2 MiB are adopted. `out` may be NULL.
 * */
char *middle_adopted_at(const char *file, int line, struct region_desc *out);
#define middle_adopted(out) middle_adopted_at(__FILE__, __LINE__, out)
#define check_middle(p, from, to) check_part_at(__FILE__, __LINE__, p, from, to, 1)
/* Adopts other memory of the same size and writes to it: a page that is still shared with a region
 * that has ended would change. */
void reuse_the_arena(size_t bytes);

#define REGION_TEST(test)                                                                 \
	static void region_body_##test(void);                                             \
	UNIT_TEST(test) { CHECK_EQ(unit_fork(region_case_run, (void *)region_body_##test), 0); } \
	static void region_body_##test(void)

#endif
