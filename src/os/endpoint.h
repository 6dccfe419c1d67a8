/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank as a user-level thread: what libsluice.so knows of the scheduler in endpoints/, whose
 * functions lie in another program of the same address space.
 *
 *   home     the kernel thread that the rank's ld.so has set up: process ID, descriptors, signals
 *   worker   a kernel thread that runs the waiting ranks of a group in turn; a rank that makes a
 *            system call or faults there continues at home
 *
 * The scheduler is found by a variable of the environment, which endpoint_find() removes.
 */
#ifndef SLUICE_OS_ENDPOINT_H
#define SLUICE_OS_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENDPOINT_VARIABLE "SLUICE_ENDPOINT" /* address of struct endpoint, hexadecimal */
#define ENDPOINT_MAGIC    0x31746e696f70646eull

enum { ENDPOINT_RANKS_MAX = 64 };

struct endpoint_worker;

/* One rank, as both sides see it. endpoints/switch.S knows the first three members. */
struct endpoint {
	uint64_t sp;                    /* while it does not run */
	uint64_t fs;                    /* FS base of its thread */
	struct endpoint_worker *worker; /* that runs it; NULL: at home */
	uint64_t magic;
	uint64_t random_at; /* AT_RANDOM of its image: no program executed later has the same */
	int home_pid;
	/* Runs others that are ready. Returns: 0: the rank stays at home, or this is no rank */
	int (*yield)(struct endpoint *self);
	/* Returns: how many of the bytes were not copied, because one side is not mapped */
	size_t (*copy)(void *to, const void *from, size_t bytes);
	const int *pids; /* of all ranks of the group, ended by 0 */
	uint64_t switches, trips; /* to another rank; home by a system call or a fault */
};

/* Once, in a constructor of the image's first thread. */
void endpoint_find(void);

extern struct endpoint *endpoint_self; /* NULL: ranks do not switch in this process */

/* Gives the processor to ranks of this group that are ready.
 * Returns: false: there is no scheduler, or the rank stays at home: the caller yields itself. */
static inline bool endpoint_yield(void)
{
	return endpoint_self && endpoint_self->yield(endpoint_self);
}

/* Does the calling thread run on a worker, where a system call costs microseconds? */
bool endpoint_is_decoupled(void);
/* Is the process with this ID a rank of the group? */
bool endpoint_is_peer(int pid);

#endif
