/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mailbox: short messages that need nobody's progress. Each rank of a node group writes what it
 * brings to a collective into a record of its own and goes its way; whoever needs it reads it
 * there, when it looks. Between the two no CPU is needed, so a short nonblocking collective cannot
 * be late.
 *
 *   mailbox_begin -> fill mailbox_record() -> mailbox_post, or nothing, when no rank needs it
 *               -> mailbox_peek(rank) ... -> mailbox_end
 *
 *   mailbox_area(rank): | struct mailbox_line | record 0 | ... | record MAILBOX_RECORDS - 1 |
 *
 * Collectives on a mailbox are numbered from 1, alike on all ranks: every rank begins each of them,
 * in the same order, whether it posts or not. Record n lies in place n % MAILBOX_RECORDS, and is
 * written again when every rank has ended collective n and those before it, which each says in its
 * line.
 *
 * With lanes it is for collectives that are done again and again, and begin in any order: each has
 * a lane, and its turns in it are numbered from 1. Whoever is MAILBOX_TURNS ahead waits for that
 * lane's readers only.
 *
 *   mailbox_area(rank): | struct mailbox_line | last turn ended [lanes] | records of lane 0 | ...
 *
 * Threads: begin, post and end by one thread at a time; look by any.
 */
#ifndef SLUICE_MAILBOX_H
#define SLUICE_MAILBOX_H

#include "base/base.h"
#include "coll/coll.h"
#include "node/node.h"

#ifndef MAILBOX_RECORDS /* a model of it has fewer and shorter ones */
#define MAILBOX_RECORDS 32u /* collectives that a rank can be ahead of the slowest, at most 32 */
#define MAILBOX_RECORD_BYTES (8192u + 64u)
#define MAILBOX_TURNS 4u /* that a rank can be ahead in a lane */
#endif
#define MAILBOX_LANES_MAX 64u
#define MAILBOX_BYTES (MAILBOX_RECORD_BYTES - 16u) /* of a message */

struct mailbox;

/* Bytes of each rank's user area that a mailbox takes. */
uint64_t mailbox_area_bytes(void);
/* On the group's user areas, from area_off on, which is a multiple of a cache line. 0 or -ENOMEM.
 */
int mailbox_create(struct node_group *g, uint64_t area_off, struct mailbox **out);
/* With so many lanes, at most MAILBOX_LANES_MAX. */
uint64_t mailbox_lanes_area_bytes(uint32_t lanes);
int mailbox_create_lanes(struct node_group *g, uint64_t area_off, uint32_t lanes,
			 struct mailbox **out);
void mailbox_destroy(struct mailbox *b);

/* The number of this rank's next collective; 0: a rank, perhaps this one, has not ended that of
 * MAILBOX_RECORDS before. Costs no more than two loads then, and may be asked again. */
uint64_t mailbox_begin(struct mailbox *b);
/* As mailbox_begin(), for this turn of a lane: the one after the last that was begun there. */
uint64_t mailbox_begin_turn(struct mailbox *b, uint32_t lane, uint64_t turn);
/* Where its message is written, MAILBOX_BYTES of it: between mailbox_begin() and mailbox_post().
 * 16-byte aligned. */
void *mailbox_record(const struct mailbox *b, uint64_t n);
/* Everybody may read it, and who sleeps is woken. */
void mailbox_post(struct mailbox *b, uint64_t n, uint32_t bytes);
/* The message that the rank has posted for collective n, which this rank has begun and not ended.
 * Returns: NULL: not posted yet. *out_bytes: at most MAILBOX_BYTES. Async-signal-safe. */
const void *mailbox_peek(const struct mailbox *b, int rank, uint64_t n, uint32_t *out_bytes);
/* This rank reads nothing of it any more. Each that was begun once, in any order. */
void mailbox_end(struct mailbox *b, uint64_t n);

/* ---- what a rank makes of the messages --------------------------------------------------- */

/*
 * How messages are combined: element by element, in the order of ranks, ((m0 op m1) op m2) ..., so
 * that each rank gets the same bits, however late who was. combine(): inout = in op inout, for
 * `bytes` of elements; 0 or -errno. Memory of both is 16-byte aligned.
 */
struct mailbox_reduce {
	int (*combine)(void *ctx, const void *in, void *inout, uint32_t bytes);
	void *ctx;
};

/*
 * A collective is: a message of each rank that posts, and, on each rank, one of these, for bytes
 * [at, at + bytes) of the messages of ranks [first, end). They are laid one beside the other, to +
 * (r - first) * stride, or combined into `to` (reduce), which is 16-byte aligned then and nobody's
 * until the end.
 *
 *                    posts     reads                               reads
 *   barrier          all       all, no bytes     allreduce         all, reduced
 *   bcast, scatter   the root  the root          reduce            the root: all, reduced
 *   gather           all       the root: all     reduce_scatter    all, its own part reduced
 *   allgather        all       all               scan, exscan      ranks up to (below) its own,
 * reduced alltoall         all       all, its own part
 */
struct mailbox_read {
	int first, end;
	uint32_t at, bytes;
	char *to;
	uint64_t stride;
	const struct coll_part *parts; /* not NULL: of rank r's message come parts[r].bytes, to
					   `to` + parts[r].off */
	const struct mailbox_reduce *reduce;  /* may be NULL */
	int skip; /* posts nothing, its part is there already; -1: nobody. Not with reduce */
	int next;                       /* begins as `first`; all before it have been read */
};

/*
 * Read what has come of collective n. 1: all of it; 0: not yet, *r remembers how far; -EREMOTEIO: a
 * message is too short, the ranks disagree about the size; -errno of combine().
 */
int mailbox_receive(const struct mailbox *b, uint64_t n, struct mailbox_read *r);

#endif
