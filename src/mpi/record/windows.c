/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided operations, as their origin sees them. The target's file has nothing of them; the
 * reader gives each target the other sides. A flush that waits for the target is recorded as an
 * operation of no bytes whose answer the origin waits for. MPI_Win_fence is a barrier;
 * synchronisation between groups is messages of no bytes. The time that a lock took is not
 * recorded, like all time inside MPI.
 */
#include <stdlib.h>

#include "mpi/record/record.h"

struct group {
	int32_t *world;
	int count;
	uint32_t *ids; /* of the receives that have been posted */
};

struct window {
	struct window *next;
	MPI_Win handle;
	struct record_comm comm; /* a copy, which may outlive the communicator */
	uint32_t channel;        /* of the window in its communicator */
	bool *is_dirty;          /* [comm.size] operations without an answer since the last flush */
	struct group post, start;
};
static struct window *windows;

static struct window **window_find(const void *handle)
{
	struct window **at = &windows;

	while (*at && (*at)->handle != handle)
		at = &(*at)->next;
	return at;
}

static void group_free(struct group *g)
{
	free(g->world);
	free(g->ids);
	*g = (struct group){ NULL };
}

static void window_free(struct window **at)
{
	struct window *w = *at;

	*at = w->next;
	group_free(&w->post);
	group_free(&w->start);
	free(w->comm.world);
	free(w->is_dirty);
	free(w);
}

void record_win_made(MPI_Comm comm, const void *win)
{
	struct window *w = win ? calloc(1, sizeof *w) : NULL, **at;
	struct record_comm *c;

	record_lock();
	c = record_comm_of(CANONICAL_OF(comm));
	if (w && c && !c->is_inter) {
		w->comm = *c;
		w->channel = ++c->channels;
		w->handle = abi_handle_get(win, 0);
		w->comm.world = malloc((size_t)c->size * sizeof *c->world + 1);
		w->is_dirty = calloc((size_t)c->size + 1, sizeof *w->is_dirty);
		for (int i = 0; w->comm.world && i < c->size; i++)
			w->comm.world[i] = c->world[i];
		at = window_find(w->handle);
		if (*at)
			window_free(at);
		w->next = windows;
		windows = w;
		if (!w->comm.world || !w->is_dirty)
			window_free(&windows);
	} else {
		free(w);
	}
	record_unlock();
}

void record_win_freed(const void *win)
{
	struct window **at;

	if (!win)
		return;
	record_lock();
	at = window_find(abi_handle_get(win, 0));
	if (*at)
		window_free(at);
	record_unlock();
}

/* record_unlock() must follow. Returns: NULL, and counts what is lost, for a window that is not
 * known. */
static struct window *window_lock(MPI_Win win)
{
	struct window *w;

	record_lock();
	w = *window_find(CANONICAL_OF(win));
	if (!w)
		record_lost();
	return w;
}

/* ---- operations -------------------------------------------------------------------------- */

static void put_operation(const struct window *w, int32_t peer, uint64_t bytes, int64_t back,
			  uint32_t id)
{
	struct messages_record r = { .type = MESSAGES_ONE_SIDED, .comm = w->comm.number,
				     .peer = peer, .tag = (int32_t)w->channel, .bytes = bytes,
				     .id = id, .count = back >= 0 };
	struct messages_part part = { peer, true, back >= 0 ? (uint64_t)back : 0 };

	record_put(&r, &part, r.count * sizeof part);
}

void record_rma(MPI_Win win, int target, uint64_t bytes, int64_t back, const void *request)
{
	struct window *w;
	int32_t peer;

	if (target < 0) /* MPI_PROC_NULL */
		return;
	w = window_lock(win);
	peer = w ? record_world_rank(&w->comm, target) : -1;
	if (peer >= 0 && target != w->comm.rank) {
		put_operation(w, peer, bytes, back,
			      request ? record_request_id(request, RECORD_OTHER) : 0);
		w->is_dirty[target] |= back < 0;
	} else if (w && peer < 0) {
		record_lost();
	}
	record_unlock();
}

