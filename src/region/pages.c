/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings and copies of adoption and of its ends. No bookkeeping, no decisions. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/backoff.h"
#include "region/private.h"

enum { RW = PROT_READ | PROT_WRITE, COLLAPSE_TRIES = 3 };

/* Populating page by page takes 0.6 to 1 ns a byte. Collapsing takes 0.1, and 5 where the kernel
 * has to compact memory first. Where the cost of adoption decides, the next pieces do without it
 * then. */
#define COLLAPSE_PS_MAX 1000u
#define COLLAPSE_SKIP_MAX 64u
static struct backoff collapse_backoff;

static int map_fixed(uintptr_t start, uint64_t bytes, int flags, int fd, uint64_t offset)
{
	if (region_os.mmap((void *)start, bytes, RW, flags | MAP_FIXED, fd, (off_t)offset) ==
	    MAP_FAILED)
		return -errno;
	return 0;
}

/* By a raw call: our own hook would end the region that is being changed. */
static void protect(uintptr_t start, uint64_t bytes, int prot)
{
	if (prot != RW)
		syscall(SYS_mprotect, start, bytes, prot);
}

/* Is collapsing permitted, and was it lately not too slow? */
static bool may_collapse(void)
{
	return base_opt.region_huge && (!reuse_is_by_cost() || backoff_is_due(&collapse_backoff));
}

static void note_collapse(uint64_t bytes, uint64_t ns)
{
	uint32_t longer = 0;

	if (ns > bytes * COLLAPSE_PS_MAX / 1000)
		longer = backoff_longer(backoff_interval(&collapse_backoff), 4, COLLAPSE_SKIP_MAX);
	backoff_set(&collapse_backoff, longer);
	backoff_skip(&collapse_backoff, longer);
}

/* Makes whole units huge pages where SLUICE_TEST=region_huge permits it. Not getting huge pages is
 * no error. */
static int collapse(uintptr_t first, uintptr_t last, bool *huge)
{
	uint64_t begin_ns;

	if (first >= last || *huge || !may_collapse())
		return 0;
	begin_ns = os_now_ns();
	for (uintptr_t a = first; a < last; a += OS_HUGE) /* collapse wants one present page */
		if (region_os.madvise((void *)a, OS_PAGE, MADV_POPULATE_WRITE) && errno != EINVAL)
			return -errno;
	for (int i = 0; i < COLLAPSE_TRIES && !*huge; i++) {
		*huge = !region_os.madvise((void *)first, last - first, MADV_COLLAPSE);
		if (!*huge && errno != EAGAIN) /* EAGAIN: a page is in use for a moment */
			break;
	}
	note_collapse(last - first, os_now_ns() - begin_ns);
	return 0;
}

/*
 * Populates [start, start+bytes), with huge pages where a whole one fits. Populating, not storing:
 * a machine without memory is an error here, not a fault later. (In a full cgroup the kernel kills
 * a process in both cases.) from: the program's memory that is
 * replaced, or 0. Its huge pages are not replaced by small ones (-EOPNOTSUPP): reads at random
 * would take 1.2 to 1.9 times as long. So before Linux 6.1, and where no huge page is free, or
 * collapsing was slow.
 */
static int populate(uintptr_t start, uint64_t bytes, uintptr_t from, bool *huge)
{
	uintptr_t end = start + bytes;
	uintptr_t first = base_round_up(start, OS_HUGE), last = base_round_down(end, OS_HUGE);
	int ret = collapse(first, last, huge);

	if (ret)
		return ret;
	if (from && first < last && !*huge &&
	    os_has_huge_page(from + (first - start), from + (last - start)))
		return -EOPNOTSUPP;
	if (region_os.madvise((void *)start, bytes, MADV_POPULATE_WRITE) &&
	    errno != EINVAL) /* before Linux 5.14: the copy populates */
		return -errno;
	return 0;
}

/* Pages stay on their NUMA node, decided per huge page. */
static void follow_nodes(char *alias, uintptr_t start, uint64_t bytes)
{
	if (os_numa_node_count() < 2)
		return;
	for (uint64_t off = 0; off < bytes;) {
		uint64_t step = base_min_u64(OS_HUGE - (start + off) % OS_HUGE, bytes - off);
		int node = os_page_node((void *)(start + off));

		if (node >= 0)
			os_prefer_node(alias + off, step, node);
		off += step;
	}
}

