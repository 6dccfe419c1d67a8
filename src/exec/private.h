/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of exec/ only. */
#ifndef SLUICE_EXEC_PRIVATE_H
#define SLUICE_EXEC_PRIVATE_H

#include "exec/exec.h"

enum slot_op_type { OP_NONE, OP_RECV, OP_SEND, OP_COPY };

/* One operation of a rank. In shared memory: fixed width, no padding. */
struct slot_op {
	uint8_t type, buf; /* buf: the one sent from, received into, or copied to */
	uint8_t src_buf;   /* copy */
	uint8_t unused;
	/* layouts of the slot, from 1; 0: without gaps. src_layout: copy */
	uint32_t layout, src_layout;
	uint32_t peer;
	uint32_t tag;   /* a send matches the receive of its peer with the same tag */
	uint32_t match; /* send: index of that receive among the peer's operations, a hint */
	uint64_t off, bytes;
	uint64_t src_off; /* copy */
};

/* In shared memory; its rank writes it, then publishes it by `op`. */
struct exec_slot {
	BASE_ALIGNED_LINE _Atomic uint64_t
		op; /* number of the collective, 0 while it is rewritten; release, read acquire */
	uint32_t prefer_vm, is_nonblocking;
	uint32_t op_count, recv_count;
	struct region_desc desc[COLL_BUFFERS];
	struct reduce_shape
		reduce; /* valid when is_reduce; the claim words are the first transfer's */
	uint64_t reduce_in_off, reduce_out_off;
	uint32_t is_reduce, is_in_place, reduce_float_modes;
	BASE_ALIGNED_LINE _Atomic uint64_t filled; /* staging: chunks in the ring */
	_Atomic uint64_t
		/* number of the last collective that this rank ended here; release, read acquire */
		completed;
	/* since when its rank only waits for this collective; 0: not idle. A hint: relaxed */
	_Atomic uint64_t waits_since_ns;
	/* in the first slot of rank 0: a rank has reported that ranks disagree; slots of a rank */
	_Atomic uint32_t is_explained;
	_Atomic uint32_t slots;
	struct exec_origin origin;
	/*
	 * Behind it, at offsets that all ranks know, in the order in which calls need them, as each
	 * new page takes a fault on both sides: the operations, a reduction's starts, the transfers
	 * (the first for a copy, then one per receive), the edges of the send buffer and of this
	 * rank's result, and layouts of the operations whose bytes have gaps.
	 */
};

/* Identifies the slots of a reduction. */
struct slot_reduce { struct exec_comm *comm; uint64_t op; };

enum exec_state { EXEC_ACTIVE, EXEC_MATCHED, EXEC_DONE };

/* The progress of one operation; process-private, not written in a detached run. */
struct exec_op {
	enum exec_state state;
	bool staged;
	struct xfer_view view;
};

/* The receives of a peer that this rank may help with, one transfer at a time. */
struct exec_help {
	enum { HELP_UNKNOWN, HELP_READY, HELP_COMPLETE } state;
	/* next operation of the peer to check; READY: the one of `view` */
	uint32_t next;
	bool is_missed; /* an earlier one could not be moved yet */
	struct xfer_view view;
};

struct exec_run {
	struct exec_comm *comm;
	const struct run_ops *kind;
	uint64_t op;           /* number of the collective, from 1 */
	struct exec_call call;
	struct exec_slot *slot;
	uint32_t op_count;     /* 0: a reduction */
	uint32_t remaining;        /* incomplete operations */
	uint32_t next_help;
	uint64_t stage_bytes;  /* the staged range, with stage_src */
	const char *stage_src;
	uint64_t give_up_ns;   /* deadline after a failure in a later collective */
	/* detached runs */
	struct engine_chan *chan;
	bool has_copied; /* the transfer of the copy that may be detached is open */
	struct xfer_queue queue;
	_Atomic uint32_t in_channel; /* the queue is in use */
	_Atomic bool has_ended; /* set by exec_end(): the next user of the slot frees the run */
	uint32_t depth;
	void (*drained)(void *arg);
	void *drained_arg;
	struct exec_run *next_free;
	/* reductions; not written in a detached run */
	bool has_matched;      /* every rank has published */
	bool has_reduce_edges; /* the edges of the result are in place */
	struct slot_reduce reduce_at;
	uint32_t reduce_done; /* completed slices, counted from its own on */
	struct reduce_view reduce;
	struct exec_op ops[];
};

