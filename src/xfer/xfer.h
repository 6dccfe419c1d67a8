/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xfer: "copy these bytes of that rank into these bytes of this rank", shared by everyone who waits.
 *
 *   bytes of the transfer   0 ....lo=================================hi.... len
 *                           edges | fragments, claimed one by one     | edges
 *                          (receiver)   (receiver, sender, helpers)    (receiver)
 *
 * A transfer lives in shared memory, in the receiver's part of the control segment. How its bytes
 * travel is a pure function of both ends' descriptors (xfer_plan), so everyone who sees both comes
 * to the same plan and no one has to be told: whoever arrives last can start.
 *
 * Protocol (checked exhaustively by test/unit/test_xfer_protocol.c):
 *   open      the receiver resets `done`, then `cursor`, then publishes its slot (release)
 *   claim     compare-and-swap on `cursor` from (tag, i) to (tag, i + 1): fragment i is mine alone.
 *             A claim with an old tag fails, so a slow helper can never take part of a later transfer
 *   complete  add to `done` (release); who reaches the total saw everybody's bytes (acquire)
 * The receiver does not reuse the transfer before `done` is the total, and a claimed fragment keeps
 * `done` below it, so descriptors read before a successful claim are still valid after it.
 *
 * Words are (tag << XFER_TAG_SHIFT | value); the tag is the number of the collective. A sender that
 * finds a newer tag knows that its transfer was completed.
 */
#ifndef SLUICE_XFER_H
#define SLUICE_XFER_H

#include "base/base.h"
#include "host/host.h"
#include "node/node.h"
#include "region/region.h"

#define XFER_TAG_SHIFT 40
#define XFER_TAG_MASK 0xffffffull
#define XFER_VALUE_MASK ((1ull << XFER_TAG_SHIFT) - 1)
#define XFER_EDGE_BYTES 4096u      /* of each end of a sender's buffer that travel in its descriptor */
#define XFER_NONE UINT64_MAX
#define XFER_REPAIR_FRAGMENTS 64u  /* of a transfer by process_vm_*: one bit each in `failed` */

struct xfer {
	BASE_ALIGNED_LINE _Atomic uint64_t cursor; /* next fragment; written by claimers */
	BASE_ALIGNED_LINE _Atomic uint64_t done;   /* bytes moved, + 1 for the edges; written by movers */
	BASE_ALIGNED_LINE _Atomic uint64_t consumed; /* staged: chunks taken; written by the receiver */
	_Atomic uint64_t failed;   /* fragments that process_vm_* could not copy; written by movers */
	_Atomic uint64_t repaired; /* those of them the sender has laid out for the receiver */
	uint64_t repair_off;       /* where in the sender's arena; valid when `repaired` is not 0 */
};

/* ---- protocol ---------------------------------------------------------------------------------- */

static inline uint64_t xfer_word(uint64_t tag, uint64_t value) { return (tag & XFER_TAG_MASK) << XFER_TAG_SHIFT | value; }
static inline bool xfer_is_tag(uint64_t word, uint64_t tag) { return word >> XFER_TAG_SHIFT == (tag & XFER_TAG_MASK); }

/* By the receiver, before it publishes. */
void xfer_open(struct xfer *x, uint64_t tag);
/* The index of a fragment that is now the caller's to copy, or XFER_NONE. */
uint64_t xfer_claim(struct xfer *x, uint64_t tag, uint64_t fragments);
/* `units` more are in place. True for the one caller that completes `total`. */
bool xfer_complete(struct xfer *x, uint64_t tag, uint64_t units, uint64_t total);
/* Is everything in place (or this transfer long over)? */
bool xfer_is_done(struct xfer *x, uint64_t tag, uint64_t total);
bool xfer_is_claimed_up(struct xfer *x, uint64_t tag, uint64_t fragments);

/* ---- plan ---------------------------------------------------------------------------------------- */

enum xfer_way {
	XFER_DIRECT, /* at least one end is mapped: loads and stores */
	XFER_VM,     /* process_vm_readv / process_vm_writev */
	XFER_STAGED, /* through the sender's ring of chunks in the control segment */
};

/* One end: bytes [off, off + bytes) of the described buffer. */
struct xfer_end {
	struct region_desc desc;
	uint64_t off;
	int rank;
};

