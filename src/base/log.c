/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages for people, on stderr. */
#include <errno.h>
#include <time.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

enum { LINES_PER_SECOND = 20, LINE_BYTES = 1024 };

static _Atomic int log_rank = -1;

/* Rate limit, without a lock: threads that enter a new second together may print a line or two too
 * many. */
static _Atomic uint64_t limit_second;
static _Atomic uint32_t limit_lines;
static _Atomic uint32_t lines_dropped;

void base_log_set_rank(int rank) { atomic_store_explicit(&log_rank, rank, memory_order_relaxed); }

int base_log_rank(void) { return atomic_load_explicit(&log_rank, memory_order_relaxed); }

/* "sluice: rank 3: " or "sluice: " */
static size_t log_prefix(char *line, size_t cap)
{
	int rank = base_log_rank();
	int n = rank < 0 ? snprintf(line, cap, "sluice: ")
			 : snprintf(line, cap, "sluice: rank %d: ", rank);

	return (size_t)n;
}

static void log_write(const char *line, size_t bytes)
{
	/* raw system call: libc's write() is a cancellation point, and free() may log */
	long ignored = syscall(SYS_write, STDERR_FILENO, line, bytes);
	(void)ignored;
}

static void log_dropped(uint32_t dropped)
{
	char line[128];
	size_t used = log_prefix(line, sizeof(line));

	used += (size_t)snprintf(line + used, sizeof(line) - used, "log: %u more lines not shown\n",
				 dropped);
	log_write(line, used);
}

static bool log_allowed(void)
{
	struct timespec now;
	uint64_t second;

	clock_gettime(CLOCK_MONOTONIC, &now);
	second = (uint64_t)now.tv_sec + 1; /* never 0, which no second has had */
	if (atomic_exchange_explicit(&limit_second, second, memory_order_relaxed) != second) {
		uint32_t dropped =
			atomic_exchange_explicit(&lines_dropped, 0, memory_order_relaxed);

		atomic_store_explicit(&limit_lines, 0, memory_order_relaxed);
		if (dropped)
			log_dropped(dropped);
	}
	if (atomic_fetch_add_explicit(&limit_lines, 1, memory_order_relaxed) < LINES_PER_SECOND)
		return true;
	atomic_fetch_add_explicit(&lines_dropped, 1, memory_order_relaxed);
	return false;
}

void base_log(enum base_log_level level, const char *folder, const char *fmt, ...)
{
	char line[LINE_BYTES];
	int saved_errno = errno;
	size_t used;
	va_list args;
	int n;

	if ((int64_t)level > base_opt.log_level || level == BASE_LOG_NONE || !log_allowed())
		goto out;
	used = log_prefix(line, sizeof(line));
	used += (size_t)snprintf(line + used, sizeof(line) - used, "%.32s: ", folder);
	errno = saved_errno; /* for %m */
	va_start(args, fmt);
	n = vsnprintf(line + used, sizeof(line) - used, fmt, args);
	va_end(args);
	used = base_min_u64(used + (size_t)(n < 0 ? 0 : n), sizeof(line) - 1);
	line[used++] = '\n'; /* in place of the terminating zero */
	log_write(line, used);
out:
	errno = saved_errno;
}
