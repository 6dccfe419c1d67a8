/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers that have been broadcast often enough to be adopted, and a look at what lies at an
 * address. */
#ifndef ADOPT_H
#define ADOPT_H

#include "check.h"

enum { USES = 8 };

/* The name of the mapping that covers addr, as in /proc/self/maps; "" for anonymous. */
static inline void mapping_at(const void *addr, char *name, size_t cap)
{
	unsigned long start, end, want = (unsigned long)addr;
	char text[600], path[400];
	FILE *f = fopen("/proc/self/maps", "r");

	snprintf(name, cap, "?");
	while (f && fgets(text, sizeof(text), f)) {
		int n;

		path[0] = 0;
		n = sscanf(text, "%lx-%lx %*s %*s %*s %*s %399[^\n]", &start, &end, path);
		if (n >= 2 && want >= start && want < end)
			snprintf(name, cap, "%s", path);
	}
	if (f)
		fclose(f);
}

/* Whether the middle of the buffer is shared with peers now. */
static inline bool is_adopted(const void *buf, size_t bytes)
{
	char name[400];

	mapping_at((const char *)buf + bytes / 2, name, sizeof(name));
	return strstr(name, "memfd:") != NULL;
}

/*
 * Broadcast the buffer until it should be adopted; it holds check_fill(seed + rank) afterwards.
 * Where the test's configuration says that adoption must happen (HARNESS_ADOPTS), it is looked for.
 */
static inline void use_until_adopted(void *buf, size_t bytes, uint64_t seed)
{
	for (int i = 0; i < USES; i++)
		check_bcast(buf, bytes, i % size, MPI_COMM_WORLD, 1000 * seed + i);
	if (check_env("HARNESS_ADOPTS", 0) && !is_adopted(buf, bytes))
		check_fail("a buffer of %zu bytes at %p has not been adopted", bytes, buf);
	check_fill(buf, bytes, seed + (uint64_t)rank);
}

static inline void *adopted_heap(size_t bytes, uint64_t seed)
{
	void *buf = check_alloc(bytes);

	use_until_adopted(buf, bytes, seed);
	return buf;
}

#endif
