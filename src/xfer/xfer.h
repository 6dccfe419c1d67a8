/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xfer: a transfer copies bytes of one rank's region into bytes of another's; all movers share its
 * work.
 *
 *   bytes of the transfer   0 ....lo=================================hi.... len
 *                           edges | fragments, claimed one by one     | edges
 *
 * A transfer lies in shared memory, in the receiver's part of the control segment. xfer_plan() is a
 * pure function of both ends' descriptors, so every process that sees both ends makes the same plan
 * alone, and the last rank to arrive can start. The units that movers claim are the fragments, and
 * one more unit for both edges when bytes lie outside the pages that both ends have mapped.
 *
 * Protocol (test/unit/test_xfer_protocol.c checks it exhaustively):
 *   open      the receiver resets `done`, then `claimed`, then publishes its slot (release)
 *   claim     a compare-and-swap on `claimed` adds the bit of a unit, which is the claimer's
 *             alone then. A claim with an old tag fails, so a slow helper never claims a unit of
 *             a later transfer
 *   unclaim   removes the bit, for another mover
 *   mark      a mover that may be killed first writes its intent to memory that the ranks see,
 *             and adds XFER_MARK by the same compare-and-swap: the mark tells the ranks which
 *             unit to free when the mover is dead (worker/)
 *   complete  adds the bit to `done` (release); the mover that adds the last one has seen the
 *             bytes of all (acquire)
 *
 * The receiver does not reuse the transfer before `done` has all bits, and a claimed unit's bit is
 * clear in `done`, so descriptors read before a successful claim are still valid after it. No step
 * has an intermediate state: threads, signal handlers and processes may all move at once.
 *
 * An end whose bytes have gaps is typed: it has a layout (layout/), the transfer's bytes are its
 * packed bytes, and its whole buffer is mapped. Nothing else changes: a fragment is a range of
 * packed bytes, and its mover copies it from layout to layout.
 *
 * A word is (tag << XFER_TAG_SHIFT | a bit per unit); the tag is the number of the collective. A
 * newer tag tells the sender that its transfer is complete.
 */
#ifndef SLUICE_XFER_H
#define SLUICE_XFER_H

#include "base/base.h"
#include "engine/engine.h"
#include "layout/layout.h"
#include "os/os.h"
#include "node/node.h"
#include "region/region.h"

#define XFER_TAG_SHIFT 40
#define XFER_TAG_MASK 0xffffffull
#define XFER_VALUE_MASK ((1ull << XFER_TAG_SHIFT) - 1)
/* bytes at each end of a sender's buffer that its slot carries */
#define XFER_EDGE_BYTES 4096u
#define XFER_NONE UINT32_MAX
/* as `start`: the mover's own first unit, chosen to keep movers apart */
#define XFER_ANY UINT32_MAX
#define XFER_UNITS_MAX 39u         /* bits beside the tag and the mark */
#define XFER_MARK (1ull << XFER_UNITS_MAX) /* in `claimed`: see xfer_claim_marked */
#define XFER_FRAGMENTS_MAX (XFER_UNITS_MAX - 1) /* the last unit is the edges */

struct xfer {
	BASE_ALIGNED_LINE _Atomic uint64_t claimed; /* a bit per unit; written by claimers */
	BASE_ALIGNED_LINE _Atomic uint64_t done;   /* a bit per unit in place; written by movers */
	BASE_ALIGNED_LINE _Atomic uint64_t
		consumed;        /* staged: chunks consumed; written by the receiver */
	_Atomic uint64_t failed; /* fragments that process_vm_* could not copy; written by movers */
	_Atomic uint64_t repaired; /* those that the sender has laid out for the receiver */
	/* their offset in the sender's arena; valid when `repaired` is not 0 */
	uint64_t repair_off;
};

/* ---- protocol ---------------------------------------------------------------------------- */

static inline uint64_t xfer_word(uint64_t tag, uint64_t value)
{
	return (tag & XFER_TAG_MASK) << XFER_TAG_SHIFT | value;
}
static inline bool xfer_is_tag(uint64_t word, uint64_t tag)
{
	return word >> XFER_TAG_SHIFT == (tag & XFER_TAG_MASK);
}
static inline uint64_t xfer_bit(uint32_t unit) { return 1ull << unit; }
/* The bits of units 0 .. units - 1. */
static inline uint64_t xfer_bits(uint32_t units) { return (1ull << units) - 1; }

/*
 * Context: all of these are async-signal-safe; any number of threads and processes may call them at
 * once.
 */

/* The receiver calls it before it publishes. */
void xfer_open(struct xfer *x, uint64_t tag);
/*
 * Claim a unit below `units`: the lowest free one from `start` on, else the lowest free one.
 * Returns: the unit; XFER_NONE: none is free, or the transfer is over.
 */
