/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A random case of a collective, and the layouts of its two buffers on this rank. All ranks draw
 * the case and its signatures from the same state, and each draws its layouts from its own.
 */
#ifndef TYPES_SIDES_H
#define TYPES_SIDES_H

#include "matrix_calls.h"
#include "types_layout.h"

enum { MARGIN = 512 };
static const size_t CAPACITY = 24 << 20;

/* The bytes of this rank's buffer that partner j gets or gives. */
struct part {
	const struct layout *layout;
	int count;    /* of the layout's type */
	ptrdiff_t at; /* bytes from the buffer's address */
};

struct side {
	bool is_used;
	struct layout layouts[RANKS_MAX];
	int layout_count;
	struct part parts[RANKS_MAX];
	ptrdiff_t lo, hi;                  /* of all parts */
	MPI_Datatype at_bottom[RANKS_MAX]; /* the layouts' types from MPI_BOTTOM */
};

static MPI_Comm comm; /* of the first p ranks */
static int me, p;
static uint64_t seed, number; /* of the case */

static struct {
	enum kind kind;
	enum form form;
	bool in_place, is_bottom, is_fft, is_large;
	int root, reps;              /* repetitions of the common signature in a message */
	const struct signature *one; /* of a repetition, where one type serves all partners */
	struct side s, r;
	struct call call;
	size_t used; /* bytes of each area */
} now;

static uint64_t state_of(uint64_t a, uint64_t b, uint64_t c)
{
	return check_seed(check_seed(check_seed(check_seed(seed, number), a), b), c) << 20;
}

/* ---- who sends how much to whom ---------------------------------------------------------- */

static bool is_v(void) { return has_lists(now.kind); }
static bool is_in_place_here(void)
{
	return now.in_place && (!has_root(now.kind) || me == now.root);
}

static bool moves(int from, int to)
{
	bool own_stays = now.in_place || now.kind == Bcast;

	if (from == to && own_stays && now.kind < Alltoall)
		return false;
	if (now.kind == Bcast || now.kind == Scatter || now.kind == Scatterv)
		return from == now.root;
	return (now.kind != Gather && now.kind != Gatherv) || to == now.root;
}

/* Repetitions of the signature in the message. */
static int reps(int from, int to)
{
	int a = from < to ? from : to, b = from < to ? to : from;
	uint64_t state;

	if (!is_v())
		return now.reps;
	if (now.kind == Scatterv)
		a = b = to;
	else if (now.kind == Gatherv || now.kind == Allgatherv)
		a = b = from;
	else if (!now.in_place) {
		a = from;
		b = to;
	}
	state = state_of(1, (uint64_t)a, (uint64_t)b);
	return one_in(&state, 4) ? 0 : 1 + below(&state, 4);
}

static const struct signature *signature_of(int from, int to)
{
	uint64_t a = (uint64_t)from, b = (uint64_t)to, state;

	if (now.kind != Alltoallw)
		return now.one;
	if (now.in_place && from > to) {
		a = (uint64_t)to;
		b = (uint64_t)from;
	}
	state = state_of(2, a, b);
	return signature_draw(&state, 3, now.is_large ? 20000 : 1 + below(&state, 600));
}

/* ---- layouts of one side ----------------------------------------------------------------- */

static struct draw draw_start(uint64_t what, uint64_t partner, bool is_read)
{
	struct draw d = { .state = state_of(what, (uint64_t)me, partner) };

	d.may_overlap = is_read && one_in(&d.state, 6);
	d.ignores_alignment = one_in(&d.state, 16);
	return d;
}

/* A layout of `n` repetitions of a signature as `*count` elements that do not overlap. */
static struct layout draw_message(struct draw *d, const struct signature *s, int n, int copies,
				  int *count)
{
	for (int tries = 0;; tries++) {
		struct layout l;
		int each = n ? divisor(&d->state, n) : 1;

		d->is_plain = tries > 4;
		l = layout_draw(d, signature_repeat(s, each));
		*count = n / each;
		for (int i = 0; i < *count * copies; i++)
			places[i] = i * l.extent;
		if (d->is_plain || !l.n)
			return l;
		if (llabs(l.extent) * *count * copies < SPAN_MAX && l.hi - l.lo < SPAN_MAX) {
			struct entry *map = map_repeat(&l, places, (size_t)(*count * copies));
			size_t entries = (size_t)(*count * copies) * l.n;
			bool overlaps = !d->may_overlap && map_overlaps(map, entries);

			free(map);
			if (!overlaps)
				return l;
		}
		layout_free(&l);
	}
}

static void side_bounds(struct side *s, const struct part *part)
{
	const struct layout *l = part->layout;

	for (int i = 0; l && l->n && i<part->count; i += part->count> 1 ? part->count - 1 : 1) {
		ptrdiff_t at = part->at + i * l->extent;

		s->lo = s->lo < at + l->lo ? s->lo : at + l->lo;
		s->hi = s->hi > at + l->hi ? s->hi : at + l->hi;
	}
}

/* The bytes of the parts placed so far. */
static char *marks;

static bool mark(const struct part *part, bool is_try)
{
	const struct layout *l = part->layout;
	ptrdiff_t half = (ptrdiff_t)CAPACITY / 2;

	for (int i = 0; i < part->count; i++)
		for (size_t k = 0; k < l->n; k++) {
			ptrdiff_t at = half + part->at + i * l->extent + l->map[k].at;

			if (at < 0 || at + l->map[k].bytes > (ptrdiff_t)CAPACITY)
				return false;
			if (is_try && memchr(marks + at, 1, (size_t)l->map[k].bytes))
				return false;
			if (!is_try)
				memset(marks + at, 1, (size_t)l->map[k].bytes);
		}
	return true;
}

