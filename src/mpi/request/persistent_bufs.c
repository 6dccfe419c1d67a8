/* SPDX-License-Identifier: BSD-3-Clause */
/* The buffers of persistent requests, from their creation to MPI_Request_free: a hash table with
 * open addressing. Starting a request that the table lacks completes every operation. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"
#include "mpi/request/persistent_bufs.h"

enum { LEAST = 64 }; /* a power of two */

struct entry {
	uintptr_t request;
	uintptr_t start;
	uint64_t bytes, sent;
	bool is_used;
};

static struct {
	pthread_mutex_t lock; /* protects all fields; n is also read without it */
	struct entry *entries;
	size_t cap;
	_Atomic size_t n;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

static size_t slot_of(uintptr_t request)
{
	return ((uint64_t)request * 0x9e3779b97f4a7c15u >> 20) & (table.cap - 1);
}

/* Returns: the request's entry, or the free entry for it; NULL: the table is empty. */
static struct entry *find_locked(uintptr_t request)
{
	size_t i;

	if (!table.cap)
		return NULL;
	i = slot_of(request);
	while (table.entries[i].is_used && table.entries[i].request != request)
		i = (i + 1) & (table.cap - 1);
	return &table.entries[i];
}

/* Keeps the table at most half full, so that a search is short. Returns: false: out of memory. */
static bool grow_locked(void)
{
	size_t n = atomic_load_explicit(&table.n, memory_order_relaxed), old_cap = table.cap;
	struct entry *old = table.entries, *entries;

	if (2 * (n + 1) <= table.cap)
		return true;
	entries = calloc(old_cap ? 2 * old_cap : LEAST, sizeof(*entries));
	if (!entries)
		return false;
	table.entries = entries;
	table.cap = old_cap ? 2 * old_cap : LEAST;
	for (size_t i = 0; i < old_cap; i++)
		if (old[i].is_used)
			*find_locked(old[i].request) = old[i];
	free(old);
	return true;
}

void persistent_buf_set(uintptr_t request, uintptr_t start, uint64_t bytes, uint64_t sent)
{
	struct entry *e;

	pthread_mutex_lock(&table.lock);
	e = find_locked(request);
	if (e && !e->is_used)
		e = NULL; /* a new one: there must be room */
	if (!e && grow_locked()) {
		e = find_locked(request);
		atomic_fetch_add_explicit(&table.n, 1, memory_order_relaxed);
	}
	if (e)
		*e = (struct entry){ request, start, bytes, sent, true };
	pthread_mutex_unlock(&table.lock);
}

/* Removes an entry, and moves up the entries that collided with it. */
static void remove_locked(struct entry *e)
{
	size_t mask = table.cap - 1, hole = (size_t)(e - table.entries);

	for (size_t i = (hole + 1) & mask; table.entries[i].is_used; i = (i + 1) & mask) {
		size_t home = slot_of(table.entries[i].request);

		if (((i - home) & mask) >= ((i - hole) & mask)) {
			table.entries[hole] = table.entries[i];
			hole = i;
		}
	}
	table.entries[hole].is_used = false;
	atomic_fetch_sub_explicit(&table.n, 1, memory_order_relaxed);
}

void persistent_buf_drop(uintptr_t request)
{
	struct entry *e;

	/* this thread, or one that it has synchronised with, has counted the request */
	if (!atomic_load_explicit(&table.n, memory_order_relaxed))
		return;
	pthread_mutex_lock(&table.lock);
	e = find_locked(request);
	if (e && e->is_used)
		remove_locked(e);
	pthread_mutex_unlock(&table.lock);
}

bool persistent_buf_get(uintptr_t request, uintptr_t *start, uint64_t *bytes, uint64_t *sent)
{
	struct entry *e;
	bool found;

	pthread_mutex_lock(&table.lock);
	e = find_locked(request);
	found = e && e->is_used;
	if (found) {
		*start = e->start;
		*bytes = e->bytes;
		*sent = e->sent;
	}
	pthread_mutex_unlock(&table.lock);
	return found;
}
