/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of messages in the sender's arena until their sends are complete. Until then the program
 * may not change its buffer, so the copy holds the bytes that the host MPI's call would read.
 *
 *   sender, in the call                         reader
 *   claims a place, copies, stores `live`       loads `live`, copies, loads `live` again:
 *   host MPI sends                              equal: the bytes are right
 *   send complete: clears `live`, frees the     else: the kernel reads the memory itself
 *   place
 *
 * A blocking send is complete when it returns, a nonblocking one when a call has completed its
 * request (posted.c).
 */
#include "base/backoff.h"
#include "message/private.h"
#include "node/node.h"
#include "os/os.h"

enum { BLOCKING = 4, PLACES = BLOCKING + SNAPSHOT_POSTED, VAIN_MAX = 1024, KERNEL_EACH = 16 };
/* A copy pays if it gains an eighth, as times are not more exact, and offering it is not timed. */
enum { COPY_GAIN = 8 };
/* Bytes that peers have read by system call for each byte of the copies: its page costs 2 ns a
 * byte, and the kernel reads a byte in 0.1 (of a long message) to 0.9 ns. */
enum { READ_PER_GIVEN = 32, READ_PER_LONG = 128 };

struct snapshot {
	/* used by the owner only; each line that moves costs both sides 50 to 100 ns */
	_Atomic bool is_claimed;
	uint32_t place;
	uint64_t number; /* of the last copy */
	uint64_t given;  /* bytes of `data` that have pages */
	/* Written by the owner. Number of the present copy; 0: none */
	BASE_ALIGNED_LINE _Atomic uint64_t live;
	uintptr_t addr; /* of the message */
	uint64_t bytes;
	uint64_t head, tail; /* bytes at its ends that `data` holds, one after the other */
	BASE_ALIGNED_LINE _Atomic uint64_t read; /* written by readers: the number of the copy */
	char data[] __attribute__((aligned(OS_PAGE)));
};

/* At the head of the memory: which places may be live. A hint: readers check `live`. A place that
 * pays keeps its bit between its copies. */
struct directory { _Atomic uint64_t live; };

/* First the places of blocking sends, then those of nonblocking sends. */
#define LONG_BYTES  (sizeof(struct snapshot) + SNAPSHOT_MAX_BYTES)
#define SHORT_BYTES (sizeof(struct snapshot) + SNAPSHOT_WHOLE_BYTES)
#define AREA_BYTES  (OS_PAGE + BLOCKING * LONG_BYTES + SNAPSHOT_POSTED * SHORT_BYTES)

/* By length: copies in vain, as no peer reads them (short messages, other nodes) or as the kernel
 * is faster: a peer's cache may hold a buffer that never changes, but not a fresh copy. */
static struct backoff vain[RATE_CLASSES];
static _Atomic uint32_t out_ps[RATE_CLASSES]; /* of making a copy */
static _Atomic bool is_forbidden;             /* message_copy_no_more() */

static struct snapshot *place_of(const struct node_header *h, uint64_t off, uint32_t i)
{
	uint64_t n = base_min_u64(i, BLOCKING);

	return (struct snapshot *)((char *)(uintptr_t)h + off + OS_PAGE + n * LONG_BYTES +
				   (i - n) * SHORT_BYTES);
}

static struct directory *directory_of(const struct node_header *h, uint64_t off)
{
	return (struct directory *)((char *)(uintptr_t)h + off);
}

void snapshot_begin(struct node_header *h)
{
	struct region_extent e;

	_Static_assert(PLACES <= 64, "one bit each");
	if (atomic_load_explicit(&h->snapshots_off, memory_order_relaxed) ||
	    region_extent_get(AREA_BYTES, true, &e))
		return;
	/* release: zeros; partner: snapshot_copy. The extent lasts as long as the arena. */
	atomic_store_explicit(&h->snapshots_off, e.offset, memory_order_release);
}

/* ---- the reader ---------------------------------------------------------------------------- */

bool snapshot_is_any(struct node_header *h)
{
	/* acquire, partner: snapshot_begin */
	uint64_t off = atomic_load_explicit(&h->snapshots_off, memory_order_acquire);

	return off && atomic_load_explicit(&directory_of(h, off)->live, memory_order_relaxed);
}