/* Places a part between the others, or behind them; `unit`: its place is a multiple of it. */
static void place_part(struct side *s, struct part *part, uint64_t *state, ptrdiff_t unit,
		       bool may_overlap)
{
	const struct layout *l = part->layout;
	ptrdiff_t lo = 0;

	for (int tries = 0; tries < 3; tries++) {
		part->at = below(state, (int)((s->hi - s->lo) / 2 / unit) + 3) * unit;
		if (may_overlap || mark(part, true))
			goto placed;
	}
	for (int i = 0; i < part->count; i++)
		lo = lo < i * l->extent + l->lo ? lo : i * l->extent + l->lo;
	part->at = round_up(s->hi - lo, unit) + below(state, 3) * unit;
placed:
	side_bounds(s, part);
	if (!may_overlap && !mark(part, false)) {
		check_fail("a case needs too much memory");
		MPI_Abort(MPI_COMM_WORLD, 5);
	}
}

static struct layout *layout_add(struct side *s, struct layout l)
{
	MPI_Type_commit(&l.type);
	s->layouts[s->layout_count] = l;
	return &s->layouts[s->layout_count++];
}

/* One type for all partners: with lists of counts, or the same count for each. */
static void draw_common(struct side *s, bool is_send, bool has_parts)
{
	struct draw d = draw_start(is_send ? 3 : 4, 0, is_send);
	struct layout *l;
	int count;

	if (now.kind == Allreduce) /* all ranks reduce elements of one type */
		d = (struct draw){ .state = state_of(11, 0, 0) };
	if (has_parts && is_v()) {
		l = layout_add(s, draw_message(&d, now.one, 1, 4, &count));
		if (l->extent <= 0) { /* a displacement would not tell places apart */
			layout_free(l);
			s->layout_count = 0;
			d.is_plain = true;
			l = layout_add(s, layout_draw(&d, now.one));
		}
		for (int j = 0; j < p; j++) {
			struct part *part = &s->parts[j];

			*part = (struct part){ l, is_send ? reps(me, j) : reps(j, me), 0 };
			if (l->extent > 0)
				place_part(s, part, &d.state, l->extent, d.may_overlap);
		}
		return;
	}
	l = layout_add(s, draw_message(&d, now.one, has_parts || !is_v() ? now.reps : reps(me, me),
				       has_parts ? p : 1, &count));
	for (int j = 0; j < p; j++) {
		s->parts[j] = (struct part){ l, count, has_parts ? j * count * l->extent : 0 };
		side_bounds(s, &s->parts[j]);
	}
}

/* A type for each partner. */
static void draw_each(struct side *s, bool is_send)
{
	struct draw d = draw_start(is_send ? 5 : 6, 0, is_send);
	bool may_overlap = d.may_overlap;

	for (int j = 0; j < p; j++) {
		struct part *part = &s->parts[j];
		int from = is_send ? me : j, to = is_send ? j : me;

		part->layout = layout_add(s, draw_message(&d, signature_of(from, to),
							  reps(from, to), 1, &part->count));
		if (!reps(from, to))
			part->count = 0;
		place_part(s, part, &d.state, d.ignores_alignment ? 1 : 16, may_overlap);
	}
}

static int share(int n, int rank_, int *start)
{
	*start = n / p * rank_ + (rank_ < n % p ? rank_ : n % p);
	return n / p + (rank_ < n % p);
}

/* As a distributed FFT does it: an array cut along axis a becomes one cut along axis b. */
static void draw_fft(struct side *s, bool is_send)
{
	uint64_t state = state_of(7, 0, 0);
	int shape[3], own, start, a, b;
	struct draw d = { 0 };
	struct layout child = layout_basic(&d, below(&state, BASICS));

	for (int i = 0; i < 3; i++)
		shape[i] = 1 + below(&state, now.is_large ? 15 : 9);
	a = below(&state, 3);
	b = (a + 1 + below(&state, 2)) % 3;
	own = is_send ? b : a;
	shape[own] = share(shape[own], me, &start);
	for (int j = 0; j < p; j++) {
		int part[3] = { shape[0], shape[1], shape[2] }, starts[3] = { 0 };
		int cut = is_send ? a : b;
		struct layout l = { .align = child.align, .is_derived = true };

		part[cut] = share(shape[cut], j, &starts[cut]);
		s->parts[j] = (struct part){ 0 };
		if (!part[0] || !part[1] || !part[2]) {
			s->parts[j].layout = layout_add(s, layout_basic(&d, 0));
			continue;
		}
		make_subarray_of(&child, shape, part, starts, MPI_ORDER_C, &l);
		l.n = child.n * (size_t)(part[0] * part[1] * part[2]);
		l.map = map_repeat(&child, places, l.n / child.n);
		layout_measure(&l);
		s->parts[j] = (struct part){ layout_add(s, l), 1, 0 };
		side_bounds(s, &s->parts[j]);
	}
	layout_free(&child);
}

static void draw_side(struct side *s, bool is_send)
{
	enum kind kind = now.kind;
	bool has_parts = is_send ? kind == Scatter || kind == Scatterv
				 : kind == Gather || kind == Gatherv || kind == Allgather ||
					   kind == Allgatherv;

	has_parts |= kind == Alltoall || kind == Alltoallv;

	s->layout_count = 0;
	s->lo = s->hi = 0;
	if (!s->is_used)
		return;
	if (now.is_fft)
		draw_fft(s, is_send);
	else if (now.kind == Alltoallw)
		draw_each(s, is_send);
	else
		draw_common(s, is_send, has_parts);
	memset(marks + CAPACITY / 2 + s->lo, 0, (size_t)(s->hi - s->lo));
}

#endif
