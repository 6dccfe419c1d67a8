/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random datatypes, each with a map that says where every basic element of its signature lies.
 *
 *   signature_draw()   a tree of basic types, repetitions and sequences: what two sides share
 *   layout_draw()      one of the many datatypes with this signature, nested like the tree
 *
 * The map is computed by the rules of the MPI standard for type maps, without the MPI library, and
 * is therefore an opinion of its own. Extents are the MPI library's.
 */
#ifndef TYPES_LAYOUT_H
#define TYPES_LAYOUT_H

#include "check.h"

enum {
	REPEATS_MAX = 4096,
	SPAN_MAX = 1 << 20, /* bytes that an inner datatype may span */
	MEMBERS_MAX = 4,
};

static inline int below(uint64_t *state, int n) { return (int)(check_random(state) % (uint64_t)n); }
static inline bool one_in(uint64_t *state, int n) { return !below(state, n); }

/* ---- signatures -------------------------------------------------------------------------- */

struct basic {
	const char *name;
	MPI_Datatype type;
	int n, at[2], bytes[2], align; /* its elements */
};

enum { BASICS = 9 };
static struct basic basics[BASICS];

static void basics_init(void)
{
	const struct basic all[BASICS] = {
		{ "char", MPI_CHAR, 1, { 0 }, { 1 }, 1 },
		{ "byte", MPI_BYTE, 1, { 0 }, { 1 }, 1 },
		{ "short", MPI_SHORT, 1, { 0 }, { 2 }, 2 },
		{ "int", MPI_INT, 1, { 0 }, { 4 }, 4 },
		{ "float", MPI_FLOAT, 1, { 0 }, { 4 }, 4 },
		{ "double", MPI_DOUBLE, 1, { 0 }, { 8 }, 8 },
		{ "complex", MPI_C_DOUBLE_COMPLEX, 1, { 0 }, { 16 }, 16 },
		{ "double and place", MPI_DOUBLE_INT, 2, { 0, 8 }, { 8, 4 }, 8 },
		{ "short and place", MPI_SHORT_INT, 2, { 0, 4 }, { 2, 4 }, 4 },
	};

	memcpy(basics, all, sizeof(all));
}

struct signature {
	enum { BASIC, REPEAT, SEQUENCE } shape;
	int n;     /* of a repetition: how often; of a sequence: its members */
	int basic; /* index into basics */
	const struct signature *sub[MEMBERS_MAX];
};

enum { SIGNATURES_MAX = 4096 };
static struct signature signatures[SIGNATURES_MAX];
static int signature_count; /* 0 again with each case */

static const struct signature *signature_keep(const struct signature *s)
{
	if (signature_count == SIGNATURES_MAX) {
		check_fail("a case has too many signatures");
		MPI_Abort(MPI_COMM_WORLD, 5);
	}
	signatures[signature_count] = *s;
	return &signatures[signature_count++];
}

static const struct signature *signature_repeat(const struct signature *sub, int n)
{
	return signature_keep(&(struct signature){ .shape = REPEAT, .n = n, .sub = { sub } });
}

/* A tree of this depth with about this number of elements. */
static const struct signature *signature_draw(uint64_t *state, int depth, int elements)
{
	struct signature s = { .shape = BASIC, .basic = below(state, BASICS) };
	int most = elements < REPEATS_MAX ? elements : REPEATS_MAX;

	if (!depth || elements < 2)
		return signature_keep(&s);
	if (!one_in(state, 3)) {
		s.shape = REPEAT;
		s.n = one_in(state, 30) ? 0 : 1 + below(state, depth > 1 && most > 12 ? 12 : most);
		s.sub[0] = signature_draw(state, depth - 1, elements / (s.n ? s.n : 1));
		return signature_keep(&s);
	}
	s.shape = SEQUENCE;
	s.n = 1 + below(state, MEMBERS_MAX);
	for (int i = 0; i < s.n; i++)
		s.sub[i] = signature_draw(state, depth - 1, elements / s.n);
	return signature_keep(&s);
}

/* ---- layouts ----------------------------------------------------------------------------- */

struct entry {
	ptrdiff_t at;
	int bytes;
};

