/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of messages in the sender's arena while a blocking send runs. Until the send returns the
 * program may not change its buffer, so the copy holds the bytes that the host MPI's call would
 * read.
 *
 *   sender, in the call                         reader
 *   claims a place, copies, stores `live`       loads `live`, copies, loads `live` again:
 *   host MPI sends, and waits for the reader    equal: the bytes are right
 *   clears `live`, frees the place              else: the kernel reads the memory itself
 */
#include <pthread.h>

#include "base/backoff.h"
#include "message/private.h"
#include "node/node.h"
#include "os/os.h"

enum { PLACES = 4, CLASSES = 6, UNREAD_MAX = 1024 };

struct snapshot {
	/* number of the present copy; 0: none; written by the owner */
	BASE_ALIGNED_LINE _Atomic uint64_t live;
	_Atomic uintptr_t thread; /* the sending thread; 0: the place is free */
	uint64_t number;          /* of the last copy */
	uintptr_t addr;           /* of the message */
	uint64_t bytes;
	uint64_t head, tail;      /* bytes at its ends that `data` holds, one after the other */
	BASE_ALIGNED_LINE _Atomic uint32_t reads; /* written by readers */
	char data[] __attribute__((aligned(OS_PAGE)));
};

#define PLACE_BYTES (sizeof(struct snapshot) + SNAPSHOT_MAX_BYTES)

/* Sends that no peer reads: of short messages, to other nodes. By size. */
static struct backoff unread[CLASSES];

static struct snapshot *place_of(const struct node_header *h, uint64_t off, uint32_t i)
{
	return (struct snapshot *)((char *)(uintptr_t)h + off + i * PLACE_BYTES);
}

void snapshot_begin(struct node_header *h)
{
	struct region_extent e;

	_Static_assert(PLACES * PLACE_BYTES <= REGION_UNIT, "one unit of the arena");
	if (atomic_load_explicit(&h->snapshots_off, memory_order_relaxed) ||
	    region_extent_get(PLACES * PLACE_BYTES, true, &e))
		return;
	/* release: zeros; partner: snapshot_copy. The extent lasts as long as the arena. */
	atomic_store_explicit(&h->snapshots_off, e.offset, memory_order_release);
}

/* ---- the reader ---------------------------------------------------------------------------- */

static bool copy_from(const struct snapshot *s, char *to, uintptr_t from, uint64_t bytes)
{
	uint64_t at = from - s->addr, head = s->head, tail = s->tail, total = s->bytes;

	if (head > SNAPSHOT_MAX_BYTES || tail > SNAPSHOT_MAX_BYTES - head || tail > total ||
	    from < s->addr || at > total || bytes > total - at)
		return false;
	if (at + bytes <= head)
		os_copy(to, s->data + at, bytes, BASE_COPY_PLAIN);
	else if (at >= total - tail)
		os_copy(to, s->data + head + (at - (total - tail)), bytes, BASE_COPY_PLAIN);
	else
		return false;
	return true;
}

bool snapshot_copy(struct node_header *h, char *to, uintptr_t from, uint64_t bytes)
{
	/* acquire, partner: snapshot_begin */
	uint64_t off = atomic_load_explicit(&h->snapshots_off, memory_order_acquire);

	for (uint32_t i = 0; off && i < PLACES; i++) {
		struct snapshot *s = place_of(h, off, i);
		/* acquire, partner: message_offer */
		uint64_t number = atomic_load_explicit(&s->live, memory_order_acquire);

		if (!number || !copy_from(s, to, from, bytes))
			continue;
		/* the copy before the second load; partner: message_offer */
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&s->live, memory_order_relaxed) != number)
			continue;
		atomic_store_explicit(&s->reads, 1, memory_order_relaxed);
		return true;
	}
	return false;
}

/* ---- the sender ---------------------------------------------------------------------------- */

static struct backoff *class_of(uint64_t bytes)
{
	uint32_t log2 = 63 - (uint32_t)__builtin_clzll(bytes | 1);

	return &unread[base_min_u64(log2 > 13 ? log2 - 13 : 0, CLASSES - 1)];
}

