/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the ranks' side and the process. */
#ifndef SLUICE_WORKER_PRIVATE_H
#define SLUICE_WORKER_PRIVATE_H

#include <sys/socket.h>
#include <sys/un.h>

#include "exec/exec.h"
#include "worker/worker.h"

#define WORKER_VERSION 2u /* see also worker_abi() */
#define WORKER_THREADS 8
#define WORKER_GROUPS EXEC_NAME_GROUPS
#define WORKER_CLIENTS 4096
#define WORKER_ANNOUNCEMENTS 64

/* Descriptors that the process inherits. */
enum { WORKER_FD_LISTENER = 3, WORKER_FD_PAGE = 4 };

/* ---- announcements: announce.c ------------------------------------------------------------- */

struct worker_announcements {
	BASE_ALIGNED_LINE _Atomic uint32_t count; /* futex; announcements so far */
	_Atomic uint32_t seekers;                 /* threads that poll `count` */
	_Atomic uint32_t sleepers;                /* threads that sleep on `count` */
	BASE_ALIGNED_LINE _Atomic uint64_t entries[WORKER_ANNOUNCEMENTS]; /* 0: free */
};

/* Returns: false when the queue is full; then this announcement is lost. */
bool announce_post(struct worker_announcements *b, uint64_t word);
/* Returns: an announcement, searched cyclically from place *at, which becomes its place; or 0. */
uint64_t announce_peek(struct worker_announcements *b, uint32_t *at);
void announce_remove(struct worker_announcements *b, uint32_t at, uint64_t word);
/* Wakes one more thread if one sleeps and none polls. */
void announce_wake(struct worker_announcements *b);
/* Polls `count` until it differs from `known` or until the time. Returns: true if it differs. */
bool announce_poll(struct worker_announcements *b, uint32_t known, uint64_t until_ns);
void announce_sleep(struct worker_announcements *b, uint32_t known);

/* client (12 bits) | group (10) | tag; never 0, as groups begin at 1 */
static inline uint64_t announcement(uint32_t client, uint32_t group, uint64_t tag)
{
	return ((uint64_t)client << 10 | group) << 24 | tag;
}

/* ---- the page ------------------------------------------------------------------------------ */

enum worker_state { WORKER_STARTS, WORKER_RUNS, WORKER_ENDS, WORKER_DEAD };

struct worker_thread {
	BASE_ALIGNED_LINE _Atomic uint64_t claim; /* name of a fragment, see exec.h; 0: none */
	_Atomic uint64_t due_ns;    /* when the copy is overdue */
	_Atomic uint32_t tid;
	_Atomic uint32_t in_group;  /* the group whose memory the thread may access; 0: none */
	struct os_lend lend;
};

/*
 * Its first rank opens a group once it has the number, so that nobody enters one whose ranks do not
 * know the number. Each rank closes it before it frees memory. When all have closed it, the worker
 * may give the number to another group.
 */
struct worker_group {
	_Atomic uint32_t is_open;
	_Atomic uint32_t closed; /* ranks that have closed it, and that no thread was inside then */
	/* reclaiming of a dead worker's claims: 0 to do, 1 in progress, 2 done */
	_Atomic uint32_t rescue;
};

struct worker_page {
	/* Written by the starting rank, before the process exists. */
	uint32_t version, threads;
	int32_t starter_pid;
	uint32_t is_normal;         /* threads run at normal priority (tests) */
	uint32_t alone_ms;          /* time without ranks after which the process ends (tests);
				     * 0: the default */
	uint64_t key, poll_max_ns;
	int64_t copy;               /* enum base_copy_kernel */
	uint64_t fragment_bytes,
		past_cache_bytes;   /* all movers must cut transfers into the same fragments */
	char trace[256];            /* SLUICE_TRACE, an absolute path; empty: no trace */
	uint64_t trace_limit_bytes;
	struct os_cpumask cpus;
	/* Written once by the process; `state` also by whoever finds the process dead. */
	_Atomic uint64_t start;
	_Atomic int32_t pid;
	BASE_ALIGNED_LINE _Atomic uint32_t state; /* enum worker_state */
	struct worker_announcements announced;
	BASE_ALIGNED_LINE _Atomic uint64_t intent;
	struct worker_thread thread[WORKER_THREADS];
	struct worker_group group[WORKER_GROUPS];
	_Atomic uint64_t bytes[WORKER_CLIENTS]; /* bytes moved for the announcements of each rank */
};

/* A check that both sides are of one build: the program file may have changed since the library was
 * loaded. */
static inline uint32_t worker_abi(void)
{
	return (uint32_t)(WORKER_VERSION * 0x9e3779b1u ^ sizeof(struct worker_page) ^
			  sizeof(struct xfer_view) << 12 ^ exec_area_bytes(2, EXEC_SLOTS) << 4);
}

/* ---- messages ---------------------------------------------------------------------------- */

enum worker_message { WORKER_HELLO = 1, WORKER_GROUP };

struct worker_hello { /* carries the descriptor of the arena */
	uint32_t type, version;
	uint64_t key;
	struct node_member self;
};
struct worker_group_hello { /* followed by a node_member for each rank */
	uint32_t type, unused;
	struct node_outline outline;
};
/* to a hello, with the descriptor of the page; value: client, group or -errno */
struct worker_answer {
	int32_t value;
};

/* ---- client.c ------------------------------------------------------------------------------ */

socklen_t worker_socket_name(struct sockaddr_un *a, int pid, uint64_t id);

extern _Atomic(struct worker_page *) worker_page; /* NULL: not attached */

/* ---- check.c ------------------------------------------------------------------------------- */

/* Notices a dead worker; costs a system call at most every 50 ms. By ranks that announce. */
void check_alive_sometimes(struct worker_page *p);
/* Waits at most wait_ns for the end of the process, then kills it. */
__attribute__((cold)) void stop_process(uint64_t wait_ns);
/* Does a thread of the worker move data of the group? */
bool is_inside(const struct worker_page *p, uint32_t group);

/* ---- start.c ----------------------------------------------------------------------------- */

/* Starts the process with these two descriptors, as no child of the caller. Returns: its pid, or
 * -errno with the reason. */
__attribute__((cold)) int worker_spawn(int listener, int page, char *reason, size_t cap);

/* ---- serve.c ----------------------------------------------------------------------------- */

int serve_start(struct worker_page *page);
/* Stops claiming, and waits a while until no claim is held. */
void serve_stop(void);
/* Sets the exec_comm that serves group `i`. NULL: none; then no thread may be in the group. */
void serve_group(uint32_t i, struct exec_comm *e);

#endif
