/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reduce: "combine what all these ranks bring, element by element, into what these ranks get",
 * shared by everyone who waits: reductions and scans straight out of the ranks' memory into the
 * ranks' memory.
 *
 *   elements   0 ........................ count
 *   slices     |   0   |   1   | ... | p-1   |     one a rank: its claim words lie with that rank
 *   units      |  |  |  |  |  |  |  |  |  |  |     what a mover claims, REDUCE_UNITS_MAX of a slice
 * at most chunks     |||||||||||||||||||||||||||||||     what it reads from all, combines and
 * stores, in its caches
 *
 * The cut is a pure function of the shape, which all ranks agree on, so no one has to be told.
 * Claims are xfer's: opened, claimed and completed by words (xfer.h), a slice being a transfer
 * there. A unit is combined by one mover, in the order of ranks, so that results do not depend on
 * who moved what when: the same from run to run, and on all ranks. A chunk is read from all ranks
 * before it is stored anywhere, so a rank's result may be its input, where each element of it
 * depends on the same element of the inputs only: not for COLL_REDUCE_SCATTER.
 *
 * Bytes outside of mapped pages: of an input they travel with its owner's descriptor (in_edges,
 * filled before the collective by xfer_fill_edges()); of a result they are left at out_edges, from
 * where the owner takes them when their units are done (reduce_copy_edge_buf). So every unit can be
 * anybody's.
 *
 * Operations of the program can be called by ranks only, in an MPI call: then rank r does slice r,
 * alone (combine, and work memory for it).
 *
 * Context: reduce_move() and what it calls: any number of threads, processes and signal handlers at
 * once, where there is no `combine`. The stack: about 3 * REDUCE_CHUNK_BYTES.
 */
#ifndef SLUICE_REDUCE_H
#define SLUICE_REDUCE_H

#include "coll/coll.h"
#include "goal/goal.h"
#include "node/node.h"
#include "region/region.h"
#include "xfer/xfer.h"

#define REDUCE_UNITS_MAX XFER_FRAGMENTS_MAX
#define REDUCE_CHUNK_BYTES (8u << 10)

/*
 * Kinds: COLL_REDUCE          all elements, to the root
 *        COLL_ALLREDUCE       to everyone
 *        COLL_REDUCE_SCATTER  elements [starts[r], starts[r + 1]) to rank r
 *        COLL_SCAN            to rank r: of ranks 0 to r
 *        COLL_EXSCAN          to rank r: of ranks 0 to r - 1; to rank 0 nothing
 */

/* Agreed on by all ranks. In shared memory: fixed width, no padding. */
struct reduce_shape {
	uint32_t kind, ranks, root;
	uint32_t type, dtype;    /* GOAL_ADD ... GOAL_XOR of GOAL_I8 ... GOAL_F64; GOAL_NOP: the
				    program's own */
	uint32_t is_commutative; /* the program's own: may its operands be exchanged? */
	uint64_t count, element_bytes;
	uint64_t starts_sum;     /* reduce_starts_sum() of the starts, 0 where there are none */
};

/* For comparing [ranks + 1] starts. */
uint64_t reduce_starts_sum(const uint64_t *starts, uint32_t ranks);

struct reduce_cut { uint64_t slice_elements, unit_elements; };

/* Pure. Slices but the last ones are equal, some may be empty. */
void reduce_cut(const struct reduce_shape *s, struct reduce_cut *out);
uint32_t reduce_units(const struct reduce_shape *s, const struct reduce_cut *c, uint32_t slice);
/* Elements [first, first + n) of a unit. */
void reduce_unit_range(const struct reduce_shape *s, const struct reduce_cut *c, uint32_t slice,
		     uint32_t unit, uint64_t *out_first, uint64_t *out_n);
/* Bits of the units of a slice to which elements [first, first + n) belong. */
uint64_t reduce_units_of(const struct reduce_shape *s, const struct reduce_cut *c, uint32_t slice,
		       uint64_t first, uint64_t n);

/* The elements that rank gets: [first, first + n) of the vector. n is 0 when it gets none. */
void reduce_result(const struct reduce_shape *s, const uint64_t *starts, uint32_t rank,
		 uint64_t *out_first, uint64_t *out_n);

/* One rank's memory, as it has been published. in, out: descriptors of what it brings and gets,
 * from in_off and out_off on; mapped. */
struct reduce_side {
	const struct region_desc *in, *out;
	uint64_t in_off, out_off;
	const char *in_edges; /* 2 * XFER_EDGE_BYTES */
	char *out_edges;      /* 2 * XFER_EDGE_BYTES */
};

/* Work memory for `combine`: three pieces of so many bytes, at least an element. */
struct reduce_room { char *piece[3]; uint64_t bytes; };

/* How this process sees a reduce. Private to it. */
struct reduce_view {
	struct reduce_shape shape;
	struct reduce_cut cut;
	const uint64_t *starts;
	struct node_group *group;
	uint64_t tag;
	enum xfer_view_mode mode; /* of this rank's own memory */
	void *ctx;                /* of the two: */
	struct reduce_side (*side)(void *ctx, uint32_t rank);
	struct xfer *(*words)(void *ctx, uint32_t slice);
	/* the program's own operation: inout[i] = in[i] op inout[i]; 0 or -errno */
	int (*combine)(void *ctx, const void *in, void *inout, uint64_t count);
	void *combine_ctx;
	struct reduce_room *room;
};

/* Does every rank's memory hold what the shape says, mapped here? */
bool reduce_can_reach(struct reduce_view *v);
/*
 * Claim a unit of the slice, the first free one from `start` on, and do it. 1, 0: there was none to
 * take, -errno of `combine` (the unit stays claimed: the collective has failed).
 */
int reduce_move(struct reduce_view *v, uint32_t slice, uint32_t start);
/* As reduce_move(), beginning with the unit of this element, in its slice only. */
int reduce_move_at(struct reduce_view *v, uint64_t element);
/* The work alone, of a unit that the caller has claimed, and reduce_finish() for it when it
 * succeeds.
 */
int reduce_do_unit(struct reduce_view *v, uint32_t slice, uint32_t unit);
void reduce_finish(struct reduce_view *v, uint32_t slice, uint32_t unit);
/* Is all of a slice done, and is all of it claimed? */
bool reduce_is_done(struct reduce_view *v, uint32_t slice);
bool reduce_is_all_claimed(struct reduce_view *v, uint32_t slice);
/* Are these elements of the vector done? */
bool reduce_is_range_done(struct reduce_view *v, uint64_t first, uint64_t n);

/* The bytes of a rank's result that its owner takes itself, to `to`, byte 0 of what its `out`
 * describes: have their units been done? Take them. */
bool reduce_has_edges(struct reduce_view *v, uint32_t rank);
bool reduce_are_edges_done(struct reduce_view *v, uint32_t rank);
/* reduce_move_at() one of them. */
int reduce_move_edges(struct reduce_view *v, uint32_t rank);
void reduce_copy_edge_buf(struct reduce_view *v, uint32_t rank, char *to);

#endif
