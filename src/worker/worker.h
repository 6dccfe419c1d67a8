/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * worker: one process per job and machine that copies for ranks which have returned early.
 *
 * Like a waiting rank, the worker maps the arenas and control segments of the ranks, and claims
 * fragments of what they have published (exec_serve). A rank that closes and opens pages interrupts
 * every CPU that runs a thread of its own process; the worker is another process and is not
 * interrupted (doc/adr/0016-worker-process.md).
 *
 *      one rank                               every rank
 *   worker_start --ticket--> (allgather) --> worker_attach       hand over the arena, map the page
 *                                            worker_group_open   (rank 0 of a group)
 *                                            worker_announce     work has been published
 *                                            worker_check        by ranks that wait
 *                                            worker_group_close, worker_detach
 *
 *   page          a memfd that the worker and all attached ranks map: announcements, claims, groups
 *   announcement  a hint: a lost one costs time only, as any waiting rank moves the data too
 *   claim         the fragment that a thread copies; the thread writes its name before the claim is
 *                 certain, so that the process can be killed at any moment and worker_check() can
 *                 give the claim back
 *
 * The threads copy at idle priority on CPUs that the job leaves free, poll for work for a short
 * time after the last, then sleep without a time-out; progress/ decides whom to wake and how long
 * to poll. The process ends with the rank that started it, which it notices by its connection and
 * by a pidfd. It has its own process group (Ctrl-C is for the program), the session of the rank
 * that started it (schedulers may share CPUs among sessions), no descriptors but those named here,
 * and no environment.
 *
 * Threads: any thread may make any call.
 * Signals: worker_announce, worker_check and worker_is_alive are async-signal-safe; worker_check
 * may sleep for a moment. The other calls are not.
 * Files: start.c (starting the process), client.c (connections of a rank), check.c (lending,
 * killing, reclaiming), announce.c, message.c; in the process: server.c (connections), serve.c
 * (threads).
 */
#ifndef SLUICE_WORKER_H
#define SLUICE_WORKER_H

#include "base/base.h"
#include "os/os.h"
#include "node/node.h"
#include "progress/progress.h"

/* The address of a worker, for all ranks of a job. All zero: none. Fixed width. */
struct worker_ticket {
	int32_t pid, unused; /* of the rank that started the worker */
	uint64_t socket, key;
};

/* CPUs of the threads, and their number. */
struct worker_setup {
	struct os_cpumask cpus;
	int threads;
};

/* Starts a worker, at most once per process, and does not wait for it. Returns: 0, or -errno with a
 * sentence in `reason`. */
__attribute__((cold))
int worker_start(const struct worker_setup *setup, struct worker_ticket *out, char *reason,
		 size_t cap);

/* Writes the ticket of the attached worker; all zero when there is none or it is dead. */
void worker_current(struct worker_ticket *out);
/* Connects to a worker and hands over this process's arena. Returns: 0 (also when attached already)
 * or -errno. */
__attribute__((cold)) int worker_attach(const struct worker_ticket *t);
/* Registers a group whose ranks are all attached; rank 0 calls it. Returns: the worker's number of
 * the group, 1 to 1023, or -errno. After a request without an answer all others fail. */
__attribute__((cold)) int worker_group_open(const struct node_group *g);
/*
 * Closes the group; after the return the worker accesses none of its memory. Every rank calls it
 * once, before it destroys the group, with ranks = 1; or its first rank for all, whose ranks do not
 * know the number. When all ranks have closed it, another group may get its number.
 */
void worker_group_close(int group, int ranks);
/* Disconnects; the rank that started the attached worker ends it. No operation may be active. */
__attribute__((cold)) void worker_detach(void);
__attribute__((cold)) void worker_after_fork_child(void);

/* Returns: true when a worker is attached and nobody has noticed its death. One relaxed load. */
bool worker_is_alive(void);
int worker_pid(void); /* 0: none */
/* Fills the facts has_process to asleep with the state of the worker. A few relaxed loads. */
void worker_facts(struct progress_facts *f);
/* Announces that the collective with this tag (exec_tag()) has work. Context: async-signal-safe. */
void worker_announce(int group, uint64_t tag);
/* Returns: bytes that the worker has moved for announcements of this process since the last
 * call. */
uint64_t worker_bytes(void);

/*
 * Checks on the worker while this rank waits: lends its CPU to a displaced thread, kills a worker
 * that makes no progress for SLUICE_ENGINE_TIMEOUT, and calls `reclaim` for each claim of a dead
 * worker in this group (exec_reclaim()). Returns: true when something has changed. Context:
 * async-signal-safe; may sleep for a moment.
 */
typedef void worker_reclaim(void *arg, uint64_t name, bool is_intent);
bool worker_check(int group, worker_reclaim *reclaim, void *arg);

/* main() of the process. */
int worker_main(void);

#endif
