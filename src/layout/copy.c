/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies from layout to layout, as many equal blocks at a time as both ends allow. */
#include "layout/layout.h"

/* A position in a packed form. */
struct cursor {
	const struct layout *layout; /* NULL: contiguous */
	char *at;
	uint64_t remaining; /* bytes of the block from `at` on */
	uint64_t index[LAYOUT_LEVELS];
};

static void seek(struct cursor *c, const struct layout_end *end)
{
	const struct layout *l = end->layout;
	uint64_t block, within;

	c->layout = l;
	if (!l) {
		c->at = end->addr + end->at;
		c->remaining = UINT64_MAX;
		return;
	}
	block = end->at / l->block_bytes;
	within = end->at % l->block_bytes;
	c->at = end->addr + l->base + within;
	c->remaining = l->block_bytes - within;
	for (uint32_t i = 0; i < l->level_count; i++) {
		c->index[i] = block % l->level[i].count;
		block /= l->level[i].count;
		c->at += (int64_t)c->index[i] * l->level[i].stride;
	}
}

static bool is_at_block(const struct cursor *c)
{
	return c->layout && c->remaining == c->layout->block_bytes;
}

/* Blocks from this one on, a stride apart. */
static uint64_t rows_from(const struct cursor *c)
{
	return is_at_block(c) && c->layout->level_count ? c->layout->level[0].count - c->index[0]
							: 1;
}

static int64_t stride_of(const struct cursor *c)
{
	return c->layout && c->layout->level_count ? c->layout->level[0].stride : 0;
}

/* From the begin of a block, n repetitions of a level on; at most to the begin of its next run. */
static void skip_repetitions(struct cursor *c, uint32_t level, uint64_t n)
{
	const struct layout *l = c->layout;

	for (uint32_t i = level; i < l->level_count; i++, n = 1) {
		c->index[i] += n;
		c->at += (int64_t)n * l->level[i].stride;
		if (c->index[i] < l->level[i].count)
			return;
		c->at -= (int64_t)l->level[i].count * l->level[i].stride;
		c->index[i] = 0;
	}
}

static void skip_rows(struct cursor *c, uint64_t rows) { skip_repetitions(c, 0, rows); }

/* Bytes on, at most to the end of the block. */
static void skip_bytes(struct cursor *c, uint64_t bytes)
{
	c->at += bytes;
	c->remaining -= bytes;
	if (c->remaining || !c->layout)
		return;
	c->remaining = c->layout->block_bytes;
	c->at -= c->remaining;
	skip_rows(c, 1);
}

/* Blocks of `bytes` that can be copied from here on alike, and the distance between them. */
static uint64_t count_rows(const struct cursor *c, uint64_t bytes, int64_t *out_stride)
{
	if (c->remaining == bytes) {
		*out_stride = stride_of(c);
		return rows_from(c);
	}
	*out_stride = (int64_t)bytes; /* rows of the other end lie in one block of this end */
	return c->remaining / bytes;
}

static void skip(struct cursor *c, uint64_t block_bytes, uint64_t rows)
{
	if (is_at_block(c) && c->remaining == block_bytes)
		skip_rows(c, rows);
	else
		skip_bytes(c, block_bytes * rows);
}

/* ---- transposition ----------------------------------------------------------------------- */

/* Columns of a matrix, each of which is one run of level 0, and lines that are as long. */
struct grid { uint64_t rows, columns; int64_t stride, line_stride; };

static bool find_grid(const struct cursor *columns, const struct cursor *lines, uint64_t bytes,
		      struct grid *out)
{
	const struct layout *l = columns->layout;
	uint64_t line, n;

	if (!is_at_block(columns) || l->level_count < 2 || columns->index[0] ||
	    l->level[1].stride != (int64_t)l->block_bytes ||
	    (l->block_bytes != 4 && l->block_bytes != 8 && l->block_bytes != 16))
		return false;
	line = l->block_bytes * l->level[0].count;
	n = l->level[1].count - columns->index[1];
	if (lines->remaining < line || (lines->remaining == line && !is_at_block(lines)))
		return false;
	*out = (struct grid){ .rows = l->level[0].count, .stride = l->level[0].stride };
	n = base_min_u64(n, count_rows(lines, line, &out->line_stride));
	out->columns = base_min_u64(n, bytes / line);
	return out->columns > 1;
}

/* Copies columns to lines, or lines to columns. Returns: bytes, 0: neither. */
static uint64_t copy_grid(struct cursor *to, struct cursor *from, uint64_t bytes)
{
	struct cursor *columns = from, *lines = to;
	uint64_t block, line;
	struct grid g;

	if (find_grid(from, to, bytes, &g)) {
		block = from->layout->block_bytes;
		os_copy_transposed(to->at, g.line_stride, from->at, g.stride, block, g.rows,
				   g.columns);
	} else if (find_grid(to, from, bytes, &g)) {
		columns = to;
		lines = from;
		block = to->layout->block_bytes;
		os_copy_transposed(to->at, g.stride, from->at, g.line_stride, block, g.columns,
				   g.rows);
	} else {
		return 0;
	}
	line = block * g.rows;
	skip_repetitions(columns, 1, g.columns);
	skip(lines, line, g.columns);
	return line * g.columns;
}

void layout_copy(const struct layout_end *dst, const struct layout_end *src, uint64_t bytes,
		 enum base_copy_kernel kernel)
{
	struct cursor to, from;

	seek(&to, dst);
	seek(&from, src);
	while (bytes) {
		uint64_t block = base_min_u64(base_min_u64(to.remaining, from.remaining), bytes);
		int64_t to_stride, from_stride;
		uint64_t rows = base_min_u64(count_rows(&to, block, &to_stride),
					     count_rows(&from, block, &from_stride));
		uint64_t transposed = copy_grid(&to, &from, bytes);

		if (transposed) {
			bytes -= transposed;
			continue;
		}
		rows = base_min_u64(rows, bytes / block);
		os_copy_rows(to.at, to_stride, from.at, from_stride, block, rows, kernel);
		skip(&to, block, rows);
		skip(&from, block, rows);
		bytes -= block * rows;
	}
}

int layout_visit(const struct layout_end *memory, uint64_t bytes, layout_visitor *visit, void *ctx)
{
	struct cursor c;
	int ret = 0;

	seek(&c, memory);
	while (bytes && !ret) {
		uint64_t block = base_min_u64(c.remaining, bytes), rows;
		int64_t stride;

		rows = base_min_u64(count_rows(&c, block, &stride), bytes / block);
		ret = visit(ctx, c.at, stride, block, rows);
		skip(&c, block, rows);
		bytes -= block * rows;
	}
	return ret;
}
