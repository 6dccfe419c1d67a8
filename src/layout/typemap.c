/* SPDX-License-Identifier: BSD-3-Clause */
/* Type maps that no layout describes: trees of runs. */
#include <stdatomic.h>
#include <stdlib.h>

#include "layout/layout.h"

struct run {
	uint64_t at;  /* packed bytes before it */
	int64_t base; /* of its first repetition */
};

struct typemap {
	_Atomic uint32_t references;
	uint64_t bytes;
	int64_t lo, hi;       /* bounds; equal: no bytes */
	struct layout layout; /* without runs */
	size_t n;             /* runs; each ends where the next begins, in the packed form */
	struct run *runs;     /* n + 1 */
	size_t child_step;    /* 0: all runs repeat children[0], 1: run i is children[i] */
	int64_t stride;       /* of the repetitions of a run */
	struct typemap **children;
};

/* ---- leaves ------------------------------------------------------------------------------ */

static struct typemap *map_alloc(void)
{
	struct typemap *m = calloc(1, sizeof(*m));

	if (m)
		atomic_init(&m->references, 1);
	return m;
}

struct typemap *typemap_create(const struct layout *l)
{
	struct typemap *m = map_alloc();

	if (!m)
		return NULL;
	m->layout = *l;
	m->bytes = layout_bytes(l);
	if (m->bytes && layout_bounds(l, &m->lo, &m->hi)) {
		free(m);
		return NULL;
	}
	return m;
}

struct typemap *typemap_get(struct typemap *m)
{
	if (m)
		atomic_fetch_add_explicit(&m->references, 1, memory_order_relaxed);
	return m;
}

void typemap_put(struct typemap *m)
{
	size_t children;

	/* the last user sees what the others have done */
	if (!m || atomic_fetch_sub_explicit(&m->references, 1, memory_order_acq_rel) > 1)
		return;
	children = !m->n ? 0 : m->child_step ? m->n : 1;
	for (size_t i = 0; i < children; i++)
		typemap_put(m->children[i]);
	free(m->children);
	free(m->runs);
	free(m);
}

uint64_t typemap_bytes(const struct typemap *m) { return m->bytes; }

void typemap_bounds(const struct typemap *m, int64_t *out_lo, int64_t *out_hi)
{
	*out_lo = m->lo;
	*out_hi = m->hi;
}

const struct layout *typemap_layout(const struct typemap *m) { return m->n ? NULL : &m->layout; }

static struct typemap *create_empty(void)
{
	const struct layout none = layout_block(0, 0);

	return typemap_create(&none);
}

/* ---- lists ------------------------------------------------------------------------------- */

static const struct typemap *child_of(const struct typemap *m, size_t i)
{
	return m->children[i * m->child_step];
}

/* Widens the bounds of m by `count` repetitions of a child. Returns: false on overflow. */
static bool add_bounds(struct typemap *m, const struct typemap *child, int64_t base,
		       uint64_t count, int64_t stride)
{
	int64_t lo, hi, reach;

	if (count > INT64_MAX || __builtin_mul_overflow((int64_t)(count - 1), stride, &reach) ||
	    __builtin_add_overflow(child->lo, base, &lo) ||
	    __builtin_add_overflow(child->hi, base, &hi) ||
	    __builtin_add_overflow(reach < 0 ? lo : hi, reach, reach < 0 ? &lo : &hi))
		return false;
	if (m->lo == m->hi) {
		m->lo = lo;
		m->hi = hi;
	} else {
		m->lo = lo < m->lo ? lo : m->lo;
		m->hi = hi > m->hi ? hi : m->hi;
	}
	return true;
}

/* Makes room for n runs of n_children children, without children yet. */
static struct typemap *list_alloc(size_t n, size_t n_children)
{
	struct typemap *m = map_alloc();

	if (!m)
		return NULL;
	m->runs = calloc(n + 1, sizeof(*m->runs));
	m->children = calloc(n_children, sizeof(struct typemap *));
	if (m->runs && m->children)
		return m;
	typemap_put(m);
	return NULL;
}

/* Appends a run. Returns: false on overflow. */
static bool list_add(struct typemap *m, const struct typemap *child, int64_t base, uint64_t count)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(child->bytes, count, &bytes) ||
	    __builtin_add_overflow(m->bytes, bytes, &bytes) || bytes > INT64_MAX ||
	    !add_bounds(m, child, base, count, m->stride))
		return false;
	m->runs[m->n].base = base;
	m->runs[++m->n].at = bytes;
	m->bytes = bytes;
	return true;
}

