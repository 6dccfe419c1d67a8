/* SPDX-License-Identifier: BSD-3-Clause */
/* The carrier's part of the scheduler: starts workers, and gives the queue to a spare worker when a
 * rank keeps its worker for a time slice. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "endpoints/switch_private.h"
#include "os/os.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#endif
enum { HWCAP2_FSGSBASE = 1 << 1, KERNEL_SA_RESTORER = 0x04000000 };

/* ---- the process of a worker --------------------------------------------------------------- */

struct kernel_sigaction {
	void (*handler)(int, siginfo_t *, void *);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

NOT_WATCHED static long set_traps(void)
{
	static const int traps[] = { SIGSYS,  SIGSEGV, SIGBUS,	     SIGFPE,
				     SIGILL, SIGTRAP, RECALL_SIGNAL };
	struct kernel_sigaction action = {
		.handler = switch_on_trap,
		.flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | KERNEL_SA_RESTORER,
		.restorer = sud_restorer,
	};
	uint64_t mask = ~0ull;
	long rc = 0;

	for (size_t i = 0; i < BASE_ARRAY_LEN(traps); i++) {
		mask &= ~(1ull << (traps[i] - 1));
		rc |= sud_syscall(SYS_rt_sigaction, traps[i], &action, NULL, sizeof mask);
	}
	return rc | sud_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
}

/* First function of the process. The carrier waits until it has started or ended. */
NOT_WATCHED static int worker_main(void *arg)
{
	struct endpoint_worker *w = arg;
	const stack_t stack = { .ss_sp = (char *)w + WORKER_STACK_BYTES,
				.ss_size = WORKER_BYTES - WORKER_STACK_BYTES };
	long rc = sud_syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);

	rc |= sud_syscall(SYS_sigaltstack, &stack, NULL);
	rc |= set_traps();
	if (w->group->cpu_bytes)
		sud_syscall(SYS_sched_setaffinity, 0, w->group->cpu_bytes, w->group->cpus);
	sud_syscall(SYS_prctl, PR_SET_NAME, "sluice-switch", 0, 0, 0);
	/* without a selector all calls from outside the range are dispatched */
	rc |= sud_syscall(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON,
			  sud_range_start, sud_range_end - sud_range_start, 0);
	if (rc)
		sud_syscall(SYS_exit_group, 3);
	atomic_store_explicit(&w->is_started, 1, memory_order_release);
	switch_restart(w);
}

/* Returns: a worker that will wait for the queue, or NULL. */
static struct endpoint_worker *start_worker(struct switch_group *g)
{
	struct timespec pause = { .tv_nsec = 20 * 1000 };
	struct endpoint_worker *w;

	if (g->workers == WORKERS_MAX)
		return NULL;
	w = aligned_alloc(WORKER_BYTES, WORKER_BYTES);
	if (!w)
		return NULL;
	memset(w, 0, sizeof *w);
	w->owner = &g->owner;
	w->id = 2ull * (g->workers + 1);
	w->stack_top = (uint64_t)w + WORKER_STACK_BYTES;
	w->group = g;
	g->worker[g->workers] = w; /* before the worker can own the queue */
	atomic_fetch_add(&g->awake, 1);
	w->pid = clone(worker_main, (void *)w->stack_top,
		       CLONE_VM | CLONE_FILES | CLONE_FS | SIGCHLD, w);
	while (w->pid > 0 && !atomic_load_explicit(&w->is_started, memory_order_acquire)) {
		nanosleep(&pause, NULL);
		if (waitpid(w->pid, NULL, WNOHANG) == w->pid)
			w->pid = -1;
	}
	if (w->pid < 0) {
		atomic_fetch_sub(&g->awake, 1);
		free(w);
		return NULL;
	}
	g->workers++;
	return w;
}

/* ---- the queue's owner --------------------------------------------------------------------- */

static struct endpoint_worker *unused_worker(struct switch_group *g)
{
	for (uint32_t i = 0; i < g->workers; i++)
		if (g->worker[i]->pid > 0 && atomic_exchange(&g->worker[i]->is_unused, 0))
			return g->worker[i];
	return start_worker(g);
}

static struct endpoint_worker *owner(const struct switch_group *g)
{
	uint64_t id = atomic_load(&g->owner) & ~(uint64_t)OWNER_BUSY;

	return id ? g->worker[id / 2 - 1] : NULL;
}

static void wake_worker(struct endpoint_worker *w)
{
	atomic_fetch_add(&w->given, 1);
	os_futex_wake(&w->given, 1);
}

/* There is a CPU for one more worker, which watches the owner. */
static void wake_watcher(struct switch_group *g)
{
	for (uint32_t i = 0; i < g->workers; i++)
		if (g->worker[i]->pid > 0 && atomic_load(&g->worker[i]->is_unused))
			wake_worker(g->worker[i]);
	if (g->workers < (uint32_t)g->share)
		start_worker(g);
}

