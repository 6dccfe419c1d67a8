/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layout: where the bytes of a datatype with gaps lie in memory, flattened, and copies from layout
 * to layout.
 *
 *   packed bytes     0 1 2 3 4 5 6 7 8 ...                  the order of MPI_Pack
 *   memory           [block] gap [block] gap [block]        level 0: count, stride
 *                    '------------ level 1 repeats it ------------' ...
 *
 * A layout is a block of contiguous bytes that up to LAYOUT_LEVELS levels repeat: vectors, and
 * subarrays of any dimension whose blocks do not merge into fewer. It has no pointer and a fixed
 * size, so a rank publishes it in shared memory, and any mover copies any range of the packed bytes
 * straight from one layout into another. Two layouts describe the same bytes when their packed
 * forms are equally long: the blocks need not be.
 *
 * layout_block() and layout_repeat() build a layout from the inside to the outside.
 * A mover that reads a layout out of shared memory calls layout_fits() before it copies.
 *
 * A type map describes any datatype: a layout, or runs one after the other, each of which repeats a
 * type map. It lies in the memory of one process, so its bytes are packed.
 *
 * Context: pure functions; layout_copy() and typemap_visit() are async-signal-safe.
 */
#ifndef SLUICE_LAYOUT_H
#define SLUICE_LAYOUT_H

#include "base/base.h"
#include "os/os.h"

#define LAYOUT_LEVELS 4u

struct layout_level {
	uint64_t count;
	int64_t stride; /* bytes from the begin of a repetition to the next, or backwards */
};

/* In shared memory: fixed width, no padding. */
struct layout {
	int64_t base; /* of packed byte 0, from the begin of the buffer */
	uint64_t block_bytes;
	uint32_t level_count, unused;
	struct layout_level level[LAYOUT_LEVELS]; /* the innermost first */
};

/* One block at `base`. */
struct layout layout_block(int64_t base, uint64_t bytes);
/* Repeats all of the layout; merges what becomes contiguous. Returns: 0, or -E2BIG: it does not fit
 * into LAYOUT_LEVELS, or its length overflows. */
int layout_repeat(struct layout *l, uint64_t count, int64_t stride);
/* Returns: bytes of the packed form. */
uint64_t layout_bytes(const struct layout *l);
/* Stores the bounds of the bytes that the layout names; lo == hi: none. Returns: 0 or -E2BIG. */
int layout_bounds(const struct layout *l, int64_t *out_lo, int64_t *out_hi);
/* Returns: whether the layout, of any contents, names bytes [off, off + bytes) of a packed form,
 * and only bytes of a buffer of buffer_bytes. */
bool layout_fits(const struct layout *l, uint64_t off, uint64_t bytes, uint64_t buffer_bytes);
/* Appends to each block of `l` the block of `next`, where that continues it. Returns: whether l now
 * names the bytes of both, each of them once. */
bool layout_join(struct layout *l, const struct layout *next);
/* Returns: a layout of the same bytes, in the order of their addresses as far as its levels can be
 * sorted. */
struct layout layout_sorted(const struct layout *l);
/* Returns: whether the layout names all bytes between its bounds. False in doubt. */
bool layout_is_dense(const struct layout *l);

/* Packed bytes from `at` on. */
struct layout_end {
	char *addr; /* of byte 0 of the buffer; without a layout, of packed byte 0 */
	const struct layout *layout; /* NULL: contiguous */
	uint64_t at;
};
/* Copies packed bytes; source and destination do not overlap. A later releasing store orders all
 * stores. */
void layout_copy(const struct layout_end *dst, const struct layout_end *src, uint64_t bytes,
		 enum base_copy_kernel kernel);
/* Calls visit() for each run of equal blocks of packed bytes, in their order. Returns: 0, or the
 * first result that is not 0. */
typedef int layout_visitor(void *ctx, char *at, int64_t stride, uint64_t block_bytes,
			   uint64_t blocks);
int layout_visit(const struct layout_end *memory, uint64_t bytes, layout_visitor *visit, void *ctx);

/* ---- typemap.c --------------------------------------------------------------------------- */

/*
 * A type map. It needs 16 bytes for each block of a list of one datatype and for each contiguous
 * block of a structure, and some 200 bytes for any other member of a structure. Repetitions need
 * none, so it is no longer than the lists that the program gave to the datatype's constructors.
 *
 * Functions that build one consume their arguments of this type, also when they fail. Returns:
 * NULL: no memory, an argument is NULL, or a length or bound overflows.
 */
struct typemap;
struct typemap *typemap_create(const struct layout *l);
struct typemap *typemap_move(struct typemap *m, int64_t by);
struct typemap *typemap_repeat(struct typemap *m, uint64_t count, int64_t stride);
struct typemap_run { uint64_t count; int64_t base; };
/* Each run repeats the child at its base. Changes runs[]. */
struct typemap *typemap_runs(size_t n, struct typemap_run *runs, struct typemap *child,
			     int64_t stride);
/* The parts, one after the other. Changes parts[]. */
struct typemap *typemap_struct(size_t n, struct typemap **parts);

/* References: a type map does not change, and is freed with its last reference. Context: any
 * thread. */
struct typemap *typemap_get(struct typemap *m);
void typemap_put(struct typemap *m);
uint64_t typemap_bytes(const struct typemap *m);
void typemap_bounds(const struct typemap *m, int64_t *out_lo, int64_t *out_hi);
/* Returns: the layout that is the whole type map; NULL: there is none. */
const struct layout *typemap_layout(const struct typemap *m);

/* Calls visit() for the layouts of packed bytes [off, off + bytes) of repetitions of m, in their
 * order. Returns: 0, or the first result that is not 0. */
typedef int typemap_visitor(void *ctx, const struct layout_end *memory, uint64_t bytes);
int typemap_visit(const struct typemap *m, int64_t stride, char *base, uint64_t off,
		  uint64_t bytes, typemap_visitor *visit, void *ctx);

#endif
