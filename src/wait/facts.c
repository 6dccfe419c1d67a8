/* SPDX-License-Identifier: BSD-3-Clause */
/* The facts that decide how this process waits. Each reads files of /proc and /sys once. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/endpoint.h"
#include "wait/wait.h"

#define CHILDREN_MAX 4096 /* bytes: some 600 siblings */

enum wait_mode wait_decide(const struct wait_facts *f)
{
	if (f->option == BASE_WAIT_SPIN)
		return WAIT_SPIN;
	if (f->option == BASE_WAIT_POLITE || f->switches ||
	    (f->local_ranks > 0 && f->cpus > 0 && f->local_ranks > f->cpus))
		return WAIT_POLITE;
	return WAIT_SPIN;
}

int wait_quota_cpus(const char *cpu_max)
{
	char *end;
	unsigned long long quota = strtoull(cpu_max, &end, 10), period;

	if (end == cpu_max || *end != ' ')
		return -1; /* "max 100000" */
	period = strtoull(end, NULL, 10);
	if (!quota || !period || quota / period > INT32_MAX)
		return -1;
	return (int)((quota + period - 1) / period);
}

/* The smallest quota of a cgroup (version 2) and of those above it. */
static int quota_cpus(void)
{
	static const char root[] = "/sys/fs/cgroup";
	char text[4096], path[4096 + sizeof root + 16], *line, *end;
	int least = -1;

	if (os_procfile_read("/proc/self/cgroup", text, sizeof text) <= 0)
		return -1;
	line = strncmp(text, "0::", 3) ? strstr(text, "\n0::") : text;
	if (!line)
		return -1;
	line = strchr(line, ':') + 2;
	line[strcspn(line, "\n")] = 0;
	for (;;) {
		char value[64];
		int cpus = -1;

		snprintf(path, sizeof path, "%s%s/cpu.max", root, line);
		if (os_procfile_read(path, value, sizeof value) > 0)
			cpus = wait_quota_cpus(value);
		if (cpus > 0 && (least < 0 || cpus < least))
			least = cpus;
		end = strrchr(line, '/');
		if (!end)
			return least;
		*end = 0;
	}
}

/* Adds the masks of the other children of the process that started this one, which are the other
 * ranks of this node. Bound ranks have one CPU each, and all of them together have enough. */
static void add_siblings(struct os_cpumask *cpus)
{
	char path[64], text[CHILDREN_MAX], *at = text, *end;
	int parent = (int)getppid();

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
	if (os_procfile_read(path, text, sizeof text) <= 0)
		return;
	for (long pid = strtol(at, &end, 10); end != at; pid = strtol(at, &end, 10)) {
		struct os_cpumask theirs;

		at = end;
		if (!os_cpumask_of((int)pid, &theirs))
			os_cpumask_or(cpus, &theirs);
	}
}

void wait_facts_read(struct wait_facts *out)
{
	struct os_cpumask cpus;
	int quota;

	out->option = base_opt.wait;
	out->switches = endpoint_self;
	out->local_ranks = base_job_local_size();
	os_cpumask_self(&cpus);
	if (os_cpumask_count(&cpus) < out->local_ranks)
		add_siblings(&cpus);
	out->cpus = os_cpumask_count(&cpus);
	quota = quota_cpus();
	if (quota > 0 && quota < out->cpus)
		out->cpus = quota;
}
