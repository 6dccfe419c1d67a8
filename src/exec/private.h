/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of exec/ only. */
#ifndef SLUICE_EXEC_PRIVATE_H
#define SLUICE_EXEC_PRIVATE_H

#include "exec/exec.h"

/* In shared memory; written by its rank, then published by `op`. */
struct exec_slot {
	BASE_ALIGNED_LINE _Atomic uint64_t
		op; /* 1 + number of the collective; release, read acquire */
	uint32_t prefer_vm, has_edges;
	uint32_t op_count, recv_count;
	struct region_desc desc[COLL_BUFFERS];
	struct reduce_shape
		reduce; /* when is_reduce; its slice's words are those of the first transfer */
	uint64_t reduce_in_off, reduce_out_off;
	uint32_t is_reduce, is_in_place, is_nonblocking, unused;
	BASE_ALIGNED_LINE _Atomic uint64_t filled; /* staging: chunks in the ring */
	_Atomic uint64_t
		completed; /* the collective that this rank has ended here; release, read acquire */
	_Atomic uint64_t waits_since_ns; /* its rank has nothing to do but wait for this collective;
					  * 0: not so. A hint: relaxed */
	BASE_ALIGNED_LINE char edges[2 * XFER_EDGE_BYTES];
	/* then the operations, the transfers (one a receive, the last for a copy); of a reduce its
	 * starts, and the edges of this rank's result; at offsets that all ranks know */
};

/* Where a reduce's slots are. */
struct slot_reduce { struct exec_comm *comm; uint64_t op; };

enum exec_state { EXEC_ACTIVE, EXEC_MATCHED, EXEC_DONE };

/* Private to this process: how far an operation of its schedule has come. Not written any more once
 * the run was left. */
struct exec_op {
	enum exec_state state;
	bool staged;
	struct xfer_view view;
};

/* Receives of another rank that this one may help with: one transfer after the other. */
struct exec_help {
	enum { HELP_UNKNOWN, HELP_READY, HELP_COMPLETE } state;
	uint32_t next;  /* operation of its schedule to look at next; READY: that of `view` */
	bool is_missed; /* one of those before could not be moved yet */
	struct xfer_view view;
};

struct exec_run {
	struct exec_comm *comm;
	const struct run_ops *kind;
	uint64_t op;           /* number of the collective, from 1 */
	struct exec_call call;
	struct exec_slot *slot;
	uint32_t op_count;     /* of its schedule; 0: a reduction */
	uint32_t remaining;        /* operations not done */
	uint32_t next_help;
	uint64_t stage_bytes;  /* the range that is staged, when stage_src */
	const char *stage_src;
	uint64_t give_up_ns;   /* when somebody has failed in a later collective */
	/* after leaving */
	struct engine_chan *chan;
	bool has_copied; /* the transfer of the one copy inside this rank that may be left is open
			  */
	struct xfer_queue queue;
	_Atomic uint32_t next_queued; /* operations below it have had their turn in the channel */
	_Atomic uint32_t in_channel;  /* the queue is in use */
	_Atomic bool is_stopped;
	_Atomic bool has_ended; /* exec_end(): its slot's next user takes it back */
	uint32_t depth;
	void (*drained)(void *arg);
	void *drained_arg;
	struct exec_run *next_free;
	/* a reduce; not written any more once the run was left */
	bool has_matched;      /* every rank has come */
	bool has_reduce_edges; /* the edges of its result are in place */
	struct slot_reduce reduce_at;
	uint32_t reduce_done; /* slices from its own on that are known to be done */
	struct reduce_view reduce;
	struct exec_op ops[];
};

struct exec_comm {
	struct node_group *group;
	int rank, size;
	uint64_t op;           /* number of the last collective begun, from 1 */
	uint64_t slot_bytes, xfers_off, starts_off, out_edges_off, ring_off;
	uint32_t op_cap, recv_cap, slots;
	struct exec_run *in_slot[EXEC_SLOTS]; /* begun and not taken back */
	struct exec_run *free_runs;
	struct exec_help *help; /* by rank */
	uint64_t help_op;       /* the collective that they are of */
	struct region_extent repair;
	struct reduce_room room; /* for operations of the program */
	_Atomic int error;     /* sticky */
	_Atomic bool is_reported;     /* a message has said who is to blame */
	void (*progress)(void *);
	void *progress_ctx;
};

struct exec_slot *slot_of(const struct exec_comm *e, int rank, uint64_t op);
bool slot_is_published(const struct exec_slot *s, uint64_t op);
/* After reading from a published slot: does what was read count? */
bool slot_is_still(const struct exec_slot *s, uint64_t op);
/* Is its rank in a later collective, and the one numbered op over for it? */
bool slot_has_passed(const struct exec_slot *s, uint64_t op);
/* Has its rank ended the collective, and may be gone? */
bool slot_is_complete(const struct exec_slot *s, uint64_t op);
struct coll_flat_op *slot_ops(struct exec_slot *s);
/* Never more than there is room for, whatever a slot that is being rewritten says. */
uint32_t slot_op_count(const struct exec_comm *e, const struct exec_slot *s);
struct xfer *slot_xfer(const struct exec_comm *e, struct exec_slot *s, uint32_t recv);
struct xfer *slot_copied(const struct exec_comm *e, struct exec_slot *s);
char *ring_of(const struct exec_comm *e, int rank);
/* Where others leave bytes of this rank's result: 2 * XFER_EDGE_BYTES. */
char *slot_edge_buf(const struct exec_comm *e, struct exec_slot *s);

