/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs with a worker process, for tests: their options, and the process as others see it. */
#ifndef SLUICE_TEST_WORKER_CASE_H
#define SLUICE_TEST_WORKER_CASE_H

#include <dirent.h>
#include <unistd.h>

#include "guard/guard.h"
#include "unit.h"

#define EARLY                                                                                      \
	"SLUICE_REGION_KIND=arena", "SLUICE_TEST=region_adopt_min=4K", "SLUICE_EARLY=on",          \
		"SLUICE_EARLY_MIN=1", "SLUICE_WORKERS=@0-1"
#define OPTIONS(...)                                                                               \
	((char *[]){ EARLY, "SLUICE_WORKER_KIND=process", "SLUICE_TEST=fault=worker_idle:all",     \
		     ##__VA_ARGS__, NULL })

/* Without a guard no communicator has work for the worker. */
static inline bool can_be_early(void)
{
	return strcmp(guard_kind_name(), "none") && guard_is_ready();
}

static inline bool read_file(char *out, size_t cap, const char *fmt, int pid)
{
	char path[64];
	ssize_t n;
	FILE *f;

	snprintf(path, sizeof path, fmt, pid);
	f = fopen(path, "r");
	n = f ? (ssize_t)fread(out, 1, cap - 1, f) : -1;
	out[n > 0 ? n : 0] = 0;
	if (f)
		fclose(f);
	return n > 0;
}

static inline bool is_worker_of(int pid, int starter)
{
	char text[128] = "", wanted[16];

	snprintf(wanted, sizeof wanted, "%d", starter);
	return read_file(text, sizeof text, "/proc/%d/cmdline", pid) &&
	       strstr(text, "sluice-worker") && !strcmp(text + strlen(text) + 1, wanted);
}

/* Returns: the pid of the worker that this process has started, or 0 (a zombie has an empty command
 * line). */
static inline int worker_of(int starter)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	int found = 0;

	while (!found && dir && (e = readdir(dir)))
		if (atoi(e->d_name) > 0 && is_worker_of(atoi(e->d_name), starter))
			found = atoi(e->d_name);
	if (dir)
		closedir(dir);
	return found;
}

static inline bool is_gone_soon(int starter)
{
	for (int i = 0; i < 500; i++, usleep(10000))
		if (!worker_of(starter))
			return true;
	return false;
}

#endif
