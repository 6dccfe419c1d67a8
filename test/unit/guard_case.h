/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of guard/: memory like a region's, and an owner of ranges that does what rt/ does, by
 * turns.
 *
 *   GUARD_TEST(a_load_waits)          three tests: a_load_waits_uffd, _steal, _mprotect
 *   {
 *           static struct owner o;      not on the stack: touched() may end after the touch
 *
 *           owner_open(&o, 64, 5);                          64 pages, at page 5 of a 2 MiB unit
 *           owner_arm(&o, 0, 64, GUARD_NO_ACCESS);
 *           CHECK_EQ(load(o.p + 5), owner_byte(5));         only now written by touched()
 *   }
 *
 * Each runs in a process of its own, in which guard_init() has chosen that kind; where it does not
 * work the test is skipped.
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
	bool by_page;               /* releases what is touched only, not all ... */
	int all_after;              /* ... after so many touches all; 0: never */
	_Atomic bool closed;        /* touched() waits while it is */
	_Atomic int touches, held, waiting;
	_Atomic uintptr_t last;     /* address given to touched() */
	_Atomic size_t last_bytes;
	_Atomic bool last_write;
};

/* guard_init() with this kind and more options ("NAME=value", may be NULL). 0 or -errno. */
int guard_case_init(const char *kind, const char *more);
void guard_case_run(const char *kind, void (*before)(void), void (*body)(void));
/* Mappings of the process but those where page tables were last: a few of these stay for the next
 * range. */
int guard_case_mappings(void);
void guard_case_dies(const char *kind, void (*body)(void)); /* by SIGSEGV */
const char *guard_case_kind(void);
/* Those of a sanitizer cannot be protected: then nothing is guarded by signals. */
bool guard_case_has_other_threads(void);

/* Memory of so many pages that begins `at` pages after a multiple of 2 MiB, with a page of the same
 * mapping on both sides, all of it filled with 0xEE. */
void owner_open(struct owner *o, size_t pages, size_t at);
/* Guards pages [first, first + n); what touched() will put there is owner_byte(). */
void owner_arm(struct owner *o, size_t first, size_t n, enum guard_access access);
unsigned char owner_byte(size_t offset);
/* Waits until no touched() is under way: a page is the program's before it returns. */
void owner_settle(struct owner *o);
/* As if all had been copied, without a touch. */
void owner_finish(struct owner *o);
bool owner_release_all(struct owner *o);
/* Every byte of pages [first, first + n) is what touched() or owner_finish() puts there. */
void check_owner_at(const char *file, int line, const struct owner *o, size_t first, size_t n);
#define CHECK_OWNER(o, first, n) check_owner_at(__FILE__, __LINE__, o, first, n)

/* Not inline: the compiler knows that some addresses are wrong. */
unsigned char load(const void *p);
void store(void *p, unsigned char c);

#define GUARD_TEST_OF(test, kind, before)                                                 \
	UNIT_TEST(test##_##kind) { guard_case_run(#kind, before, guard_body_##test); }
/* `before` runs before guard_init(). */
#define GUARD_TEST_AFTER(test, before)                                                    \
	static void guard_body_##test(void);                                              \
	GUARD_TEST_OF(test, uffd, before)                                                 \
	GUARD_TEST_OF(test, steal, before)                                                \
	GUARD_TEST_OF(test, mprotect, before)                                             \
	static void guard_body_##test(void)
#define GUARD_TEST(test) GUARD_TEST_AFTER(test, NULL)

#endif