static bool copy_from(const struct snapshot *s, char *to, uintptr_t from, uint64_t bytes)
{
	uint64_t at = from - s->addr, head = s->head, tail = s->tail, total = s->bytes;

	if (head > SNAPSHOT_MAX_BYTES || tail > SNAPSHOT_MAX_BYTES - head || tail > total ||
	    from < s->addr || at > total || bytes > total - at)
		return false;
	if (at + bytes <= head)
		os_copy_vector(to, s->data + at, bytes);
	else if (at >= total - tail)
		os_copy_vector(to, s->data + head + (at - (total - tail)), bytes);
	else
		return false;
	return true;
}

bool snapshot_copy(struct node_header *h, char *to, uintptr_t from, uint64_t bytes)
{
	/* acquire, partner: snapshot_begin */
	uint64_t off = atomic_load_explicit(&h->snapshots_off, memory_order_acquire);
	static _Atomic uint32_t messages;
	/* before the first line of the owner's: what moving lines takes is a part of the copy */
	uint64_t begin_ns = rate_begin(&messages);
	uint64_t all = off ? atomic_load_explicit(&directory_of(h, off)->live,
						  memory_order_relaxed) : 0;

	for (; all; all &= all - 1) {
		struct snapshot *s = place_of(h, off, (uint32_t)__builtin_ctzll(all));
		/* acquire, partner: snapshot_make */
		uint64_t number = atomic_load_explicit(&s->live, memory_order_acquire);

		if (!number || !copy_from(s, to, from, bytes))
			continue;
		/* the copy before the second load; partner: snapshot_make */
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&s->live, memory_order_relaxed) != number)
			continue;
		atomic_store_explicit(&s->read, number, memory_order_relaxed);
		if (bytes == s->bytes)
			rate_end(h->copy_ps, bytes, begin_ns);
		return true;
	}
	return false;
}

/* ---- the sender ---------------------------------------------------------------------------- */

static struct backoff *class_of(uint64_t bytes) { return &vain[rate_class(bytes)]; }

/* Was the copy read, in less time than the kernel needs for the message? */
static bool has_paid(struct node_header *h, const struct snapshot *s)
{
	int class = rate_class(s->bytes);
	uint32_t kernel = atomic_load_explicit(&h->kernel_ps[class], memory_order_relaxed);
	uint64_t copy = (uint64_t)atomic_load_explicit(&out_ps[class], memory_order_relaxed) +
			atomic_load_explicit(&h->copy_ps[class], memory_order_relaxed);

	return atomic_load_explicit(&s->read, memory_order_relaxed) == s->number &&
	       (!message_is_by_cost() || s->head < s->bytes || !kernel ||
		copy + copy / COPY_GAIN < kernel);
}

static void hide(struct node_header *h, uint64_t off, struct snapshot *s)
{
	atomic_store_explicit(&s->live, 0, memory_order_relaxed);
	atomic_fetch_and_explicit(&directory_of(h, off)->live, ~(1ull << s->place),
				  memory_order_relaxed);
}

static void show(struct directory *d, uint32_t place)
{
	uint64_t bit = 1ull << place;

	if (!(atomic_load_explicit(&d->live, memory_order_relaxed) & bit))
		atomic_fetch_or_explicit(&d->live, bit, memory_order_relaxed);
}

static void unclaim(struct snapshot *s)
{
	/* release: no copy is live when the next owner writes; partner: claim */
	atomic_store_explicit(&s->is_claimed, false, memory_order_release);
}

void message_copy_no_more(void)
{
	struct node_header *h = node_header_self();
	uint64_t off = h ? atomic_load_explicit(&h->snapshots_off, memory_order_relaxed) : 0;

	atomic_store_explicit(&is_forbidden, true, memory_order_relaxed);
	for (uint64_t all = off ? directory_of(h, off)->live : 0; all; all &= all - 1)
		hide(h, off, place_of(h, off, (uint32_t)__builtin_ctzll(all)));
}

/* Have peers read enough for the pages of a copy of so many bytes? */
static bool has_pages(const struct node_header *h, struct snapshot *s, uint64_t bytes)
{
	static _Atomic uint64_t spent; /* a hint */
	uint64_t read = atomic_load_explicit(&h->private_bytes, memory_order_relaxed);
	uint64_t old = atomic_load_explicit(&spent, memory_order_relaxed);
	uint64_t each = bytes > SNAPSHOT_WHOLE_BYTES ? READ_PER_LONG : READ_PER_GIVEN;
	uint64_t price = bytes > s->given ? (bytes - s->given) * each : 0;

	if (!price || !message_is_by_cost())
		return true;
	if (read - old < price)
		return false;
	atomic_store_explicit(&spent, old + price, memory_order_relaxed);
	s->given = bytes;
	return true;
}

