/* SPDX-License-Identifier: BSD-3-Clause */
/* Populating page tables. */
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"

#define POPULATE_WRITE 23 /* MADV_POPULATE_WRITE is not in the headers of older distributions */

void os_populate(void *addr, uint64_t bytes)
{
	uintptr_t start = base_round_down((uintptr_t)addr, OS_PAGE);

	syscall(SYS_madvise, start, base_round_up((uintptr_t)addr + bytes, OS_PAGE) - start,
		POPULATE_WRITE);
}
