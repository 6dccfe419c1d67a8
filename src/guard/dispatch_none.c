/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the kernel has no Syscall User Dispatch for this processor. */
#include <errno.h>
#include <stdio.h>

#include "guard/system.h"

int dispatch_probe(char *reason, size_t cap)
{
	snprintf(reason, cap, "no Syscall User Dispatch for this processor");
	return -ENOSYS;
}

int dispatch_init(void)
{
	return -ENOSYS;
}

void dispatch_set(bool armed)
{
	threads_set_armed(armed);
}
