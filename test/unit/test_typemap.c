/* SPDX-License-Identifier: BSD-3-Clause */
/* Type maps against a list of the address of each packed byte. */
#include <stdlib.h>

#include "layout/layout.h"
#include "unit.h"

enum {
	PACKED_MAX = 4000,
	ORIGIN = 1 << 19,
	ROOM = 1 << 20,
	TRIALS = 400,
	RANGES = 10, /* of each trial */
	DEPTH = 5,
	MEMBERS = 6,
};

static uint64_t seed;

static uint64_t below(uint64_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % n;
}

static int64_t between(int64_t lo, int64_t hi) { return lo + (int64_t)below((uint64_t)(hi - lo)); }

/* A datatype as MPI defines it. */
struct reference {
	uint64_t n;
	int64_t at[PACKED_MAX];
};

static void append(struct reference *r, const struct reference *from, int64_t base, uint64_t count,
		   int64_t stride)
{
	for (uint64_t k = 0; k < count; k++)
		for (uint64_t i = 0; i < from->n; i++)
			r->at[r->n++] = from->at[i] + base + (int64_t)k * stride;
}

static struct typemap *make(struct reference *r, int depth);

static struct typemap *make_block(struct reference *r)
{
	struct layout l = layout_block(between(-20, 20), 1 + below(20));

	r->n = l.block_bytes;
	for (uint64_t i = 0; i < r->n; i++)
		r->at[i] = l.base + (int64_t)i;
	return typemap_create(&l);
}

/* A list of one datatype. */
static struct typemap *make_runs(struct reference *r, int depth)
{
	struct reference *child = calloc(1, sizeof(*child));
	struct typemap *m = make(child, depth - 1);
	struct typemap_run runs[MEMBERS];
	int64_t stride = between(-40, 40);
	uint64_t n = 1 + below(MEMBERS);
	bool is_uniform = below(3) == 0;

	r->n = 0;
	for (uint64_t i = 0; i < n; i++) {
		runs[i] = (struct typemap_run){ below(4), between(-300, 300) };
		if (i && below(4) == 0) /* this run continues the last one */
			runs[i].base = runs[i - 1].base + (int64_t)runs[i - 1].count * stride;
		if (is_uniform)
			runs[i] = (struct typemap_run){ 2, (int64_t)i * 50 };
		if (r->n + runs[i].count * child->n > PACKED_MAX)
			runs[i].count = 0;
		append(r, child, runs[i].base, runs[i].count, stride);
	}
	m = typemap_runs(n, runs, m, stride);
	free(child);
	return m;
}

static struct typemap *make_struct(struct reference *r, int depth)
{
	struct reference *child = calloc(1, sizeof(*child));
	struct typemap *parts[MEMBERS];
	uint64_t n = below(MEMBERS);

	r->n = 0;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t count = below(4);
		int64_t base = between(-300, 300), stride = between(-60, 60);

		parts[i] = make(child, depth - 1);
		if (below(3) == 0 && child->n) /* adjacent in memory */
			base = r->n ? r->at[r->n - 1] + 1 - child->at[0] : 0;
		if (r->n + count * child->n > PACKED_MAX)
			count = 0;
		append(r, child, base, count, stride);
		parts[i] = typemap_move(typemap_repeat(parts[i], count, stride), base);
	}
	free(child);
	return typemap_struct(n, parts);
}

static struct typemap *make(struct reference *r, int depth)
{
	uint64_t kind = below(4);

	if (!depth || !kind)
		return make_block(r);
	return kind == 1 ? make_struct(r, depth) : make_runs(r, depth);
}

static char memory[ROOM], packed[PACKED_MAX], expected[PACKED_MAX];

struct copy { char *packed; bool is_unpack; };

static int copy_layout(void *ctx, const struct layout_end *m, uint64_t bytes)
{
	struct copy *c = ctx;
	const struct layout_end linear = { c->packed, NULL, 0 };

	layout_copy(c->is_unpack ? m : &linear, c->is_unpack ? &linear : m, bytes, BASE_COPY_PLAIN);
	c->packed += bytes;
	return 0;
}

static int copy_blocks(void *ctx, char *at, int64_t stride, uint64_t block, uint64_t blocks)
{
	struct copy *c = ctx;

	for (; blocks; blocks--, at += stride, c->packed += block)
		memcpy(c->packed, at, block);
	return 0;
}

static int copy_by_blocks(void *ctx, const struct layout_end *m, uint64_t bytes)
{
	return layout_visit(m, bytes, copy_blocks, ctx);
}

