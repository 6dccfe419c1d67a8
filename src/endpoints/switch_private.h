/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to switch.c, switch.S and monitor.c. */
#ifndef SLUICE_ENDPOINTS_SWITCH_PRIVATE_H
#define SLUICE_ENDPOINTS_SWITCH_PRIVATE_H

#include <signal.h>
#include <stdatomic.h>

#include "base/base.h"
#include "endpoints/switch.h"
#include "sud/sud.h"

enum {
	WAKE_SIGNAL = 64, /* real-time: a program's own is told apart by its value */
	RECALL_SIGNAL = SIGURG, /* to a worker; not one of a fault, as the kernel merges two */
	OWNER_BUSY = 1,
	PID_NONE = -1,
	WORKERS_MAX = ENDPOINT_RANKS_MAX + 1,
	SIGNALS_DEFERRED = 64,
	HOME_STACK_BYTES = 16 << 10,
	FRAME_BYTES = 16 << 10, /* kernels with AMX state need 11 KiB */
	FRAME_FP_OFFSET = 512,
	WORKER_BYTES = 128 << 10, /* and its alignment: one block a worker */
	WORKER_STACK_BYTES = 32 << 10, /* from the block's begin, above the struct */
};

struct switch_rank {
	struct endpoint endpoint; /* first: switch.S */
	struct switch_group *group;
	uint32_t index;           /* in the group */
	struct switch_rank *next; /* in the inbox */
	_Atomic uint32_t is_dead, is_recalled, must_return;
	bool has_frame;
	uint32_t since_home;      /* how often it has run on a worker */
	uint32_t stay, stay_next; /* yields without leaving home */
	uint64_t mask;            /* of the home, while its thread waits */
	stack_t signal_stack;
	uint32_t signals;
	siginfo_t signal[SIGNALS_DEFERRED];
	_Alignas(64) char frame[FRAME_BYTES];
	_Alignas(64) char home_stack[HOME_STACK_BYTES];
};

struct endpoint_worker {
	_Atomic uint64_t *owner; /* switch.S: the first three members */
	uint64_t id;             /* even, not 0 */
	uint64_t stack_top;
	struct switch_group *group;
	struct switch_rank *_Atomic current;
	_Atomic uint64_t switches;
	uint64_t observed; /* monitor: switches at the last slice */
	uint32_t alone; /* switches that may have kept a home from running */
	_Atomic uint32_t is_started, given; /* given: futex */
	_Atomic uint32_t is_unused; /* who clears it may make this worker the owner */
	int pid;
};

struct switch_group {
	_Alignas(64) _Atomic uint64_t owner;
	_Atomic uint32_t head, tail; /* of the queue; written by the owner while it is busy */
	struct switch_rank *queue[ENDPOINT_RANKS_MAX];
	_Alignas(64) struct switch_rank *_Atomic inbox;
	_Atomic uint32_t is_asleep; /* futex: the owner waits for the inbox */
	_Atomic int32_t at_home; /* ranks, for a heuristic: it may be off by some */
	_Atomic int32_t awake;   /* workers that run or watch */
	int32_t share;           /* CPUs for them */
	int wakes_fd;
	const uint64_t *cpus;
	uint32_t cpu_bytes;
	uint32_t workers;
	_Atomic uint32_t ranks;
	struct switch_rank *rank[ENDPOINT_RANKS_MAX];
	struct endpoint_worker *worker[WORKERS_MAX];
	int pids[ENDPOINT_RANKS_MAX + 1];
};

NOT_WATCHED static inline struct endpoint_worker *worker_of_stack(const void *at)
{
	return (struct endpoint_worker *)((uintptr_t)at & ~(uintptr_t)(WORKER_BYTES - 1));
}

/* switch.S */
void switch_out(struct endpoint *self);
void switch_decouple(struct endpoint *self, void *home_stack);
_Noreturn void switch_enter(struct endpoint *next);
_Noreturn void switch_restart(struct endpoint_worker *w);
size_t switch_copy(void *to, const void *from, size_t bytes);

bool switch_has_ready(const struct switch_group *g);
/* switch.c, called by switch.S */
struct endpoint *switch_pick(struct endpoint *self);
_Noreturn void switch_part(struct endpoint *self, struct endpoint_worker *w);
_Noreturn void switch_loop(struct endpoint_worker *w);
void *switch_home(struct endpoint *self);
/* ... and by the kernel and ranks */
void switch_on_trap(int sig, siginfo_t *si, void *context);
int switch_yield(struct endpoint *self);

#endif
