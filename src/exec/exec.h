/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exec: runs schedules (goal/) over transfers (xfer/).
 *
 * Every rank of a node group publishes what it brings to a collective in a slot of the control
 * segment: its schedule, descriptors of its memory, the edges of its send buffer, and one transfer
 * for each of its receives. Collectives of a communicator come in the same order on every rank, so
 * slot number n of one rank belongs to slot number n of any other; within it a send is matched to a
 * receive by (source, tag). Publishing is all a rank must do for others to move its data: whoever
 * arrives last starts, whoever waits helps; an operation that requires others is said to have started
 * when it may, and touched by nobody before.
 *
 *   exec_area(rank): | slot 0 | slot 1 | ... | staging ring |
 *   slot:            | exec_slot | schedule | xfer [recv_count] | started [op_count] |
 *
 * Limits that coll/ keeps: a rank stages one range of its memory in a collective; inline edges exist
 * for GOAL_USER + 0 only (sends from elsewhere are mapped, copied by system call, or staged).
 *
 * Threads: one at a time per group.
 */
#ifndef SLUICE_EXEC_H
#define SLUICE_EXEC_H

#include "goal/goal.h"
#include "node/node.h"
#include "region/region.h"
#include "xfer/xfer.h"

#define EXEC_SLOTS 8 /* collectives of a rank whose slots exist at a time; early return will need more */

struct exec_comm;

/* Bytes each rank's user area of the node group must have. ops: most operations of a schedule. */
uint64_t exec_area_bytes(int ranks);
/* progress (may be NULL): called with progress_ctx again and again while this rank waits. */
int exec_create(struct node_group *g, void (*progress)(void *), void *progress_ctx, struct exec_comm **out);
void exec_destroy(struct exec_comm *e);

/* One rank's side of a collective. */
struct exec_call {
	const struct goal_block *schedule;
	void *user[GOAL_MEMS - 1];
	struct region_desc desc[GOAL_MEMS]; /* by memory space; zero when not used */
	bool prefer_vm;         /* process_vm_* rather than staging; the same on every rank */
	const char *name;       /* "MPI_Bcast", for messages */
};

/*
 * Run it to its end. Returns 0; -EOWNERDEAD when a peer has died (reported here); -EREMOTEIO when the
 * two ends of a transfer disagree about its size; other -errno. After an error the data of this
 * collective is undefined and the group accepts no further one.
 */
int exec_run(struct exec_comm *e, const struct exec_call *call);

/* This rank cannot take part in the collective that the others are in: they get -EIO, not a hang. */
void exec_abandon(struct exec_comm *e, int error);

#endif