struct layout {
	MPI_Datatype type;
	bool is_derived;
	struct entry *map;
	size_t n;
	MPI_Aint extent;
	ptrdiff_t lo, hi; /* of the map */
	int align;
	char text[800]; /* how it was made, for the message of a failure */
};

struct draw {
	uint64_t state;
	bool may_overlap; /* what is only read may */
	bool is_plain;    /* without gaps: the way out when nothing else fits */
	bool ignores_alignment;
};

static void layout_free_type(struct layout *l)
{
	if (l->is_derived)
		MPI_Type_free(&l->type);
	l->is_derived = false;
}

static void layout_free(struct layout *l)
{
	layout_free_type(l);
	free(l->map);
	l->map = NULL;
}

static void layout_measure(struct layout *l)
{
	MPI_Aint lb;

	MPI_Type_get_extent(l->type, &lb, &l->extent);
	l->lo = l->hi = 0;
	for (size_t i = 0; i < l->n; i++) {
		ptrdiff_t at = l->map[i].at, end = at + l->map[i].bytes;

		l->lo = i && l->lo < at ? l->lo : at;
		l->hi = i && l->hi > end ? l->hi : end;
	}
}

__attribute__((format(printf, 2, 3))) static void layout_tell(struct layout *l, const char *fmt,
							      ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(l->text, sizeof(l->text), fmt, args);
	va_end(args);
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static bool map_overlaps(const struct entry *map, size_t n)
{
	struct entry *sorted = check_alloc(n * sizeof(*sorted));
	bool overlaps = false;

	memcpy(sorted, map, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_entries);
	for (size_t i = 1; i < n && !overlaps; i++)
		overlaps = sorted[i - 1].at + sorted[i - 1].bytes > sorted[i].at;
	free(sorted);
	return overlaps;
}

/* The map of n copies of a layout, at these places. */
static struct entry *map_repeat(const struct layout *l, const ptrdiff_t *at, size_t n)
{
	struct entry *map = check_alloc(n * l->n * sizeof(*map)), *e = map;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < l->n; k++, e++)
			*e = (struct entry){ at[i] + l->map[k].at, l->map[k].bytes };
	return map;
}

static struct layout layout_basic(const struct draw *d, int which)
{
	const struct basic *b = &basics[which];
	struct layout l = { .type = b->type,
			    .n = (size_t)b->n,
			    .align = d->ignores_alignment ? 1 : b->align };

	l.map = check_alloc(2 * sizeof(*l.map));
	for (int i = 0; i < b->n; i++)
		l.map[i] = (struct entry){ b->at[i], b->bytes[i] };
	layout_measure(&l);
	layout_tell(&l, "%s", b->name);
	return l;
}

static ptrdiff_t round_up(ptrdiff_t n, ptrdiff_t align)
{
	ptrdiff_t rest = (n % align + align) % align;

	return rest ? n + align - rest : n;
}

/* ---- n copies of a layout by every constructor ------------------------------------------- */

/* Where the copies lie, and the arguments of the constructor. */
static ptrdiff_t places[REPEATS_MAX];
static int lengths[REPEATS_MAX], steps[REPEATS_MAX];
static MPI_Aint byte_steps[REPEATS_MAX];
static MPI_Datatype members[REPEATS_MAX];

static int divisor(uint64_t *state, int n)
{
	int d = 1 + below(state, n);

	while (n % d)
		d--;
	return d;
}

/* Blocks of n copies in all, some of them empty; they lie in memory in an order of their own, in
 * units of `unit` bytes with gaps of `gap`. Returns: the number of blocks. */
static int draw_blocks(uint64_t *state, int n, ptrdiff_t extent, ptrdiff_t unit, ptrdiff_t gap)
{
	int blocks = one_in(state, 4) && n ? n : 1 + below(state, 8), done = 0, first, i;
	bool backwards = one_in(state, 2);
	ptrdiff_t cursor;

	for (i = 0; i < blocks; i++) {
		lengths[i] = i == blocks - 1 ? n - done
			     : blocks == n   ? 1
					     : below(state, n - done + 1);
		done += lengths[i];
	}
	first = below(state, blocks);
	cursor = (below(state, 5) - 2) * gap;
	for (int k = 0; k < blocks; k++) {
		i = (backwards ? first + blocks - k : first + k) % blocks;
		steps[i] = (int)(cursor / unit);
		byte_steps[i] = cursor;
		cursor += lengths[i] * extent + below(state, 3) * gap;
	}
	for (int b = 0, k = 0; b < blocks; b++)
		for (i = 0; i < lengths[b]; i++)
			places[k++] = byte_steps[b] + i * extent;
	return blocks;
}

