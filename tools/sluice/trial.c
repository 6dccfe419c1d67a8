/* SPDX-License-Identifier: BSD-3-Clause */
#include "trial.h"

#include <errno.h>
#include <string.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "endpoints/endpoints.h"
#include "engine/engine.h"
#include "os/os.h"
#include "node/node.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Returns: the number in a one-line file, or -1. */
static int read_number(const char *path)
{
	FILE *f = fopen(path, "re");
	int n = -1;

	if (!f)
		return -1;
	if (fscanf(f, "%d", &n) != 1)
		n = -1;
	fclose(f);
	return n;
}

/* Returns: true when a seccomp filter is installed, the most frequent cause of refusals in
 * containers. */
static bool has_seccomp_filter(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	bool has = false;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		has |= strcmp(line, "Seccomp:\t2\n") == 0;
	if (f)
		fclose(f);
	return has;
}

static const char *cma_remedy(const char *reason)
{
	int scope = read_number("/proc/sys/kernel/yama/ptrace_scope");

	if (strstr(reason, strerror(ENOSYS)))
		return has_seccomp_filter()
			       ? "a seccomp filter hides it: let the container allow it"
			       : "use a kernel with CONFIG_CROSS_MEMORY_ATTACH";
	if (!strstr(reason, strerror(EPERM)))
		return NULL;
	if (scope >= 2)
		return "kernel.yama.ptrace_scope is 2 or 3: sysctl kernel.yama.ptrace_scope=1 or 0";
	if (has_seccomp_filter())
		return "a seccomp filter refuses it: let the container allow process_vm_readv and "
		       "process_vm_writev (docker: --cap-add SYS_PTRACE)";
	if (scope == 1)
		return "kernel.yama.ptrace_scope is 1: sysctl kernel.yama.ptrace_scope=0";
	return NULL;
}

static const char *arena_remedy(const char *reason)
{
	if (strstr(reason, strerror(EMFILE)))
		return "raise the limit of open files: ulimit -n 1024";
	if (strstr(reason, strerror(ENOMEM)))
		return "raise the limit of address space (ulimit -v unlimited), or lower "
		       "SLUICE_REGION_ARENA";
	if (strstr(reason, strerror(ENOSYS)) || strstr(reason, strerror(EPERM)))
		return "let the container allow memfd_create and sockets with SCM_RIGHTS";
	return NULL;
}

/* Tests whether the pages of a memfd can become a huge page on request. */
static int try_collapse(void)
{
	const uint64_t window = 2 * OS_HUGE;
	int fd, ret = 0;
	char *map, *unit;

	fd = memfd_create("sluice-trial", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)OS_HUGE)) {
		ret = -errno;
		goto close_fd;
	}
	map = mmap(NULL, window, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED) {
		ret = -errno;
		goto close_fd;
	}
	unit = (char *)base_round_up((uint64_t)map, OS_HUGE);
	if (mmap(unit, OS_HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED) {
		ret = -errno;
		goto unmap;
	}
	for (uint64_t off = 0; off < OS_HUGE; off += OS_PAGE)
		unit[off] = 1;
	if (madvise(unit, OS_HUGE, MADV_COLLAPSE))
		ret = -errno;
unmap:
	munmap(map, window);
close_fd:
	close(fd);
	return ret;
}

static const char *huge_remedy(int error)
{
	switch (error) {
	case -EINVAL:
		return "needs Linux 6.1 with CONFIG_TRANSPARENT_HUGEPAGE";
	case -EPERM:
	case -ENOSYS:
		return "let the container allow memfd_create and madvise";
	default:
		return "free memory, or compact it: echo 1 > /proc/sys/vm/compact_memory";
	}
}

static void set_result(struct trial *t, const char *reason, const char *remedy)
{
	t->works = !reason[0];
	snprintf(t->reason, sizeof(t->reason), "%s", reason);
	t->remedy = t->works ? NULL : remedy;
}

static void judge_pair(struct trial *t, const struct trial_pair *pair)
{
	set_result(&t[TRIAL_ARENA], pair->arena, arena_remedy(pair->arena));
	set_result(&t[TRIAL_CMA_READ], pair->vm_read, cma_remedy(pair->vm_read));
	set_result(&t[TRIAL_CMA_WRITE], pair->vm_write, cma_remedy(pair->vm_write));
	/* the staging buffer lies in the arena */
	set_result(&t[TRIAL_STAGED], pair->arena[0] ? "needs the arena" : "", NULL);
	t[TRIAL_ARENA].gbps = t[TRIAL_ARENA].works ? pair->arena_gbps : 0;
	t[TRIAL_CMA_READ].gbps = t[TRIAL_CMA_READ].works ? pair->vm_read_gbps : 0;
}

