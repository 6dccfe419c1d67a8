/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exec: runs flat operations (coll/) over transfers (xfer/), and reductions (reduce/): what the
 * ranks of a collective do.
 *
 * Every rank of a node group publishes what it brings to a collective in a slot of the control
 * segment: its schedule, descriptors of its memory, the edges of its send buffer, and one transfer
 * for each of its receives. Collectives of a communicator come in the same order on every rank, so
 * slot number n of one rank belongs to slot number n of any other; within it a send is matched to a
 * receive by (source, tag). Publishing is all a rank must do for others to move its data: whoever
 * arrives last starts, whoever waits helps.
 *
 *   exec_area(rank): | slot 0 | slot 1 | ... | staging ring |
 *   slot:            | exec_slot | operations | xfer [recv_count], one of a copy | reduce's |
 *
 * A run is one rank's side of one collective:
 *
 *   exec_begin -> exec_wait                                    blocking
 *   exec_begin -> exec_step, exec_step ...                     nonblocking
 *   exec_begin -> exec_settle -> exec_detach -> ... exec_end    left: nothing in it needs this rank
 *                                   |            any more, the call may return; a channel of a copy
 *                                   |            engine, or any rank, moves what is missing
 *                                   `-> exec_wait              still needed: blocking after all
 *
 * A reduce has no operations that are matched: when all ranks have come, everybody can do every
 * part of it. Its slot carries numbers instead of a schedule, the claim words of its rank's slice,
 * and the edges of what the rank brings and gets.
 *
 * Limits that coll/ keeps: a rank stages one range of its memory in a collective; inline edges
 * exist for COLL_SEND only (sends from elsewhere are mapped, copied by system call, or staged).
 *
 * Threads: begin, settle, leave, wait and end of a group by one thread at a time. What concerns a
 * run that was left (advance, is_over, is_there, pause) by any number of threads and in signal
 * handlers: it changes shared memory by atomics only, and nothing of this process.
 */
#ifndef SLUICE_EXEC_H
#define SLUICE_EXEC_H

#include "engine/engine.h"
#include "coll/coll.h"
#include "node/node.h"
#include "reduce/reduce.h"
#include "region/region.h"
#include "xfer/xfer.h"

#define EXEC_SLOTS 64    /* collectives of a communicator that a rank can have in flight */
#define EXEC_SLOTS_FEW 8 /* with SLUICE_FAULT=slots:all: tests get past the last one sooner */

struct exec_comm;
struct exec_run;

/* Bytes each rank's user area of the node group must have. */
uint64_t exec_area_bytes(int ranks);
/* The largest schedule: operations, and receives among them. Room for all of a
 * collective in which each rank talks to each other, and for some more neighbours. */
static inline uint32_t exec_ops_max(int ranks) { return 2 * (uint32_t)ranks + 32; }
static inline uint32_t exec_recvs_max(int ranks) { return (uint32_t)ranks + 16; }
/* progress (may be NULL): called with progress_ctx again and again while this rank waits. */
int exec_create(struct node_group *g, void (*progress)(void *), void *progress_ctx,
		struct exec_comm **out);
void exec_destroy(struct exec_comm *e); /* no run may be in flight */
uint32_t exec_slots(const struct exec_comm *e); /* the same on every rank */

/*
 * A collective that combines what the ranks bring (reduce/), instead of a schedule. What is brought
 * is in user buffer 0, from in_off on, the result in user buffer 1, from out_off on; in place: both
 * in user buffer 1. Where a rank brings or gets something the memory must be mapped: anything else
 * is to be packed into an extent. Kind, count, element, operation, root and starts agree on all
 * ranks.
 */
struct exec_reduce {
	enum coll kind;
	int root;               /* COLL_REDUCE */
	uint32_t type,
		dtype; /* GOAL_ADD ... GOAL_XOR on GOAL_I8 ... GOAL_F64; or GOAL_NOP: `combine` */
	uint64_t count, element_bytes; /* elements that each rank brings */
	const uint64_t
		*starts; /* COLL_REDUCE_SCATTER: [ranks + 1] first elements of each rank's result */
	uint64_t in_off, out_off;
	bool in_place;          /* not for COLL_REDUCE_SCATTER */
	/* inout[i] = in[i] op inout[i], called only while this rank is in exec_begin() ...
	 * exec_wait(), exec_settle() or exec_step(); 0 or -errno. Elements are aligned as in the
	 * ranks' buffers, or to 64 bytes. */
	int (*combine)(void *ctx, const void *in, void *inout, uint64_t count);
	void *ctx;
	bool is_commutative;    /* `combine` */
};

/* One rank's side of a collective. */
struct exec_call {
	const struct coll_schedule *schedule; /* copied by exec_begin(); NULL: */
	const struct exec_reduce *reduce; /* not used after exec_begin(), but `combine` with ctx */
	void *user[COLL_BUFFERS];
	struct region_desc desc[COLL_BUFFERS]; /* zero when not used */
	bool prefer_vm;         /* process_vm_* rather than staging; the same on every rank */
	/* This rank may be away: what lies outside the pages of its memory is not left to it.
	 * Others leave what it gets of that in its slot, and it takes it in its last exec_step().
	 * Its memory is mapped. Not with exec_detach(). */
	bool is_nonblocking;
	/* 0: the one after the last. Else the caller numbers all collectives of this exec_comm,
	 * alike on all ranks: they begin in any order, but those of one slot (number %
	 * exec_slots()) with rising numbers, each when the one before has ended on this rank. */
	uint64_t number;
	const char *name;       /* "MPI_Bcast", for messages; static */
};

/*
 * Publish it. 0 with *out; -EBUSY when the run in *out, of EXEC_SLOTS collectives ago, has not
 * ended yet; the error of an earlier collective; -E2BIG; -ENOMEM; -EINVAL: a reduce that cannot be,
 * see there.
 */
int exec_begin(struct exec_comm *e, const struct exec_call *call, struct exec_run **out);
/*
 * Run it to its end; the run is gone. Returns 0; -EOWNERDEAD when a peer has died (reported here);
 * -EREMOTEIO when the two ends of a transfer disagree about its size; other -errno. After an error
 * the data of this collective is undefined and the group accepts no further one. Where a reduce
 * calls an operation of the program each rank is needed for its slice: who has several in flight
 * steps them all instead.
 */
int exec_wait(struct exec_run *r);
/* exec_begin and exec_wait. */
int exec_run(struct exec_comm *e, const struct exec_call *call);

/* This rank cannot take part in the collective that the others are in: they get -EIO, not a hang.
 */
void exec_abandon(struct exec_comm *e, int error);

/* ---- leaving early ----------------------------------------------------------------------- */

enum exec_copy {
	EXEC_COPY_NOTHING, /* a channel or a partner will */
	EXEC_COPY_OWN,     /* what is copied inside this rank, which no partner can */
	EXEC_COPY_ALL,
};
/*
 * One pass over it without waiting, copying what `copy` says, for a collective that the program
 * does not wait for now. 1: something was done, 0: there was nothing to do; *out_ended: the run is
 * gone. An error as of exec_wait(): likewise. Runs of a communicator may be stepped in any order.
 */
int exec_step(struct exec_run *r, enum exec_copy copy, bool *out_ended);
/* Between passes, about every 100 ms: do its peers live? 0, or an error as of exec_wait(), and the
 * run is gone. */
int exec_check(struct exec_run *r);
enum exec_settled {
	EXEC_NEEDED, /* this rank must stay */
	EXEC_MAY_DETACH,
	EXEC_ENDED,  /* nothing is left to do: exec_wait() returns at once */
};
/*
 * Do what only this rank can do. While that is not all done, or, with `wait_ns`, for so long
 * without anything to do, it steps and waits like exec_wait(), copying what `copy` says. all_come:
 * nor before every partner has come, so that what is left needs nobody's arrival. Returns enum
 * exec_settled or -errno. EXEC_NEEDED: it never will be able to leave (memory that is not mapped).
 */
int exec_settle(struct exec_run *r, enum exec_copy copy, bool all_come, uint64_t wait_ns);
/* Which of the program's memory the run reads or writes from now on: calls visit for each range. */
typedef void exec_visit(void *arg, const struct region_desc *desc, uint64_t off, uint64_t bytes,
			bool is_written);
void exec_each_range(const struct exec_run *r, exec_visit *visit, void *arg);
/*
 * After EXEC_MAY_DETACH, before its memory is closed: from now on the run uses the arena's
 * addresses only, and may be helped by any thread. exec_reattach() takes that back, when the memory
 * was not closed after all.
 */
void exec_detach(struct exec_run *r);
void exec_reattach(struct exec_run *r);
/*
 * A channel moves the data from now on, depth fragments at a time. drained(arg): the channel holds
 * nothing of it any more and found no more to take; called in whichever thread finds that out, a
 * thread of the engine mostly, before exec_is_in_channel() becomes false; again after each
 * exec_restart_channel().
 */
void exec_start_channel(struct exec_run *r, struct engine_chan *chan, uint32_t depth,
			void (*drained)(void *arg), void *arg);
/* Is there no unit left that anybody could take? Then the end is near. */
bool exec_is_claimed(struct exec_run *r);

/* Copy one fragment, beginning at the address `addr` of the program if there is one to take there
 * (0: anywhere). 1 when something was done, 0 nothing to take, -errno. Every signal must be
 * blocked: a claimed fragment has to be copied. */
int exec_advance(struct exec_run *r, uintptr_t addr);
/* The program waits: no more fragments for the channel. */
void exec_stop_channel(struct exec_run *r);
/* It has got what it waited for, and not all is done: the channel goes on. */
void exec_restart_channel(struct exec_run *r);
/* The channel has been silent for too long, or was retired: its fragments are the CPU's. */
void exec_rescue(struct exec_run *r);
/* Is everything of [start, end) (addresses of the program in a range that the run writes) in place?
 * For ranges that it reads: has everybody read it? */
bool exec_is_range_complete(struct exec_run *r, uintptr_t start, uintptr_t end);
bool exec_is_complete(struct exec_run *r);
/* Nothing to do now: waits a moment. 0 or -errno: a peer has died (reported). */
int exec_pause(struct exec_run *r, struct node_wait *w);
/* The host MPI's turn, now and then while it waits. For a thread that may call it. */
void exec_progress_host(struct exec_run *r, const struct node_wait *w);
/* Its waits are over. */
void exec_resume(struct exec_run *r, struct node_wait *w);
/* Does the channel hold anything of it? */
bool exec_is_in_channel(const struct exec_run *r);
/* It is over, its channel is idle and no other thread uses it: the run is gone. Any thread, also in
 * a signal handler. */
void exec_end(struct exec_run *r);
/* About how many bytes a process that is no rank could move now (exec_serve); 0: none. */
uint64_t exec_work_bytes(const struct exec_run *r);
/* Does a partner have nothing to do but wait for it? */
bool exec_is_waited_for(const struct exec_run *r);
/* The tag by which peers know the run at the moment; its number, for the trace. */
uint64_t exec_tag(const struct exec_run *r);
uint64_t exec_number(const struct exec_run *r);
const char *exec_name(const struct exec_run *r);
/* How long a partner has done nothing but wait for this collective, the longest of them; 0: none
 * waits. */
uint64_t exec_waited_for_ns(const struct exec_run *r);
/* Has every peer that this run talks to arrived? */
bool exec_is_matched(struct exec_run *r);

/* ---- a process that is no rank (worker/) ------------------------------------------------- */

/*
 * It may be killed at any moment. What it claims it writes down by name, which says group, transfer
 * and unit, in memory that the ranks see; a rank that knows it is dead takes that back, once.
 */
struct exec_mover {
	uint64_t group;           /* of this communicator in names, 1 to EXEC_NAME_GROUPS - 1 */
	_Atomic uint64_t
		*intent; /* what is being claimed; one word for all movers of the process */
	void *arg;
	/* around claiming: one at a time of all movers of the process */
	void (*lock)(void *arg), (*unlock)(void *arg);
	/* It has claimed this, at most so many bytes, and writes it down ... */
	void (*began)(void *arg, uint64_t name, uint64_t bytes);
	/* ... and is done with it, having moved so many. */
	void (*ended)(void *arg, uint64_t bytes);
	const _Atomic bool *stop; /* true: no more claims */
};
#define EXEC_NAME_GROUPS 1024u
#define EXEC_NAME_RANKS 4000 /* larger groups have no names */

/* Moves what can be moved now of the collective with this tag. `e` is made on a node_observe()d
 * group. True: every rank has come and opened what it receives, so that there will be nothing more
 * to move of it. */
bool exec_serve(struct exec_comm *e, uint64_t tag, const struct exec_mover *m);
uint32_t exec_name_group(uint64_t name);
/* By a rank of the group, when the process is dead for certain: the unit that it had claimed
 * (is_intent: perhaps) is free again, unless it is in place. For each name once, by one rank.
 * Async-signal-safe. */
void exec_reclaim(struct exec_comm *e, uint64_t name, bool is_intent);

#endif
