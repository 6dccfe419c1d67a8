/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sched: runs compiled schedules (goal/) of any shape over the processes of a node group.
 *
 *   sched_group_create -> sched_open -> { sched_run -> sched_test | sched_wait } ... -> sched_close
 *      -> sched_group_destroy
 *
 * Each rank has a state in the control segment: operations that are ready, posted receives,
 * unexpected messages, open jobs. A process drives the state of a rank while it holds that state's
 * claim: the rank itself in its calls, or another rank of the group that waits. A claim is tried
 * and never waited for, so nobody depends on a process that lost its CPU. All that a state refers
 * to lies in memory that every rank maps.
 *
 * Progress. One waiting process, the watcher, drives all ranks that are in no call. While there is
 * no watcher, a call that returns to its program first drives all ranks until nothing is ready
 * (state_drive_all()), and hands that duty to whoever holds a claim that it finds taken. Programs
 * that never call sched_run() pay for neither (doc/adr/0041-goal-progress.md).
 *
 *   rank 0's area     | state | peers | rings from 0, 1 ... | stores | eager records | directory |
 *   an open schedule  | body | block | state of each operation | a message for each send |
 *                       in the arena of its owner
 *
 * Messages. A short message travels in the slot of a ring (one cache line) or in an eager record,
 * and its send has then ended. A longer one is announced, and copied once, from its source to its
 * destination, when the receive is posted. Unexpected messages cost no memory of the receiver, as
 * their list is threaded through the sender's records. A sender without records announces.
 *
 * Copies and computations are jobs. Any process that can reach their memory claims fragments of
 * them (xfer/protocol.c), and holds no claim of a state meanwhile. At most SCHED_EAGER_BYTES are
 * copied under the claim of a state.
 *
 * Matching. A receive takes the first message from its source under its tag in its context. A
 * context is the channel of the schedule and the number of the run on that channel: the n-th run
 * on a channel of one rank meets the n-th run on it of the other ranks. With SCHED_STREAM all runs
 * on a channel are one context, and messages match in the order in which operations start.
 *
 * Memory of sched_alloc() is mapped by every rank. Other memory of the program stays private and
 * is copied by process_vm_readv() and process_vm_writev(), or packed by its owner
 * (doc/adr/0032-goal-library.md).
 *
 * Failures. When a process dies, runs that depend on it end with -EOWNERDEAD, and runs that depend
 * on those too; others go on. A rank whose state another process was changing when it died can run
 * nothing any more.
 *
 * Trust. A process drives a peer's schedule from a private copy that goal_verify() has accepted.
 * Every address that comes from shared memory is compared with the bounds of its arena.
 *
 * Threads: any; but open, run, wait and close of one schedule by one thread at a time. Context: not
 * in signal handlers.
 */
#ifndef SLUICE_SCHED_H
#define SLUICE_SCHED_H

#include "base/base.h"
#include "goal/goal.h"
#include "node/node.h"

struct sched_group;
struct sched_inst; /* an open schedule */

/* Creates a group. Collective over oob. Returns: 0 with *out, or with NULL when the ranks cannot
 * form a group (node_refusal()). */
int sched_group_create(const struct node_oob *oob, struct sched_group **out);
/*
 * Creates a group without MPI, of `size` processes of one user that know a name. Returns: 0 with
 * *out; -ETIMEDOUT: not all came; -EADDRINUSE: another group of this name is being made; -EEXIST:
 * this rank has joined already; -EINVAL: no such rank or name, or the members disagree about the
 * size; -EPERM: the name is another user's; -ECONNRESET: a member has died, or rank 0 given up;
 * -ENOTSUP: the ranks cannot form a group.
 */
int sched_join(const char *name, int rank, int size, uint64_t timeout_ns, struct sched_group **out);
/* Closes all open schedules of this rank. Waits up to 2 seconds for the peers, then frees the
 * memory that no peer can read any more. */
void sched_group_destroy(struct sched_group *g);
int sched_rank(const struct sched_group *g);
int sched_size(const struct sched_group *g);

/* Memory that every rank of the group maps. Returns: NULL with errno. */
void *sched_alloc(struct sched_group *g, uint64_t bytes);
void sched_free(struct sched_group *g, void *p);

enum { SCHED_STREAM = 1 };

struct sched_open {
	const struct goal_block *block;
	uint64_t block_bytes;
	/* buffers of the program, space GOAL_USER + i; valid until sched_close() */
	void *const *buffers;
	const uint64_t *buffer_bytes;
	uint32_t buffer_count;
	uint32_t channel;
	unsigned flags;
	const char *name; /* in messages; copied */
};
/* Returns: 0; -EINVAL: the block does not verify; -ENOMEM; -ENOSPC: too many are open. */
int sched_open(struct sched_group *g, const struct sched_open *o, struct sched_inst **out);
/* Returns: its scratch memory, from open to close; NULL: it has none. */
void *sched_scratch(const struct sched_inst *s);
/* Returns: 0; -EBUSY: a run has not ended. */
int sched_close(struct sched_inst *s);

/* Starts a run. Returns: 0; -EBUSY: a run has not ended; the error of a run that has failed. */
int sched_run(struct sched_inst *s);
/* Returns: 1 when the run has ended, 0 when not; -EOWNERDEAD, -EREMOTEIO (sizes differ), -ECANCELED
 * ... when it has failed. */
int sched_test(struct sched_inst *s);
/* Returns: 0 when the run has ended; errors as above; -ETIMEDOUT: it goes on, see sched_stuck().
 * SLUICE_GOAL_TIMEOUT ends it. */
int sched_wait(struct sched_inst *s, uint64_t timeout_ns);
/* sched_run() and sched_wait() in one call, which is faster. */
int sched_execute(struct sched_inst *s, uint64_t timeout_ns);
/* Ends a run with -ECANCELED, here and on every rank that depends on it. Returns: 0; -EALREADY. */
int sched_cancel(struct sched_inst *s);

/*
 * For threads that wait elsewhere, called again and again: once that has gone on for a while,
 * drives all ranks of all groups, in each call for some microseconds and a copy at most. Returns:
 * 1: something was done; 0; -1: nothing has been pending for long. Context: the calling library's
 * locks may be held.
 */
int sched_poll(void);
/* ask() has that library call sched_poll() from now on; 0: it will. sched_run() calls it once more
 * after a -1. */
void sched_ask(int (*ask)(void));

/* Why a run has failed. */
struct sched_failure {
	int error;
	int rank;    /* rank to blame: it died, sent another size, was canceled */
	int at_rank; /* rank where the run failed first */
	uint32_t op; /* operation in which it failed; GOAL_NONE */
};
void sched_failure(const struct sched_inst *s, struct sched_failure *out);
/* Describes the operations that have started and not ended, one a line. Returns: as snprintf(). */
size_t sched_stuck(const struct sched_inst *s, char *buf, size_t cap);

/* When each operation of the last run began and ended, in ns since the run began. Returns: NULL
 * unless the schedule was opened while SLUICE_GOAL_PROFILE was set or after sched_keep_times(). */
struct sched_times { uint64_t begin_ns, end_ns; };
void sched_keep_times(struct sched_group *g, bool keep);
const struct sched_times *sched_times(const struct sched_inst *s);

#endif
