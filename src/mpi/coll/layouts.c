/* SPDX-License-Identifier: BSD-3-Clause */
/* Layouts of the parts of a buffer with gaps, and the memory that holds them. */
#include <errno.h>
#include <stdlib.h>

#include "mpi/coll/coll_op.h"
#include "os/os.h"

/* Where part i lies in this process. */
static int absolute_layout(const struct bufref *s, int i, struct layout *out)
{
	uintptr_t at = (uintptr_t)s->given->at;
	MPI_Count count;
	struct bufref_piece p;

	*out = (struct layout){ 0 };
	if (!s->parts[i].bytes)
		return 0;
	if (s->packs.of) {
		if (bufref_piece(s, i, &p))
			return -EINVAL;
		return pack_layout(&p.shape, at + (uintptr_t)p.at, p.count, out);
	}
	count = (MPI_Count)s->parts[i].bytes / s->shape.size;
	at += (uintptr_t)((MPI_Count)s->parts[i].off / s->shape.size * s->shape.extent);
	return pack_layout(&s->shape, at, count, out);
}

struct hull {
	int64_t lo, hi;
	struct layout all; /* the bytes of all parts; valid while it is dense */
	bool is_dense;
};

static bool hull_add(struct hull *h, const struct layout *part)
{
	struct layout sorted;
	int64_t lo, hi;

	if (layout_bounds(part, &lo, &hi))
		return false;
	sorted = layout_sorted(part);
	if (h->lo == h->hi) {
		*h = (struct hull){ lo, hi, sorted, true };
		return true;
	}
	h->lo = lo < h->lo ? lo : h->lo;
	h->hi = hi > h->hi ? hi : h->hi;
	h->is_dense = h->is_dense && layout_join(&h->all, &sorted);
	return true;
}

void bufref_add_layouts(struct bufref *s, struct coll_side *out)
{
	struct hull h = { 0 };
	bool ok = true;

	if (!out->buf.pack)
		return;
	s->layouts = malloc((size_t)out->count * sizeof(*s->layouts));
	for (int i = 0; s->layouts && ok && i < out->count; i++) {
		ok = !absolute_layout(s, i, &s->layouts[i]);
		if (ok && s->parts[i].bytes)
			ok = hull_add(&h, &s->layouts[i]);
	}
	if (!s->layouts || !ok || h.lo == h.hi ||
	    os_is_device_memory((void *)(uintptr_t)h.lo, (uint64_t)(h.hi - h.lo)))
		return;
	for (int i = 0; i < out->count; i++)
		if (s->parts[i].bytes)
			s->layouts[i].base -= (int64_t)base_round_down((uint64_t)h.lo, OS_PAGE);
	out->buf.layouts = s->layouts;
	out->buf.hull = (void *)(uintptr_t)h.lo;
	out->buf.hull_bytes = (uint64_t)(h.hi - h.lo);
	out->buf.is_shared = !h.is_dense || !layout_is_dense(&h.all);
}