/* Equal blocks of b copies, the same way. */
static void draw_equal_blocks(uint64_t *state, int blocks, int b, ptrdiff_t extent, ptrdiff_t gap,
			      ptrdiff_t unit)
{
	bool backwards = one_in(state, 2);
	ptrdiff_t cursor = (below(state, 5) - 2) * gap;

	for (int k = 0; k < blocks; k++) {
		int i = backwards ? blocks - 1 - k : k;

		steps[i] = (int)(cursor / unit);
		byte_steps[i] = cursor;
		cursor += b * extent + below(state, 3) * gap;
		for (int m = 0; m < b; m++)
			places[i * b + m] = byte_steps[i] + m * extent;
	}
}

static void make_vector(struct draw *d, const struct layout *child, int n, struct layout *out)
{
	int b = divisor(&d->state, n), stride = b + below(&d->state, 3);

	if (one_in(&d->state, 4))
		stride = below(&d->state, b + 1);
	/* Open MPI 4 and 5 are wrong where blocks adjoin, or overlap, backwards */
	if (one_in(&d->state, 3) && stride > b)
		stride = -stride;
	for (int i = 0; i < n; i++)
		places[i] = ((ptrdiff_t)(i / b) * stride + i % b) * child->extent;
	MPI_Type_vector(n / b, b, stride, child->type, &out->type);
	layout_tell(out, "vector %d %d %d (%s)", n / b, b, stride, child->text);
}

static void make_hvector(struct draw *d, const struct layout *child, int n, struct layout *out)
{
	int b = divisor(&d->state, n);
	MPI_Aint stride = b * child->extent + below(&d->state, 3) * child->align;

	if (one_in(&d->state, 4))
		stride = (1 + below(&d->state, 4)) * child->align;
	if (one_in(&d->state, 3) && stride > b * child->extent)
		stride = -stride;
	for (int i = 0; i < n; i++)
		places[i] = i / b * stride + i % b * child->extent;
	MPI_Type_create_hvector(n / b, b, stride, child->type, &out->type);
	layout_tell(out, "hvector %d %d %ld (%s)", n / b, b, (long)stride, child->text);
}

static void make_hindexed(struct draw *d, const struct layout *child, int n, struct layout *out)
{
	int blocks = draw_blocks(&d->state, n, child->extent, 1, child->align);

	MPI_Type_create_hindexed(blocks, lengths, byte_steps, child->type, &out->type);
	layout_tell(out, "hindexed %d (%s)", blocks, child->text);
}

static void make_indexed(struct draw *d, const struct layout *child, int n, struct layout *out)
{
	ptrdiff_t unit = child->extent;
	int blocks;

	if (unit <= 0) {
		make_hindexed(d, child, n, out);
		return;
	}
	blocks = draw_blocks(&d->state, n, unit, unit, unit);
	MPI_Type_indexed(blocks, lengths, steps, child->type, &out->type);
	layout_tell(out, "indexed %d (%s)", blocks, child->text);
}

static void make_blocks(struct draw *d, const struct layout *child, int n, struct layout *out)
{
	int b = divisor(&d->state, n);
	bool is_bytes = one_in(&d->state, 2) || child->extent <= 0;
	ptrdiff_t unit = is_bytes ? 1 : child->extent;

	draw_equal_blocks(&d->state, n / b, b, child->extent, is_bytes ? child->align : unit, unit);
	if (is_bytes)
		MPI_Type_create_hindexed_block(n / b, b, byte_steps, child->type, &out->type);
	else
		MPI_Type_create_indexed_block(n / b, b, steps, child->type, &out->type);
	layout_tell(out, "%s block %d %d (%s)", is_bytes ? "hindexed" : "indexed", n / b, b,
		    child->text);
}

