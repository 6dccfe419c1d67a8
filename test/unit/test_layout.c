/* SPDX-License-Identifier: BSD-3-Clause */
/* Layouts against a list of the address of each packed byte. */
#include <errno.h>

#include "layout/layout.h"
#include "unit.h"

enum {
	PACKED_MAX = 6000,
	ROOM = 1 << 16,
	TRIALS = 300,
	RANGES = 12, /* of each trial */
};

static uint64_t seed;

static uint64_t below(uint64_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % n;
}

/* The offsets of all packed bytes, built by repetition as MPI defines it. */
struct reference {
	int64_t at[PACKED_MAX];
	uint64_t n;
};

static void repeat(struct reference *r, uint64_t count, int64_t stride)
{
	uint64_t n = r->n;

	for (uint64_t k = 1; k < count; k++)
		for (uint64_t i = 0; i < n; i++)
			r->at[r->n++] = r->at[i] + (int64_t)k * stride;
	if (!count)
		r->n = 0;
}

/* The columns of a matrix, perhaps of several. */
static struct layout make_columns(struct reference *r)
{
	uint64_t bytes = 4u << below(3), rows = 2 + below(20), columns = 1 + below(14);
	int64_t row = (int64_t)(columns * bytes + below(10)), whole = row * (int64_t)rows;
	struct layout l = layout_block((int64_t)below(40), bytes);

	r->n = bytes;
	for (uint64_t i = 0; i < bytes; i++)
		r->at[i] = l.base + (int64_t)i;
	repeat(r, rows, row);
	repeat(r, columns, (int64_t)bytes);
	CHECK(!layout_repeat(&l, rows, row) && !layout_repeat(&l, columns, (int64_t)bytes));
	if (r->n * 2 <= PACKED_MAX && below(2)) {
		repeat(r, 2, whole + 5);
		CHECK(!layout_repeat(&l, 2, whole + 5));
	}
	return l;
}

/* A layout of disjoint bytes and its reference: each level is longer than all that is inside. */
static struct layout make(struct reference *r)
{
	static const uint64_t blocks[] = { 1, 2, 3, 4, 8, 12, 16, 24, 32, 40, 64, 200, 700 };
	struct layout l = layout_block(0, blocks[below(BASE_ARRAY_LEN(blocks))]);
	int64_t lo, hi, extent = (int64_t)l.block_bytes;
	uint64_t levels = below(LAYOUT_LEVELS + 1);

	if (below(4) == 0)
		return make_columns(r);

	r->n = l.block_bytes;
	for (uint64_t i = 0; i < r->n; i++)
		r->at[i] = (int64_t)i;
	for (uint64_t k = 0; k < levels; k++) {
		uint64_t count = 1 + below(5);
		int64_t stride = extent + (below(2) ? 0 : (int64_t)below(20));

		if (r->n * count > PACKED_MAX)
			break;
		extent = extent * (int64_t)count + 20 * (int64_t)count;
		repeat(r, count, below(4) ? stride : -stride);
		CHECK(!layout_repeat(&l, count, r->at[r->n - 1] - r->at[r->n / count - 1] < 0 ?
						-stride :
						stride));
	}
	CHECK(!layout_bounds(&l, &lo, &hi));
	l.base = -lo + (int64_t)below(40);
	for (uint64_t i = 0; i < r->n; i++)
		r->at[i] += l.base;
	return l;
}

static char source[ROOM], target[ROOM], expected[ROOM];

static void check_range(const struct layout *dst, const struct reference *to,
			const struct layout *src, const struct reference *from, uint64_t at,
			uint64_t bytes, enum base_copy_kernel kernel)
{
	memset(target, 1, ROOM);
	memset(expected, 1, ROOM);
	for (uint64_t i = at; i < at + bytes; i++)
		expected[to->at[i]] = source[from->at[i]];
	layout_copy(&(struct layout_end){ target, dst, at },
		    &(struct layout_end){ source, src, at }, bytes, kernel);
	CHECK(!memcmp(target, expected, ROOM));
}

UNIT_TEST(any_range_of_packed_bytes_goes_from_layout_to_layout)
{
	static struct reference to, from, plain;
	static const enum base_copy_kernel kernels[] = { BASE_COPY_PLAIN, BASE_COPY_NONTEMPORAL };

	seed = 1;
	for (int i = 0; i < PACKED_MAX; i++)
		plain.at[i] = i;
	for (int i = 0; i < ROOM; i++)
		source[i] = (char)(i * 7 + i / 250);
	for (int i = 0; i < TRIALS; i++) {
		struct layout dst = make(&to), src = make(&from);
		uint64_t n = base_min_u64(to.n, from.n);

		for (int k = 0; k < RANGES; k++) {
			uint64_t at = k ? below(n) : 0, bytes = k ? 1 + below(n - at) : n;
			bool is_plain_src = below(4) == 0, is_plain_dst = below(4) == 0;

			check_range(is_plain_dst ? NULL : &dst, is_plain_dst ? &plain : &to,
				    is_plain_src ? NULL : &src, is_plain_src ? &plain : &from, at,
				    bytes, kernels[below(2)]);
		}
	}
}