/* One run. Consumes the child. */
static struct typemap *list_of_one(struct typemap *child, int64_t base, uint64_t count,
				   int64_t stride)
{
	struct typemap *m = list_alloc(1, 1);

	if (m) {
		m->stride = stride;
		m->children[0] = child;
		if (list_add(m, child, base, count))
			return m;
		m->n = 0;
		typemap_put(m);
	}
	typemap_put(child);
	return NULL;
}

struct typemap *typemap_move(struct typemap *m, int64_t by)
{
	struct typemap *moved = NULL;
	struct layout l;

	if (!m || !by || !m->bytes)
		return m;
	if (m->n)
		return list_of_one(m, by, 1, 0);
	l = m->layout;
	if (!__builtin_add_overflow(l.base, by, &l.base))
		moved = typemap_create(&l);
	typemap_put(m);
	return moved;
}

struct typemap *typemap_repeat(struct typemap *m, uint64_t count, int64_t stride)
{
	struct typemap *repeated;
	struct layout l;

	if (!m || count == 1 || !m->bytes)
		return m;
	if (!count) {
		typemap_put(m);
		return create_empty();
	}
	l = m->layout;
	if (m->n || layout_repeat(&l, count, stride))
		return list_of_one(m, 0, count, stride);
	repeated = typemap_create(&l);
	typemap_put(m);
	return repeated;
}

/* Drops runs without elements, and joins runs that continue each other. Returns: their number. */
static size_t join_runs(size_t n, struct typemap_run *runs, int64_t stride)
{
	size_t out = 0;
	int64_t end;

	for (size_t i = 0; i < n; i++) {
		struct typemap_run *last = out ? &runs[out - 1] : NULL;

		if (!runs[i].count)
			continue;
		if (last && !__builtin_mul_overflow((int64_t)last->count, stride, &end) &&
		    !__builtin_add_overflow(end, last->base, &end) && end == runs[i].base)
			last->count += runs[i].count;
		else
			runs[out++] = runs[i];
	}
	return out;
}

/* Returns: whether the runs are equally long and equally far apart. */
static bool are_uniform(size_t n, const struct typemap_run *runs, int64_t *out_step)
{
	int64_t step, next;

	if (__builtin_sub_overflow(runs[1].base, runs[0].base, &step))
		return false;
	for (size_t i = 1; i < n; i++)
		if (runs[i].count != runs[0].count ||
		    __builtin_add_overflow(runs[i - 1].base, step, &next) || runs[i].base != next)
			return false;
	*out_step = step;
	return true;
}

struct typemap *typemap_runs(size_t n, struct typemap_run *runs, struct typemap *child,
			     int64_t stride)
{
	struct typemap *m;
	int64_t step = 0;

	if (!child || !child->bytes)
		return child;
	n = join_runs(n, runs, stride);
	if (!n) {
		typemap_put(child);
		return create_empty();
	}
	if (n == 1 || are_uniform(n, runs, &step)) {
		m = typemap_repeat(child, runs[0].count, stride);
		return typemap_repeat(typemap_move(m, runs[0].base), n, step);
	}
	m = list_alloc(n, 1);
	if (!m)
		goto put_child;
	m->children[0] = child;
	m->stride = stride;
	for (size_t i = 0; i < n; i++)
		if (!list_add(m, child, runs[i].base, runs[i].count))
			goto put_map;
	return m;
put_map:
	m->n = 0; /* put_child drops the child */
	typemap_put(m);
put_child:
	typemap_put(child);
	return NULL;
}

/* ---- structures -------------------------------------------------------------------------- */

static bool is_block(const struct typemap *m) { return !m->n && !m->layout.level_count; }

/* Puts the blocks of parts[0] to parts[n - 1] together: runs of bytes. Consumes the parts. */
static struct typemap *join_blocks(size_t n, struct typemap **parts)
{
	struct typemap_run *runs;
	const struct layout byte = layout_block(0, 1);
	struct typemap *all = NULL;

	if (n == 1)
		return parts[0];
	runs = malloc(n * sizeof(*runs));
	for (size_t i = 0; i < n; i++) {
		if (runs)
			runs[i] = (struct typemap_run){ parts[i]->bytes, parts[i]->layout.base };
		typemap_put(parts[i]);
	}
	if (runs)
		all = typemap_runs(n, runs, typemap_create(&byte), 1);
	free(runs);
	return all;
}