static void withdraw(struct snapshot *s)
{
	atomic_store_explicit(&s->live, 0, memory_order_relaxed);
	/* release: no copy is live when the next owner writes; partner: claim */
	atomic_store_explicit(&s->thread, 0, memory_order_release);
}

void snapshot_forget(struct node_header *h, uintptr_t start, uintptr_t end)
{
	uint64_t off = atomic_load_explicit(&h->snapshots_off, memory_order_relaxed);

	for (uint32_t i = 0; off && i < PLACES; i++) {
		struct snapshot *s = place_of(h, off, i);

		if (!atomic_load_explicit(&s->thread, memory_order_relaxed))
			continue;
		/* An error handler has left the thread's last send by longjmp(). */
		if (atomic_load_explicit(&s->thread, memory_order_relaxed) == pthread_self())
			withdraw(s);
		else if (s->addr < end && s->addr + s->bytes > start)
			atomic_store_explicit(&s->live, 0, memory_order_relaxed);
	}
}

static struct snapshot *claim(struct node_header *h)
{
	uint64_t off = atomic_load_explicit(&h->snapshots_off, memory_order_relaxed);

	for (uint32_t i = 0; off && i < PLACES; i++) {
		struct snapshot *s = place_of(h, off, i);
		uintptr_t none = 0;

		/* acquire, partner: withdraw */
		if (!atomic_load_explicit(&s->thread, memory_order_relaxed) &&
		    atomic_compare_exchange_strong_explicit(&s->thread, &none, pthread_self(),
							    memory_order_acquire,
							    memory_order_relaxed))
			return s;
	}
	return NULL;
}

/* Has the kernel read all of these bytes for a peer before? Then loads can read them, too: memory
 * of a device may be closed to loads. */
static bool was_read(const struct node_header *h, uintptr_t from, uint64_t bytes)
{
	uintptr_t last = (from + bytes - 1) >> NODE_GRANULE_SHIFT;

	for (uintptr_t g = from >> NODE_GRANULE_SHIFT; g <= last; g++)
		if (atomic_load_explicit(node_granule(h, g), memory_order_relaxed) != (uint32_t)g)
			return false;
	return true;
}

bool message_may_offer(const void *buf, uint64_t bytes, const struct message_edges *edges)
{
	const struct node_header *h = node_header_self();
	uintptr_t from = (uintptr_t)buf;

	return edges->head + edges->tail && h &&
	       atomic_load_explicit(&h->snapshots_off, memory_order_relaxed) &&
	       (!edges->head || was_read(h, from, edges->head)) &&
	       (!edges->tail || was_read(h, from + bytes - edges->tail, edges->tail)) &&
	       backoff_is_due(class_of(bytes)) && !os_gpu_is_loaded();
}

struct snapshot *message_offer(const void *buf, uint64_t bytes, const struct message_edges *edges)
{
	struct node_header *h = node_header_self();
	struct snapshot *s = h ? claim(h) : NULL;

	if (!s)
		return NULL;
	/* `live` is 0 before the data changes; partner: snapshot_copy */
	atomic_thread_fence(memory_order_release);
	s->addr = (uintptr_t)buf;
	s->bytes = bytes;
	s->head = edges->head;
	s->tail = edges->tail;
	os_copy(s->data, buf, edges->head, BASE_COPY_PLAIN);
	os_copy(s->data + edges->head, (const char *)buf + bytes - edges->tail, edges->tail,
		BASE_COPY_PLAIN);
	atomic_store_explicit(&s->reads, 0, memory_order_relaxed);
	/* release: the data; partner: snapshot_copy */
	atomic_store_explicit(&s->live, ++s->number, memory_order_release);
	return s;
}

int message_sent(struct snapshot *s, int rc)
{
	struct backoff *b;
	uint32_t skip;

	if (!s)
		return rc;
	b = class_of(s->bytes);
	skip = atomic_load_explicit(&s->reads, memory_order_relaxed) ? 0 :
	       backoff_longer(backoff_interval(b), 1, UNREAD_MAX);
	/* an error handler may have sent in this call: the place is free then, or another's */
	if (atomic_load_explicit(&s->thread, memory_order_relaxed) == pthread_self())
		withdraw(s);
	backoff_set(b, skip);
	backoff_skip(b, skip);
	return rc;
}
