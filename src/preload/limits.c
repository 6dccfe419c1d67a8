/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * setrlimit(): the stack of a rank that shares an address space lies in its full size from the
 * start, and the carrier's code makes it larger where the program raises its limit.
 */
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/endpoint.h"
#include "preload/next.h"

/* With names of their own: headers may define setrlimit as setrlimit64. */
EXPORT int hook_setrlimit(int, const struct rlimit64 *) __asm__("setrlimit");
EXPORT int hook_setrlimit64(int, const struct rlimit64 *)
	__asm__("setrlimit64") __attribute__((alias("setrlimit")));

EXPORT int hook_setrlimit(int what, const struct rlimit64 *to)
{
	int rc = (int)syscall(SYS_prlimit64, 0, what, to, NULL);

	if (!rc && what == RLIMIT_STACK && endpoint_image)
		endpoint_image->raise_stack(endpoint_image, to->rlim_cur);
	return rc;
}
