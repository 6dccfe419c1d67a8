/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sched: runs compiled schedules (goal/) of any shape over the processes of a node group.
 *
 *   sched_group_create -> sched_open -> { sched_run -> sched_test | sched_wait } ... -> sched_close
 * -> sched_leave
 *
 * Every rank has an engine in the control segment: what is ready, which receives are posted, which
 * messages came before their receive, what is being copied. Whoever holds the engine's claim drives
 * it; a claim is tried, never waited for, so nobody stands behind a process that lost its CPU: the
 * rank itself when it calls here, and any other rank of the group that waits and finds nothing of
 * its own to do. Everything an engine refers to lies in memory that all of them map.
 *
 *   rank 0's area     | engine | peers | rings from 0, 1 ... | stores | eager records | directory |
 *   an open schedule  | body | block | state of each operation | a message for each send |   in the
 * arena
 *
 * Messages. What is short travels in the slot of a ring (one cache line) or in an eager record; the
 * send has then ended. All else is announced, and copied once, from where it lies to where it shall
 * be, when the receive is there. A message that comes early costs no memory but the sender's: links
 * are threaded through the sender's own records. Where records have run out a send waits for its
 * receive.
 *
 * Copying and computing are jobs: an engine lists them, and whoever can reach the memory takes
 * units of them (xfer/'s protocol), holding no claim. While a claim is held at most
 * SCHED_EAGER_BYTES are copied.
 *
 * Matching: a receive takes the first message from its source under its tag in its context. A
 * context is the channel of the open schedule and the number of the run on that channel, so the
 * n-th run on a channel of one rank meets the n-th run on it of the others, whatever else is in
 * flight. With SCHED_STREAM all runs on the channel are one context, and messages meet in the order
 * in which operations start.
 *
 * When a process dies, runs that depend on it end with -EOWNERDEAD, those that depend on such runs
 * too, and others go on. A process that died while it drove somebody's engine is that engine's end.
 *
 * Other processes' schedules are driven from a private copy that goal_verify() has seen; every
 * address that comes from shared memory is compared with its arena's bounds before it is used.
 *
 * Threads: any, but open, run, wait and close of one schedule by one at a time. Not in signal
 * handlers.
 */
#ifndef SLUICE_SCHED_H
#define SLUICE_SCHED_H

#include "base/base.h"
#include "goal/goal.h"
#include "node/node.h"

struct sched_group;
struct sched_inst; /* an open schedule */

/* Collective over oob. 0 with *out, or NULL when the ranks cannot form a group (node_refusal()). */
int sched_group_create(const struct node_oob *oob, struct sched_group **out);
/*
 * The same without MPI: `size` processes of one user that know a name. -ETIMEDOUT: not all came;
 * -EADDRINUSE: another group of this name is being made; -EEXIST: this rank is there already;
 * -EINVAL: they disagree about the size; -EPERM: the name is another user's; -ENOTSUP as above
 * NULL.
 */
int sched_join(const char *name, int rank, int size, uint64_t timeout_ns, struct sched_group **out);
/* Closes what is open. Memory that peers may still read is kept until all have left. */
void sched_leave(struct sched_group *g);
int sched_rank(const struct sched_group *g);
int sched_size(const struct sched_group *g);

/* Memory that the whole group can address. NULL with errno. */
void *sched_alloc(struct sched_group *g, uint64_t bytes);
void sched_free(struct sched_group *g, void *p);

enum { SCHED_STREAM = 1 };

struct sched_open {
	const struct goal_block *block;
	uint64_t block_bytes;
	void *const *buffers; /* of the program, GOAL_USER + i; they stay until sched_close() */
	const uint64_t *buffer_bytes;
	uint32_t buffer_count;
	uint32_t channel;
	unsigned flags;
	const char *name;              /* for messages; copied */
};
/* 0, -EINVAL (the block does not verify), -ENOMEM, -ENOSPC (too many are open). */
int sched_open(struct sched_group *g, const struct sched_open *o, struct sched_inst **out);
/* Its scratch memory, which is there from open to close; NULL: it has none. */
void *sched_scratch(const struct sched_inst *s);
/* No run may be in flight; -EBUSY. */
int sched_close(struct sched_inst *s);

/* Start it. No allocation, no system call unless a peer sleeps. 0, -EBUSY while it runs, or the
 * error for which it cannot run any more. */
int sched_run(struct sched_inst *s);
/* 1 it has ended, 0 not yet, -errno it has failed (-EOWNERDEAD, -EREMOTEIO: sizes differ,
 * -ECANCELED ...). */
int sched_test(struct sched_inst *s);
/* 0, -errno as above; -ETIMEDOUT: still running, see sched_stuck(). SLUICE_GOAL_TIMEOUT ends it for
 * good. */
int sched_wait(struct sched_inst *s, uint64_t timeout_ns);
/* sched_run() and sched_wait(), faster: nothing is started twice or given up in between. */
int sched_execute(struct sched_inst *s, uint64_t timeout_ns);
/* End it with -ECANCELED, here and where it is waited for. */
int sched_cancel(struct sched_inst *s);

/* Why a run has failed. */
struct sched_failure {
	int error;
	int rank;      /* to blame: it died, sent another size, was canceled */
	int at_rank;   /* where the run failed first */
	uint32_t op;   /* and in which operation; GOAL_NONE */
};
void sched_failure(const struct sched_inst *s, struct sched_failure *out);
/* The operations that have started and not ended, one a line; snprintf-like. */
size_t sched_stuck(const struct sched_inst *s, char *buf, size_t cap);

/* Of the last run, when it was opened while SLUICE_GOAL_PROFILE was set or with sched_keep_times():
 * ns since its beginning at which each operation began and ended; NULL: not kept. */
struct sched_times { uint64_t begin_ns, end_ns; };
void sched_keep_times(struct sched_group *g, bool keep);
const struct sched_times *sched_times(const struct sched_inst *s);

#endif
