/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mailbox: short messages in shared memory that need nobody's progress.
 *
 * Each rank of a node group writes its message of a collective into a record of its own and
 * continues; the ranks that need the message read it there. Delivery needs no CPU in between, so a
 * short nonblocking collective cannot be late.
 *
 *   mailbox_begin -> fill mailbox_record() -> mailbox_post, unless no rank needs the message
 *                 -> mailbox_peek(rank) ... -> mailbox_end
 *
 *   mailbox_area(rank): | struct mailbox_line | last ended | record 0 | ... |
 *
 * All ranks number the collectives of a mailbox alike, from 1: every rank begins each of them, in
 * the same order, whether it posts or not. Record n lies in place n % MAILBOX_RECORDS. A rank
 * reuses the place when every rank has ended collective n and all before it; each rank publishes
 * its last ended number.
 *
 * A mailbox with lanes serves persistent collectives, which begin in any order: each has a lane,
 * and its turns in the lane are numbered from 1. A rank that is MAILBOX_TURNS ahead waits for the
 * readers of that lane only.
 *
 *   mailbox_area(rank): | struct mailbox_line | last turn ended [lanes] | records of lane 0 | ...
 *
 * Threads: one thread at a time begins, posts and ends; any thread may peek.
 */
#ifndef SLUICE_MAILBOX_H
#define SLUICE_MAILBOX_H

#include "base/base.h"
#include "coll/coll.h"
#include "node/node.h"

#ifndef MAILBOX_RECORDS /* the protocol model has fewer and shorter ones */
#define MAILBOX_RECORDS 32u /* collectives that a rank can be ahead of the slowest, at most 32 */
#define MAILBOX_RECORD_BYTES (8192u + 64u)
#define MAILBOX_TURNS 4u /* turns that a rank can be ahead in a lane */
#define MAILBOX_RESULT_BYTES 1024u /* of a result that ranks share, a multiple of 16 */
#endif
#define MAILBOX_LANES_MAX 64u
#define MAILBOX_BYTES (MAILBOX_RECORD_BYTES - 16u) /* of a message */

struct mailbox;

/* Bytes of each rank's user area that a mailbox needs; lanes: 0 or at most MAILBOX_LANES_MAX. */
uint64_t mailbox_area_bytes(uint32_t lanes);
/*
 * Create a mailbox at area_off, a multiple of a cache line, of the group's user areas. Returns: 0
 * or -ENOMEM.
 */
int mailbox_create(struct node_group *g, uint64_t area_off, uint32_t lanes, struct mailbox **out);
void mailbox_destroy(struct mailbox *b);

/*
 * Begin this rank's next collective.
 * Returns: its number; 0: a rank, perhaps this one, has not ended the collective of MAILBOX_RECORDS
 * before; the caller may poll, at two loads per call.
 */
uint64_t mailbox_begin(struct mailbox *b);
/* Like mailbox_begin(), for a turn of a lane: the one after the last that this rank began there. */
uint64_t mailbox_begin_turn(struct mailbox *b, uint32_t lane, uint64_t turn);
/*
 * The caller's message buffer of collective n, MAILBOX_BYTES long and 16-byte aligned, between
 * mailbox_begin() and mailbox_post().
 */
void *mailbox_record(const struct mailbox *b, uint64_t n);
/* Publish the message and wake sleeping ranks. */
void mailbox_post(struct mailbox *b, uint64_t n, uint32_t bytes);
/*
 * Read the message of `rank` for collective n, which this rank has begun and not ended.
 * Returns: the message with *out_bytes, at most MAILBOX_BYTES; NULL: not posted yet.
 * Context: async-signal-safe.
 */
const void *mailbox_peek(const struct mailbox *b, int rank, uint64_t n, uint32_t *out_bytes);
/*
 * The result of collective n that one rank combines for all, none of whose messages is longer than
 * MAILBOX_RESULT_BYTES. Call after rank 0's message was found.
 * Returns: the result, which another rank has published; or NULL: the caller combines. *out_place:
 * where it then writes the result for mailbox_publish(); NULL: it keeps the result for itself.
 */
const void *mailbox_result(const struct mailbox *b, uint64_t n, uint32_t bytes, void **out_place);
void mailbox_publish(const struct mailbox *b, uint64_t n);
/*
 * End collective n: this rank reads none of its messages any more. Once for each collective begun,
 * in any order.
 */
void mailbox_end(struct mailbox *b, uint64_t n);

/* ---- receiving messages ------------------------------------------------------------------- */

/*
 * The operation that combines messages element by element, in the order of
 * coll_combines_after(), or ((m0 op m1) op m2) ... for a prefix reduction, so that each rank gets
 * the same bits. combine(): inout = in op inout, for `bytes` of elements; both are 16-byte aligned.
 * Returns: 0 or -errno.
 */
struct mailbox_reduce {
	int (*combine)(void *ctx, const void *in, void *inout, uint32_t bytes);
	void *ctx;
	bool is_prefix;
};

/*
 * One rank's receive of a collective: bytes [at, at + bytes) of the messages of ranks [first, end).
 * mailbox_receive() stores rank r's bytes at `to` + (r - first) * stride, or combines all into `to`
 * (reduce). Then `to` is 16-byte aligned, has room for coll_combine_depth() of the number of
 * messages, at least 2, partial results, one every `stride` bytes, and is undefined until the end.
 *
 *                    posts     reads
 *   barrier          all       all, no bytes
 *   bcast, scatter   the root  the root
 *   gather           all       the root: all
 *   allgather        all       all
 *   alltoall         all       all, its own part
 *   allreduce        all       all, reduced
 *   reduce           all       the root: all, reduced
 *   reduce_scatter   all       all, its own part reduced
 *   scan, exscan     all       ranks up to (below) its own, reduced
 */
struct mailbox_read {
	int first, end;
	uint32_t at, bytes;
	char *to;
	uint64_t stride;
	/* not NULL: store parts[r].bytes of rank r's message at `to` + parts[r].off */
	const struct coll_part *parts;
	const struct mailbox_reduce *reduce;  /* may be NULL */
	/* reduce: the messages of all ranks are equally long, and whoever finds them first combines
	 * them for all; others take that result if it is there */
	bool is_shared;
	int skip; /* a rank that posts nothing, its part is in place; -1: none. Not with reduce */
	uint32_t partial; /* reduce: number of partial results; initially 0 */
	int next; /* initially `first`; all messages before it have been read */
};

/*
 * Read the messages of collective n that have been posted; *r keeps the position.
 * Returns: 1: all are read; 0: not yet; -EREMOTEIO: a message is too short, so the ranks disagree
 * about the size; -errno of combine().
 */
int mailbox_receive(const struct mailbox *b, uint64_t n, struct mailbox_read *r);

#endif
