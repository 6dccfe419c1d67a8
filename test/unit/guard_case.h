/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of guard/: memory like a region's, and an owner of ranges in the role of rt/.
 *
 *   GUARD_TEST(a_load_waits)          three tests: a_load_waits_uffd, _mremap, _mprotect
 *   {
 *           static struct owner o;      not on the stack: touched() may end after the touch
 *
 *           owner_open(&o, 64, 5);                          64 pages, at page 5 of a 2 MiB unit
 *           owner_arm(&o, 0, 64, GUARD_NO_ACCESS);
 *           CHECK_EQ(load(o.p + 5), owner_byte(5));         only now written by touched()
 *   }
 *
 * Each test runs in a process of its own with one kind, and is skipped where the kind does not
 * work.
 */
#ifndef SLUICE_TEST_GUARD_CASE_H
#define SLUICE_TEST_GUARD_CASE_H

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guard/guard.h"
#include "unit.h"

#define PAGE ((size_t)OS_PAGE)

struct owner {
	struct owner *next;
	struct guard_range r;
	char *p, *arena;            /* of the program; of the movers */
	size_t pages;
	int fd;
	bool by_page;               /* releases the touched pages only, not all ... */
	int all_after;              /* ... and all pages after so many touches; 0: never */
	bool has_cancel_point;      /* touched() is a cancellation point */
	_Atomic bool closed;        /* touched() waits while it is */
	_Atomic int touches, held, waiting;
	_Atomic uintptr_t last;     /* address given to touched() */
	_Atomic size_t last_bytes;
	_Atomic bool last_write;
};

/* guard_init() with this kind and options ("NAME=value", may be NULL). Returns: 0 or -errno. */
int guard_case_init(const char *kind, const char *more);
void guard_case_run(const char *kind, void (*before)(void), void (*body)(void));
/* Returns: mappings of the process, without the empty ones that shadow.c keeps for the next range.
 * */
int guard_case_mappings(void);
void guard_case_dies(const char *kind, void (*body)(void)); /* by SIGSEGV */
const char *guard_case_kind(void);
/* Threads of a sanitizer cannot be protected: the kinds that use signals do not work then. */
bool guard_case_has_other_threads(void);

/* Maps pages that begin `at` pages after a multiple of 2 MiB, with one page of the same mapping on
 * both sides, filled with 0xEE. */
void owner_open(struct owner *o, size_t pages, size_t at);
/* Arms pages [first, first + n); touched() fills them with owner_byte(). */
void owner_arm(struct owner *o, size_t first, size_t n, enum guard_access access);
unsigned char owner_byte(size_t offset);
/* Waits until no touched() runs: a page is open before touched() returns. */
void owner_settle(struct owner *o);
/* Completes the copy without a touch. */
void owner_finish(struct owner *o);
bool owner_release_all(struct owner *o);
/* Checks that pages [first, first + n) have the bytes of touched() and owner_finish(). */
void check_owner_at(const char *file, int line, const struct owner *o, size_t first, size_t n);
#define CHECK_OWNER(o, first, n) check_owner_at(__FILE__, __LINE__, o, first, n)

/* Not inline, as the compiler would diagnose wrong addresses. */
unsigned char load(const void *p);
void store(void *p, unsigned char c);

#define GUARD_TEST_OF(test, kind, before)                                                 \
	UNIT_TEST(test##_##kind) { guard_case_run(#kind, before, guard_body_##test); }
/* `before` runs before guard_init(). */
#define GUARD_TEST_AFTER(test, before)                                                    \
	static void guard_body_##test(void);                                              \
	GUARD_TEST_OF(test, uffd, before)                                                 \
	GUARD_TEST_OF(test, mremap, before)                                                \
	GUARD_TEST_OF(test, mprotect, before)                                             \
	static void guard_body_##test(void)
#define GUARD_TEST(test) GUARD_TEST_AFTER(test, NULL)

#endif
