/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xfer: "copy these bytes of that rank into these bytes of this rank", shared by everyone who
 * waits.
 *
 *   bytes of the transfer   0 ....lo=================================hi.... len
 *                           edges | fragments, claimed one by one     | edges
 *
 * A transfer lives in shared memory, in the receiver's part of the control segment. How its bytes
 * travel is a pure function of both ends' descriptors (xfer_plan), so everyone who sees both comes
 * to the same plan and no one has to be told: whoever arrives last can start. Its units are the
 * fragments and, after them, the edges: both of them together, where bytes lie outside the pages
 * that both ends have mapped.
 *
 * Protocol (checked exhaustively by test/unit/test_xfer_protocol.c):
 *   open      the receiver resets `done`, then `claimed`, then publishes its slot (release)
 *   claim     a compare-and-swap on `claimed` adds the bit of a unit: the unit is the claimer's
 *             alone. A claim with an old tag fails, so a slow helper never claims a unit of a later
 *             transfer
 *   unclaim   removes the bit, for another mover
 *   mark      a mover that may be killed in between first writes its intent to memory that the
 *             others see, and adds XFER_MARK by the same compare-and-swap: they know which unit is
 *             free again when the mover is dead (worker/)
 *   complete  adds the bit to `done` (release); the mover that adds the last one has seen the bytes
 *             of all (acquire)
 *
 * The receiver does not reuse the transfer before `done` has all bits, and a claimed unit keeps one
 * of them clear, so descriptors read before a successful claim are still valid after it. No step
 * has a state in between: threads, signal handlers and processes may all move at once.
 *
 * Words are (tag << XFER_TAG_SHIFT | a bit per unit); the tag is the number of the collective. A
 * sender that finds a newer tag knows that its transfer was completed.
 */
#ifndef SLUICE_XFER_H
#define SLUICE_XFER_H

#include "base/base.h"
#include "engine/engine.h"
#include "os/os.h"
#include "node/node.h"
#include "region/region.h"

#define XFER_TAG_SHIFT 40
#define XFER_TAG_MASK 0xffffffull
#define XFER_VALUE_MASK ((1ull << XFER_TAG_SHIFT) - 1)
/* Of each end of a sender's buffer, carried by its slot. */
#define XFER_EDGE_BYTES 4096u
#define XFER_NONE UINT32_MAX
/* The unit where this mover begins, so that movers meet late. */
#define XFER_ANY UINT32_MAX
#define XFER_UNITS_MAX 39u         /* as many as bits are left beside the tag and the mark */
#define XFER_MARK (1ull << XFER_UNITS_MAX) /* in `claimed`: see xfer_claim_marked */
#define XFER_FRAGMENTS_MAX (XFER_UNITS_MAX - 1) /* the last unit are the edges */