static inline bool has_inline_edges(const struct coll_flat_op *send)
{
	return send->buf == COLL_SEND;
}
static inline const struct coll_flat_op *run_op(const struct exec_run *r, uint32_t i)
{
	return &slot_ops(r->slot)[i];
}

/* match.c: fills `v` for the transfer of collective `op` between a published send and a published
 * receive. -EAGAIN: one of the two has passed on meanwhile or cannot start yet; -EREMOTEIO: they
 * disagree. */
int match_view(struct exec_comm *e, uint64_t op, int src, const struct coll_flat_op *send, int dst,
	       const struct coll_flat_op *recv, enum xfer_view_mode mode, struct xfer_view *v);
/* The transfer of a receive, which stands in slot s. */
uint32_t recv_number(struct exec_slot *s, const struct coll_flat_op *recv);
const struct coll_flat_op *find_recv(const struct exec_comm *e, struct exec_slot *s, int src,
				const struct coll_flat_op *send);
const struct coll_flat_op *find_send(const struct exec_comm *e, struct exec_slot *s, int dst,
				const struct coll_flat_op *recv);
/* Operation i of the run, whichever side it is. 0, -EAGAIN: its peer is not there; -ESTALE: its
 * peer has ended the collective, all is done; -EREMOTEIO. */
int match_op(struct exec_run *r, uint32_t i, enum xfer_view_mode mode, struct xfer_view *v);

/* match.c: a copy inside a rank as a transfer with both ends there, so that others can do it too. 0
 * or -errno: memory that is not mapped. Only the first of a schedule has a transfer. match_copy():
 * of this rank; opens it the first time. */
bool is_first_copy(struct exec_slot *s, const struct coll_flat_op *copy);
int match_copy_in(struct exec_comm *e, struct exec_slot *s, int rank, uint64_t op,
		  const struct coll_flat_op *copy, enum xfer_view_mode mode, struct xfer_view *v);
int match_copy(struct exec_run *r, uint32_t i, enum xfer_view_mode mode, struct xfer_view *v);

/* step.c: 1 progress, 0 nothing to do now, -errno. copy: of what others could copy as well.
 * step_help() moves what others receive from others. */
int step_op(struct exec_run *r, uint32_t i, enum exec_copy copy);
int step_stage(struct exec_run *r);
int step_help(struct exec_run *r);

enum run_need { NOT_NEEDED, NEEDED_NOW, NEEDED_ALWAYS };

/*
 * What a run consists of. From advance() on: of detached runs, by any number of threads and in
 * signal handlers at once; nothing of the run is written there.
 */
struct run_ops {
	/* Fills the slot, which nobody reads at the moment. */
	void (*publish)(struct exec_run *r);
	/* The partners, some of them perhaps several times; -1: none at this place. */
	uint32_t (*peer_count)(const struct exec_run *r);
	int (*peer_at)(const struct exec_run *r, uint32_t i);
	/* As exec_step(); without ending the run. */
	int (*step)(struct exec_run *r, enum exec_copy copy);
	/* Moves what others receive from others. 1 progress, 0 nothing to do now, -errno. */
	int (*help)(struct exec_run *r);
	/* Must this rank stay? all_come: also until every partner has come. */
	enum run_need (*need)(const struct exec_run *r, bool all_come);
	void (*each_range)(const struct exec_run *r, exec_visit *visit, void *arg);
	int (*advance)(struct exec_run *r, uintptr_t addr);
	bool (*is_range_complete)(struct exec_run *r, uintptr_t start, uintptr_t end);
	bool (*is_complete)(struct exec_run *r);
	bool (*is_claimed)(struct exec_run *r);
	bool (*is_matched)(struct exec_run *r);
	uint64_t (*work_bytes)(const struct exec_run *r);
};
extern const struct run_ops transfers_ops; /* transfers.c */
extern const struct run_ops reduction_ops; /* reduce.c */

/* Checks call->reduce. 0 or -errno: it is not published. */
int reduction_begin(struct exec_run *r);
/* Is every fragment of it claimed? */
bool transfer_is_claimed(const struct xfer_view *v);
/* Everything of operation i is claimed, and not all of it in place? */
bool transfer_may_be_held(struct exec_run *r, uint32_t i);

/* How a process that is no rank sees the reduce of collective `op`, whose slots are published. 0,
 * -EAGAIN: not now; -EPERM: it may not do any of it. Valid with *at. */
int slot_reduce_view(struct slot_reduce *at, struct reduce_view *v);

/* detach.c: this run has not moved for a while: peers whose channels may hold what it waits for are
 * called. */
void call_peers(struct exec_run *r, struct node_wait *w);

/* exec.c */
int check_peers(struct exec_run *r);
int wait_step(struct exec_run *r, struct node_wait *w);
/* Partners are told since when this rank does nothing but wait for the collective, if it does. */
void slot_note_waiting(const struct exec_run *r, const struct node_wait *w);
void slot_note_working(const struct exec_run *r);
void run_retire(struct exec_run *r); /* its slot is over; the memory is free for the next */

#endif
