/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The new process from clone() to the first instruction of ld.so. It shares memory and FS base with
 * the carrier: system calls are raw, as errno is the carrier's, and nothing is allocated.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>

#include "endpoints/private.h"
#include "sud/sud.h"

enum { NAME_BYTES = 16, FD_FIRST_FREE = 3 };

/* Keeps the first failure. */
NOT_WATCHED static bool failed(struct child_job *job, long rc, const char *call)
{
	if (rc >= 0)
		return false;
	if (!job->error) {
		job->error = (int)-rc;
		job->failed = call;
	}
	return true;
}

NOT_WATCHED static void close_gap(long first, long last)
{
	if (first > last || !sud_syscall(SYS_close_range, first, last, 0))
		return;
	for (long fd = first; fd <= last && fd < 65536; fd++)
		sud_syscall(SYS_close, fd);
}

/* Moves the received descriptors above all numbers that they have in the shell, then to these. */
NOT_WATCHED static void arrange_fds(struct child_job *job)
{
	const struct image_start *start = job->start;
	const struct endpoints_state *state = &start->state;
	uint32_t count = state->fd_count;
	long above = count ? state->fds[count - 1] + 1 : 0, moved, next = 0;

	if (above < FD_FIRST_FREE)
		above = FD_FIRST_FREE;
	for (uint32_t i = 0; i < count; i++) {
		/* a number below `above` may still be the source of another descriptor */
		moved = start->received[i];
		if (moved < above)
			moved = sud_syscall(SYS_fcntl, moved, F_DUPFD, above);
		if (failed(job, moved, "fcntl(F_DUPFD)"))
			return;
		job->moved[i] = (int)moved;
	}
	for (uint32_t i = 0; i < count; i++) {
		if (failed(job, sud_syscall(SYS_dup3, job->moved[i], state->fds[i], 0), "dup3"))
			return;
		close_gap(next, state->fds[i] - 1);
		next = state->fds[i] + 1;
	}
	close_gap(next, (long)UINT_MAX);
}

NOT_WATCHED static void set_signals(struct child_job *job)
{
	struct { void *handler; uint64_t flags; void *restorer; uint64_t mask; } action = { 0 };
	const struct endpoints_state *state = &job->start->state;

	for (int s = 1; s <= SIGNALS; s++) {
		action.handler = state->ignored >> (s - 1) & 1 ? (void *)1 : NULL;
		sud_syscall(SYS_rt_sigaction, s, &action, NULL, sizeof(uint64_t));
	}
}

NOT_WATCHED static void set_limits(struct child_job *job)
{
	const struct endpoints_state *state = &job->start->state;

	for (int i = 0; i < RLIM_NLIMITS; i++)
		if (failed(job, sud_syscall(SYS_prlimit64, 0, i, &state->limits[i], NULL),
			   "prlimit"))
			return;
}

/* The carrier has those of the rank that came first. */
NOT_WATCHED static void set_sched(struct child_job *job)
{
	const struct endpoints_sched *to = &job->start->state.sched;
	struct endpoints_sched now;

	if (!to->size || sud_syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) < 0 ||
	    (to->policy == now.policy && to->nice == now.nice && to->priority == now.priority))
		return;
	failed(job, sud_syscall(SYS_sched_setattr, 0, to, 0), "sched_setattr");
}

/* The cgroup of the rank that came first may not have these CPUs, or only some of them. */
NOT_WATCHED static void set_cpus(struct child_job *job)
{
	const struct endpoints_state *state = &job->start->state;
	uint64_t now[BASE_ARRAY_LEN(state->cpus)] = { 0 };

	if (!state->cpu_bytes ||
	    failed(job, sud_syscall(SYS_sched_setaffinity, 0, state->cpu_bytes, state->cpus),
		   "sched_setaffinity") ||
	    sud_syscall(SYS_sched_getaffinity, 0, sizeof now, now) < 0)
		return;
	for (size_t i = 0; i < BASE_ARRAY_LEN(now); i++)
		if (now[i] != state->cpus[i])
			failed(job, -EINVAL, "sched_setaffinity");
}

/* Memory policy and process group are what the launcher wishes, not what is needed. */
NOT_WATCHED static void set_placement(struct child_job *job)
{
	const struct endpoints_state *state = &job->start->state;

	if (state->mempolicy == 0)
		sud_syscall(SYS_set_mempolicy, 0, NULL, 0ul);
	else if (state->mempolicy > 0)
		sud_syscall(SYS_set_mempolicy, state->mempolicy, state->nodes,
			    sizeof state->nodes * 8);
	/* The kernel divides CPUs among sessions (autogroup): ranks of several would have the
	 * share of one. */
	if (state->session && sud_syscall(SYS_getsid, 0) != state->session)
		sud_syscall(SYS_setsid);
	else
		sud_syscall(SYS_setpgid, 0, state->pgrp);
}

/* The last component of the path, as execve() does it. */
NOT_WATCHED static void set_name(struct child_job *job)
{
	const char *path = job->start->path, *name = path;
	char out[NAME_BYTES] = { 0 };

	for (; *path; path++)
		if (*path == '/')
			name = path + 1;
	for (int i = 0; i + 1 < NAME_BYTES && name[i]; i++)
		out[i] = name[i];
	sud_syscall(SYS_prctl, PR_SET_NAME, out);
}

NOT_WATCHED static void set_phase(struct child_job *job, uint32_t phase)
{
	atomic_store_explicit(&job->phase, phase, memory_order_release);
	sud_syscall(SYS_futex, &job->phase, FUTEX_OP_WAKE, 1);
}

NOT_WATCHED int child_main(void *arg)
{
	struct child_job *job = arg;
	uint64_t entry, sp, blocked;

	sud_syscall(SYS_prctl, PR_SET_PDEATHSIG, (long)SIGKILL);
	if (sud_syscall(SYS_getppid) != job->carrier)
		sud_syscall(SYS_exit_group, 127);
	set_signals(job);
	if (!failed(job, sud_syscall(SYS_fchdir, job->start->cwd), "fchdir"))
		arrange_fds(job);
	sud_syscall(SYS_umask, job->start->state.umask);
	set_cpus(job);
	set_placement(job);
	set_sched(job);
	set_name(job);
	if (!job->error)
		set_limits(job);
	if (job->error) {
		set_phase(job, CHILD_FAILED);
		sud_syscall(SYS_exit_group, 127);
	}
	entry = job->entry;
	sp = job->sp;
	blocked = job->start->state.blocked;
	set_phase(job, CHILD_READY);
	while (atomic_load_explicit(&job->phase, memory_order_acquire) == CHILD_READY)
		sud_syscall(SYS_futex, &job->phase, FUTEX_OP_WAIT, CHILD_READY, NULL);
	sud_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, NULL, sizeof blocked);
	/* the ABI at a program's entry: rdx, a function for atexit(), and the last frame are 0 */
	__asm__ volatile("movq %0, %%rsp\n\t"
			 "xorl %%edx, %%edx\n\t"
			 "xorl %%ebp, %%ebp\n\t"
			 "jmpq *%1"
			 :
			 : "r"(sp), "r"(entry)
			 : "memory");
	__builtin_unreachable();
}