/* Chooses the first way that works, or the reason why the best one does not. */
static void judge_ways(struct trial *t, const struct trial_way *ways, size_t count,
		       const char *chosen, const char *remedy)
{
	char reason[sizeof(t->reason)] = "";

	for (size_t i = 0; i < count; i++) {
		const struct engine_ops *e = engine_find(ways[i].name);
		size_t used = strlen(reason);

		if (ways[i].works || (e && e->is_by_name && strcasecmp(base_opt.engine, e->name)))
			continue;
		snprintf(reason + used, sizeof(reason) - used, "%s%s: %s", used ? "; " : "",
			 ways[i].name, ways[i].reason);
	}
	if (strcmp(chosen, "none")) {
		set_result(t, "", NULL);
		snprintf(t->note, sizeof(t->note), "%s%s%.180s", chosen, reason[0] ? "; not " : "",
			 reason);
	} else {
		set_result(t, reason[0] ? reason : "an option turns it off",
			   reason[0] ? remedy : NULL);
	}
}

static void judge_early(struct trial *t, const struct trial_early *e)
{
	char *note = t[TRIAL_ENGINE].note;
	size_t used;

	judge_ways(&t[TRIAL_GUARD], e->guards, e->guard_count, e->guard,
		   "calls complete before they return; to change that allow userfaultfd "
		   "(sysctl vm.unprivileged_userfaultfd=1) or Syscall User Dispatch");
	judge_ways(&t[TRIAL_ENGINE], e->engines, e->engine_count, e->engine, NULL);
	used = strlen(note);
	if (used)
		snprintf(note + used, sizeof(t->note) - used,
			 ", %s; a program of one rank leaves %d CPUs to it",
			 base_opt.worker_kind != BASE_WORKER_THREAD && e->workers[0].works
				 ? "in a process of the job"
				 : "as threads of each rank",
			 e->unused_cpus);
}

/* For this program, which is as good as any. */
static void try_endpoints(struct trial *t)
{
	char reason[sizeof t->reason] = "";

	if (endpoints_check("/proc/self/exe", reason, sizeof reason))
		*reason = '\0';
	set_result(&t[TRIAL_ENDPOINTS], reason,
		   strstr(reason, "ulimit") ? "lift the limit in the job" : NULL);
	snprintf(t[TRIAL_ENDPOINTS].note, sizeof t->note, "of a program: sluice check PROGRAM%s",
		 os_vma_query_is_cheap() ? "" : "; no PROCMAP_QUERY: the kernel copies messages");
	if (endpoints_check_switch(reason, sizeof reason))
		*reason = '\0';
	set_result(&t[TRIAL_SWITCH], reason, NULL);
}

void trial_run_all(struct trial out[TRIAL_COUNT], struct trial_early *early)
{
	static const struct {
		const char *name, *what;
	} texts[TRIAL_COUNT] = {
		[TRIAL_ARENA] = { "arena", "maps memory of one process in another" },
		[TRIAL_CMA_READ] = { "cma read", "process_vm_readv from another process" },
		[TRIAL_CMA_WRITE] = { "cma write", "process_vm_writev to another process" },
		[TRIAL_STAGED] = { "staged", "copies through a shared buffer" },
		[TRIAL_HUGE] = { "huge pages", "shared memory collapsed to 2 MiB pages" },
		[TRIAL_MAPS] = { "mapping query",
				 "cheap check that a buffer's mapping is unchanged" },
		[TRIAL_GUARD] = { "guard",
				  "closes memory while its data moves, for system calls too" },
		[TRIAL_ENGINE] = { "engine", "copies while the program computes" },
		[TRIAL_ENDPOINTS] = { "endpoints",
				      "ranks share an address space: sluice run --endpoints" },
		[TRIAL_SWITCH] = { "switch",
				   "such ranks take turns on a CPU: SLUICE_ENDPOINTS_SWITCH=user" },
	};
	struct trial_pair pair = { 0 };
	int rc;

	for (size_t i = 0; i < TRIAL_COUNT; i++)
		out[i] = (struct trial){ .name = texts[i].name, .what = texts[i].what };
	trial_pair_run(&pair); /* on failure `pair` has the reasons */
	judge_pair(out, &pair);

	rc = try_collapse();
	set_result(&out[TRIAL_HUGE], rc ? strerror(-rc) : "", huge_remedy(rc));
	set_result(&out[TRIAL_MAPS],
		   os_vma_query_is_cheap() ? "" : "the kernel has no PROCMAP_QUERY",
		   "use Linux 6.11; before it Sluice relies on the program's calls alone");
	try_endpoints(out);
	trial_early_run(early);
	judge_early(out, early);
}
