/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ranks' end and the process share. */
#ifndef SLUICE_WORKER_PRIVATE_H
#define SLUICE_WORKER_PRIVATE_H

#include <sys/socket.h>
#include <sys/un.h>

#include "exec/exec.h"
#include "worker/worker.h"

#define WORKER_VERSION 1u /* and see worker_abi() */
#define WORKER_THREADS 8
#define WORKER_GROUPS EXEC_NAME_GROUPS
#define WORKER_CLIENTS 4096
#define WORKER_ANNOUNCEMENTS 64

/* Descriptors that the process is born with. */
enum { WORKER_FD_LISTENER = 3, WORKER_FD_PAGE = 4 };

/* ---- the bell: bell.c -------------------------------------------------------------------- */

struct worker_announcements {
	BASE_ALIGNED_LINE _Atomic uint32_t count; /* futex; announcements so far */
	_Atomic uint32_t seekers;                 /* threads that look at count by themselves */
	_Atomic uint32_t sleepers;                /* threads that sleep on it */
	BASE_ALIGNED_LINE _Atomic uint64_t entries[WORKER_ANNOUNCEMENTS]; /* 0: free */
};

/* False: it is full, and the hint is lost. */
bool announce_post(struct worker_announcements *b, uint64_t what);
/* An announcement, from place *at on, around the end once; 0: there is none. *at becomes its place.
 */
uint64_t announce_peek(struct worker_announcements *b, uint32_t *at);
void announce_remove(struct worker_announcements *b, uint32_t at, uint64_t what);
/* One more thread for what is announced, if one sleeps and none seeks. */
void announce_wake(struct worker_announcements *b);
/* Until count is not `seen` any more, at most until then. True: it is not. */
bool announce_poll(struct worker_announcements *b, uint32_t seen, uint64_t until_ns);
void announce_sleep(struct worker_announcements *b, uint32_t seen);

/* client (12 bits) | group (10) | tag: never 0, as groups begin at 1 */
static inline uint64_t announcement(uint32_t client, uint32_t group, uint64_t tag)
{
	return ((uint64_t)client << 10 | group) << 24 | tag;
}

/* ---- the page ---------------------------------------------------------------------------- */

enum worker_state { WORKER_STARTS, WORKER_RUNS, WORKER_ENDS, WORKER_DEAD };

struct worker_thread {
	BASE_ALIGNED_LINE _Atomic uint64_t claim; /* a name, see exec.h; 0: nothing */
	_Atomic uint64_t due_ns;    /* by then it should have been copied */
	_Atomic uint32_t tid;
	_Atomic uint32_t in_group;  /* it may look at this one's memory; 0: at none */
	_Atomic uint32_t lenders;   /* ranks that have lent it a CPU */
	_Atomic uint32_t ended;     /* futex; copies that have ended */
};

struct worker_group {
	_Atomic uint32_t is_open;
	_Atomic uint32_t rescue;    /* when the worker is dead: 0, 1 somebody takes back, 2 done */
};

struct worker_page {
	/* written by the rank that starts it, before it does */
	uint32_t version, threads;
	int32_t starter_pid;
	uint32_t is_normal;         /* not at idle priority (tests) */
	uint64_t key, poll_max_ns;
	int64_t copy;               /* enum base_copy_kernel */
	uint64_t fragment_bytes,
		past_cache_bytes;   /* SLUICE_XFER_FRAGMENT: all movers must cut alike */
	char trace[256];            /* SLUICE_TRACE, an absolute path; empty: nothing is traced */
	uint64_t trace_limit_bytes;
	struct os_cpumask cpus;
	/* written by the process, once; then by whoever finds it dead */
	_Atomic uint64_t start;
	_Atomic int32_t pid;
	BASE_ALIGNED_LINE _Atomic uint32_t state; /* enum worker_state */
	struct worker_announcements bell;
	BASE_ALIGNED_LINE _Atomic uint64_t intent;
	struct worker_thread thread[WORKER_THREADS];
	struct worker_group group[WORKER_GROUPS];
	_Atomic uint64_t bytes[WORKER_CLIENTS]; /* moved after each rank's announcements */
};

/* Both ends are of one build, for all that can be told: the program may have been replaced since
 * the library was loaded. */
static inline uint32_t worker_abi(void)
{
	return (uint32_t)(WORKER_VERSION * 0x9e3779b1u ^ sizeof(struct worker_page) ^
			  sizeof(struct xfer_view) << 12 ^ exec_area_bytes(2) << 4);
}

/* ---- messages ---------------------------------------------------------------------------- */

enum worker_message { WORKER_HELLO = 1, WORKER_GROUP };

struct worker_hello { /* with the descriptor of the arena */
	uint32_t type, version;
	uint64_t key;
	struct node_member self;
};
struct worker_group_hello { /* then a node_member for each rank */
	uint32_t type, unused;
	struct node_outline outline;
};
struct worker_answer { /* to a hello with the descriptor of the page; value: client, or group; or
			  -errno */
	int32_t value;
};

socklen_t worker_socket_name(struct sockaddr_un *a, int pid, uint64_t id);
/* One message, with a descriptor (-1: none). 0 or -errno. */
int worker_send(int fd, const void *m, size_t bytes, int passed_fd);
/* Waits at most timeout_ms. Bytes received, with *out_fd (-1: none; the caller's), 0: the other end
 * is closed, or -errno. */
ssize_t worker_receive(int fd, void *m, size_t cap, int timeout_ms, int *out_fd);

/* ---- client.c, for look.c ---------------------------------------------------------------- */

extern _Atomic(struct worker_page *) worker_page; /* NULL: not attached */

/* ---- look.c ------------------------------------------------------------------------------ */

/* By who announces: one that is dead is noticed. */
void check_alive_sometimes(struct worker_page *p);
/* Waits until it is gone, for so long; then kills it. */
void stop_process(uint64_t wait_ns);

/* ---- start.c ----------------------------------------------------------------------------- */

/* The process with these two descriptors; its pid, nobody's child, or -errno with the reason. */
int worker_spawn(int listener, int page, char *reason, size_t cap);

/* ---- serve.c ----------------------------------------------------------------------------- */

int serve_start(struct worker_page *page);
/* No more claims; waits until none is held, for a while. */
void serve_stop(void);
/* From now on group `i` is served by this; NULL: not any more, and no thread is in it. */
void serve_group(uint32_t i, struct exec_comm *e);

#endif