static bool overlaps(const struct reference *r)
{
	static unsigned char used[ROOM];
	bool is = false;

	for (uint64_t i = 0; i < r->n; i++)
		is |= used[ORIGIN + r->at[i]]++;
	for (uint64_t i = 0; i < r->n; i++)
		used[ORIGIN + r->at[i]] = 0;
	return is;
}

static void check_range(const struct typemap *m, int64_t extent, const struct reference *r,
			uint64_t at, uint64_t n)
{
	memset(packed, 0, sizeof(packed));
	for (uint64_t i = 0; i < n; i++)
		expected[i] = memory[ORIGIN + r->at[at + i]];
	CHECK(!typemap_visit(m, extent, memory + ORIGIN, at, n, copy_layout,
			     &(struct copy){ packed, false }));
	CHECK(!memcmp(packed, expected, n));
	memset(packed, 0, sizeof(packed));
	CHECK(!typemap_visit(m, extent, memory + ORIGIN, at, n, copy_by_blocks,
			     &(struct copy){ packed, false }));
	CHECK(!memcmp(packed, expected, n));
}

/* Writes a range; no byte outside changes. */
static void check_unpack(const struct typemap *m, int64_t extent, const struct reference *r,
			 uint64_t at, uint64_t n)
{
	static char before[ROOM];

	memcpy(before, memory, ROOM);
	for (uint64_t i = 0; i < n; i++)
		packed[i] = (char)(i * 11 + 3);
	CHECK(!typemap_visit(m, extent, memory + ORIGIN, at, n, copy_layout,
			     &(struct copy){ packed, true }));
	for (uint64_t i = 0; i < n; i++)
		before[ORIGIN + r->at[at + i]] = packed[i];
	CHECK(!memcmp(before, memory, ROOM));
}

UNIT_TEST(any_range_of_a_type_map_is_packed_and_unpacked)
{
	static struct reference one, all;

	seed = 3;
	for (int i = 0; i < ROOM; i++)
		memory[i] = (char)(i * 7 + i / 250);
	for (int i = 0; i < TRIALS; i++) {
		struct typemap *m = make(&one, DEPTH);
		int64_t extent = between(-500, 500);
		uint64_t count = one.n ? 1 + below(base_min_u64(PACKED_MAX / one.n, 4)) : 0;

		CHECK(m && typemap_bytes(m) == one.n);
		all.n = 0;
		append(&all, &one, 0, count, extent);
		for (int k = 0; k < RANGES && all.n; k++) {
			uint64_t at = k ? below(all.n) : 0, n = k ? 1 + below(all.n - at) : all.n;

			check_range(m, extent, &all, at, n);
			if (k < 2 && !overlaps(&all))
				check_unpack(m, extent, &all, at, n);
		}
		typemap_put(m);
	}
}

UNIT_TEST(a_type_map_tells_its_bounds)
{
	static struct reference r;

	seed = 4;
	for (int i = 0; i < TRIALS; i++) {
		struct typemap *m = make(&r, DEPTH);
		int64_t lo = INT64_MAX, hi = INT64_MIN, out_lo, out_hi;

		typemap_bounds(m, &out_lo, &out_hi);
		for (uint64_t k = 0; k < r.n; k++) {
			lo = r.at[k] < lo ? r.at[k] : lo;
			hi = r.at[k] + 1 > hi ? r.at[k] + 1 : hi;
		}
		CHECK(r.n ? out_lo == lo && out_hi == hi : out_lo == out_hi);
		typemap_put(m);
	}
}

UNIT_TEST(members_that_fill_memory_in_order_are_one_block)
{
	const struct layout inner[] = { layout_block(8, 4), layout_block(12, 2) };
	const struct layout outer[] = { layout_block(0, 8), layout_block(14, 2) };
	struct typemap *a[] = { typemap_create(&inner[0]), typemap_create(&inner[1]) };
	struct typemap *b[] = { typemap_create(&outer[0]), typemap_struct(2, a),
				typemap_create(&outer[1]) };
	struct typemap *all = typemap_struct(3, b);
	const struct layout *l = typemap_layout(all);

	CHECK(l && !l->level_count && !l->base && l->block_bytes == 16);
	typemap_put(all);
}

UNIT_TEST(a_type_map_that_overflows_is_refused)
{
	const struct layout block = layout_block(0, 1 << 20);
	struct typemap_run runs[] = { { 1, 0 }, { 3, INT64_MAX } };

	CHECK(!typemap_runs(2, runs, typemap_create(&block), 1 << 21));
	CHECK(!typemap_repeat(typemap_create(&block), 1ull << 50, 1 << 21));
	CHECK(!typemap_move(typemap_create(&block), INT64_MAX));
	CHECK(!typemap_struct(1, (struct typemap *[]){ NULL }));
}