struct exec_comm {
	struct node_group *group;
	int rank, size;
	uint32_t group_id; /* for the trace */
	uint64_t op;           /* number of the last collective begun, from 1 */
	char *area; /* of rank 0; the others' follow, area_bytes apart */
	uint64_t area_bytes, slot_bytes, starts_off, xfers_off, edges_off, layouts_off,
		ring_off;
	uint32_t op_cap, recv_cap, slots;
	struct exec_run *in_slot[EXEC_SLOTS_MAX]; /* begun and not freed */
	struct exec_run *free_runs;
	struct exec_help *help; /* by rank */
	uint64_t help_op;       /* the collective that `help` describes */
	struct region_extent repair;
	struct reduce_room room; /* for operations of the program */
	_Atomic int error;     /* sticky */
	_Atomic bool is_reported;     /* the failed rank has been reported */
	struct exec_waiter_hooks hooks;
};

/*
 * Most operations of a rank, and most receives among them: enough for a collective in which each
 * rank talks to each other rank, and for some more neighbours.
 */
static inline uint32_t ops_max(int ranks) { return 2 * (uint32_t)ranks + 32; }
static inline uint32_t recvs_max(int ranks) { return (uint32_t)ranks + 16; }

/* Most layouts of a rank: one of each operation, and one more of each copy. */
static inline uint32_t layouts_max(int ranks) { return ops_max(ranks) + recvs_max(ranks); }

struct exec_slot *slot_of(const struct exec_comm *e, int rank, uint64_t op);
bool slot_is_published(const struct exec_slot *s, uint64_t op);
/* Is the slot still that of the collective? Otherwise data read from it before does not count. */
bool slot_is_still(const struct exec_slot *s, uint64_t op);
/* Has its rank begun a later collective, so that collective `op` has ended there? */
bool slot_has_passed(const struct exec_slot *s, uint64_t op);
/* Has its rank ended the collective? The rank may have exited. */
bool slot_is_complete(const struct exec_slot *s, uint64_t op);
struct slot_op *slot_ops(struct exec_slot *s);
/* Edges of this rank's send buffer: 2 * XFER_EDGE_BYTES. */
char *slot_send_edges(const struct exec_comm *e, struct exec_slot *s);
/* Bounded by the slot's capacity, even while its rank rewrites the slot. */
uint32_t slot_op_count(const struct exec_comm *e, const struct exec_slot *s);
/* The transfer of the first copy, and that of a receive. */
struct xfer *slot_copied(const struct exec_comm *e, struct exec_slot *s);
struct xfer *slot_xfer(const struct exec_comm *e, struct exec_slot *s, uint32_t recv);
char *ring_of(const struct exec_comm *e, int rank);
/* Edge buffer for this rank's result: 2 * XFER_EDGE_BYTES. */
char *slot_edge_buf(const struct exec_comm *e, struct exec_slot *s);

struct layout *slot_layouts(const struct exec_comm *e, struct exec_slot *s);
/* Copies layout `index` of a slot operation; one that no slot can hold becomes one that fits no
 * buffer. 0: no block. */
struct layout slot_layout(const struct exec_comm *e, struct exec_slot *s, uint32_t index);

static inline const struct slot_op *run_op(const struct exec_run *r, uint32_t i)
{
	return &slot_ops(r->slot)[i];
}

/*
 * build.c: write the rank's operations into its slot, which no other rank reads meanwhile, and
 * their layouts to layouts[].
 * Returns: do other ranks read COLL_SEND, and so its bytes outside the pages?
 */
bool slot_build(struct exec_slot *s, struct layout *layouts, const struct exec_shape *shape,
		int rank, int ranks);

/*
 * match.c: fill `v` for the transfer of collective `op` between a published send and a published
 * receive.
 * Returns: 0; -EAGAIN: one end has left the collective, or cannot start yet; -EREMOTEIO: the ends
 * disagree about the size, or a layout exceeds its buffer. After an error `v` is undefined.
 */
int match_view(struct exec_comm *e, uint64_t op, int src, const struct slot_op *send, int dst,
	       const struct slot_op *recv, enum xfer_view_mode mode, struct xfer_view *v);
/* Index of a receive's transfer in slot s. */
uint32_t recv_number(struct exec_slot *s, const struct slot_op *recv);
const struct slot_op *find_recv(const struct exec_comm *e, struct exec_slot *s, int src,
				const struct slot_op *send);
