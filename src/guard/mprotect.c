/* SPDX-License-Identifier: BSD-3-Clause */
/* Kind mprotect: works everywhere; each change visits every page table entry of the range. */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "guard/private.h"

static int protect(uintptr_t start, uintptr_t end, int prot)
{
	return (int)sud_syscall(SYS_mprotect, start, end - start, (long)prot);
}

int mprotect_open(uintptr_t start, uintptr_t end)
{
	return protect(start, end, PROT_READ | PROT_WRITE);
}

int mprotect_close(struct guard_range *r)
{
	int ret = protect(r->start, r->end, r->access == GUARD_READ_ONLY ? PROT_READ : PROT_NONE);

	if (ret)
		mprotect_open(r->start, r->end); /* a part may have been protected */
	else
		r->shadow = 0;
	return ret;
}

static int kind_release(struct guard_range *r, uintptr_t start, uintptr_t end)
{
	return mprotect_open(start, end);
}

const struct guard_kind guard_mprotect = {
	.name = "mprotect",
	.by_signal = true,
	.arm = mprotect_close,
	.release = kind_release,
};
