/* SPDX-License-Identifier: BSD-3-Clause */
/* The progress thread of a process, and its waits elsewhere. Private to sched/. */
#ifndef SLUICE_SCHED_THREAD_H
#define SLUICE_SCHED_THREAD_H

#include "base/base.h"
#include "engine/engine.h"

struct sched_group;

/* The progress thread of a process for one group, see thread.c. */
struct sched_thread {
	struct engine_thread handle;
	int pid; /* of the process that created it; a child of fork() has no thread */
	struct sched_group *next; /* in the list of groups with threads */
	BASE_ALIGNED_LINE _Atomic uint32_t exists;
	_Atomic uint32_t is_refused; /* it has been stopped, or cannot be created */
	_Atomic uint32_t stop, ended; /* ended: futex */
	_Atomic uint32_t found_cpu;   /* it found a CPU that nobody else used when it ran last */
	/* rounds of driving by calls since it was woken last, and how many wake it */
	_Atomic uint32_t rounds, rounds_max;
	BASE_ALIGNED_LINE _Atomic uint32_t wakes; /* futex; wakers add 1 */
	/* 1 + `wakes` when the thread looked for work before it slept; written by the thread */
	_Atomic uint32_t slept_after;
	_Atomic uint32_t waker_cpu; /* 1 + number of the CPU of the last waker; 0: not known */
	/* the thread's own */
	uint64_t poll_ns, worked_ns, offer_ns;
	struct os_cpumask mask; /* CPUs that the group may use */
	int cpus;    /* their number */
	bool misled; /* somebody took the CPU although one was said to be free */
	/* the hook of this process watches, or has done: the thread looks whether it still polls */
	_Atomic uint32_t guards;
	uint64_t guard_ns; /* how often; the thread's own */
};

/* A thread that waits elsewhere and calls sched_poll(), see hook.c. */
struct sched_hook {
	struct sched_group *next;
	uint64_t since_ns, polled_ns; /* close calls began; the last one */
	_Atomic uint32_t watches;
};

/* thread.c */
void thread_wake(struct sched_group *g); /* creates it at first use */
void thread_stop(struct sched_group *g); /* ends it, but not in a child of fork() */
/* Counts rounds in which a call drove ranks, as a thread on a free CPU could have done. Wakes the
 * thread now and then, so that it looks for one. */
void thread_count(struct sched_group *g, uint32_t rounds);
/* The hook of this process has become the watcher: from now on the thread looks whether it still
 * polls. Returns: false when there is no thread. */
bool thread_guard(struct sched_group *g);

/* hook.c */
void hook_add(struct sched_group *g);
void hook_remove(struct sched_group *g);
/* A run starts: whoever has stopped polling is asked again. */
void hook_ask(void);
/* The wait elsewhere has ended, as its process calls this library; that call ends with
 * state_drive_all(). Returns: true when this process was the watcher. */
bool hook_stop(struct sched_group *g);

#endif
