/* SPDX-License-Identifier: BSD-3-Clause */
/* The facts that decide how this process waits. Each reads files of /proc and /sys once. */
#include <stdio.h>
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

/* Returns: the quota in the folder of a cgroup, of version 2 or 1; UINT64_MAX: none. */
static uint64_t folder_quota(const char *folder)
{
	char path[4096 + 64], text[64];
	size_t n;
	int cpus = -1;

	snprintf(path, sizeof path, "%s/cpu.max", folder);
	if (os_procfile_read(path, text, sizeof text) > 0)
		return (uint64_t)wait_quota_cpus(text);
	snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
	if (os_procfile_read(path, text, sizeof text / 2) <= 0 || *text == '-') /* -1: none */
		return UINT64_MAX;
	n = strcspn(text, "\n");
	text[n++] = ' ';
	snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
	if (os_procfile_read(path, text + n, sizeof text - n) > 0)
		cpus = wait_quota_cpus(text);
	return (uint64_t)cpus;
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
	uint64_t quota;

	out->option = base_opt.wait;
	out->switches = endpoint_self;
	out->local_ranks = base_job_local_size();
	os_cpumask_self(&cpus);
	if (os_cpumask_count(&cpus) < out->local_ranks)
		add_siblings(&cpus);
	out->cpus = os_cpumask_count(&cpus);
	quota = os_cgroup_least("cpu", folder_quota);
	if (out->cpus > 0 && quota < (uint64_t)out->cpus)
		out->cpus = (int)quota;
}