/* Returns: whether the queue was given away; not while its owner is inside the scheduler. */
static bool give_queue(struct switch_group *g)
{
	struct endpoint_worker *from = owner(g), *to = unused_worker(g);
	uint64_t id = from ? from->id : 0;

	if (!to)
		return false;
	if (!atomic_compare_exchange_strong(&g->owner, &id, to->id)) {
		atomic_store(&to->is_unused, 1);
		return false;
	}
	if (from && atomic_load(&from->current))
		atomic_load(&from->current)->endpoint.handoffs++;
	wake_worker(to);
	return true;
}

bool switch_is_idle(const struct switch_group *g) { return atomic_load(&g->is_asleep); }
int switch_wakes_fd(const struct switch_group *g) { return g->wakes_fd; }

static bool is_dead(const struct endpoint_worker *w)
{
	const struct switch_rank *r = atomic_load(&w->current);

	return w->pid > 0 && r && atomic_load(&r->is_dead);
}

/* A process that runs a rank whose own process has ended. */
static void end_worker(struct endpoint_worker *w)
{
	int pid = w->pid;

	w->pid = 0; /* its end is no loss */
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	atomic_fetch_sub(&w->group->awake, 1);
}

void switch_monitor(struct switch_group *g)
{
	struct endpoint_worker *w = owner(g);
	bool has_ready = switch_has_ready(g);
	uint64_t now = atomic_load(&w->switches);

	if (atomic_load(&w->current) && now == w->observed && (has_ready || is_dead(w)))
		give_queue(g);
	else if (has_ready && atomic_load(&g->awake) < g->share)
		wake_watcher(g);
	w->observed = now;
	for (uint32_t i = 0; i < g->workers; i++)
		if (g->worker[i] != owner(g) && is_dead(g->worker[i]))
			end_worker(g->worker[i]);
}

/* ---- start and ranks ----------------------------------------------------------------------- */

static int count_cpus(const uint64_t *cpus, uint32_t cpu_bytes)
{
	int count = 0;

	for (uint32_t i = 0; i < cpu_bytes / sizeof *cpus; i++)
		count += __builtin_popcountll(cpus[i]);
	return count;
}

struct switch_group *switch_start(const uint64_t *cpus, uint32_t cpu_bytes, int share,
				  char *reason, size_t cap)
{
	int most = count_cpus(cpus, cpu_bytes);
	struct switch_group *g;
	uint64_t *copy;

	snprintf(reason, cap, "ranks do not switch: this kernel does not let programs set FS");
	if (!(getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE))
		return NULL;
	snprintf(reason, cap, "ranks do not switch: no worker (Syscall User Dispatch: Linux 5.11)");
	g = aligned_alloc(64, base_round_up(sizeof *g, 64));
	copy = malloc(cpu_bytes + 1);
	if (!g || !copy)
		goto fail;
	memset(g, 0, sizeof *g);
	memcpy(copy, cpus, cpu_bytes);
	g->cpus = copy;
	g->cpu_bytes = cpu_bytes;
	g->share = share > most ? most : share;
	if (g->share < 1)
		g->share = 1;
	g->wakes_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g->wakes_fd >= 0 && start_worker(g) && give_queue(g)) {
		*reason = '\0';
		return g;
	}
fail:
	free(copy);
	free(g);
	return NULL;
}

bool switch_has_cpus(const struct switch_group *g, const uint64_t *cpus, uint32_t cpu_bytes)
{
	return cpu_bytes == g->cpu_bytes && !memcmp(cpus, g->cpus, cpu_bytes);
}

struct endpoint *switch_endpoint(struct switch_rank *r) { return &r->endpoint; }

void switch_set_pid(struct switch_rank *r, int pid) { r->group->pids[r->index] = pid; }

void switch_remove(struct switch_group *g, int pid)
{
	for (uint32_t i = 0; i < g->ranks; i++)
		if (g->pids[i] == pid) {
			g->pids[i] = PID_NONE;
			atomic_store(&g->rank[i]->is_dead, 1);
			if (!g->rank[i]->endpoint.worker)
				atomic_fetch_sub(&g->at_home, 1);
		}
}

bool switch_lost_worker(const struct switch_group *g, int pid)
{
	for (uint32_t i = 0; i < g->workers; i++)
		if (g->worker[i]->pid == pid)
			return true;
	return false;
}

struct switch_rank *switch_add(struct switch_group *g)
{
	struct switch_rank *r;

	if (g->ranks == ENDPOINT_RANKS_MAX)
		return NULL;
	r = aligned_alloc(64, base_round_up(sizeof *r, 64));
	if (!r)
		return NULL;
	memset(r, 0, sizeof *r);
	r->group = g;
	r->index = g->ranks;
	g->pids[r->index] = PID_NONE; /* until it has started */
	r->endpoint = (struct endpoint){ .magic = ENDPOINT_MAGIC, .yield = switch_yield,
					 .copy = switch_copy };
	atomic_fetch_add(&g->at_home, 1);
	g->rank[g->ranks++] = r;
	return r;
}

void switch_drop(struct switch_group *g, struct switch_rank *r)
{
	g->ranks--;
	atomic_fetch_sub(&g->at_home, 1);
	free(r);
}