struct xfer {
	BASE_ALIGNED_LINE _Atomic uint64_t claimed; /* a bit per unit; written by claimers */
	BASE_ALIGNED_LINE _Atomic uint64_t done;   /* a bit per unit in place; written by movers */
	BASE_ALIGNED_LINE _Atomic uint64_t
		consumed;        /* staged: chunks taken; written by the receiver */
	_Atomic uint64_t failed; /* fragments that process_vm_* could not copy; written by movers */
	_Atomic uint64_t repaired; /* those of them the sender has laid out for the receiver */
	uint64_t repair_off;       /* where in the sender's arena; valid when `repaired` is not 0 */
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

/* All of these are async-signal-safe and may run in any number of threads and processes at once. */

/* By the receiver, before it publishes. */
void xfer_open(struct xfer *x, uint64_t tag);
/* A unit below `units` that is now the caller's to copy: the lowest free one from `start` on, else
 * the lowest free one; XFER_NONE when all are taken or the transfer is long over. */
uint32_t xfer_claim(struct xfer *x, uint64_t tag, uint32_t units, uint32_t start);
/*
 * The same for a mover whose process may be killed at any moment. Before each attempt `intent`
 * becomes name | unit; an attempt that succeeds adds XFER_MARK too. The caller then writes down
 * elsewhere what it has, and calls xfer_unmark(): until then a mark says that the last intent is a
 * claim. XFER_NONE: intent is 0. One mover of a transfer at a time, all with the same intent word;
 * name: its lowest 6 bits are 0.
 */
uint32_t xfer_claim_marked(struct xfer *x, uint64_t tag, uint32_t units, _Atomic uint64_t *intent,
			   uint64_t name);
void xfer_unmark(struct xfer *x);
/* Its mover is dead: was the unit that it was about to claim its own? Takes the mark away. */
bool xfer_was_claimed(struct xfer *x, uint64_t tag, uint32_t unit);
/* Give a claimed unit back without having copied it (or all of it). Ring whoever may wait for it.
 */
void xfer_unclaim(struct xfer *x, uint32_t unit);
/* The units in `bits`, claimed by the caller, are in place. True for the one who completes `total`.
 */
bool xfer_complete(struct xfer *x, uint64_t tag, uint64_t bits, uint64_t total);
/* Are all of these units in place (or this transfer long over)? */
bool xfer_is_done(struct xfer *x, uint64_t tag, uint64_t bits);
bool xfer_is_all_claimed(struct xfer *x, uint64_t tag, uint32_t units);

/* ---- plan -------------------------------------------------------------------------------- */

enum xfer_way {
	XFER_DIRECT, /* at least one end is mapped: loads and stores */
	XFER_VM,     /* process_vm_readv / process_vm_writev */
	XFER_STAGED, /* through the sender's ring of chunks in the control segment */
};

/* The movers that can copy the bytes outside [lo, hi). */
enum xfer_edges {
	XFER_EDGES_NONE,     /* there are none */
	XFER_EDGES_RECEIVER, /* it alone: they are no unit that others can claim (xfer_move_edges)
			      */
	XFER_EDGES_ENDS,     /* sender and receiver: only the sender's process has them */
	XFER_EDGES_ALL, /* everybody: the sender's slot carries them, or the receiver's takes them
			 */
};

/* One end: bytes [off, off + bytes) of the described buffer. */
struct xfer_end {
	struct region_desc desc;
	uint64_t off;
	int rank;
	char *edge_buf; /* receiver: 2 * XFER_EDGE_BYTES of its slot, for what lies outside its
			pages; NULL: it takes that itself */
};

struct xfer_plan {
	enum xfer_way way;
	enum xfer_edges edges;
	uint64_t bytes;    /* of the transfer */
	uint64_t lo, hi;   /* fragments cover [lo, hi) */
	/* a half has `in_half` fragments, the second at most: `larges` of large_bytes, the others
	 * small */
	uint64_t half_bytes, large_bytes, small_bytes;
	uint32_t larges, in_half, fragments;
	uint32_t
		units; /* that can be claimed: the fragments, and the edges unless the receiver's */
	uint64_t total;    /* what `done` reaches: a bit per fragment, and one for the edges */
	bool receiver_moves, sender_moves, others_move; /* who can copy fragments */
	bool dst_mapped;   /* and loads and stores do */
	bool fills_edge_buf; /* those outside the receiver's pages are left in its slot:
			      xfer_copy_edge_buf() */
	bool receiver_needed, sender_needed; /* something can be done in that process only */
};

/* How the two ends can reach each other. */
struct xfer_reach {
	bool can_read;  /* the receiver may process_vm_readv from the sender */
	bool can_write; /* the sender may process_vm_writev to the receiver */
	bool prefer_vm; /* rather than staging */
};

/* Pure: equal inputs give equal plans on every rank. inline_edges: the sender's slot carries the
 * first and last XFER_EDGE_BYTES of its buffer. */
void xfer_plan(const struct xfer_end *src, const struct xfer_end *dst, uint64_t bytes,
	       const struct xfer_reach *reach, bool inline_edges, struct xfer_plan *out);

/* Before the other end is known: whatever it turns out to be, the plan will not need this one. */
bool xfer_sender_may_detach(const struct xfer_end *src, uint64_t bytes, bool inline_edges);
bool xfer_receiver_may_detach(const struct xfer_end *dst, uint64_t bytes);

/* Cut [lo, hi), which is set, into fragments of whole pages (but the last), at most
 * XFER_FRAGMENTS_MAX, in order: see fragment.c. Honours SLUICE_XFER_FRAGMENT as far as that allows.
 * Pure. */
void xfer_cut(struct xfer_plan *p);
/* Transfer bytes [at, at + n) of fragment i. */
void xfer_fragment_range(const struct xfer_plan *p, uint32_t i, uint64_t *out_at, uint64_t *out_n);
/* The unit to which a byte of the transfer belongs: a fragment, or the edges. */
uint32_t xfer_fragment_of(const struct xfer_plan *p, uint64_t at);
/* Bits of the units to which the bytes [at, at + n) of the transfer belong. */
uint64_t xfer_units_of(const struct xfer_plan *p, uint64_t at, uint64_t n);

/* ---- moving ------------------------------------------------------------------------------ */

enum xfer_view_mode {
	XFER_VIEW_NORMAL,  /* the own end at the program's address */
	XFER_VIEW_ALIASED, /* through the arena: good while the program's address is guarded, for
			    * the bytes inside the mapped pages only */
};

/* How this process sees a transfer. Private to it. */
struct xfer_view {
	struct xfer *x;
	struct xfer_plan plan;
	uint64_t tag;
	struct node_group *group;
	int src_rank, dst_rank;
	char *src, *dst; /* byte 0 here, or NULL; outside [lo, hi) only for the own end */
	uint64_t src_remote, dst_remote; /* byte 0 in the owner's address space */
	uint64_t src_lo, src_hi;         /* the part of the source that can be read at `src` */
	const char *edge_head, *edge_tail; /* the sender's inline edges */
	char *edge_buf_head, *edge_buf_tail; /* for what of the destination lies below dst_lo, and
					from dst_hi on; NULL: all of it is at `dst` */
	uint64_t dst_lo, dst_hi;
	uint64_t edge_head_end, edge_tail_begin; /* transfer bytes that they cover */
	uint64_t repaired; /* fragments taken by repair_receive */
	uint32_t units;    /* that this process can claim */
	uint32_t start;    /* what XFER_ANY stands for */
	bool can_move, edges_done;
};

/*
 * edges: the sender's two inline buffers (NULL: none). Async-signal-safe when aliased, or when the
 * same transfer was viewed before.
 */
void xfer_view_init(struct xfer_view *v, struct xfer *x, uint64_t tag, struct node_group *g,
		    const struct xfer_end *src, const struct xfer_end *dst,
		    const struct xfer_plan *plan, const char *edges, enum xfer_view_mode mode);
/* plan.fills_edge_buf, and all is there: what was left of bytes [dst->off, dst->off + bytes) of the
 * receiver's buffer at `buf` goes to where it belongs. */
void xfer_copy_edge_buf(const struct xfer_end *dst, void *buf, uint64_t bytes);
/* Copies the edges of a sender's buffer to its inline edges (2 * XFER_EDGE_BYTES). */
void xfer_fill_edges(const struct region_desc *d, const void *buf, char *edges);

/* Claim one unit, the first free one from `start` (or XFER_ANY) on, and copy it. Returns 1 when one
 * was moved, 0 when there was none to take (or this process cannot move any), -EOWNERDEAD. Context:
 * any rank of the group, any number at once; async-signal-safe when plan.others_move. */
int xfer_move(struct xfer_view *v, uint32_t start);
/* The copy alone, of a unit that the caller has claimed, and xfer_finish() for it when it succeeds.
 */
int xfer_copy_unit(struct xfer_view *v, uint32_t unit);
/* The units in `bits` are in place; rings both ends when they were the last. */
void xfer_finish(struct xfer_view *v, uint64_t bits);
/* XFER_EDGES_RECEIVER: the receiver's own part; once. */
int xfer_move_edges(struct xfer_view *v);
/* Are all bytes [at, at + n) of the transfer in place? */
bool xfer_is_range_done(const struct xfer_view *v, uint64_t at, uint64_t n);
/* Is there something left that only this rank, an end of the transfer, can do? */
bool xfer_needs_me(const struct xfer_view *v);

/* Fragments that process_vm_* refused: the sender lays them out in its arena (from scratch memory
 * that the caller provides, at least plan.bytes), the receiver takes them. Return 1 when something
 * was done. */
bool xfer_needs_repair(const struct xfer_view *v);
int xfer_repair_send(struct xfer_view *v, const struct region_extent *scratch);
int xfer_repair_receive(struct xfer_view *v);

/* ---- virtual queue to a channel ---------------------------------------------------------- */

/* One fragment on its way through the channel, piece by piece. */
struct xfer_post {
	struct engine_copy copy;
	uint64_t at, end; /* transfer bytes: the piece that is posted begins at `at` */
	uint64_t since;   /* when it was, for the trace */
};

/*
 * The virtual queue of a transfer (its unclaimed units) feeds a channel of a copy engine: `depth`
 * fragments are in the channel at a time; the end of one claims and posts the next (CE mode), until
 * xfer_queue_stop() (CPU mode): then what the channel holds ends there, and nothing follows. A copy
 * that fails is done by the CPU, or given back to the virtual queue in CPU mode.
 *
 *    init -> start ... [stop, rescue] ... drained() -> start (another transfer) ...
 *
 * The memory belongs to the caller and stays until the queue is idle. done() of the engine runs in
 * any of its threads; stop, rescue and is_idle may be called from anywhere at any time.
 */
struct xfer_queue {
	struct xfer_view view;
	struct engine_chan *chan;
	uint64_t piece_bytes, align_bytes;
	void (*drained)(void *arg);
	void *arg;
	_Atomic uint32_t users;    /* fragments in the channel, and one while start() runs */
	_Atomic bool is_stopped, is_retired;
	_Atomic uint64_t moved_ns; /* when a copy ended last, or somebody began to wait */
	struct xfer_post posts[XFER_FRAGMENTS_MAX]; /* by fragment */
};

/* Zeroed memory is the same. Not while it is in use. */
void xfer_queue_init(struct xfer_queue *q);
/*
 * Claim fragments of `v`, which is copied, and post them. True: some are in the channel, and
 * drained(arg) will be called once when the last has come back and there is nothing more to post; q
 * may be started again in it. False: nothing is in the channel (nothing left to claim, stopped, or
 * the channel does not take it), and drained() is not called. Async-signal-safe.
 */
bool xfer_queue_start(struct xfer_queue *q, const struct xfer_view *v, struct engine_chan *chan,
		      uint32_t depth, void (*drained)(void *arg), void *arg);
/* CPU mode, until xfer_queue_init(): no further posts. Async-signal-safe. */
void xfer_queue_stop(struct xfer_queue *q);
bool xfer_queue_is_idle(const struct xfer_queue *q);
/*
 * For those who wait: let the engine notice what has ended, or do here what it has not begun. When
 * the channel has made no progress for SLUICE_ENGINE_TIMEOUT, counted from the last end of a copy
 * or from stop(), it is retired, and what it held comes back. True when something has moved.
 * Context: any that may sleep; a fault handler may.
 */
bool xfer_queue_rescue(struct xfer_queue *q, uint64_t now_ns);

/* ---- staging ----------------------------------------------------------------------------- */

/*
 * A ring of chunks in the sender's part of the control segment. The sender streams its bytes
 * through it once, however many receivers take them: chunk i lies in place i % XFER_RING_CHUNKS and
 * may be overwritten when every staged receiver has consumed it.
 */
#define XFER_CHUNK_BYTES (32u << 10)
#define XFER_RING_CHUNKS 8u
#define XFER_RING_BYTES ((uint64_t)XFER_CHUNK_BYTES * XFER_RING_CHUNKS)

/* Sender: copy the next chunk of src[0, bytes) into the ring unless it is full; `consumed` is the
 * smallest number of chunks consumed by a receiver. Returns 1 when a chunk was filled. */
int xfer_stage_fill(_Atomic uint64_t *filled, uint64_t tag, char *ring, const char *src,
		    uint64_t bytes, uint64_t consumed);
/* Chunks this receiver has consumed of transfer `tag`; 0 before it was opened. */
uint64_t xfer_stage_consumed(struct xfer *x, uint64_t tag);
/* Receiver: take the next chunk if it is there. Returns 1 when one was taken. */
int xfer_stage_drain(struct xfer_view *v, _Atomic uint64_t *filled, const char *ring);

#endif