uint32_t xfer_claim(struct xfer *x, uint64_t tag, uint32_t units, uint32_t start);
/*
 * Like xfer_claim(), for a mover whose process may be killed at any moment. Each attempt first sets
 * `intent` to name | unit; a successful attempt adds XFER_MARK too. The caller then records its
 * claim elsewhere and calls xfer_unmark(): until then the mark says that the last intent is a
 * claim. One mover of a transfer at a time, all with one intent word; the lowest 6 bits of `name`
 * are 0.
 * Returns: the unit; XFER_NONE, and intent is 0.
 */
uint32_t xfer_claim_marked(struct xfer *x, uint64_t tag, uint32_t units, _Atomic uint64_t *intent,
			   uint64_t name);
void xfer_unmark(struct xfer *x);
/* For the intent of a dead mover: was its attempt successful? Removes the mark. */
bool xfer_was_claimed(struct xfer *x, uint64_t tag, uint32_t unit);
/*
 * Give back a claimed unit that is not, or not fully, copied. The caller wakes the waiting ranks.
 */
void xfer_unclaim(struct xfer *x, uint32_t unit);
/*
 * Complete the units in `bits`, which the caller has claimed: the transfer stays open until then.
 * Returns: true for the caller that completes `total`.
 */
bool xfer_complete(struct xfer *x, uint64_t bits, uint64_t total);
/* Are all these units complete, or the transfer over? */
bool xfer_is_done(struct xfer *x, uint64_t tag, uint64_t bits);
bool xfer_is_all_claimed(struct xfer *x, uint64_t tag, uint32_t units);

/* ---- plan -------------------------------------------------------------------------------- */

enum xfer_way {
	XFER_DIRECT, /* at least one end is mapped: loads and stores */
	XFER_VM,     /* process_vm_readv / process_vm_writev */
	/*
	 * through the arena: valid while a guard closes the program's address, for the bytes inside
	 * the mapped pages only
	 */
	XFER_STAGED,
};

/* The movers that can copy the bytes outside [lo, hi). */
enum xfer_edges {
	XFER_EDGES_NONE,     /* there are none */
	/* the receiver alone, by xfer_move_edges(): the edges are not a unit */
	XFER_EDGES_RECEIVER,
	XFER_EDGES_ENDS,     /* sender and receiver: they lie in the sender's process only */
	/* every mover: the sender's slot carries them, or the receiver's slot takes them */
	XFER_EDGES_ALL,
};

/*
 * One end of a transfer: bytes [off, off + bytes) of the described buffer, or, of a typed end, of
 * the packed form of its layout.
 */
struct xfer_end {
	struct region_desc desc;
	uint64_t off;
	int rank;
	/*
	 * 2 * XFER_EDGE_BYTES of the rank's slot, or NULL. A sender's hold the first and last bytes
	 * of its buffer, a receiver's take the bytes outside its pages.
	 */
	char *edges;
	struct layout layout; /* in the described buffer; no block: the end is not typed */
	/*
	 * set by xfer_view_init(): byte 0 of the transfer here (typed: of the buffer), or NULL, and
	 * the bytes of the transfer that this process reaches
	 */
	char *addr;
	uint64_t lo, hi;
};
static inline bool xfer_is_typed(const struct xfer_end *e) { return e->layout.block_bytes; }
/*
 * Does the buffer hold all bytes of the transfer, and may peers address them? Always true of an end
 * that is not typed. A mover checks a foreign layout by this before it makes a plan.
 */
bool xfer_end_is_valid(const struct xfer_end *e, uint64_t bytes);

struct xfer_plan {
	enum xfer_way way;
	enum xfer_edges edges;
	uint64_t bytes;    /* of the transfer */
	uint64_t lo, hi;   /* fragments cover [lo, hi) */
	/*
	 * a half has `in_half` fragments, the second at most: `larges` of large_bytes, the others
	 * of small_bytes
	 */
	uint64_t half_bytes, large_bytes, small_bytes;
	uint32_t larges, in_half, fragments;
	uint32_t
		/* units to claim: the fragments, and the edges unless they are the receiver's */
		units;
	uint64_t total; /* the final value of `done`: a bit per fragment, and one for the edges */
	bool receiver_moves, sender_moves, others_move; /* movers that can copy fragments */
	bool dst_mapped;   /* loads and stores reach the destination */
	/* movers store the bytes outside the receiver's pages in its slot: xfer_copy_edge_buf() */
	bool fills_edge_buf;
	bool receiver_needed, sender_needed; /* some work can be done in that process only */
};

/* The ways in which the two ends can reach each other. */
struct xfer_reach {
	bool can_read;  /* the receiver may process_vm_readv from the sender */
	bool can_write; /* the sender may process_vm_writev to the receiver */
	bool prefer_vm; /* rather than staging */
};

