/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "endpoints/private.h"

enum { FD_LOOP_MAX = 65536 };

static int fail(int error, const char *text, char *reason, size_t cap)
{
	snprintf(reason, cap, "%s", text);
	return error;
}

static int compare_fds(const void *a, const void *b)
{
	return *(const int32_t *)a - *(const int32_t *)b;
}

static int collect_fds(struct endpoints_state *out, char *reason, size_t cap)
{
	DIR *folder = opendir("/proc/self/fd");
	const struct dirent *entry;
	int flags, fd;

	out->fd_count = 0;
	if (!folder)
		return fail(-errno, "/proc/self/fd cannot be read", reason, cap);
	while ((entry = readdir(folder))) {
		fd = atoi(entry->d_name);
		if (entry->d_name[0] == '.' || fd == dirfd(folder))
			continue;
		flags = fcntl(fd, F_GETFD);
		if (flags < 0 || (flags & FD_CLOEXEC))
			continue;
		if (out->fd_count == ENDPOINTS_FDS_MAX) {
			closedir(folder);
			return fail(-EMFILE, "it inherits too many descriptors", reason, cap);
		}
		out->fds[out->fd_count++] = fd;
	}
	closedir(folder);
	qsort(out->fds, out->fd_count, sizeof out->fds[0], compare_fds);
	return 0;
}

static void collect_signals(struct endpoints_state *out)
{
	struct sigaction action;
	sigset_t mask;

	sigprocmask(SIG_SETMASK, NULL, &mask);
	out->blocked = out->ignored = 0;
	for (int s = 1; s <= SIGNALS; s++) {
		if (sigismember(&mask, s) == 1)
			out->blocked |= 1ull << (s - 1);
		if (!sigaction(s, NULL, &action) && action.sa_handler == SIG_IGN)
			out->ignored |= 1ull << (s - 1);
	}
}

static int collect_limits(struct endpoints_state *out, char *reason, size_t cap)
{
	for (int i = 0; i < RLIM_NLIMITS; i++)
		if (getrlimit(i, &out->limits[i]))
			return fail(-errno, "its limits cannot be read", reason, cap);
	/* the kernel counts the memory of all images against the limit of each */
	if (out->limits[RLIMIT_AS].rlim_cur != RLIM_INFINITY)
		return fail(-E2BIG, "its address space is limited (ulimit -v)", reason, cap);
	if (out->limits[RLIMIT_DATA].rlim_cur != RLIM_INFINITY)
		return fail(-E2BIG, "its data segment is limited (ulimit -d)", reason, cap);
	return 0;
}

static void collect_placement(struct endpoints_state *out)
{
	long bytes = syscall(SYS_sched_getaffinity, 0, sizeof out->cpus, out->cpus);
	int mode = 0;

	out->cpu_bytes = bytes > 0 ? (uint32_t)bytes : 0;
	if (syscall(SYS_sched_getattr, 0, &out->sched, sizeof out->sched, 0))
		out->sched.size = 0;
	memset(out->nodes, 0, sizeof out->nodes);
	out->mempolicy = -1;
	if (!syscall(SYS_get_mempolicy, &mode, out->nodes, sizeof out->nodes * 8, NULL, 0))
		out->mempolicy = mode;
}

int state_collect(struct endpoints_state *out, char *reason, size_t cap)
{
	mode_t mask = umask(0);
	int rc;

	umask(mask);
	memset(out, 0, sizeof *out);
	out->umask = mask;
	/* A signal to the launched process's group is forwarded, so the image must not get it, too.
	 * Only the terminal's foreground group may read from it. */
	out->pgrp = tcgetpgrp(STDIN_FILENO) == getpgrp() ? getpgrp() : 0;
	collect_signals(out);
	collect_placement(out);
	rc = collect_limits(out, reason, cap);
	return rc ? rc : collect_fds(out, reason, cap);
}

void endpoints_close_range(unsigned first, unsigned last)
{
	if (first > last || !syscall(SYS_close_range, first, last, 0))
		return;
	for (unsigned fd = first; fd <= base_min_u64(last, FD_LOOP_MAX); fd++)
		close((int)fd);
}
