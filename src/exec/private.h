/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of exec/ only. */
#ifndef SLUICE_EXEC_PRIVATE_H
#define SLUICE_EXEC_PRIVATE_H

#include "exec/exec.h"

/* In shared memory; written by its rank, then published by `op`. */
struct exec_slot {
	BASE_ALIGNED_LINE _Atomic uint64_t op; /* 1 + number of the collective; release, read acquire */
	uint32_t prefer_vm, has_edges;
	struct region_desc desc[GOAL_MEMS];
	BASE_ALIGNED_LINE _Atomic uint64_t filled; /* staging: chunks in the ring */
	_Atomic uint64_t over; /* the collective that this rank has ended here; release, read acquire */
	BASE_ALIGNED_LINE char edges[2 * XFER_EDGE_BYTES];
	/* then the schedule, the transfers, and for each operation the collective in which it could
	 * start, where it requires others; at offsets that all ranks know */
};

enum exec_state { EXEC_BLOCKED, EXEC_ACTIVE, EXEC_MATCHED, EXEC_DONE };

/* Private to this process: how far an operation of its schedule has come. */
struct exec_op {
	enum exec_state state;
	uint32_t waits; /* requirements not ended yet */
	bool staged;
	struct xfer_view view;
};

/* A receive of another rank that this one may help with. */
struct exec_help {
	enum { HELP_UNKNOWN, HELP_READY, HELP_OVER } state;
	struct xfer_view view;
};

struct exec_comm {
	struct node_group *group;
	int rank, size;
	uint64_t op;           /* number of the current collective, from 1 */
	uint64_t slot_bytes, xfers_off, started_off, ring_off;
	uint32_t op_cap;
	struct exec_op *ops;
	struct exec_help *help; /* by rank */
	struct region_extent repair;
	int error;             /* sticky */
	bool told;             /* a message has said who is to blame */
	uint64_t give_up_ns;   /* when somebody has failed in a later collective */
	void (*progress)(void *);
	void *progress_ctx;
	/* of the current call */
	const struct exec_call *call;
	struct exec_slot *slot;
	const struct goal_block *block;
	uint32_t left;         /* operations not done */
	uint32_t next_help;
	uint64_t stage_bytes;  /* the range that is staged, when stage_src */
	const char *stage_src;
};

struct exec_slot *slot_of(const struct exec_comm *e, int rank, uint64_t op);
bool slot_is_published(const struct exec_slot *s, uint64_t op);
/* After reading from a published slot: does what was read count? */
bool slot_is_still(const struct exec_slot *s, uint64_t op);
/* Is its rank in a later collective, and the one numbered op over for it? */
bool slot_has_passed(const struct exec_slot *s, uint64_t op);
/* Has its rank ended the collective, and may be gone? */
bool slot_is_over(const struct exec_slot *s, uint64_t op);
struct goal_block *slot_schedule(struct exec_slot *s);
struct xfer *slot_xfer(const struct exec_comm *e, struct exec_slot *s, uint32_t recv);
char *ring_of(const struct exec_comm *e, int rank);

/* The bytes of a send that has to wait are not there when its slot is published. */
static inline bool has_inline_edges(const struct goal_op *send)
{
	return send->mem == GOAL_USER && !send->requires;
}
/* An operation of this rank that requires others may start now: peers look before they touch its memory. */
void slot_start(const struct exec_comm *e, uint32_t i);

/* match.c: fills `v` for the transfer between a published send and a published receive. -EAGAIN: one of
 * the two has passed on meanwhile or cannot start yet; -EREMOTEIO: they disagree. */
int match_view(struct exec_comm *e, int src, const struct goal_op *send, int dst, const struct goal_op *recv,
	       struct xfer_view *v);
const struct goal_op *find_recv(const struct exec_comm *e, struct exec_slot *s, int src, const struct goal_op *send);
const struct goal_op *find_send(struct exec_slot *s, int dst, const struct goal_op *recv);

/* step.c: 1 progress, 0 nothing to do now, -errno */
int step_op(struct exec_comm *e, uint32_t i);
int step_stage(struct exec_comm *e);
int step_help(struct exec_comm *e);

#endif