static struct snapshot *claim(struct node_header *h, uint64_t bytes, bool is_posted)
{
	uint64_t off = atomic_load_explicit(&h->snapshots_off, memory_order_relaxed);
	uint32_t end = is_posted ? PLACES : BLOCKING;

	for (uint32_t i = is_posted ? BLOCKING : 0; off && i < end; i++) {
		struct snapshot *s = place_of(h, off, i);

		/* acquire, partner: unclaim */
		if (!atomic_load_explicit(&s->is_claimed, memory_order_relaxed) &&
		    !atomic_exchange_explicit(&s->is_claimed, true, memory_order_acquire)) {
			s->place = i;
			if (has_pages(h, s, bytes))
				return s;
			unclaim(s);
			return NULL;
		}
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

static bool may_offer(const struct node_header *h, uintptr_t from, uint64_t bytes,
		      const struct message_edges *edges)
{
	return backoff_is_due(class_of(bytes)) && edges->head + edges->tail &&
	       (!edges->head || was_read(h, from, edges->head)) &&
	       (!edges->tail || was_read(h, from + bytes - edges->tail, edges->tail)) &&
	       !atomic_load_explicit(&is_forbidden, memory_order_relaxed) && !os_gpu_is_loaded();
}

struct snapshot *snapshot_make(struct node_header *h, const void *buf, uint64_t bytes,
			       const struct message_edges *edges, bool is_posted)
{
	static _Atomic uint32_t messages;
	uint64_t off = atomic_load_explicit(&h->snapshots_off, memory_order_relaxed);
	uint64_t begin_ns = edges->head == bytes ? rate_begin(&messages) : 0;
	struct snapshot *s = claim(h, edges->head + edges->tail, is_posted);

	if (!s)
		return NULL;
	/* `live` is 0 before the data changes, also by non-temporal stores, as claim() has a locked
	 * instruction; partner: snapshot_copy */
	atomic_thread_fence(memory_order_release);
	s->addr = (uintptr_t)buf;
	s->bytes = bytes;
	s->head = edges->head;
	s->tail = edges->tail;
	/* past the caches: the lines are in the cache of the reader, which has to give up each of
	 * them before a store to it */
	os_copy(s->data, buf, edges->head, BASE_COPY_NONTEMPORAL);
	os_copy(s->data + edges->head, (const char *)buf + bytes - edges->tail, edges->tail,
		BASE_COPY_NONTEMPORAL);
	/* release: the data; partner: snapshot_copy */
	atomic_store_explicit(&s->live, ++s->number, memory_order_release);
	show(directory_of(h, off), s->place);
	rate_end(out_ps, bytes, begin_ns);
	return s;
}

struct snapshot *snapshot_offer(struct node_header *h, const void *buf, uint64_t bytes,
				const struct message_edges *edges, bool is_posted)
{
	if ((is_posted && edges->head + edges->tail > SNAPSHOT_WHOLE_BYTES) ||
	    !may_offer(h, (uintptr_t)buf, bytes, edges))
		return NULL;
	return snapshot_make(h, buf, bytes, edges, is_posted);
}

void snapshot_end(struct node_header *h, struct snapshot *s)
{
	uint64_t off = atomic_load_explicit(&h->snapshots_off, memory_order_relaxed);
	struct backoff *b = class_of(s->bytes);
	bool paid = has_paid(h, s);

	backoff_set(b, paid ? 0 : backoff_longer(backoff_interval(b), 1, VAIN_MAX));
	/* the kernel has a message now and then, so that its time is known */
	backoff_skip(b, paid ? message_is_by_cost() && s->number % KERNEL_EACH == 0 :
			       backoff_interval(b));
	if (paid)
		atomic_store_explicit(&s->live, 0, memory_order_relaxed);
	else
		hide(h, off, s);
	unclaim(s);
}

int message_sent(struct snapshot *s, int rc)
{
	struct node_header *h = node_header_self();

	if (s && h) /* a forked child has no header */
		snapshot_end(h, s);
	return rc;
}
