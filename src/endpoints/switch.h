/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scheduler: ranks of a group as user-level threads of one worker
 * (SLUICE_ENDPOINTS_SWITCH=user).
 *
 *   rank at home --yield--> inbox --> queue of the worker --another yields--> runs there
 *        ^                                                                      |
 *        '--- system call, fault, pending signal (its signal frame moves home) -'
 *
 * A worker is a process of the carrier that shares its memory and descriptors. Syscall User
 * Dispatch raises SIGSYS at each system call of a rank on it; the handler moves the signal frame to
 * the home, which executes the call there. Faults go home in the same way and happen again.
 *
 * One worker owns the queue. A rank that keeps it from the others loses it, and goes on beside it:
 *
 *   free CPUs   as many workers as the group has CPUs are awake. Those without a rank watch the
 *               owner, and take the queue when it has not switched for some microseconds
 *   else        the monitor (the carrier) gives the queue to a spare worker after a time slice
 *
 * No rank is interrupted for another one: a worker inside the scheduler marks the word of the owner
 * as busy. A rank that does not yield while a signal waits for it is sent home where it is, by
 * RECALL_SIGNAL.
 *
 * Context: the functions below, the carrier's thread. In ranks and on workers FS is a rank's, so
 * nothing there uses TLS, errno or the C library.
 */
#ifndef SLUICE_ENDPOINTS_SWITCH_H
#define SLUICE_ENDPOINTS_SWITCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/endpoint.h"

/* Marks functions that run with the FS base of a rank, on stacks that a sanitizer does not know. FS
 * changes in switch.S only, so that a stack protector finds the canary that it has put there. */
#define NOT_WATCHED __attribute__((no_sanitize("address", "thread", "undefined")))
enum { FUTEX_OP_WAIT = 0, FUTEX_OP_WAKE = 1 };

struct switch_group;
struct switch_rank;

/* Starts the scheduler on the CPUs of the mask, of which it keeps `share` busy at most. Returns:
 * NULL with a reason. */
struct switch_group *switch_start(const uint64_t *cpus, uint32_t cpu_bytes, int share,
				  char *reason, size_t cap);
/* Room for a rank, which its image finds by endpoint_find(). Returns: NULL: no memory. */
struct switch_rank *switch_add(struct switch_group *g);
/* The rank that was added last has not started. */
void switch_drop(struct switch_group *g, struct switch_rank *r);
/* Is this the mask of the workers? */
bool switch_has_cpus(const struct switch_group *g, const uint64_t *cpus, uint32_t cpu_bytes);
void switch_set_pid(struct switch_rank *r, int pid);
struct endpoint *switch_endpoint(struct switch_rank *r);
/* The process of the rank has ended; a worker that still runs it is replaced. */
void switch_remove(struct switch_group *g, int pid);
/* Has a worker with this process ID ended, and with it the ranks on it? */
bool switch_lost_worker(const struct switch_group *g, int pid);

/* The monitor, once a time slice while it is due. */
int switch_wakes_fd(const struct switch_group *g); /* readable when the worker begins to run */
bool switch_is_idle(const struct switch_group *g);
void switch_monitor(struct switch_group *g);
enum { SWITCH_SLICE_MS = 4 };

#endif
