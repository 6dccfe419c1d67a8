/* SPDX-License-Identifier: BSD-3-Clause */
/* Advice about memory that may be adopted: what it discards, and what is about private memory. */
#include <sys/mman.h>
#include <sys/uio.h>

#include "preload/next.h"
#include "region/region.h"

static struct {
	int (*madvise)(void *, size_t, int);
	long (*syscall)(long, ...);
} next;

#define GUARD_INSTALL 102

/* Does this advice change contents or mappings? */
static int advice_ends_adoption(int advice)
{
	switch (advice) {
	case MADV_NORMAL:
	case MADV_RANDOM:
	case MADV_SEQUENTIAL:
	case MADV_WILLNEED:
	case MADV_NOHUGEPAGE:
	case MADV_DOFORK:
	case MADV_KEEPONFORK:
	case MADV_UNMERGEABLE:
	case MADV_DODUMP:
	case 20: /* COLD */
	case 21: /* PAGEOUT */
	case 22: /* POPULATE_READ */
	case 23: /* POPULATE_WRITE */
	case 25: /* COLLAPSE */
		return 0;
	case MADV_HUGEPAGE: /* adopted memory could not have them */
		return !os_can_collapse();
	}
	return 1;
}

static bool advice_discards(int advice)
{
	return advice == MADV_DONTNEED || advice == MADV_FREE || advice == 24 /* DONTNEED_LOCKED */;
}

__attribute__((noinline)) static void end_adoption(void *addr, size_t bytes, int advice)
{
	uintptr_t start = (uintptr_t)addr, end = base_round_up(start + bytes, OS_PAGE);
	bool has_region = region_may_touch(start, end);

	if (start % OS_PAGE || end <= start)
		return;
	/* reads as zero from now on, which MADV_FREE allows */
	if (has_region && (advice_discards(advice) ||
			   (advice == GUARD_INSTALL && !NEXT(madvise)(NULL, 0, advice))))
		region_discard(start, end);
	if (advice_discards(advice))
		return;
	/* DONTFORK, MERGEABLE, HWPOISON ...: lasting advice about private memory */
	if (advice == MADV_WIPEONFORK && has_region)
		region_return_exclusive(start, end); /* the kernel wipes anonymous memory only */
	region_exclude(start, end);
}

EXPORT int madvise(void *addr, size_t bytes, int advice)
{
	if (advice_ends_adoption(advice))
		end_adoption(addr, bytes, advice);
	return NEXT(madvise)(addr, bytes, advice);
}

/*
 * The kernel knows whether the process is this one, and gives others no advice that ends adoption:
 * so it is asked first. Lasting advice is given again, to memory that is private again.
 */
EXPORT ssize_t process_madvise(int process, const struct iovec *of, size_t n, int advice,
			       unsigned flags)
{
	long (*call)(long, ...) = NEXT(syscall);
	ssize_t ret = call(SYS_process_madvise, process, of, n, advice, flags), rest = ret;

	if (ret <= 0 || !advice_ends_adoption(advice))
		return ret;
	for (const struct iovec *v = of; rest > 0; rest -= (ssize_t)v++->iov_len)
		end_adoption(v->iov_base, v->iov_len, advice);
	return advice_discards(advice) ? ret :
		       call(SYS_process_madvise, process, of, n, advice, flags);
}