/* Context: locked. */
static void flush(struct window *w, int target, bool is_remote)
{
	struct messages_record r = { .type = MESSAGES_FLUSHED, .comm = w->comm.number, .peer = -1,
				     .count = w->channel };

	for (int i = 0; is_remote && i < w->comm.size; i++)
		if (w->is_dirty[i] && (target < 0 || i == target)) {
			put_operation(w, w->comm.world[i], 0, 0, 0);
			w->is_dirty[i] = false;
		}
	if (target >= 0)
		r.peer = record_world_rank(&w->comm, target);
	if (target < 0 || r.peer >= 0)
		record_put(&r, NULL, 0);
}

void record_flush(MPI_Win win, int target, bool is_remote)
{
	struct window *w = window_lock(win);

	if (w)
		flush(w, target, is_remote);
	record_unlock();
}

/* ---- synchronisation --------------------------------------------------------------------- */

/* Ends operations before messages of no bytes, which arrive after them. Context: locked. */
static void flush_here(struct window *w)
{
	flush(w, -1, false);
	for (int i = 0; i < w->comm.size; i++)
		w->is_dirty[i] = false;
}

void record_fence(MPI_Win win)
{
	struct messages_record r = { .type = MESSAGES_COLL, .collective = MESSAGES_BARRIER };
	struct window *w = window_lock(win);

	if (w) {
		flush_here(w);
		r.comm = w->comm.number;
		r.tag = (int32_t)w->channel;
		record_put(&r, NULL, 0);
	}
	record_unlock();
}

/* tag: 0: the target has opened its memory; 1: the origin has ended its operations. */
static struct messages_record signal_of(const struct window *w, uint8_t type, int32_t peer, int tag)
{
	return (struct messages_record){ .type = type, .comm = w->comm.number, .peer = peer,
					 .tag = tag, .count = MESSAGES_SYNC + w->channel };
}

static void put_sends(const struct window *w, const struct group *g, int tag)
{
	for (int i = 0; i < g->count; i++) {
		struct messages_record r = signal_of(w, MESSAGES_ISEND, g->world[i], tag);

		if (r.peer >= 0)
			record_put(&r, NULL, 0);
	}
}

static void put_receives(const struct window *w, struct group *g, int tag)
{
	g->ids = calloc((size_t)g->count + 1, sizeof *g->ids);
	for (int i = 0; g->ids && i < g->count; i++) {
		struct messages_record r = signal_of(w, MESSAGES_IRECV, g->world[i], tag);

		if (r.peer < 0)
			continue;
		r.id = g->ids[i] = record_next_id();
		record_put(&r, NULL, 0);
	}
}

static void put_received(const struct window *w, const struct group *g, int tag)
{
	for (int i = 0; g->ids && i < g->count; i++) {
		struct messages_record r = signal_of(w, MESSAGES_DONE, g->world[i], tag);

		r.id = g->ids[i];
		if (r.id)
			record_put(&r, NULL, 0);
	}
}

static void group_set(struct group *g, MPI_Group group)
{
	group_free(g);
	g->world = record_group(CANONICAL_OF(group), &g->count);
	if (!g->world)
		g->count = 0;
}

void record_win_post(MPI_Group group, MPI_Win win)
{
	struct window *w = window_lock(win);

	if (w) {
		group_set(&w->post, group);
		put_sends(w, &w->post, 0);
		put_receives(w, &w->post, 1);
	}
	record_unlock();
}

void record_win_start(MPI_Group group, MPI_Win win)
{
	struct window *w = window_lock(win);

	if (w) {
		group_set(&w->start, group);
		put_receives(w, &w->start, 0);
	}
	record_unlock();
}

void record_win_complete(MPI_Win win)
{
	struct window *w = window_lock(win);

	if (w) {
		put_received(w, &w->start, 0);
		flush_here(w);
		put_sends(w, &w->start, 1);
		group_free(&w->start);
	}
	record_unlock();
}

void record_win_wait(MPI_Win win)
{
	struct window *w = window_lock(win);

	if (w) {
		put_received(w, &w->post, 1);
		group_free(&w->post);
	}
	record_unlock();
}
