/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls in a loop have the same properties, and the first write to a page costs more than all else:
 * 4 us per page, 60 ns per record. A thread remembers its last record for some places. The second
 * call with the properties of the first begins a row: a TRACE_TEMPLATE and its TRACE_REPEATS, in
 * which each call takes 8 bytes. The sums of a row are added to the totals when the row ends; the
 * reader adds those of an unfinished row.
 *
 * A copy of 64 KiB evicts everything else from the first-level cache, so the data of a call lies in
 * few lines and is prefetched.
 */
#include "trace/private.h"

enum { RECENT = 8, ROOM = TRACE_REPEAT_RECORDS * TRACE_REPEATS_PER_RECORD };

struct trace_recent {
	uint64_t key;              /* key of the place; 0: unused */
	struct trace_record
		*like; /* in the file: a TRACE_CALL, or a TRACE_TEMPLATE with its row; NULL: none */
	const char *why, *early_why;
	uint64_t begin, op;        /* of the last call */
	uint16_t site;
	uint16_t used;             /* used places of the row; ROOM: full, or no row */
} __attribute__((aligned(BASE_CACHE_LINE)));
static __thread struct trace_recent recent[RECENT] __attribute__((tls_model("initial-exec")));

static struct trace_repeats *repeats_after(const struct trace_record *alike)
{
	return (struct trace_repeats *)(alike + 1);
}

static _Atomic uint64_t *slot(const struct trace_recent *p)
{
	return &repeats_after(p->like)[p->used / TRACE_REPEATS_PER_RECORD]
			.each[p->used % TRACE_REPEATS_PER_RECORD];
}

/* ---- ends -------------------------------------------------------------------------------- */

static void count_row(const struct trace_record *alike)
{
	struct trace_totals row = { 0 };

	for (uint32_t i = 0; i < ROOM; i++) {
		uint64_t repeat =
			atomic_load_explicit(&repeats_after(alike)[i / TRACE_REPEATS_PER_RECORD]
						      .each[i % TRACE_REPEATS_PER_RECORD],
					     memory_order_relaxed);

		row.calls += repeat != 0;
		row.ticks += repeat & (TRACE_REPEAT_MOST_TICKS - 1);
	}
	row.bytes = row.calls * alike->call.bytes;
	row.admitted = alike->call.outcome == TRACE_ADMITTED ? (uint32_t)row.calls : 0;
	totals_add(alike->call.site, &row);
}

static void end_row(struct trace_recent *p)
{
	bool was_held = record_hold(true);

	if (p->like &&
	    atomic_load_explicit(&p->like->type, memory_order_relaxed) == TRACE_TEMPLATE) {
		count_row(p->like);
		p->like->flags |= TRACE_IS_COUNTED;
	}
	p->like = NULL;
	p->used = ROOM;
	record_hold(was_held);
}

void repeats_end(void)
{
	for (int i = 0; i < RECENT; i++)
		end_row(&recent[i]);
}

/* ---- places ------------------------------------------------------------------------------ */

static struct trace_recent *recent_of(uint64_t key)
{
	return &recent[(key >> 2 ^ key >> 6) % RECENT];
}

static void enter(struct trace_recent *p, const char *name, const void *address)
{
	end_row(p);
	p->site = site_index(name, address);
	p->key = site_key(name, address);
}

struct trace_recent *repeats_find(const char *name, const void *address, const void *frame,
				  uint16_t *out_site)
{
	static _Atomic bool has_passages; /* calls come through functions of the MPI library */
	struct trace_recent *p;
	uint64_t key;

	if (base_unlikely(atomic_load_explicit(&has_passages, memory_order_relaxed)) &&
	    !caller_is_program(address))
		address = caller_of(address, frame);
	key = site_key(name, address);
	p = recent_of(key);
	if (base_likely(p->key == key)) {
		*out_site = p->site;
		return p;
	}
	if (!caller_is_program(address)) {
		atomic_store_explicit(&has_passages, true, memory_order_relaxed);
		address = caller_of(address, frame);
		p = recent_of(site_key(name, address));
	}
	if (p->key != site_key(name, address))
		enter(p, name, address);
	*out_site = p->site;
	return p;
}

void repeats_follow(struct trace_recent *p, struct trace_record *r, const char *why,
		    const char *early_why)
{
	end_row(p);
	p->like = r;
	p->why = why;
	p->early_why = early_why;
	p->begin = r->begin;
	p->op = r->call.op;
}

/* ---- rows -------------------------------------------------------------------------------- */

static bool has_moved(const struct trace_record *r) { return r->call.moved || r->call.edges; }

/* Compares everything but the amount, which moved_index() handles. */
static bool has_moved_alike(const struct trace_record *a, const struct trace_record *b)
{
	if (!has_moved(a) || !has_moved(b))
		return true;
	return a->call.peer == b->call.peer && !((a->flags ^ b->flags) & TRACE_TO_PEER) &&
	       (!a->call.edges || !b->call.edges || a->call.edges == b->call.edges) &&
	       (!a->call.moved || !b->call.moved || a->call.mover == b->call.mover);
}