struct xfer_plan {
	enum xfer_way way;
	uint64_t bytes;    /* of the transfer */
	uint64_t lo, hi;   /* fragments cover [lo, hi) */
	uint64_t fragment_bytes, fragments;
	uint64_t total;    /* what `done` reaches: hi - lo + 1 */
	bool receiver_moves, sender_moves, others_move;
};

/* What both ends know about reaching each other. */
struct xfer_reach {
	bool can_read;  /* the receiver may process_vm_readv from the sender */
	bool can_write; /* the sender may process_vm_writev to the receiver */
	bool prefer_vm; /* rather than staging */
};

/* Pure: equal inputs give equal plans on every rank. inline_edges: the sender's slot carries the first
 * and last XFER_EDGE_BYTES of its buffer. */
void xfer_plan(const struct xfer_end *src, const struct xfer_end *dst, uint64_t bytes,
	       const struct xfer_reach *reach, bool inline_edges, struct xfer_plan *out);
/* Fragment size for so many bytes; pure, honours SLUICE_XFER_FRAGMENT. */
uint64_t xfer_fragment_bytes(uint64_t bytes);

/* ---- moving ---------------------------------------------------------------------------------------- */

/* How this process sees a transfer. Private to it. */
struct xfer_view {
	struct xfer *x;
	struct xfer_plan plan;
	uint64_t tag;
	struct node_group *group;
	int src_rank, dst_rank;
	char *src, *dst;                 /* byte 0 here, or NULL; outside [lo, hi) only for the own end */
	uint64_t src_remote, dst_remote; /* byte 0 in the owner's address space */
	uint64_t src_lo, src_hi;         /* the part of the source that is mapped here */
	const char *edge_head, *edge_tail; /* the sender's inline edges */
	uint64_t edge_head_end, edge_tail_begin; /* transfer bytes that they cover */
	uint64_t repaired; /* fragments taken by repair_receive */
	bool can_move, edges_done;
};

/* edges: the sender's two inline buffers (NULL: none). */
void xfer_view_init(struct xfer_view *v, struct xfer *x, uint64_t tag, struct node_group *g,
		    const struct xfer_end *src, const struct xfer_end *dst, const struct xfer_plan *plan,
		    const char *edges);
/* What of a sender's buffer goes into its inline edges (2 * XFER_EDGE_BYTES at `edges`). */
void xfer_fill_edges(const struct region_desc *d, const void *buf, char *edges);

/* Claim one fragment and copy it. Returns 1 when a fragment was moved, 0 when there was none to take
 * (or this process cannot move any), -EOWNERDEAD. Context: any rank of the group, any number at once. */
int xfer_move(struct xfer_view *v);
/* `units` more are in place; rings both ends when they were the last. */
void xfer_finish(struct xfer_view *v, uint64_t units);
/* The receiver's own part; once. */
int xfer_move_edges(struct xfer_view *v);

/* Fragments that process_vm_* refused: the sender lays them out in its arena (from scratch memory that
 * the caller provides, at least plan.bytes), the receiver takes them. Return 1 when something was done. */
bool xfer_needs_repair(const struct xfer_view *v);
int xfer_repair_send(struct xfer_view *v, const struct region_extent *scratch);
int xfer_repair_receive(struct xfer_view *v);

/* ---- staging ---------------------------------------------------------------------------------------- */

/*
 * A ring of chunks in the sender's part of the control segment. The sender streams its bytes through
 * it once, however many receivers take them: chunk i lies in place i % XFER_RING_CHUNKS and may be
 * overwritten when every staged receiver has consumed it.
 */
#define XFER_CHUNK_BYTES (32u << 10)
#define XFER_RING_CHUNKS 8u
#define XFER_RING_BYTES ((uint64_t)XFER_CHUNK_BYTES * XFER_RING_CHUNKS)

/* Sender: copy the next chunk of src[0, bytes) into the ring unless it is full; `consumed` is the
 * smallest number of chunks consumed by a receiver. Returns 1 when a chunk was filled. */
int xfer_stage_fill(_Atomic uint64_t *filled, uint64_t tag, char *ring, const char *src, uint64_t bytes,
		    uint64_t consumed);
/* Chunks this receiver has consumed of transfer `tag`; 0 before it was opened. */
uint64_t xfer_stage_consumed(struct xfer *x, uint64_t tag);
/* Receiver: take the next chunk if it is there. Returns 1 when one was taken. */
int xfer_stage_take(struct xfer_view *v, _Atomic uint64_t *filled, const char *ring);

#endif
