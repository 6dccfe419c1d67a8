/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exec: executes one rank's side of a collective: operations over transfers (xfer/), or a reduction
 * (reduce/).
 *
 * Inside a node every collective is flat: each rank sends each other rank's part directly to it,
 * and copies its own part. No operation waits for another, so any mover can move any byte at any
 * time (doc/adr/0020-flat-collectives.md). Offsets are relative to a rank's own buffers; only the
 * byte counts must agree between ranks.
 *
 * Each rank of a node group publishes its side of a collective in a slot of the control segment:
 * its operations, the descriptors of its memory, the edges of its send buffer, and one transfer per
 * receive. All ranks number the collectives of a communicator alike, so slot n of each rank belongs
 * to the same collective; within it (source, tag) matches a send with a receive. A rank only has to
 * publish for others to move its data: the last rank to arrive starts, and waiting ranks help.
 *
 *   exec_area(rank): | slot 0 | slot 1 | ... | staging ring |
 *   slot:            | exec_slot | operations | reduction's | xfer of a copy | xfer [recv_count] |
 *
 * A run is one rank's side of one collective:
 *
 *   exec_begin -> exec_wait                                     blocking
 *   exec_begin -> exec_step, exec_step ...                      nonblocking
 *   exec_begin -> exec_settle -> exec_detach -> ... exec_end    detached: the call returns; a
 *                                   |                           channel or any rank moves the rest
 *                                   `-> exec_wait               needed: the call blocks after all
 *
 * A reduction has no operations to match: once all ranks have published, any mover can combine any
 * fragment. Its slot holds the shape, the claim words of the rank's slice, and the edges of the
 * rank's input and result.
 *
 * A rank stages at most one range of its memory per collective, and sends from COLL_SEND only.
 *
 * Threads: one thread at a time begins, settles, detaches and waits for the runs of a group.
 * Any number of threads and signal handlers may advance, poll and pause a detached run: these
 * functions change shared memory by atomics only, and write nothing in this process.
 */
#ifndef SLUICE_EXEC_H
#define SLUICE_EXEC_H

#include "engine/engine.h"
#include "coll/coll.h"
#include "node/node.h"
#include "reduce/reduce.h"
#include "region/region.h"
#include "xfer/xfer.h"

/* Collectives of a communicator that a rank can have in flight. The first use of a slot takes page
 * faults on all sides, 15 to 40 us, so there are no more than programs need. */
#define EXEC_SLOTS 8
#define EXEC_SLOTS_MAX 64 /* of one whose runs the caller numbers; with SLUICE_TEST=fault=slots:all
			     EXEC_SLOTS */

struct exec_comm;
struct exec_run;

/* Bytes that each rank's user area of the node group must have. */
uint64_t exec_area_bytes(int ranks, uint32_t slots);
/*
 * Work of a waiting rank for others: exec calls the members in this order, repeatedly, once a wait
 * gets long; NULL: nothing to do.
 */
struct exec_waiter_hooks {
	void (*check_worker)(void *ctx);     /* takes fragments of a dead worker process back */
	void (*advance_requests)(void *ctx); /* makes a step of every active request */
	void (*progress_host)(void *ctx);    /* lets the host MPI progress */
	void *ctx;
};
/* slots: EXEC_SLOTS or EXEC_SLOTS_MAX, as the ranks agree; 0: as they have, for another process.
 * hooks: NULL: none. */
int exec_create(struct node_group *g, uint32_t slots, const struct exec_waiter_hooks *hooks,
		struct exec_comm **out);
void exec_destroy(struct exec_comm *e); /* no run may be in flight */
uint32_t exec_slots(const struct exec_comm *e); /* every rank gets the same number */

/*
 * The parts that this rank sends and receives in a collective that only moves data.
 *
 *   kind                send                 recv                   in_place
 *   bcast               [1], of every rank   -                      -
 *   gather              [1]                  [ranks], of the root   the root's part is in place
 *   scatter             [ranks], of the root [1]                    the root's part stays
 *   allgather           [1]; not in place    [ranks]                recv[rank] is sent; all of it
 *                                                                   in COLL_SEND
 *   alltoall            [ranks]              [ranks]                the own part is in place
 *                                                                   (send: a copy)
 *   neighbor_allgather  [1]                  [source_count]         -
 *   neighbor_alltoall   [target_count]       [source_count]         -
 */
struct exec_shape {
	enum coll kind;
	int root;
	const struct coll_part *send, *recv;
	/*
	 * by part; NULL: no part has gaps. Else a part is bytes [off, off + bytes) of the packed
	 * form of its layout, and the buffer is mapped as a whole
	 */
	const struct layout *send_layouts, *recv_layouts;
	bool in_place;
	/*
	 * neighbours, in the order of their parts; negative: none. The k-th send to a rank matches
	 * its k-th receive from this one.
	 */
	const int *sources, *targets;
	int source_count, target_count; /* 0 without neighbours */
};

/*
 * A reduction (reduce/), given instead of a shape. The input starts at in_off of user buffer 0,
 * the result at out_off of user buffer 1; in place, both lie in user buffer 1. All input and result
 * memory must be mapped: the caller packs other memory into an extent. All ranks pass equal kind,
 * count, element, operation, root and starts.
 */
struct exec_reduce {
	enum coll kind;
	int root;               /* COLL_REDUCE */
	uint32_t type,
		dtype; /* GOAL_ADD ... GOAL_XOR on GOAL_I8 ... GOAL_F64; GOAL_NOP: `combine` */
	uint64_t count, element_bytes; /* of each rank's input */
	const uint64_t
		*starts; /* COLL_REDUCE_SCATTER: [ranks + 1] first elements of the ranks' results */
	uint64_t in_off, out_off;
	bool in_place;          /* not for COLL_REDUCE_SCATTER */
	/*
	 * inout[i] = in[i] op inout[i]. exec calls it only inside exec_begin(), exec_wait(),
	 * exec_settle() and exec_step(). Elements are aligned as in the ranks' buffers, or to 64
	 * bytes.
	 * Returns: 0 or -errno.
	 */
	int (*combine)(void *ctx, const void *in, void *inout, uint64_t count);
	void *ctx;
	bool is_commutative;    /* of `combine` */
	uint32_t float_modes;   /* os_float_modes() of the caller; all movers use rank 0's */
};

/* The program's call, for messages. */
struct exec_origin {
	uint32_t kind; /* 1 + enum coll; 0: unknown */
	int32_t root;
	uint64_t bytes; /* of one rank's message; 0: ranks share no size */
	uintptr_t site; /* return address */
};

/* One rank's side of a collective. */
struct exec_call {
	/* one of the two; not used after exec_begin(), except `combine` and its ctx */
	const struct exec_shape *shape;
	const struct exec_reduce *reduce;
	void *user[COLL_BUFFERS];
	struct region_desc desc[COLL_BUFFERS]; /* zero when not used */
	bool prefer_vm;         /* use process_vm_* rather than staging; equal on every rank */
	/*
	 * The rank may return to the program in between, so no partner depends on it for bytes
	 * outside its pages: partners store those of its result in its slot, and its last
	 * exec_step() copies them out. Its memory must be mapped. Excludes exec_detach().
	 */
	bool is_nonblocking;
	/*
	 * 0: exec numbers the collective after the last. Otherwise the caller numbers all
	 * collectives of this exec_comm, alike on all ranks. They may begin in any order, but those
	 * of one slot (number % exec_slots()) begin with rising numbers, each after the previous
	 * one has ended on this rank.
	 */
	uint64_t number;
	const char *name;       /* "MPI_Bcast", for messages; static */
	struct exec_origin origin;
};

/*
 * Publish this rank's side of a collective.
 * Returns: 0 with *out; -EBUSY: the run in *out, begun exec_slots() collectives ago, still uses the
 * slot; the error of an earlier collective; -E2BIG: too many neighbours; -ENOMEM; -EINVAL: an
 * invalid reduction.
 */
int exec_begin(struct exec_comm *e, const struct exec_call *call, struct exec_run **out);
/*
 * Finish the run and free it. A reduction with an operation of the program needs each rank for its
 * slice: a rank with several such runs must step them all instead of waiting for one.
 * Returns: 0; -EOWNERDEAD: a peer has died (exec has reported the death); -EREMOTEIO: the two ends
 * of a transfer disagree about its size; other -errno. After an error the data of the collective is
 * undefined, and the group accepts no further collective.
 */
int exec_wait(struct exec_run *r);

/*
 * Fail the collective that the other ranks have begun and this rank cannot: they get -EIO instead
 * of hanging.
 */
void exec_abandon(struct exec_comm *e, int error);
/* Returns: 0, or the error of a collective of this rank that has failed. The ranks may number later
 * ones differently. */
int exec_error(const struct exec_comm *e);
/* Reports, once in the group, which ranks are in which calls, after -EREMOTEIO. */
void exec_explain(struct exec_run *r);
/* Has a message about the failure been written, by this rank or, for all, by another one? */
bool exec_is_reported(const struct exec_comm *e);

/* ---- nonblocking and detached runs -------------------------------------------------------- */

enum exec_copy {
	EXEC_COPY_NOTHING, /* a channel or a partner copies */
	EXEC_COPY_OWN,     /* copies inside this rank, which no partner can do */
	EXEC_COPY_ALL,
};
/*
 * Make one pass over the run without waiting; `copy` limits what the pass copies. Runs of a
 * communicator may be stepped in any order.
 * Returns: 1: progress; 0: nothing to do; -errno as exec_wait(). *out_ended, and any error: the run
 * is freed.
 */
int exec_step(struct exec_run *r, enum exec_copy copy, bool *out_ended);
/*
 * Check that the run's peers are alive; call it between passes, about every 100 ms.
 * Returns: 0, or -errno as exec_wait(), and the run is freed.
 */
int exec_check(struct exec_run *r);
enum exec_settled {
	EXEC_NEEDED, /* this rank must stay in the call */
	EXEC_MAY_DETACH,
	EXEC_ENDED,  /* exec_wait() returns at once */
};
/*
 * Do the work that only this rank can do. Until that is complete, and then until the run has made
 * no progress for wait_ns, exec_settle() steps and waits like exec_wait(); `copy` limits what it
 * copies. all_come: wait also for every partner to publish.
 * Returns: enum exec_settled, or -errno. EXEC_NEEDED: the run can never be detached (its memory is
 * not mapped).
 */
int exec_settle(struct exec_run *r, enum exec_copy copy, bool all_come, uint64_t wait_ns);
/* Call visit for each range of the program's memory that the run still reads or writes. */
typedef void exec_visit(void *arg, const struct region_desc *desc, uint64_t off, uint64_t bytes,
			bool is_written);
void exec_each_range(const struct exec_run *r, exec_visit *visit, void *arg);
/*
 * Detach the run, after EXEC_MAY_DETACH and before a guard closes its memory: from now on the run
 * uses arena addresses only, and any thread may advance it. exec_reattach() undoes it when no guard
 * closed the memory.
 */
void exec_detach(struct exec_run *r);
void exec_reattach(struct exec_run *r);
/*
 * Let a channel move the data, depth fragments at a time. exec calls drained(arg) when the channel
 * holds no fragment and found no more to claim, before exec_is_in_channel() becomes false, and
 * again after each exec_restart_channel().
 * Context: drained() runs in any thread, mostly one of the engine.
 */
void exec_start_channel(struct exec_run *r, struct engine_chan *chan, uint32_t depth,
			void (*drained)(void *arg), void *arg);

/*
 * Copy one fragment.
 * Returns: 1: progress; 0: nothing to claim; -errno.
 * Context: all signals blocked, because a claimed fragment must be copied.
 */
int exec_advance(struct exec_run *r);
/*
 * Copy fragments until the range [start, end) of the program's addresses is complete or all its
 * fragments are claimed, the one at `start` first; then like exec_advance().
 */
int exec_fetch(struct exec_run *r, uintptr_t start, uintptr_t end, bool *out_is_complete);
/* The program waits: the channel claims no more fragments. */
void exec_stop_channel(struct exec_run *r);
/* The program's wait has ended, the operation has not: the channel claims again. */
void exec_restart_channel(struct exec_run *r);
/* Take the fragments of a channel that is silent for too long, or retired, back to the CPU.
 * Returns: ns until this is to be done again if nobody calls; OS_FOR_EVER: the channel has none. */
uint64_t exec_rescue(struct exec_run *r);
/*
 * Facts about a run. A range of the program's addresses is complete when its data is in place (the
 * run writes it), or every reader has copied it (the run reads it).
 */
enum exec_facts {
	EXEC_IS_MATCHED = 1,  /* every peer has published */
	EXEC_IS_CLAIMED = 2,  /* every fragment is claimed */
	EXEC_IS_COMPLETE = 4, /* the range is complete */
};
/* Returns: those of the facts that hold, for the range [start, end). */
unsigned exec_poll(struct exec_run *r, uintptr_t start, uintptr_t end, unsigned facts);

static inline bool exec_is_range_complete(struct exec_run *r, uintptr_t start, uintptr_t end)
{
	return exec_poll(r, start, end, EXEC_IS_COMPLETE);
}
static inline bool exec_is_complete(struct exec_run *r)
{
	return exec_poll(r, 0, UINTPTR_MAX, EXEC_IS_COMPLETE);
}
static inline bool exec_is_claimed(struct exec_run *r)
{
	return exec_poll(r, 0, UINTPTR_MAX, EXEC_IS_CLAIMED);
}
static inline bool exec_is_matched(struct exec_run *r)
{
	return exec_poll(r, 0, UINTPTR_MAX, EXEC_IS_MATCHED);
}
/*
 * Wait a moment when there is nothing to do.
 * Returns: 0, or -errno: a peer has died (reported).
 */
int exec_pause(struct exec_run *r, struct node_wait *w);
/* Call the hooks of a waiting rank. Context: a thread that may call the host MPI. */
void exec_call_hooks(struct exec_run *r, const struct node_wait *w);
/* End a series of exec_pause() calls. */
void exec_resume(struct exec_run *r, struct node_wait *w);
/* Does the channel hold a fragment of the run? */
bool exec_is_in_channel(const struct exec_run *r);
/*
 * Free a complete run whose channel is idle and that no other thread uses.
 * Context: any thread; async-signal-safe.
 */
void exec_end(struct exec_run *r);
/* Estimated bytes that the worker process could move now (exec_serve()); 0: none. */
uint64_t exec_work_bytes(const struct exec_run *r);
/* Is a partner idle, waiting for this run? */
bool exec_is_waited_for(const struct exec_run *r);
/* The tag by which peers know the run now; the run's number, for the trace. */
uint64_t exec_tag(const struct exec_run *r);
uint64_t exec_number(const struct exec_run *r);
const char *exec_name(const struct exec_run *r);
/* Time for which a partner has been idle, waiting for this run: the longest; 0: none waits. */
uint64_t exec_waited_for_ns(const struct exec_run *r);

/* ---- movers outside the node group (worker/) --------------------------------------------- */

/*
 * A mover in the worker process, which may be killed at any moment. The mover records each claim as
 * a name (group, transfer, fragment) in memory that the ranks see. A rank that knows that the
 * worker is dead gives the claimed fragment back, once.
 */
struct exec_mover {
	uint64_t group;           /* the communicator's group in names, 1 to EXEC_NAME_GROUPS - 1 */
	_Atomic uint64_t
		*intent; /* the claim in progress; one word for all movers of the process */
	void *arg;
	/* a lock around each claim, shared by all movers of the process */
	void (*lock)(void *arg), (*unlock)(void *arg);
	/* called to record a claim of at most `bytes` ... */
	void (*began)(void *arg, uint64_t name, uint64_t bytes);
	/* ... and to remove the record, after moving `bytes` */
	void (*ended)(void *arg, uint64_t bytes);
	const _Atomic bool *stop; /* true: claim no more */
};
#define EXEC_NAME_GROUPS 1024u
#define EXEC_NAME_RANKS 4000 /* the worker does not serve larger groups */

/*
 * Move all data of the collective `tag` that can be moved now, on the exec_comm of an observed
 * group (node_observe()).
 * Returns: true when every rank has published and opened its receives: no further call is needed.
 */
bool exec_serve(struct exec_comm *e, uint64_t tag, const struct exec_mover *m);
uint32_t exec_name_group(uint64_t name);
/*
 * Free the fragment that a dead worker process had claimed (is_intent: had perhaps claimed), unless
 * its data is in place. One rank calls it, once per name, after the death is certain.
 * Context: async-signal-safe.
 */
void exec_reclaim(struct exec_comm *e, uint64_t name, bool is_intent);

#endif