int pages_adopt(uintptr_t start, uint64_t bytes, const struct region_extent *e, bool *huge)
{
	uint64_t offset = e->offset + start % REGION_UNIT; /* congruent, so that huge pages fit */
	char *alias = (char *)region_arena_base() + offset;
	int fd = arena_fd_locked(), ret;

	if (fd < 0)
		return -EBADF;
	if (base_fault("adopt"))
		return -ENOMEM;
	follow_nodes(alias, start, bytes);
	ret = base_fault("populate") ? -ENOMEM : populate((uintptr_t)alias, bytes, start, huge);
	if (ret)
		return ret;
	os_copy(alias, (void *)start, bytes, os_copy_pick(bytes, bytes));
	if (base_fault("map"))
		return -ENOMEM;
	return map_fixed(start, bytes, MAP_SHARED | MAP_POPULATE, fd, offset);
}

/* Returns: the bytes of the next piece, which ends where a unit of the arena ends. */
static uint64_t piece_of(uint64_t offset, uint64_t bytes)
{
	uint64_t end = base_round_down(offset + PAGES_PIECE_BYTES, REGION_UNIT);

	return base_min_u64(end - offset, bytes);
}

/* Has every page copied on write without changing it. The addition of zero is atomic, so no store
 * of another thread is lost. */
static void touch_all(char *p, uint64_t bytes)
{
	for (uint64_t off = 0; off < bytes; off += OS_PAGE)
		__atomic_fetch_add(p + off, 0, __ATOMIC_RELAXED);
}

/* Returns: whether every page has been copied. */
static bool copy_on_write(uintptr_t start, uint64_t bytes)
{
	if (base_fault("private_copy"))
		return false;
	if (!region_os.madvise((void *)start, bytes, MADV_POPULATE_WRITE))
		return true;
	if (errno != EINVAL)
		return false;
	touch_all((char *)start, bytes);
	return true;
}

int pages_make_private(uintptr_t start, uint64_t bytes, uint64_t offset, int prot,
		       pages_freed *freed, bool *out_copied)
{
	int fd = arena_fd_locked(), ret;

	if (fd < 0)
		return -EBADF;
	ret = base_fault("private") ? -ENOMEM : map_fixed(start, bytes, MAP_PRIVATE, fd, offset);
	if (ret)
		return ret;
	*out_copied = true;
	for (uint64_t at = 0, n; at < bytes && *out_copied; at += n) {
		n = piece_of(offset + at, bytes - at);
		*out_copied = copy_on_write(start + at, n);
		if (*out_copied && freed && at + n < bytes)
			freed(offset + at, offset + at + n);
	}
	protect(start, bytes, prot);
	return 0;
}

int pages_make_fresh(uintptr_t start, uint64_t bytes, int prot)
{
	int ret = base_fault("fresh") ? -ENOMEM :
		  map_fixed(start, bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!ret)
		protect(start, bytes, prot);
	return ret;
}

/* Pages are populated before they are filled, and get no advice: a mapping with other flags than
 * its neighbours would not merge with them. offset: of `from`, where that is in the arena. */
static int fresh_copy(uintptr_t start, uint64_t bytes, const char *from, uint64_t offset, int prot,
		      pages_freed *freed)
{
	int ret = pages_make_fresh(start, bytes, RW);
	enum base_copy_kernel kernel = os_copy_pick(bytes, bytes);

	for (uint64_t at = 0, n; !ret && at < bytes; at += n) {
		bool huge = false;

		n = piece_of(offset + at, bytes - at);
		populate(start + at, n, 0, &huge);
		os_copy((void *)(start + at), from + at, n, kernel);
		if (freed && at + n < bytes)
			freed(offset + at, offset + at + n);
	}
	if (!ret)
		protect(start, bytes, prot);
	return ret;
}

int pages_copy_back(uintptr_t start, uint64_t bytes, uint64_t offset, int prot,
		    pages_freed *freed)
{
	return fresh_copy(start, bytes, (char *)region_arena_base() + offset, offset, prot, freed);
}

int pages_copy_anew(uintptr_t start, uint64_t bytes, int prot)
{
	void *copy =
		region_os.mmap(NULL, bytes, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int ret;

	if (copy == MAP_FAILED)
		return -errno;
	if (!(prot & PROT_READ))
		syscall(SYS_mprotect, start, bytes, PROT_READ);
	os_copy(copy, (void *)start, bytes, os_copy_pick(bytes, bytes));
	ret = fresh_copy(start, bytes, copy, 0, prot, NULL);
	if (ret && !(prot & PROT_READ))
		syscall(SYS_mprotect, start, bytes, prot);
	region_os.munmap(copy, bytes);
	return ret;
}