static void make_struct(struct draw *d, const struct layout *child, int n, struct layout *out)
{
	int blocks = draw_blocks(&d->state, n, child->extent, 1, child->align);

	for (int i = 0; i < blocks; i++)
		members[i] = child->type;
	MPI_Type_create_struct(blocks, lengths, byte_steps, members, &out->type);
	layout_tell(out, "struct %d (%s)", blocks, child->text);
}

/* Fills `places` with the elements of a subarray, and makes its type. */
static void make_subarray_of(const struct layout *child, const int *sizes, const int *part,
			     const int *starts, int order, struct layout *out)
{
	int is_c = order == MPI_ORDER_C, k = 0;
	int a = is_c ? 0 : 2, c = is_c ? 2 : 0; /* the slowest and the fastest dimension */

	for (int x = 0; x < part[a]; x++)
		for (int y = 0; y < part[1]; y++)
			for (int z = 0; z < part[c]; z++)
				places[k++] =
					(((ptrdiff_t)(x + starts[a]) * sizes[1] + y + starts[1]) *
						 sizes[c] +
					 z + starts[c]) *
					child->extent;
	MPI_Type_create_subarray(3, sizes, part, starts, order, child->type, &out->type);
	layout_tell(out, "%s subarray %d %d %d of %d %d %d at %d %d %d (%s)", is_c ? "C" : "F",
		    part[0], part[1], part[2], sizes[0], sizes[1], sizes[2], starts[0], starts[1],
		    starts[2], child->text);
}

