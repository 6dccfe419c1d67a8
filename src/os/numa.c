/* SPDX-License-Identifier: BSD-3-Clause */
/* NUMA nodes, by plain system calls instead of libnuma, and page tables. */
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/private.h"

enum { NODE_WORDS = 16 }; /* 1024 nodes */
#define POPULATE_WRITE 23 /* MADV_POPULATE_WRITE is not in the headers of older distributions */

/* Returns: the last number of a list like "0-1,4". */
static int list_last(const char *list)
{
	int last = 0;

	while (*list) {
		char *end;
		long value = strtol(list, &end, 10);

		if (end == list)
			break;
		last = (int)value;
		list = *end ? end + 1 : end;
	}
	return last;
}

int os_numa_node_count(void)
{
	static _Atomic int memo;
	int count = atomic_load_explicit(&memo, memory_order_relaxed);
	char text[256];

	if (count)
		return count;
	count = 1;
	if (os_procfile_read("/sys/devices/system/node/online", text, sizeof(text)) > 0)
		count = list_last(text) + 1;
	atomic_store_explicit(&memo, count, memory_order_relaxed);
	return count;
}

int os_numa_node_cpus(int node, struct os_cpumask *out)
{
	char path[64], text[4096];
	int n;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	n = os_procfile_read(path, text, sizeof(text));
	if (n < 0)
		return n;
	text[strcspn(text, "\n")] = 0;
	return base_parse_cpus(text, out->bits, OS_CPUMASK_WORDS);
}

int os_numa_node_of(const struct os_cpumask *cpus)
{
	struct os_cpumask near;

	if (os_numa_node_count() == 1)
		return 0;
	for (int node = 0; node < os_numa_node_count(); node++) {
		if (os_numa_node_cpus(node, &near))
			continue;
		os_cpumask_and(&near, cpus);
		if (os_cpumask_count(&near))
			return node;
	}
	return 0;
}

/* move_pages without targets queries; unlike get_mempolicy it does not make the page present. */
int os_page_node(const void *addr)
{
	const void *page = (const void *)base_round_down((uintptr_t)addr, OS_PAGE);
	int status = -ENOENT;

	if (os_numa_node_count() == 1)
		return 0;
	if (syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 0))
		return -errno;
	return status;
}

int os_prefer_node(void *addr, uint64_t bytes, int node)
{
	uint64_t start = base_round_down((uintptr_t)addr, OS_PAGE);
	uint64_t end = base_round_up((uintptr_t)addr + bytes, OS_PAGE);
	unsigned long mask[NODE_WORDS] = { 0 };
	const unsigned bits = 8 * sizeof(mask[0]);

	if (node < 0 || (unsigned)node >= NODE_WORDS * bits)
		return -EINVAL;
	if (os_numa_node_count() == 1)
		return 0;
	mask[(unsigned)node / bits] = 1UL << ((unsigned)node % bits);
	if (syscall(SYS_mbind, start, end - start, MPOL_PREFERRED, mask, NODE_WORDS * bits, 0))
		return -errno;
	return 0;
}

void os_populate(void *addr, uint64_t bytes)
{
	uintptr_t start = base_round_down((uintptr_t)addr, OS_PAGE);

	syscall(SYS_madvise, start, base_round_up((uintptr_t)addr + bytes, OS_PAGE) - start,
		POPULATE_WRITE);
}