UNIT_TEST(a_layout_tells_its_length_and_bounds)
{
	static struct reference r;

	seed = 2;
	for (int i = 0; i < TRIALS; i++) {
		struct layout l = make(&r);
		int64_t lo = INT64_MAX, hi = 0, out_lo, out_hi;

		for (uint64_t k = 0; k < r.n; k++) {
			lo = r.at[k] < lo ? r.at[k] : lo;
			hi = r.at[k] + 1 > hi ? r.at[k] + 1 : hi;
		}
		CHECK(layout_bytes(&l) == r.n);
		CHECK(!layout_bounds(&l, &out_lo, &out_hi));
		CHECK(out_lo == lo && out_hi == hi);
		CHECK(layout_fits(&l, 0, r.n, (uint64_t)hi));
		CHECK(!layout_fits(&l, 1, r.n, (uint64_t)hi));
		CHECK(!layout_fits(&l, 0, r.n, (uint64_t)hi - 1));
		l.base -= lo + 1;
		CHECK(!layout_fits(&l, 0, r.n, ROOM));
	}
}

UNIT_TEST(a_foreign_layout_whose_numbers_overflow_does_not_fit)
{
	const struct layout good = { .block_bytes = 8, .level_count = 1, .level = { { 4, 16 } } };
	struct layout l = good;

	CHECK(layout_fits(&l, 0, 32, 56));
	l.level[0].count = UINT64_MAX;
	CHECK(!layout_fits(&l, 0, 32, UINT64_MAX));
	l = good;
	l.level[0].count = 0;
	CHECK(!layout_fits(&l, 0, 0, 56));
	l = good;
	l.level[0] = (struct layout_level){ 1ull << 40, 1ll << 40 };
	CHECK(!layout_fits(&l, 0, 32, UINT64_MAX));
	l = good;
	l.level[0].stride = INT64_MIN;
	CHECK(!layout_fits(&l, 0, 32, UINT64_MAX));
	l = good;
	l.base = INT64_MAX - 4;
	CHECK(!layout_fits(&l, 0, 32, UINT64_MAX));
	l = good;
	l.block_bytes = 0;
	CHECK(!layout_fits(&l, 0, 0, 56));
	l = good;
	l.block_bytes = UINT64_MAX - 4;
	CHECK(!layout_fits(&l, 0, 32, UINT64_MAX));
	l = good;
	l.level_count = LAYOUT_LEVELS + 1;
	CHECK(!layout_fits(&l, 0, 32, 56));
	CHECK(!layout_fits(&good, UINT64_MAX - 8, 32, 56));
}

UNIT_TEST(what_becomes_contiguous_is_one_block)
{
	struct layout l = layout_block(0, 8);

	CHECK(!layout_repeat(&l, 4, 8));
	CHECK(l.block_bytes == 32 && !l.level_count);
	CHECK(!layout_repeat(&l, 3, 64) && !layout_repeat(&l, 5, 192));
	CHECK(l.level_count == 1 && l.level[0].count == 15);
	CHECK(!layout_repeat(&l, 1, -7));
	CHECK(l.level_count == 1);
	CHECK(!layout_repeat(&l, 0, 8));
	CHECK(!layout_bytes(&l) && !l.level_count);
}

UNIT_TEST(too_many_levels_or_bytes_are_refused)
{
	struct layout l = layout_block(0, 1), before;

	for (uint32_t i = 0; i < LAYOUT_LEVELS; i++)
		CHECK(!layout_repeat(&l, 2, 10 << (3 * i)));
	before = l;
	CHECK(layout_repeat(&l, 2, 1 << 20) == -E2BIG);
	CHECK(!memcmp(&l, &before, sizeof l));
	l = layout_block(0, 1 << 20);
	CHECK(layout_repeat(&l, 1ull << 62, 1 << 20) == -E2BIG);
	CHECK(layout_repeat(&l, 1ull << 62, 1 << 21) == -E2BIG);
}

/* The columns of a matrix, as an FFT hands them out to ranks. */
UNIT_TEST(parts_that_fill_a_buffer_join_to_one_block)
{
	struct layout all, part;

	for (int wrong = 0; wrong < 2; wrong++) {
		all = layout_block(0, 0);
		for (int i = 0; i < 4; i++) {
			part = layout_block(100 * i + wrong * (i == 2), 100);
			CHECK(!layout_repeat(&part, 10, 400));
			if (!i)
				all = part;
			else if (!layout_join(&all, &part))
				break;
		}
		CHECK(layout_is_dense(&all) == !wrong);
	}
	CHECK(all.block_bytes == 200);
}
