/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of sud/ and preload/: as GUARD_TEST, for the kinds that use signals. The program's calls
 * are interposed as in libsluice.so.
 */
#ifndef SLUICE_TEST_SYSTEM_CASE_H
#define SLUICE_TEST_SYSTEM_CASE_H

#include "guard_case.h"

#define SYSTEM_TEST_AFTER(test, before)    \
	static void guard_body_##test(void); \
	GUARD_TEST_OF(test, mremap, before)   \
	static void guard_body_##test(void)
#define SYSTEM_TEST(test) SYSTEM_TEST_AFTER(test, NULL)

#endif
