/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A test harness in two files. Each folder of src/ has one executable, of its test_<folder>_*.c.
 *
 *   UNIT_TEST(a_value_out_of_range_names_the_range)
 *   {
 *           CHECK(rc == -EINVAL);
 *           CHECK_STR(text, "...");
 *   }
 *
 * Tests register themselves and run in order of file and line, in one process. After each, the
 * harness compares descriptors and threads with those before. A failed CHECK ends its test.
 *
 * Alone: build/<dir>/test/unit/unit_base range     (all tests whose name contains "range")
 */
#ifndef SLUICE_UNIT_H
#define SLUICE_UNIT_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit_test {
	const char *name, *file;
	int line;
	void (*run)(void);
	struct unit_test *next;
};

void unit_register(struct unit_test *t);
/* Ends the running test. Context: the test's own thread. */
_Noreturn void unit_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Ends the running test without a verdict. */
_Noreturn void unit_skip(const char *why);
/* Mappings of this process, for tests that compare them before and after. */
int unit_count_mappings(void);
int unit_count_threads(void); /* of this process */
/*
 * Runs fn in a forked child and returns its exit status; a failed CHECK there exits with 1, a child
 * that dies by signal n gives 128 + n.
 */
int unit_fork(void (*fn)(void *arg), void *arg);
/* unit_fork() without waiting. Returns: the child's pid, or -1. */
int unit_spawn(void (*fn)(void *arg), void *arg);

/* For loops over all bytes of a test's own buffers, which would take most of the time under a
 * sanitizer. The code under test stays instrumented. */
#define UNIT_UNSANITIZED __attribute__((no_sanitize("thread", "address", "undefined")))

#define UNIT_TEST(test)                                                                   \
	static void unit_run_##test(void);                                                \
	static struct unit_test unit_entry_##test = { #test, __FILE__, __LINE__,          \
						      unit_run_##test, NULL };            \
	__attribute__((constructor)) static void unit_add_##test(void)                    \
	{                                                                                 \
		unit_register(&unit_entry_##test);                                        \
	}                                                                                 \
	static void unit_run_##test(void)

#define CHECK(condition)                                                                  \
	do {                                                                              \
		if (!(condition))                                                         \
			unit_fail(__FILE__, __LINE__, "%s", #condition);                  \
	} while (0)

/* Integers of any width; both values are printed. */
#define CHECK_EQ(got, want)                                                               \
	do {                                                                              \
		int64_t unit_got = (int64_t)(got), unit_want = (int64_t)(want);           \
		if (unit_got != unit_want)                                                \
			unit_fail(__FILE__, __LINE__, "%s is %" PRId64 ", not %" PRId64, #got, \
				  unit_got, unit_want);                                   \
	} while (0)

#define CHECK_STR(got, want)                                                              \
	do {                                                                              \
		const char *unit_got = (got), *unit_want = (want);                        \
		if (!unit_got || strcmp(unit_got, unit_want))                             \
			unit_fail(__FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #got,   \
				  unit_got ? unit_got : "(null)", unit_want);             \
	} while (0)

#define CHECK_HAS(text, part)                                                             \
	do {                                                                              \
		const char *unit_text = (text), *unit_part = (part);                      \
		if (!unit_text || !strstr(unit_text, unit_part))                          \
			unit_fail(__FILE__, __LINE__, "%s is \"%s\", without \"%s\"", #text, \
				  unit_text ? unit_text : "(null)", unit_part);           \
	} while (0)

#endif
