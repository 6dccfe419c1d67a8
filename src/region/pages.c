/* SPDX-License-Identifier: BSD-3-Clause */
/* The page work of adoption and of its three ends. No bookkeeping, no decisions. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "region/private.h"

/* Put pages behind [p, p+bytes): huge ones where a whole huge page fits and they are wanted. Failing
 * to get huge pages is no failure; failing to get any shows later as a fault we must not take. */
static int populate(char *p, uint64_t bytes, bool huge)
{
	uintptr_t start = (uintptr_t)p, end = start + bytes;
	uintptr_t first = base_round_up(start, HOST_HUGE), last = base_round_down(end, HOST_HUGE);

	if (huge && first < last) {
		for (uintptr_t a = first; a < last; a += HOST_HUGE) {
			/* collapse wants at least one present page; populate instead of a store, so
			 * that a full memory cgroup is an error here and not a fault */
			if (region_os.madvise((void *)a, HOST_PAGE, MADV_POPULATE_WRITE) && errno != EINVAL)
				return -errno;
		}
		region_os.madvise((void *)first, last - first, MADV_COLLAPSE);
	}
	if (region_os.madvise((void *)base_round_down(start, HOST_PAGE),
			      base_round_up(end, HOST_PAGE) - base_round_down(start, HOST_PAGE),
			      MADV_POPULATE_WRITE) &&
	    errno != EINVAL) /* before Linux 5.14: the copy populates */
		return -errno;
	return 0;
}

/* Pages stay on the NUMA node where the program had put them, decided per huge page. */
static void follow_nodes(char *alias, uintptr_t start, uint64_t bytes)
{
	if (host_numa_node_count() < 2)
		return;
	for (uint64_t off = 0; off < bytes;) {
		uint64_t step = base_min_u64(HOST_HUGE - (start + off) % HOST_HUGE, bytes - off);
		int node = host_page_node((void *)(start + off));

		if (node >= 0)
			host_prefer_node(alias + off, step, node);
		off += step;
	}
}

/* Where in extent e the byte of address `start` lies: congruent modulo the huge page size. */
static uint64_t inner_offset(uintptr_t start, const struct region_extent *e)
{
	return e->offset + start % REGION_UNIT;
}

int pages_adopt(uintptr_t start, uint64_t bytes, const struct region_extent *e)
{
	uint64_t offset = inner_offset(start, e);
	char *alias = (char *)region_arena_base() + offset;
	int ret;

	if (base_fault("adopt"))
		return -ENOMEM;
	follow_nodes(alias, start, bytes);
	ret = populate(alias, bytes, base_opt.region_huge);
	if (ret)
		return ret;
	host_copy(alias, (void *)start, bytes, host_copy_pick(bytes, bytes));
	if (region_os.mmap((void *)start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
			   region_arena_fd(), (off_t)offset) == MAP_FAILED)
		return -errno;
	return 0;
}

/* Write to every page without changing it: each is then this process's own copy. The add of zero is
 * atomic, so a thread that writes the same byte meanwhile loses nothing. */
static void touch_all(char *p, uint64_t bytes)
{
	for (uint64_t off = 0; off < bytes; off += HOST_PAGE)
		__atomic_fetch_add(p + off, 0, __ATOMIC_RELAXED);
}

int pages_make_private(uintptr_t start, uint64_t bytes, uint64_t offset)
{
	if (region_os.mmap((void *)start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
			   region_arena_fd(), (off_t)offset) == MAP_FAILED)
		return -errno;
	if (region_os.madvise((void *)start, bytes, MADV_POPULATE_WRITE)) {
		if (errno != EINVAL)
			return -errno;
		touch_all((char *)start, bytes);
	}
	return 0;
}

int pages_make_fresh(uintptr_t start, uint64_t bytes)
{
	if (region_os.mmap((void *)start, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return -errno;
	return 0;
}

int pages_copy_back(uintptr_t start, uint64_t bytes, uint64_t offset)
{
	int ret = pages_make_fresh(start, bytes);

	if (ret)
		return ret;
	if (base_opt.region_huge && bytes >= 2 * HOST_HUGE)
		region_os.madvise((void *)start, bytes, MADV_HUGEPAGE);
	host_copy((void *)start, (char *)region_arena_base() + offset, bytes, host_copy_pick(bytes, bytes));
	return 0;
}
