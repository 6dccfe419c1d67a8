/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the shell and the carrier, which are always the same build. */
#ifndef SLUICE_ENDPOINTS_PRIVATE_H
#define SLUICE_ENDPOINTS_PRIVATE_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/base.h"
#include "endpoints/endpoints.h"
#include "endpoints/switch.h"

#ifndef SYS_close_range /* Linux 5.9 */
#define SYS_close_range 436
#endif

enum {
	ENDPOINTS_VERSION = 4,
	ENDPOINTS_FDS_MAX = 1000,
	ENDPOINTS_CPU_WORDS = 64,   /* 4096 CPUs */
	ENDPOINTS_NODE_WORDS = 16,  /* 1024 NUMA nodes */
	ENDPOINTS_REASON_BYTES = 160,
	SIGNALS = 64,
};

/* ---- what execve() keeps: state.c ---------------------------------------------------------- */

/* The kernel's struct sched_attr, as far as Linux 3.14 has it. */
struct endpoints_sched {
	uint32_t size, policy; /* size 0: unknown */
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

struct endpoints_state {
	uint64_t blocked, ignored;             /* signals */
	struct rlimit limits[RLIM_NLIMITS];
	uint32_t cpu_bytes;                    /* 0: unknown */
	uint64_t cpus[ENDPOINTS_CPU_WORDS];
	struct endpoints_sched sched;
	int32_t mempolicy;                     /* -1: unknown */
	uint64_t nodes[ENDPOINTS_NODE_WORDS];
	uint32_t umask;
	int32_t pgrp;                          /* 0: one of its own */
	int32_t session;                       /* no other rank's; 0: it may be */
	uint32_t fd_count;
	int32_t fds[ENDPOINTS_FDS_MAX];        /* ascending, without those that execve() closes */
};

/* Collects the state of this process. Returns: 0, or -errno with a reason. */
int state_collect(struct endpoints_state *out, char *reason, size_t cap);

/* ---- program files and images: image.c ----------------------------------------------------- */

struct image_file {
	char interp[PATH_MAX];
	bool has_argv0; /* its ld.so knows --argv0 */
};

/* Can the program at `path` be an image? Returns: 0, or -errno with a reason. */
int image_check(const char *path, struct image_file *out, char *reason, size_t cap);

/* A rank as the shell hands it over; the strings lie behind it in one block. */
struct image_start {
	struct image_file file;
	struct endpoints_state state;
	const char *path;
	uint32_t argc, envc;
	const char **argv, **envp; /* not terminated */
	int32_t rank;              /* in MPI_COMM_WORLD; -1: unknown */
	uint64_t text_bytes;       /* of argv, envp and path */
	int received[ENDPOINTS_FDS_MAX]; /* here, in the order of state.fds */
	int cwd;
	struct endpoint *endpoint; /* of this rank, in the carrier */
};

struct child_job;
/* Prepares the process of an image, which waits until image_release(). Returns: its process ID, or
 * -errno with a reason. */
int image_create(const struct image_start *start, struct child_job **out_job, char *reason,
		 size_t cap);
/* Lets the prepared image run. */
void image_release(struct child_job *job);
/* Keeps the kernel from moving the break. Returns: 0 or -errno. */
int image_fence_break(void);

/* ---- the new process: child.c -------------------------------------------------------------- */

/* On the stack of the image, below what ld.so finds there: the program overwrites it. */
struct child_job {
	const struct image_start *start; /* valid until the release */
	int carrier;                 /* process ID */
	uint64_t entry, sp;          /* of ld.so */
	_Atomic uint32_t phase;      /* futex: enum child_phase */
	int error;                   /* errno */
	const char *failed;          /* the call that failed */
	int moved[ENDPOINTS_FDS_MAX]; /* descriptors on their way to their numbers */
};
enum child_phase { CHILD_STARTS, CHILD_READY, CHILD_FAILED, CHILD_RELEASED };

/* First function of the new process, by clone(). */
int child_main(void *job);

/* ---- messages: message.c ------------------------------------------------------------------- */

enum reply_kind { REPLY_REFUSED, REPLY_STARTED, REPLY_ENDED };

struct endpoints_reply {
	uint32_t kind;
	int32_t value; /* process ID, or the status of waitpid() */
	char reason[ENDPOINTS_REASON_BYTES];
};

/* Sends the program and the state of this process, with descriptors. Returns: 0 or -errno. */
int message_send_start(int socket, const struct endpoints_program *program,
		       const struct image_file *file, const struct endpoints_state *state);
/* Returns: 0 with an object that message_free_start() frees, or -errno. */
int message_receive_start(int socket, struct image_start **out);
void message_free_start(struct image_start *start);

int message_send(int socket, const void *data, size_t bytes);
/* Returns: 0, or -errno; -EPIPE at the end of the stream. */
int message_receive(int socket, void *data, size_t bytes);

/* ---- the carrier: carrier.c ---------------------------------------------------------------- */

/* Serves until every image has ended. */
_Noreturn void carrier_main(int listener, const struct endpoints_program *program);

/* close_range(), or one by one where the kernel has no such call. */
void endpoints_close_range(unsigned first, unsigned last);

#endif