/* Pure: equal inputs give equal plans on every rank. */
void xfer_plan(const struct xfer_end *src, const struct xfer_end *dst, uint64_t bytes,
	       const struct xfer_reach *reach, struct xfer_plan *p);

/* Will every possible plan do without this end, whatever the other end turns out to be? */
bool xfer_sender_may_detach(const struct xfer_end *src, uint64_t bytes);
bool xfer_receiver_may_detach(const struct xfer_end *dst, uint64_t bytes);

/*
 * Cut [lo, hi) into at most XFER_FRAGMENTS_MAX fragments of whole pages (but the last), in order;
 * see fragment.c. Honours SLUICE_XFER_FRAGMENT within that limit. Pure.
 */
void xfer_cut(struct xfer_plan *p);
/* Transfer bytes [at, at + n) of fragment i. */
void xfer_fragment_range(const struct xfer_plan *p, uint32_t i, uint64_t *out_at, uint64_t *out_n);
/* The unit that holds a byte of the transfer: a fragment, or the edges. */
uint32_t xfer_fragment_of(const struct xfer_plan *p, uint64_t at);
/* Bits of the units that hold bytes [at, at + n) of the transfer. */
uint64_t xfer_units_of(const struct xfer_plan *p, uint64_t at, uint64_t n);

/* ---- moving ------------------------------------------------------------------------------ */

enum xfer_view_mode {
	XFER_VIEW_NORMAL,  /* this rank's end at the program's address */
	XFER_VIEW_ALIASED, /* through the arena: good while the program's address is guarded, for
			    * the bytes inside the mapped pages only */
};

/* One process's view of a transfer; process-private. */
struct xfer_view {
	struct xfer *x;
	uint64_t tag;
	struct node_group *group;
	struct xfer_end src, dst;
	struct xfer_plan plan;
	uint64_t repaired; /* fragments that xfer_repair_receive() has copied */
	uint32_t units;    /* units that this process can claim */
	uint32_t start;    /* the unit for XFER_ANY */
	bool can_move, edges_done;
};

/*
 * Map both ends and fill the fields behind `plan`; the caller has set all other fields.
 * Context: async-signal-safe when aliased, or when this process has viewed the transfer before.
 */
void xfer_view_init(struct xfer_view *v, enum xfer_view_mode mode);
/*
 * With plan.fills_edge_buf and a complete transfer: copy the bytes that movers stored in the
 * receiver's slot to their place among bytes [dst->off, dst->off + bytes) of its buffer `buf`.
 */
void xfer_copy_edge_buf(const struct xfer_end *dst, void *buf, uint64_t bytes);
/* Copy the edges of a sender's buffer to its inline edges, 2 * XFER_EDGE_BYTES. */
void xfer_fill_edges(const struct region_desc *d, const void *buf, char *edges);

/*
 * Claim one unit, the first free one from `start` (or XFER_ANY) on, and copy it.
 * Returns: 1: moved one; 0: none is free, or this process cannot move any; -EOWNERDEAD.
 * Context: any rank of the group, any number at once; async-signal-safe when plan.others_move.
 */
int xfer_move(struct xfer_view *v, uint32_t start);
/* Copy a unit that the caller has claimed, then call xfer_finish() on success. */
int xfer_copy_unit(struct xfer_view *v, uint32_t unit);
/* Complete the units in `bits`, and wake both ends when they were the last. */
void xfer_finish(struct xfer_view *v, uint64_t bits);
/* XFER_EDGES_RECEIVER: copy the receiver's edges; once. */
int xfer_move_edges(struct xfer_view *v);
/* Are all bytes [at, at + n) of the transfer in place? */
bool xfer_is_range_done(const struct xfer_view *v, uint64_t at, uint64_t n);
/* Is there work left that only this rank, an end of the transfer, can do? */
bool xfer_needs_me(const struct xfer_view *v);

/*
 * Repair fragments that process_vm_* refused: the sender lays them out in its arena, in scratch
 * memory of at least plan.bytes, and the receiver copies them.
 * Returns: 1: progress; 0: nothing to do.
 */
bool xfer_needs_repair(const struct xfer_view *v);
int xfer_repair_send(struct xfer_view *v, const struct region_extent *scratch);
int xfer_repair_receive(struct xfer_view *v);

/* ---- virtual queue to a channel ---------------------------------------------------------- */

/* One fragment in the channel, posted piece by piece. */
struct xfer_post {
	struct engine_copy copy;
	struct xfer_view *view;
	uint32_t fragment;
	uint64_t at, end; /* transfer bytes: the posted piece begins at `at` */
	uint64_t since;   /* time of the post, for the trace */
};
#define XFER_POSTS 63u /* fragments that a queue has in the channel, as channels hold copies */

