/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters of this process, and the report at its end. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"

enum { REPORT_BYTES = 8192 };

_Atomic uint64_t base_counters[BASE_CTR_COUNT];

const struct base_counter_text base_counter_texts[BASE_CTR_COUNT] = {
#define X(id, name, help) { name, help },
	BASE_COUNTERS(X)
#undef X
};

/* Text in a fixed buffer, which truncates. */
struct report {
	size_t used;
	char text[REPORT_BYTES];
};

__attribute__((format(printf, 2, 3)))
static void report_add(struct report *r, const char *fmt, ...)
{
	size_t room = sizeof(r->text) - r->used;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(r->text + r->used, room, fmt, args);
	va_end(args);
	if (n > 0)
		r->used += base_min_u64((uint64_t)n, room - 1);
}

static int report_write(int fd, const struct report *r)
{
	for (size_t done = 0; done < r->used;) {
		ssize_t n = write(fd, r->text + done, r->used - done);

		if (n < 0 && errno != EINTR)
			return -errno;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int report_table(struct report *r, int rank)
{
	if (rank >= 0)
		report_add(r, "sluice: rank %d: counters\n", rank);
	else
		report_add(r, "sluice: process %d: counters\n", (int)getpid());
	for (int c = 0; c < BASE_CTR_COUNT; c++)
		if (base_counter_value(c))
			report_add(r, "  %-23s %16" PRIu64 "  %s\n", base_counter_texts[c].name,
				   base_counter_value(c), base_counter_texts[c].help);
	return report_write(STDERR_FILENO, r);
}

static int report_json(struct report *r, int rank, const char *prefix)
{
	char path[4096];
	int fd, rc, n;

	n = snprintf(path, sizeof(path), "%s.%d.json", prefix, rank >= 0 ? rank : (int)getpid());
	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	report_add(r, "{\n  \"rank\": %d,\n  \"pid\": %d", rank, (int)getpid());
	for (int c = 0; c < BASE_CTR_COUNT; c++)
		report_add(r, ",\n  \"%s\": %" PRIu64, base_counter_texts[c].name,
			   base_counter_value(c));
	report_add(r, "\n}\n");
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0) {
		rc = -errno;
		base_log(BASE_LOG_ERROR, "base", "cannot write counters to %s: %m", path);
		return rc;
	}
	rc = report_write(fd, r);
	close(fd);
	return rc;
}

uint64_t base_cpu_us(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

int base_counters_report(void)
{
	int rank = base_log_rank() >= 0 ? base_log_rank() : base_job_rank();
	struct report r = { .used = 0 };

	if (!base_opt.stats[0])
		return 0;
	base_counters[BASE_CTR_CPU_US] = base_cpu_us();
	if (base_opt.stats[0] == '-' && !base_opt.stats[1])
		return report_table(&r, rank);
	return report_json(&r, rank, base_opt.stats);
}