/* Replaces adjacent blocks among the parts by one part each. Returns: the number of parts; 0: out
 * of memory, and no part is left. */
static size_t join_parts(size_t n, struct typemap **parts)
{
	size_t out = 0, blocks;
	bool is_ok = true;

	for (size_t i = 0; i < n; i += blocks ? blocks : 1) {
		for (blocks = 0; i + blocks < n && is_block(parts[i + blocks]); blocks++)
			;
		parts[out] = blocks ? join_blocks(blocks, &parts[i]) : parts[i];
		is_ok = is_ok && parts[out];
		out++;
	}
	for (size_t i = 0; i < out && !is_ok; i++)
		typemap_put(parts[i]);
	return is_ok ? out : 0;
}

struct typemap *typemap_struct(size_t n, struct typemap **parts)
{
	struct typemap *m = NULL;
	bool is_ok = true;
	size_t used = 0;

	for (size_t i = 0; i < n; i++)
		is_ok = is_ok && parts[i];
	for (size_t i = 0; i < n; i++) {
		if (is_ok && parts[i]->bytes)
			parts[used++] = parts[i];
		else
			typemap_put(parts[i]);
	}
	if (!is_ok)
		return NULL;
	if (!used)
		return create_empty();
	used = join_parts(used, parts);
	if (used < 2)
		return used ? parts[0] : NULL;
	m = list_alloc(used, used);
	for (size_t i = 0; m && i < used; i++)
		m->children[i] = parts[i];
	if (m)
		m->child_step = 1;
	for (size_t i = 0; m && is_ok && i < used; i++)
		is_ok = list_add(m, parts[i], 0, 1);
	if (m && is_ok)
		return m;
	if (m)
		m->n = 0;
	typemap_put(m);
	for (size_t i = 0; i < used; i++)
		typemap_put(parts[i]);
	return NULL;
}

/* ---- visits ------------------------------------------------------------------------------ */

struct visit { typemap_visitor *visit; void *ctx; };

static int visit_runs(const struct typemap *m, char *base, uint64_t off, uint64_t bytes,
		      const struct visit *v);

static int visit_once(const struct typemap *m, char *base, uint64_t off, uint64_t bytes,
		      const struct visit *v)
{
	const struct layout_end memory = { base, &m->layout, off };

	return m->n ? visit_runs(m, base, off, bytes, v) : v->visit(v->ctx, &memory, bytes);
}

static int visit_repeated(const struct typemap *m, int64_t stride, char *base, uint64_t off,
			  uint64_t bytes, const struct visit *v)
{
	uint64_t within = off % m->bytes, count = (within + bytes - 1) / m->bytes + 1;
	struct layout l = m->layout;
	const struct layout_end memory = { base + (int64_t)(off / m->bytes) * stride, &l, within };
	int ret = 0;

	if (!m->n && !layout_repeat(&l, count, stride))
		return v->visit(v->ctx, &memory, bytes);
	base = memory.addr;
	while (bytes && !ret) {
		uint64_t n = base_min_u64(m->bytes - within, bytes);

		ret = visit_once(m, base, within, n, v);
		base += stride;
		bytes -= n;
		within = 0;
	}
	return ret;
}

/* Returns: the run that has packed byte `off`. */
static size_t find_run(const struct typemap *m, uint64_t off)
{
	size_t lo = 0, hi = m->n;

	while (hi - lo > 1) {
		size_t middle = lo + (hi - lo) / 2;

		if (m->runs[middle].at <= off)
			lo = middle;
		else
			hi = middle;
	}
	return lo;
}

static int visit_runs(const struct typemap *m, char *base, uint64_t off, uint64_t bytes,
		      const struct visit *v)
{
	int ret = 0;

	for (size_t i = find_run(m, off); bytes && !ret; i++) {
		uint64_t n = base_min_u64(m->runs[i + 1].at - off, bytes);

		ret = visit_repeated(child_of(m, i), m->stride, base + m->runs[i].base,
				     off - m->runs[i].at, n, v);
		off += n;
		bytes -= n;
	}
	return ret;
}

int typemap_visit(const struct typemap *m, int64_t stride, char *base, uint64_t off,
		  uint64_t bytes, typemap_visitor *visit, void *ctx)
{
	const struct visit v = { visit, ctx };

	return bytes ? visit_repeated(m, stride, base, off, bytes, &v) : 0;
}