/* Returns: transfer i of a queue; NULL: it is not for the channel. The answer is one view for each
 * i, unless the transfer is claimed. Context: as done() of the engine. */
typedef struct xfer_view *xfer_view_at(void *arg, uint32_t i);

/*
 * The virtual queue of one or more transfers (their unclaimed units, in order) feeds a channel of a
 * copy engine: the channel holds `depth` fragments, and the end of each claims and posts the next
 * one (CE mode); an autonomous engine gets all fragments at once, as `depth` is then that of the
 * channel. After xfer_queue_stop() (CPU mode) nothing more is posted, what the engine has not begun
 * comes back, and the channel finishes the other copies. The CPU repeats a failed copy; in CPU mode
 * the fragment is unclaimed instead.
 *
 *    init -> start ... [stop, rescue] ... drained() -> start (other transfers) ...
 *
 * Owner: the caller keeps the memory until the queue is idle.
 * Context: the engine's done() runs in any of its threads; stop, rescue and is_idle may be called
 * from any thread at any time.
 */
struct xfer_queue {
	struct engine_chan *chan;
	uint64_t piece_bytes, align_bytes;
	xfer_view_at *at; /* for 0 to count - 1 */
	uint32_t count;
	_Atomic uint32_t present; /* the transfer whose fragments are posted now */
	void (*drained)(void *arg);
	void *arg;              /* of `at` and `drained` */
	_Atomic uint32_t users; /* fragments in the channel, plus one while start() runs */
	_Atomic bool is_stopped, is_retired;
	/* time of the last end of a copy, or of the beginning of a wait */
	_Atomic uint64_t moved_ns;
	_Atomic uint64_t free_posts;
	struct xfer_post posts[XFER_POSTS];
};

/* Equivalent to zeroing the memory. Not while the queue is in use. */
void xfer_queue_init(struct xfer_queue *q);
/*
 * Claim fragments of the transfers, whose views stay as they are until the queue is idle, and post
 * them.
 * Returns: true: the channel holds fragments, and drained(arg) will be called once, after the last
 * has ended and nothing is left to post; drained() may start q again. False: the channel holds none
 * (none was free, the queue is stopped, the channel refused, or an end is not an address in a
 * window: see engine/engine.h), and drained() is not called.
 * Context: async-signal-safe.
 */
bool xfer_queue_start(struct xfer_queue *q, xfer_view_at *at, uint32_t count,
		      struct engine_chan *chan, uint32_t depth, void (*drained)(void *arg),
		      void *arg);
/* CPU mode, until xfer_queue_init(): post no more, and cancel. Context: async-signal-safe; not
 * inside done(). */
void xfer_queue_stop(struct xfer_queue *q);
bool xfer_queue_is_stopped(const struct xfer_queue *q);
bool xfer_queue_is_idle(const struct xfer_queue *q);
/*
 * For waiting threads: let the engine notice ended copies, and do here copies that it has not
 * begun. A channel without progress for SLUICE_ENGINE_TIMEOUT, counted from the last end of a copy
 * or from stop(), is retired, and its fragments are unclaimed.
 * Returns: true when something has moved.
 * Context: may sleep; a fault handler may call it.
 */
bool xfer_queue_rescue(struct xfer_queue *q, uint64_t now_ns);
/* When xfer_queue_rescue() retires the channel unless something moves. */
uint64_t xfer_queue_due_ns(const struct xfer_queue *q);

/* ---- staging ----------------------------------------------------------------------------- */

/*
 * A ring of chunks in the sender's part of the control segment. The sender streams its bytes
 * through the ring once for all receivers: chunk i lies in place i % XFER_RING_CHUNKS, and the
 * sender overwrites it when every staged receiver has consumed it.
 */
#define XFER_CHUNK_BYTES (32u << 10)
#define XFER_RING_CHUNKS 8u
#define XFER_RING_BYTES ((uint64_t)XFER_CHUNK_BYTES * XFER_RING_CHUNKS)

/*
 * Sender: copy the next chunk of src[0, bytes) into the ring unless the ring is full; `consumed` is
 * the smallest number of chunks that a receiver has consumed. Returns: 1 when a chunk was filled.
 */
int xfer_stage_fill(_Atomic uint64_t *filled, uint64_t tag, char *ring, const char *src,
		    uint64_t bytes, uint64_t consumed);
/* Chunks of transfer `tag` that this receiver has consumed; 0 before it opened the transfer. */
uint64_t xfer_stage_consumed(struct xfer *x, uint64_t tag);
/* Receiver: copy the next chunk out when it is filled. Returns: 1 when a chunk was consumed. */
int xfer_stage_drain(struct xfer_view *v, _Atomic uint64_t *filled, const char *ring);

#endif
