/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Schedules in the kernel. group.c: who talks to whom, and when runs go on; run.c: one run.
 *
 * A worker of a high-priority unbound workqueue goes through all runs of a group, and starts every
 * operation that may start; the sources that decide it (src/goal) are those of user space. A send
 * and the receive that it matches become one copy between pinned pages, by the worker.
 *
 * Nothing of user space is trusted: the block is verified in a private copy, memory is reached
 * through pinned pages and bounds that were checked against it, and the sum of bytes is limited.
 *
 * Locks: group->lock (mutex: everything of its runs) > context->lock.
 */
#ifndef _SLUICE_RUN_H
#define _SLUICE_RUN_H

#include <linux/kref.h>

#include "sluice.h"
#include "goal/interp.h"
#include "goal/local.h"

struct run_group {
	struct kref refs;        /* descriptor, members, queued work */
	struct mutex lock;
	struct work_struct work;
	u32 ranks;
	int error;               /* not 0: broken */
	bool has_left;           /* a member */
	unsigned long *joined, *left; /* bitmaps of ranks */
	struct list_head runs;
	u8 *bounce;              /* three areas of RUN_BOUNCE_BYTES, of the worker */
};
#define RUN_BOUNCE_BYTES 4096

/* An operation that waits for its partner. */
struct run_op {
	struct list_head list;   /* of run->sends or run->recvs; else empty */
};

/* Owner: the group, from run_start() until its record is written. */
struct run {
	struct list_head list;   /* of group->runs */
	struct run_group *group;
	struct sluice_context *context;
	unsigned int slot;
	u32 rank;
	u64 id, cookie;
	ktime_t begun;
	bool cancelled;          /* written by anybody under context->lock */
	struct goal_block *block; /* private */
	struct goal_state *state;
	struct run_op *ops;
	struct list_head sends, recvs;
	u8 *scratch;
	u64 bases[GOAL_SPACES_MAX]; /* addresses in the owner */
	struct sluice_region *regions[GOAL_SPACES_MAX]; /* NULL: not named */
};

/* ---- run.c; under group->lock unless it says otherwise ------------------------------------ */

/* Verifies, pins and allocates. Context: the owner, under context->enter, without group->lock. */
struct run *run_new(struct sluice_context *c, const struct sluice_run *arg);
/* Context: without group->lock too, if the run is not listed. */
void run_free(struct run *r);
/* Starts all operations that may start. Returns: whether there were any, or -errno. */
int run_advance(struct run *r);
static inline bool run_has_ended(const struct run *r)
{
	return goal_is_complete(r->state);
}
static inline const struct goal_op *run_op_at(const struct run *r, u32 i)
{
	return &goal_ops_const(r->block)[i];
}
static inline u32 run_op_number(const struct run *r, const struct run_op *o)
{
	return o - r->ops;
}

/* ---- group.c ------------------------------------------------------------------------------ */

/* Returns: the run of this rank and number, or NULL. */
struct run *run_find(struct run_group *g, u32 rank, u64 id);

#endif
