/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reduce: combines the inputs of the ranks element by element into the results of the ranks:
 * reductions and scans, directly from the ranks' memory into the ranks' memory, shared by all
 * movers.
 *
 *   elements   0 ........................ count
 *   slices     |   0   |   1   | ... | p-1   |    one per rank, which holds the claim words
 *   fragments  |  |  |  |  |  |  |  |  |  |  |    what a mover claims, <= REDUCE_UNITS_MAX a slice
 *   chunks     |||||||||||||||||||||||||||||||    read from all ranks, combined, stored, in cache
 *
 * The cut is a pure function of the shape, which all ranks agree on, so each mover computes it
 * alone. A slice is opened, claimed and completed by the words of an xfer (xfer.h). One mover
 * combines a fragment, in an order that the number of ranks fixes, in rank 0's modes of floating
 * point arithmetic. So results do not depend on which mover ran when: they are equal from run to
 * run and on all ranks. Reductions follow coll_combines_after(), scans ((0 op 1) op 2) ...
 *
 * A mover reads a chunk from all ranks before it stores the chunk anywhere, so a rank's result may
 * be its input, except for COLL_REDUCE_SCATTER, where a result element depends on other elements of
 * the inputs.
 *
 * Bytes outside the mapped pages: in_edges, filled by xfer_fill_edges() before the collective, hold
 * those of an input. Movers store those of a result at out_edges, and the owner copies them out
 * when their fragments are complete (reduce_copy_edge_buf()). So any mover can combine any
 * fragment.
 *
 * Only a rank inside an MPI call can run an operation of the program (`combine`): then rank r
 * combines slice r alone, with work memory of its own.
 *
 * Context: without `combine`, any number of threads, processes and signal handlers may call
 * reduce_move() and the functions under it at once. Stack: about REDUCE_ROOM_BYTES.
 */
#ifndef SLUICE_REDUCE_H
#define SLUICE_REDUCE_H

#include "coll/coll.h"
#include "goal/goal.h"
#include "node/node.h"
#include "region/region.h"
#include "xfer/xfer.h"

#define REDUCE_UNITS_MAX XFER_FRAGMENTS_MAX
#define REDUCE_ROOM_BYTES (24u << 10)

/*
 * Kinds: COLL_REDUCE          the root gets all elements
 *        COLL_ALLREDUCE       every rank gets all elements
 *        COLL_REDUCE_SCATTER  rank r gets elements [starts[r], starts[r + 1])
 *        COLL_SCAN            rank r gets the combination of ranks 0 to r
 *        COLL_EXSCAN          rank r gets the combination of ranks 0 to r - 1, rank 0 nothing
 */

/* Equal on all ranks. In shared memory: fixed width, no padding. */
struct reduce_shape {
	uint32_t kind, ranks, root;
	/* GOAL_ADD ... GOAL_XOR of GOAL_I8 ... GOAL_F64; GOAL_NOP: an operation of the program */
	uint32_t type, dtype;
	uint32_t is_commutative; /* operation of the program: operands may be exchanged */
	uint64_t count, element_bytes;
	uint64_t starts_sum;     /* reduce_starts_sum() of the starts; 0: no starts */
};

/* A checksum by which the ranks compare their starts, [ranks + 1]. */
uint64_t reduce_starts_sum(const uint64_t *starts, uint32_t ranks);

struct reduce_cut { uint64_t slice_elements, unit_elements; };

/* Pure. All slices but the last ones are equal; some may be empty. */
void reduce_cut(const struct reduce_shape *s, struct reduce_cut *out);
uint32_t reduce_units(const struct reduce_shape *s, const struct reduce_cut *c, uint32_t slice);
/* The elements of a fragment: [first, first + n). */
void reduce_unit_range(const struct reduce_shape *s, const struct reduce_cut *c, uint32_t slice,
		     uint32_t unit, uint64_t *out_first, uint64_t *out_n);
/* Bits of the fragments of a slice that hold elements [first, first + n). */
uint64_t reduce_units_of(const struct reduce_shape *s, const struct reduce_cut *c, uint32_t slice,
		       uint64_t first, uint64_t n);

/* The elements of a rank's result: [first, first + n) of the vector; n is 0 when it gets none. */
void reduce_result(const struct reduce_shape *s, const uint64_t *starts, uint32_t rank,
		 uint64_t *out_first, uint64_t *out_n);

/*
 * One rank's memory, as published and mapped: descriptors of the input, from in_off on, and of the
 * result, from out_off on.
 */
struct reduce_side {
	const struct region_desc *in, *out;
	uint64_t in_off, out_off;
	const char *in_edges; /* 2 * XFER_EDGE_BYTES */
	char *out_edges;      /* 2 * XFER_EDGE_BYTES */
	uint32_t float_modes; /* os_float_modes() of the rank */
};

/*
 * Work memory: reduce_pieces() pieces of `bytes` bytes, each at least an element and a multiple of
 * BASE_CACHE_LINE.
 */
struct reduce_room { char *at; uint64_t bytes; };
uint32_t reduce_pieces(uint32_t ranks);

/* One process's view of a reduction; process-private. */
struct reduce_view {
	struct reduce_shape shape;
	struct reduce_cut cut;
	const uint64_t *starts;
	struct node_group *group;
	uint64_t tag;
	enum xfer_view_mode mode; /* how this rank's own memory is addressed */
	void *ctx;                /* of side() and words() */
	struct reduce_side (*side)(void *ctx, uint32_t rank);
	struct xfer *(*words)(void *ctx, uint32_t slice);
	/* the program's operation: inout[i] = in[i] op inout[i]; 0 or -errno */
	int (*combine)(void *ctx, const void *in, void *inout, uint64_t count);
	void *combine_ctx;
	struct reduce_room *room; /* for `combine` */
};

/* Does every rank's memory hold the elements of the shape, and is it mapped here? */
bool reduce_can_reach(struct reduce_view *v);
/*
 * Claim a fragment of the slice, the first free one from `start` on, and combine it.
 * Returns: 1: done; 0: none is free; -errno of `combine` (the fragment stays claimed: the
 * collective has failed).
 */
int reduce_move(struct reduce_view *v, uint32_t slice, uint32_t start);
/* Like reduce_move(), for the slice of this element, from its fragment on. */
int reduce_move_at(struct reduce_view *v, uint64_t element);
/* Combine and complete a fragment that the caller has claimed. */
int reduce_do_unit(struct reduce_view *v, uint32_t slice, uint32_t unit);
/* Is every fragment of the slice complete; is every one claimed? */
bool reduce_is_done(struct reduce_view *v, uint32_t slice);
bool reduce_is_all_claimed(struct reduce_view *v, uint32_t slice);
/* Are these elements of the vector complete? */
bool reduce_is_range_done(struct reduce_view *v, uint64_t first, uint64_t n);

/*
 * The bytes of a rank's result outside its mapped pages: are there any, are their fragments
 * complete, and copy them to `to`, byte 0 of the buffer that `out` describes.
 */
bool reduce_has_edges(struct reduce_view *v, uint32_t rank);
bool reduce_are_edges_done(struct reduce_view *v, uint32_t rank);
/* reduce_move_at() a fragment with such bytes. */
int reduce_move_edges(struct reduce_view *v, uint32_t rank);
void reduce_copy_edge_buf(struct reduce_view *v, uint32_t rank, char *to);

#endif
