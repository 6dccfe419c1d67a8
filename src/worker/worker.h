/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * worker: one process a job and machine that copies for ranks which have returned early. It is like
 * a rank that waits: it has the ranks' arenas and control segments mapped, and nothing else of
 * them, and claims fragments of what is published there (exec_serve). A rank that closes and opens
 * pages interrupts every CPU on which a thread of its own process runs; this one is of another
 * process, and is not interrupted. doc/adr/0016-worker-process.md
 *
 *      a rank starts it                       every rank
 *   worker_start --ticket--> (allgather) --> worker_attach   gives its arena, maps the page
 *                                            worker_group_open (rank 0 of a group)
 *                                            worker_announce ... worker_check (who waits) ...
 *                                            worker_group_close, worker_detach
 *
 *   page     a memfd that the worker and all attached ranks map: the bell, what is announced, what
 * is claimed, which groups are open bell     announcements are hints: one that is lost, or that
 * nobody serves, costs time only, as any rank that waits moves the data too claim    what a thread
 * of the worker is copying, written down by name before it is certain, so that it can be killed at
 * any moment: worker_check() gives its claims back
 *
 * Its threads copy at idle priority on CPUs that the job leaves free, look for work for a short
 * time after the last, and then sleep without time-outs. It ends with the rank that started it,
 * which it hears of by its connection and by a pidfd; it has a process group of its own (Ctrl-C is
 * for the program), the session of the rank that started it (with whose share of the CPUs, where
 * sessions have one, it lives), no descriptors but those named here, and no environment.
 *
 * Threads: all calls from any thread. Signals: announce, look and is_alive are async-signal-safe
 * (look may sleep for a moment); the others are not. Files: start.c (the process), client.c (a
 * rank's end), look.c (waiting for it, killing it), bell.c, message.c; in the process: server.c
 * (connections, groups), serve.c (threads). Who is woken when, and for how long they look, is
 * progress/'s decision.
 */
#ifndef SLUICE_WORKER_H
#define SLUICE_WORKER_H

#include "base/base.h"
#include "os/os.h"
#include "node/node.h"
#include "progress/progress.h"

/* How to reach one, for the ranks of a job. Zero: none. Fixed width. */
struct worker_ticket {
	int32_t pid, unused; /* of the rank that started it */
	uint64_t socket, key;
};

/* Where its threads run, and how many. */
struct worker_setup {
	struct os_cpumask cpus;
	int threads;
};

/* Start one. 0, or -errno with the reason, a sentence. Returns before it is there. At most once a
 * process. */
int worker_start(const struct worker_setup *setup, struct worker_ticket *out, char *reason,
		 size_t cap);
/* Can one be started? 0, or -errno with the reason; out_path: its program. */
int worker_probe(char *out_path, size_t path_cap, char *reason, size_t cap);

/* The one that this process is attached to; zero when there is none, or it is dead. */
void worker_current(struct worker_ticket *out);
/* Give it this process's arena. 0 (also when attached to it already), or -errno. */
int worker_attach(const struct worker_ticket *t);
/* By rank 0 of a group, when all its ranks attach: what the others call it, 1 to 1023; or -errno.
 */
int worker_group_open(const struct node_group *g);
/* By every rank, before it destroys the group: the worker is not in it any more. */
void worker_group_close(int group);
/* No operation is in flight. The one that started it ends it. */
void worker_detach(void);
void worker_after_fork_child(void);

/* Is there one, and is it alive as far as anybody has noticed? One relaxed load. */
bool worker_is_alive(void);
int worker_pid(void); /* 0: there is none */
/* What its threads are at, for progress/: has_process to asleep of *f. A few relaxed loads. */
void worker_facts(struct progress_facts *f);
/* There is something to move in the collective with this tag (exec_tag()). */
void worker_announce(int group, uint64_t tag);
/* Bytes that it has moved after announcements of this process, since the last call. */
uint64_t worker_bytes(void);

/*
 * By a rank that waits, now and then: lends this CPU to a thread of the worker that has none in the
 * middle of a copy, ends a worker that makes no progress for SLUICE_ENGINE_TIMEOUT, and when it is
 * dead has what it had claimed in this group taken back (exec_take_back()). Returns whether
 * something has changed.
 */
typedef void worker_reclaim(void *arg, uint64_t name, bool is_intent);
bool worker_check(int group, worker_reclaim *take_back, void *arg);

/* The program of the process. */
int worker_main(void);

#endif
