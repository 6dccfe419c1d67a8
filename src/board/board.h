/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * board: short messages that need nobody's progress. Each rank of a node group writes what it
 * brings to a collective into a record of its own and goes its way; whoever needs it reads it
 * there, when it looks. Between the two no CPU is needed, so a short nonblocking collective cannot
 * be late.
 *
 *   board_begin -> fill board_record() -> board_post, or nothing, when no rank needs it
 *               -> board_look(rank) ... -> board_end
 *
 *   board_area(rank): | struct board_line | record 0 | record 1 | ... | record BOARD_RECORDS - 1 |
 *
 * Collectives on a board are numbered from 1, alike on all ranks: every rank begins each of them,
 * in the same order, whether it posts or not. Record n lies in place n % BOARD_RECORDS, and is
 * written again when every rank has ended collective n and those before it, which each says in its
 * line.
 *
 * With lanes it is for collectives that are done again and again, and begin in any order: each has
 * a lane, and its turns in it are numbered from 1. Whoever is BOARD_TURNS ahead waits for that
 * lane's readers only.
 *
 *   board_area(rank): | struct board_line | last turn ended [lanes] | records of lane 0 | records
 * of lane 1 | ...
 *
 * Threads: begin, post and end by one thread at a time; look by any.
 */
#ifndef SLUICE_BOARD_H
#define SLUICE_BOARD_H

#include "base/base.h"
#include "node/node.h"

#ifndef BOARD_RECORDS /* a model of it has fewer and shorter ones */
#define BOARD_RECORDS 32u /* collectives that a rank can be ahead of the slowest, at most 32 */
#define BOARD_RECORD_BYTES (8192u + 64u)
#define BOARD_TURNS 4u /* that a rank can be ahead in a lane */
#endif
#define BOARD_LANES_MAX 64u
#define BOARD_BYTES (BOARD_RECORD_BYTES - 16u) /* of a message */

struct board;

/* Bytes of each rank's user area that a board takes. */
uint64_t board_area_bytes(void);
/* On the group's user areas, from area_off on, which is a multiple of a cache line. 0 or -ENOMEM.
 */
int board_create(struct node_group *g, uint64_t area_off, struct board **out);
/* The same with so many lanes, at most BOARD_LANES_MAX. */
uint64_t board_lanes_area_bytes(uint32_t lanes);
int board_create_lanes(struct node_group *g, uint64_t area_off, uint32_t lanes, struct board **out);
void board_destroy(struct board *b);

/* The number of this rank's next collective; 0: a rank, perhaps this one, has not ended that of
 * BOARD_RECORDS before. Costs no more than two loads then, and may be asked again. */
uint64_t board_begin(struct board *b);
/* The same of this turn in a lane, the one after the last that was begun there. */
uint64_t board_begin_turn(struct board *b, uint32_t lane, uint64_t turn);
/* Where its message is written, BOARD_BYTES of it: between board_begin() and board_post(). 16-byte
 * aligned. */
void *board_record(const struct board *b, uint64_t n);
/* Everybody may read it, and who sleeps is woken. */
void board_post(struct board *b, uint64_t n, uint32_t bytes);
/* What the rank has posted for collective n, which this rank has begun and not ended; NULL: nothing
 * yet. *out_bytes: at most BOARD_BYTES. Async-signal-safe. */
const void *board_look(const struct board *b, int rank, uint64_t n, uint32_t *out_bytes);
/* This rank reads nothing of it any more. Each that was begun once, in any order. */
void board_end(struct board *b, uint64_t n);

/* ---- what a rank makes of the messages --------------------------------------------------- */

struct board_part { uint64_t off, bytes; };

/*
 * How messages are combined: element by element, in the order of ranks, ((m0 op m1) op m2) ..., so
 * that each rank gets the same bits, however late who was. combine(): inout = in op inout, for
 * `bytes` of elements; 0 or -errno. Memory of both is 16-byte aligned.
 */
struct board_fold {
	int (*combine)(void *ctx, const void *in, void *inout, uint32_t bytes);
	void *ctx;
};

/*
 * A collective is: a message of each rank that posts, and, on each rank, one of these, for bytes
 * [at, at + bytes) of the messages of ranks [first, end). They are laid one beside the other, to +
 * (r - first) * stride, or combined into `to` (fold), which is 16-byte aligned then and nobody's
 * until the end.
 *
 *                    posts     reads                               reads
 *   barrier          all       all, no bytes     allreduce         all, folded
 *   bcast, scatter   the root  the root          reduce            the root: all, folded
 *   gather           all       the root: all     reduce_scatter    all, its own part folded
 *   allgather        all       all               scan, exscan      ranks up to (below) its own,
 * folded alltoall         all       all, its own part
 */
struct board_read {
	int first, end;
	uint32_t at, bytes;
	char *to;
	uint64_t stride;
	const struct board_part *parts; /* not NULL: of rank r's message come parts[r].bytes, to
					   `to` + parts[r].off */
	const struct board_fold *fold;  /* may be NULL */
	int skip; /* posts nothing, its part is there already; -1: nobody. Not with fold */
	int next;                       /* begins as `first`; all before it have been read */
};

/*
 * Read what has come of collective n. 1: all of it; 0: not yet, *r remembers how far; -EREMOTEIO: a
 * message is too short, the ranks disagree about the size; -errno of combine().
 */
int board_take(const struct board *b, uint64_t n, struct board_read *r);

#endif
