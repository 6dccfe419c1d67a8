/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that shares an address space: what libsluice.so knows of the carrier and the scheduler in
 * endpoints/, whose data and functions lie in another program of the same address space.
 *
 *   home     the kernel thread that the rank's ld.so has set up: process ID, descriptors, signals
 *   worker   a kernel thread that runs the waiting ranks of a group in turn; a rank that makes a
 *            system call or faults there continues at home
 *
 * An image finds its struct endpoint by a variable of the environment, which endpoint_find()
 * removes. A rank that had to stay a process finds the reason there.
 */
#ifndef SLUICE_OS_ENDPOINT_H
#define SLUICE_OS_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The variable says: of an image, the address of its struct endpoint, hexadecimal; of a rank
 * that stays a process, "-" and a reason; of a program that may execute ranks, such as a shell,
 * "@PID/PATH" with the process ID of the launcher and the path of bin/sluice; to bin/sluice itself,
 * ">PID PATH" with the path of a program that preload/exec.c had it execute. */
#define ENDPOINT_VARIABLE "LIBSLUICE_ENDPOINT"
#define ENDPOINT_REASON   '-'
#define ENDPOINT_TOOL     '@'
#define ENDPOINT_PROGRAM  '>'
#define ENDPOINT_PRELOAD  "LIBSLUICE_PRELOAD" /* beside it: the program's LD_PRELOAD */
#define ENDPOINT_MAGIC    0x31746e696f70646eull

enum { ENDPOINT_RANKS_MAX = 64 };

struct endpoint_worker;

/* A rank of the address space, as all its ranks and the carrier see it. */
struct endpoint_rank {
	_Atomic int pid;       /* carrier; 0: it has ended, or has not started */
	int rank;              /* in MPI_COMM_WORLD, as the launcher says; -1: unknown */
	const void *debug;     /* rank: struct r_debug of its ld.so, for debuggers */
	_Atomic(void *) offer; /* rank: what it offers to others */
};

/* All ranks of the address space, in the carrier. */
struct endpoint_space {
	_Atomic uint32_t count; /* entries that are or were used */
	struct endpoint_rank rank[ENDPOINT_RANKS_MAX];
};

/* One rank, as both sides see it. endpoints/switch.S knows the first three members. */
struct endpoint {
	uint64_t sp;                    /* while it does not run */
	uint64_t fs;                    /* FS base of its thread */
	struct endpoint_worker *worker; /* that runs it; NULL: at home */
	uint64_t magic;
	uint64_t random_at; /* AT_RANDOM of its image: no program executed later has the same */
	int home_pid;
	struct endpoint_space *space;
	struct endpoint_rank *entry; /* in the space */
	/* NULL: ranks do not switch. Runs others that are ready. Returns: 0: the rank stays at
	 * home, or this is no rank */
	int (*yield)(struct endpoint *self);
	/* Returns: how many of the bytes were not copied, because one side is not mapped */
	size_t (*copy)(void *to, const void *from, size_t bytes);
	uint64_t switches, trips; /* to another rank; home by a system call or a fault */
	uint64_t handoffs; /* times that it kept its worker and others got the queue */
	uint64_t stays;    /* times that it chose to stay home for a while */
	/* The stack of its first thread: end, begin, and how far down it may grow. */
	uint64_t stack_end, stack_begin, stack_floor;
	/* Called by a rank whose limit is now this. */
	void (*raise_stack)(struct endpoint *self, uint64_t bytes);
};

/* Once, in a constructor of the image's first thread. */
void endpoint_find(void);

extern struct endpoint *endpoint_image; /* NULL: this process has its own address space */
extern struct endpoint *endpoint_self;  /* NULL: ranks do not switch in this process */
/* NULL: this process has its own address space, as a forked child of an image has */
extern struct endpoint_space *endpoint_space;
extern const char *endpoint_program;    /* path of the image's program */
extern const char *endpoint_refusal;    /* why the rank had to stay a process; NULL: it had not */

/* Returns: the program of this image, if the path is a link of /proc to it; else NULL. Context:
 * signal handlers, and between vfork() and exec. */
const char *endpoint_program_at(const char *path);

/* Gives the processor to ranks of this group that are ready.
 * Returns: false: there is no scheduler, or the rank stays at home: the caller yields itself. */
static inline bool endpoint_yield(void)
{
	return endpoint_self && endpoint_self->yield(endpoint_self);
}

/* Does the calling thread run on a worker, where a system call costs microseconds? */
bool endpoint_is_decoupled(void);
/* Is the process with this ID a rank of this address space, which has not ended? */
bool endpoint_is_peer(int pid);

#endif