static bool is_alike(const struct trace_record *a, const struct trace_record *b)
{
	return a->call.bytes == b->call.bytes && a->call.group == b->call.group &&
	       a->call.ops == b->call.ops && a->call.outcome == b->call.outcome &&
	       a->call.region == b->call.region && a->rank == b->rank && a->ranks == b->ranks &&
	       a->root == b->root && !((a->flags ^ b->flags) & (TRACE_IS_ROOT | TRACE_OWN_PART)) &&
	       has_moved_alike(a, b);
}

/* Returns: 0 when the call does not fit. */
static uint64_t repeat_of(const struct trace_recent *p, const struct trace_record *r)
{
	uint64_t begin = r->begin - p->begin, ticks = r->end - r->begin, op = r->call.op - p->op;

	if (ticks >= TRACE_REPEAT_MOST_TICKS || begin >= TRACE_REPEAT_MOST_BEGIN ||
	    op >= TRACE_REPEAT_MOST_OPS)
		return 0;
	return TRACE_REPEAT_IS_USED | (r->call.edges ? TRACE_REPEAT_HAS_EDGES : 0) | ticks |
	       begin * TRACE_REPEAT_MOST_TICKS |
	       op * (TRACE_REPEAT_MOST_TICKS * TRACE_REPEAT_MOST_BEGIN);
}

/* Returns: false when there is no room; the call has been counted. */
static bool begin_row(struct trace_recent *p)
{
	struct trace_record alike = *p->like; /* a copy, as record_begin_row() may overwrite it */
	struct trace_record *row = record_begin_row(1 + TRACE_REPEAT_RECORDS);

	end_row(p);
	if (!row)
		return false;
	alike.flags &= (uint8_t)~TRACE_IS_COUNTED;
	alike.begin = alike.end = p->begin;
	alike.call.op = p->op;
	atomic_store_explicit(&alike.type, TRACE_NOTHING, memory_order_relaxed);
	*row = alike;
	for (uint32_t i = 1; i <= TRACE_REPEAT_RECORDS; i++)
		record_end(&row[i], TRACE_REPEATS, 0);
	record_end(row, TRACE_TEMPLATE, alike.flags);
	p->like = row;
	p->used = 0;
	return true;
}

/* Returns: 1 + the index of the row's record with the same `moved`, 0 when nothing moved, -1 when
 * no record is free. */
static int moved_index(struct trace_record *alike, const struct trace_record *r)
{
	struct trace_repeats *row = repeats_after(alike);

	if (!r->call.moved)
		return 0;
	for (uint32_t i = 0; i < TRACE_REPEAT_RECORDS; i++) {
		if (!row[i].moved) {
			row[i].more = r->call.more;
			row[i].moved = r->call.moved;
		}
		if (row[i].moved == r->call.moved && row[i].more == r->call.more)
			return (int)i + 1;
	}
	return -1;
}

/* The first call that moved something sets peer, direction and mover of all. */
static void note_moved(struct trace_record *alike, const struct trace_record *r)
{
	if (has_moved(r) && !has_moved(alike)) {
		alike->call.peer = r->call.peer;
		alike->flags |= r->flags & TRACE_TO_PEER;
	}
	if (r->call.edges)
		alike->call.edges = r->call.edges;
	if (r->call.moved && !alike->call.moved) {
		alike->call.mover = r->call.mover;
		alike->call.moved = r->call.moved;
	}
}

static bool append(struct trace_recent *p, uint64_t repeat, const struct trace_record *r)
{
	int moved = moved_index(p->like, r);

	if (moved < 0)
		return false;
	note_moved(p->like, r);
	/* partner: the reader of the file */
	atomic_store_explicit(slot(p), repeat | (uint64_t)moved * TRACE_REPEAT_MOVED,
			      memory_order_release);
	p->used++;
	p->begin = r->begin;
	p->op = r->call.op;
	return true;
}

bool repeats_add(struct trace_recent *p, const struct trace_record *r, const char *why,
		 const char *early_why)
{
	bool has_room, is_done, was_held;
	uint64_t repeat;

	if (!p->like || p->why != why || p->early_why != early_why || !is_alike(p->like, r))
		return false;
	repeat = repeat_of(p, r);
	if (!repeat)
		return false;
	was_held = record_hold(true);
	has_room = p->used < ROOM || begin_row(p);
	is_done = !has_room || append(p, repeat, r);
	record_hold(was_held);
	if (!has_room)
		totals_add_call(r);
	return is_done;
}

void repeats_fetch(const struct trace_recent *p)
{
	__builtin_prefetch(p->like);
	if (p->like)
		__builtin_prefetch((void *)slot(p), 1);
}
