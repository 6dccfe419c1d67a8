/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * endpoints: ranks of a node that share one address space, each an unmodified program.
 *
 *   mpiexec --- shell of rank 0 ------.            a launched process, as the launcher knows it
 *          `--- shell of rank 1 --.   | fork       (arguments, descriptors, signals, status)
 *                                 |   v
 *                     socket      `-> carrier      owns the address space
 *                                     |- image 0   one process a rank, cloned with CLONE_VM:
 *                                     `- image 1   own ld.so, C library, MPI library, program
 *
 *   shell.c    finds or starts the carrier of the group, hands over, forwards signals, ends alike
 *   state.c    what a process keeps over execve(): collected by the shell ...
 *   child.c    ... and put into force by the new process, without a C library
 *   message.c  the messages between both
 *   carrier.c  accepts shells, starts images, reports how they end
 *   switch.c   ranks that take turns on one kernel thread, if asked for (switch.h) ...
 *   monitor.c  ... and the carrier's part of that
 *   image.c    maps ld.so, builds the stack that execve() would build, clones
 *
 * An image is a process of its own that shares the memory of its siblings and nothing else: process
 * ID, descriptors, working directory, signals, limits, threads, exit and core dumps are private by
 * the kernel, and globals, TLS, heap and stdio because each image has its own C library. A break
 * fence makes the kernel refuse to move the break, which all images share, so that each malloc()
 * falls back to mmap().
 *
 * Order of calls: endpoints_join() in place of execve(). It returns only when the rank has to be an
 * ordinary process, and nothing of it has run by then. Whatever fails later ends the rank.
 *
 * Context: a process with one thread. Linked into bin/sluice only, never into libsluice.so.
 */
#ifndef SLUICE_ENDPOINTS_H
#define SLUICE_ENDPOINTS_H

#include <stdbool.h>
#include <stddef.h>

#include "os/endpoint.h"

struct endpoints_program {
	const char *path;  /* of an executable file, with a slash */
	char *const *argv;
	char *const *envp;
	int ranks;         /* that share an address space at most */
	int node_rank;     /* number of this rank on its node */
	int rank;          /* in MPI_COMM_WORLD; -1: unknown */
	const char *job;   /* ranks share an address space with their own job only; NULL: unknown */
	int launcher;      /* by endpoints_launcher() */
	int cpus;          /* that these ranks may keep busy, at least 1 */
	bool switches;     /* ranks give each other the processor: switch.h */
};

/* The ranks of this address space, in each carrier at the same offset: for debuggers. */
extern struct endpoint_space endpoints_space;

/* Could ranks that run the program at `path` under this process's limits share an address space?
 * Returns: true, or false with the reason. */
bool endpoints_check(const char *path, char *reason, size_t cap);

/* Could such ranks switch (switch.h)? Starts a scheduler in a child process.
 * Returns: true, or false with the reason. */
bool endpoints_check_switch(char *reason, size_t cap);

/* The launcher's process on this node is an ancestor of all its ranks; wrapper scripts may stand
 * between. Returns: the nearest ancestor that is a launcher, else the parent. */
int endpoints_launcher(void);

/* The rank becomes an image of its group's carrier, and this process its shell, which ends as the
 * image ends. Returns: why the rank has to stay a process, in `reason`. */
void endpoints_join(const struct endpoints_program *program, char *reason, size_t cap);

#endif
