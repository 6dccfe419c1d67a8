/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the kernel has no Syscall User Dispatch for this processor. */
#include <errno.h>
#include <stdio.h>

#include "guard/system.h"

int sud_probe(char *reason, size_t cap)
{
	snprintf(reason, cap, "no Syscall User Dispatch for this processor");
	return -ENOSYS;
}

int sud_install(void)
{
	return -ENOSYS;
}

void sud_set_armed(bool armed)
{
	threads_store_armed(armed);
}
