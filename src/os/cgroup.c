/* SPDX-License-Identifier: BSD-3-Clause */
/* Control groups of this process, and the memory that they leave it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/private.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

const char *os_cgroup_of(const char *text, const char *controller, size_t *out_len)
{
	size_t len = strlen(controller);

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *list = line + strcspn(line, ":\n"), *end;

		if (*list++ != ':')
			continue;
		end = list + strcspn(list, ":\n");
		for (const char *at = list; *end == ':' && at <= end; at += strcspn(at, ",:") + 1)
			if (strcspn(at, ",:") == len && !strncmp(at, controller, len)) {
				*out_len = strcspn(end + 1, "\n");
				return end + 1;
			}
	}
	return NULL;
}

static uint64_t least_of(const char *text, const char *controller, uint64_t (*value)(const char *))
{
	const char *group;
	char folder[4096 + 64];
	uint64_t least = UINT64_MAX;
	size_t len;

	group = os_cgroup_of(text, controller, &len);
	for (; group; len--) {
		snprintf(folder, sizeof folder, CGROUP_ROOT "%s%s%.*s", *controller ? "/" : "",
			 controller, (int)len, group);
		least = base_min_u64(least, value(folder));
		while (len && group[len - 1] != '/')
			len--;
		if (!len)
			break;
	}
	return least;
}

uint64_t os_cgroup_least(const char *controller, uint64_t (*value)(const char *folder))
{
	char text[4096];

	if (os_procfile_read("/proc/self/cgroup", text, sizeof text) <= 0)
		return UINT64_MAX;
	/* in version 1 the mount has the controller's name or links to it */
	return base_min_u64(least_of(text, controller, value), least_of(text, "", value));
}

/* Returns: the number in the file; UINT64_MAX: none ("max", or there is no such file). */
static uint64_t number_in(const char *folder, const char *file)
{
	char path[4096 + 128], text[32], *end;
	uint64_t n;

	snprintf(path, sizeof path, "%s/%s", folder, file);
	if (os_procfile_read(path, text, sizeof text) <= 0)
		return UINT64_MAX;
	n = strtoull(text, &end, 10);
	return end == text ? UINT64_MAX : n;
}

uint64_t os_memory_limit_in(const char *folder)
{
	uint64_t high = number_in(folder, "memory.high"), max = number_in(folder, "memory.max");

	return base_min_u64(base_min_u64(high, max), number_in(folder, "memory.limit_in_bytes"));
}

uint64_t os_memory_share_bytes(void)
{
	static _Atomic uint64_t known;
	uint64_t share = atomic_load_explicit(&known, memory_order_relaxed);
	uint64_t ranks, all;

	if (base_likely(share))
		return share;
	ranks = base_job_local_size() > 0 ? (uint64_t)base_job_local_size()
					  : (uint64_t)sysconf(_SC_NPROCESSORS_CONF);
	ranks = base_max_u64(ranks, 1);
	all = (uint64_t)sysconf(_SC_PHYS_PAGES) * OS_PAGE / ranks;
	/* what a limit leaves is the program's first */
	share = base_min_u64(all, os_cgroup_least("memory", os_memory_limit_in) / ranks / 2);
	atomic_store_explicit(&known, base_max_u64(share, 1), memory_order_relaxed);
	return share;
}