const struct slot_op *find_send(const struct exec_comm *e, struct exec_slot *s, int dst,
				const struct slot_op *recv);
/*
 * Fill `v` for operation i of the run, a send or a receive.
 * Returns: 0; -EAGAIN: the peer has not published; -ESTALE: the peer has ended the collective, so
 * the operation is complete; -EREMOTEIO.
 */
int match_op(struct exec_run *r, uint32_t i, enum xfer_view_mode mode, struct xfer_view *v);

/*
 * match.c: a copy inside a rank, viewed as a transfer with both ends there, so that other ranks can
 * move it. Only the first copy of a schedule has a transfer. match_copy() is for this rank, and
 * opens the transfer at its first call.
 * Returns: 0; -EAGAIN: the slot is used for another collective; -EINVAL: the memory is not mapped.
 */
int match_copy_in(struct exec_comm *e, struct exec_slot *s, int rank, uint64_t op,
		  const struct slot_op *copy, enum xfer_view_mode mode, struct xfer_view *v);
int match_copy(struct exec_run *r, uint32_t i, enum xfer_view_mode mode, struct xfer_view *v);

/*
 * step.c: `copy` limits what is copied of the data that others could copy as well. step_help()
 * moves data between other ranks.
 * Returns: 1: progress; 0: nothing to do now; -errno.
 */
int step_op(struct exec_run *r, uint32_t i, enum exec_copy copy);
int step_stage(struct exec_run *r);
int step_help(struct exec_run *r);

enum run_need { NOT_NEEDED, NEEDED_NOW, NEEDED_ALWAYS };

/*
 * The two kinds of run. From advance() on the functions serve detached runs: any number of threads
 * and signal handlers may call them at once, and none of them writes to the run.
 */
struct run_ops {
	/* Fill the slot. No other rank reads the slot meanwhile. */
	void (*publish)(struct exec_run *r);
	/* The partners, some perhaps repeatedly; -1: none at this index. */
	uint32_t (*peer_count)(const struct exec_run *r);
	int (*peer_at)(const struct exec_run *r, uint32_t i);
	/* Like exec_step(), but never frees the run. */
	int (*step)(struct exec_run *r, enum exec_copy copy);
	/* Move data between other ranks. Returns: 1: progress; 0: nothing to do now; -errno. */
	int (*help)(struct exec_run *r);
	/* Must this rank stay? all_come: also until every partner has published. */
	enum run_need (*need)(const struct exec_run *r, bool all_come);
	void (*each_range)(const struct exec_run *r, exec_visit *visit, void *arg);
	int (*advance)(struct exec_run *r);
	int (*fetch)(struct exec_run *r, uintptr_t start, uintptr_t end, bool *out_is_complete);
	unsigned (*poll)(struct exec_run *r, uintptr_t start, uintptr_t end, unsigned facts);
	uint64_t (*work_bytes)(const struct exec_run *r);
};
extern const struct run_ops transfers_ops; /* transfers.c */
extern const struct run_ops reduction_ops; /* reduce.c */

/* Check call->reduce. Returns: 0, or -errno: nothing is published. */
int reduction_begin(struct exec_run *r);
/* Is every fragment claimed? */
bool transfer_is_claimed(const struct xfer_view *v);
/* Is every fragment of operation i claimed, and one of them not in place? */
bool transfer_may_be_held(struct exec_run *r, uint32_t i);

/*
 * Fill `v` with the worker process's view of a reduction, whose slots are published; v refers to
 * *at.
 * Returns: 0; -EAGAIN: not now; -EPERM: the worker may not move any of it.
 */
int slot_reduce_view(struct slot_reduce *at, struct reduce_view *v);

/*
 * detach.c: wake the peers whose channels may hold data that this run, without progress for a
 * while, waits for.
 */
void call_peers(struct exec_run *r, struct node_wait *w);

/* explain.c: has a rank of the group reported that ranks disagree? */
bool is_explained(const struct exec_comm *e);

/* exec.c */
int check_peers(struct exec_run *r);
int wait_step(struct exec_run *r, struct node_wait *w);
/* Publish since when this rank has only waited for the collective, if it has. */
void slot_note_waiting(const struct exec_run *r, const struct node_wait *w);
void slot_note_working(const struct exec_run *r);

#endif
