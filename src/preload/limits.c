/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * setrlimit(): the stack of a rank that shares an address space lies in its full size from the
 * start, and the carrier's code makes it larger where the program raises its limit.
 */
#include <sys/resource.h>

#include "os/endpoint.h"
#include "preload/next.h"

static struct {
	int (*setrlimit)(int, const struct rlimit64 *);
	int (*setrlimit64)(int, const struct rlimit64 *);
} next;

static int note_stack(int rc, int what, const struct rlimit64 *to)
{
	if (!rc && what == RLIMIT_STACK && endpoint_image)
		endpoint_image->raise_stack(endpoint_image, to->rlim_cur);
	return rc;
}

/* With names of their own: headers may define setrlimit as setrlimit64. */
EXPORT int hook_setrlimit(int, const struct rlimit64 *) __asm__("setrlimit");
EXPORT int hook_setrlimit64(int, const struct rlimit64 *) __asm__("setrlimit64");

EXPORT int hook_setrlimit(int what, const struct rlimit64 *to)
{
	return note_stack(NEXT(setrlimit)(what, to), what, to);
}

EXPORT int hook_setrlimit64(int what, const struct rlimit64 *to)
{
	return note_stack(NEXT(setrlimit64)(what, to), what, to);
}
