/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks whether a peer lives: ranks that have waited for long ask, and readers of messages now and
 * then. */
#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "node/private.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Raw system calls: fault handlers come here, and the C library's are cancellation points. The
 * pidfd is open only during the check, as a job may have more ranks than a process may have
 * descriptors. */
bool node_process_has_exited(int pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd >= 0) {
		struct pollfd p = { fd, POLLIN, 0 };
		bool exited = syscall(SYS_poll, &p, 1, 0) > 0;

		syscall(SYS_close, fd);
		return exited;
	}
	/* without pidfd_open, kill */
	return errno == ESRCH || (syscall(SYS_kill, pid, 0) && errno == ESRCH);
}

/*
 * The start time distinguishes the process from a later one with the same pid. Each look into /proc
 * takes 17 to 45 us. One that may not be traced is hidden there (hidepid): only a pidfd tells it
 * from a zombie, for which kill() succeeds.
 */
bool node_process_is_dead(int pid, uint64_t start)
{
	uint64_t now;

	if (node_process_has_exited(pid))
		return true;
	if (!start || !os_process_start(getpid()))
		return false;
	now = os_process_start(pid);
	return now ? now != start : syscall(SYS_pidfd_open, -1, 0) && errno != EINVAL;
}

bool node_is_dead(const struct node_group *g, int rank)
{
	return rank != g->rank && node_process_is_dead(g->peers[rank]->pid, g->peers[rank]->start);
}

void node_poison(struct node_group *g, int dead_rank)
{
	int32_t none = 0;

	/* the first caller names the dead rank */
	atomic_compare_exchange_strong_explicit(&g->ranks[0].dead, &none, 1 + dead_rank,
						memory_order_acq_rel, memory_order_relaxed);
	for (int r = 0; r < g->size; r++)
		if (r != g->rank && r != dead_rank)
			node_wake(g, r);
}

int node_poisoned(const struct node_group *g)
{
	return atomic_load_explicit(&g->ranks[0].dead, memory_order_relaxed) - 1;
}