static void make_subarray(struct draw *d, const struct layout *child, int n, struct layout *out)
{
	int part[3], sizes[3], starts[3];

	part[0] = divisor(&d->state, n);
	part[1] = divisor(&d->state, n / part[0]);
	part[2] = n / part[0] / part[1];
	for (int i = 0; i < 3; i++) {
		sizes[i] = part[i] + below(&d->state, 3);
		starts[i] = below(&d->state, sizes[i] - part[i] + 1);
	}
	make_subarray_of(child, sizes, part, starts,
			 one_in(&d->state, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, out);
}

static void make_contiguous(struct draw *d, const struct layout *child, int n, struct layout *out)
{
	(void)d;
	for (int i = 0; i < n; i++)
		places[i] = i * child->extent;
	MPI_Type_contiguous(n, child->type, &out->type);
	layout_tell(out, "%d (%s)", n, child->text);
}

/* Whatever the child looks like, these copies do not overlap. */
static void make_apart(struct draw *d, const struct layout *child, int n, struct layout *out)
{
	ptrdiff_t cursor = 0, gap = d->is_plain ? 0 : below(&d->state, 3) * child->align;

	for (int i = 0; i < n; i++) {
		byte_steps[i] = round_up(cursor - child->lo, child->align);
		places[i] = byte_steps[i];
		cursor = byte_steps[i] + child->hi + gap;
	}
	MPI_Type_create_hindexed_block(n, 1, byte_steps, child->type, &out->type);
	layout_tell(out, "%d apart (%s)", n, child->text);
}

static void (*const makers[])(struct draw *, const struct layout *, int, struct layout *) = {
	make_contiguous, make_vector, make_hvector, make_indexed,
	make_hindexed,   make_blocks, make_struct,  make_subarray,
};

/* ---- nesting ----------------------------------------------------------------------------- */

/* Gives a layout other bounds, or a duplicate in its place. */
static void layout_vary(struct draw *d, struct layout *l)
{
	MPI_Datatype old = l->type;
	MPI_Aint lb, extent;
	char text[sizeof(l->text)];

	if (!l->is_derived || d->is_plain || !one_in(&d->state, 3))
		return;
	memcpy(text, l->text, sizeof(text));
	if (one_in(&d->state, 5)) {
		MPI_Type_dup(old, &l->type);
	} else {
		MPI_Type_get_extent(old, &lb, &extent);
		lb += (below(&d->state, 5) - 2) * l->align;
		switch (below(&d->state, 4)) {
		case 0:
			extent = l->align; /* as of a column */
			break;
		case 1:
			extent += below(&d->state, 3) * l->align;
			break;
		default:
			extent = round_up(l->hi - l->lo, l->align) + below(&d->state, 4) * l->align;
		}
		if (one_in(&d->state, 40))
			extent = 0;
		MPI_Type_create_resized(old, lb, extent, &l->type);
		layout_tell(l, "resized %ld %ld (%.700s)", (long)lb, (long)extent, text);
	}
	MPI_Type_free(&old);
	layout_measure(l);
}

/* n copies of the child by one constructor. Returns: false, and nothing was made, when copies
 * overlap or span too much. */
static bool layout_try(struct draw *d, const struct layout *child, int n, int maker,
		       struct layout *out)
{
	*out = (struct layout){ .align = child->align, .is_derived = true };
	if (maker < 0)
		make_apart(d, child, n, out);
	else
		makers[maker](d, child, n, out);
	out->map = map_repeat(child, places, (size_t)n);
	out->n = (size_t)n * child->n;
	layout_measure(out);
	if (maker < 0 ||
	    (out->hi - out->lo <= SPAN_MAX && (d->may_overlap || !map_overlaps(out->map, out->n))))
		return true;
	layout_free(out);
	return false;
}

static struct layout layout_repeat(struct draw *d, const struct layout *child, int n)
{
	enum { MAKERS = sizeof(makers) / sizeof(makers[0]) };
	struct layout l;
	int maker = d->is_plain || !n ? 0 : below(&d->state, MAKERS), tries = 0;

	while (!layout_try(d, child, n, maker, &l))
		maker = ++tries < 4 && !d->is_plain ? below(&d->state, MAKERS) : -1;
	layout_vary(d, &l);
	return l;
}

static struct layout layout_sequence(struct draw *d, struct layout *child, int n)
{
	struct layout l = { .align = 1, .is_derived = true };
	int first = d->is_plain ? 0 : below(&d->state, n);
	ptrdiff_t cursor = d->is_plain ? 0 : (below(&d->state, 5) - 2) * 8;
	struct entry *e;

	for (int k = 0; k < n; k++) {
		int i = (first + k) % n;

		byte_steps[i] = round_up(cursor - child[i].lo, child[i].align);
		cursor = byte_steps[i] + child[i].hi;
		cursor += d->is_plain ? 0 : below(&d->state, 3) * child[i].align;
		lengths[i] = 1;
		members[i] = child[i].type;
		l.n += child[i].n;
		l.align = l.align > child[i].align ? l.align : child[i].align;
	}
	l.map = e = check_alloc(l.n * sizeof(*e));
	for (int i = 0; i < n; i++)
		for (size_t k = 0; k < child[i].n; k++, e++)
			*e = (struct entry){ byte_steps[i] + child[i].map[k].at,
					     child[i].map[k].bytes };
	layout_tell(&l, "struct of %d (%.350s, %.350s)", n, child[0].text, child[n - 1].text);
	/* an empty block is no element, whatever its type and place are */
	if (!d->is_plain && n < MEMBERS_MAX && one_in(&d->state, 4)) {
		lengths[n] = 0;
		members[n] = MPI_DOUBLE;
		byte_steps[n] = cursor;
		n++;
	}
	MPI_Type_create_struct(n, lengths, byte_steps, members, &l.type);
	layout_measure(&l);
	layout_vary(d, &l);
	return l;
}

/* Not committed. */
static struct layout layout_draw(struct draw *d, const struct signature *s)
{
	struct layout child[MEMBERS_MAX], l;
	struct signature inner;
	int n = s->n, made = 1;

	if (s->shape == BASIC)
		return layout_basic(d, s->basic);
	if (s->shape == REPEAT) {
		int b = n ? divisor(&d->state, n) : 1;

		/* a repetition of n may be one of n / b of one of b */
		if (b > 1 && b < n && one_in(&d->state, 3)) {
			inner = *s;
			inner.n = b;
			child[0] = layout_draw(d, &inner);
			l = layout_repeat(d, &child[0], n / b);
		} else {
			child[0] = layout_draw(d, s->sub[0]);
			l = layout_repeat(d, &child[0], n);
		}
	} else {
		for (made = 0; made < n; made++)
			child[made] = layout_draw(d, s->sub[made]);
		l = layout_sequence(d, child, n);
	}
	for (int i = 0; i < made; i++)
		layout_free(&child[i]);
	return l;
}

#endif
