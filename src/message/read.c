/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One process_vm_readv(): the bytes in regions of the peer from its arena, those that it offers
 * from its copies, the others by one real call. Of a peer in the same address space (endpoints/)
 * every readable mapping is such a region.
 */
#include <errno.h>
#include <limits.h>

#include "message/private.h"
#include "node/node.h"
#include "os/endpoint.h"
#include "os/os.h"
#include "region/region.h"
#include "trace/trace.h"

#define READ_MIN_BYTES     2048u  /* fewer: the kernel is as fast */
#define COUNT_MIN_BYTES    4096u  /* private bytes of one read that the owner is told of */
#define DIRECT_MIN_BYTES   16384u /* in one address space: two system calls find the mappings */
/* A message of at most so many bytes that is not served whole is the kernel's: one call for all of
 * it costs less than a call for its ends and a copy of the rest. */
#define EDGES_MIN_BYTES    65536u
_Static_assert(EDGES_MIN_BYTES >= SNAPSHOT_WHOLE_BYTES, "is_kernels() in send.c relies on it");
#define TIMED_MIN_BYTES    (256u << 10)  /* private reads whose time tells the rate of the kernel */
#define TIMED_PS_MAX       400u          /* of a byte: the reader may lose its CPU meanwhile */
#define READ_MAX_BYTES     0x7ffff000ull /* the kernel's MAX_RW_COUNT */
#define POPULATE_MAX_BYTES (64u << 20)   /* of a longer region, what is copied is populated */
#define FIND_NS            120000u       /* of a search for a peer */
#define FIND_TIMES         4
#define FIND_VAIN_MAX      6u
#define FIND_VAIN_UNSENT   2u            /* of a process that has sent no long message */
#define PLAIN_MAX_BYTES    16384u        /* libc's memcpy, without a choice of kernels */

enum {
	PIECES = 32, /* unserved, of one read */
	POPULATED = 64,
	COUNT_EACH = 8, /* reads that one of them stands for */
	NOTED_RUNS = 2, /* of a read that the owner is told of, and the granules of each */
	NOTED_GRANULES = (SNAPSHOT_MAX_BYTES >> NODE_GRANULE_SHIFT) + 1,
};

/* Bytes that the kernel reads. */
struct piece {
	char *to;
	uintptr_t from;
	uint64_t bytes;
	uint64_t at; /* in the message */
};

struct reading {
	const struct message_read *call;
	struct node_header *header; /* begins the peer's arena; NULL: it has this address space */
	uint64_t total, at;         /* bytes of the message; of these looked at */
	uint64_t served;            /* bytes copied from the arena */
	struct region_range range;  /* of the bytes [from, to) that were copied last */
	uintptr_t from, to;         /* from >= to: none */
	bool is_short;              /* at most EDGES_MIN_BYTES */
	bool is_range;              /* range can be read; otherwise no region up to range.start */
	struct piece *pieces;
	int n;
};

/* ---- mapped bytes -------------------------------------------------------------------------- */

/* Populates the page tables of a region, once for each. A lost entry costs time only. */
static void populate(const struct reading *r)
{
	static _Atomic uint64_t populated[POPULATED];
	const struct region_range *s = &r->range;
	uint64_t key = (uint64_t)(uintptr_t)r->header ^ s->id * 0x9e3779b97f4a7c15ull ^ s->end;
	_Atomic uint64_t *slot = &populated[s->id % POPULATED];

	if (s->end - s->start > POPULATE_MAX_BYTES ||
	    atomic_load_explicit(slot, memory_order_relaxed) == key)
		return;
	atomic_store_explicit(slot, key, memory_order_relaxed);
	os_populate((char *)r->header + s->arena_off, s->end - s->start);
}

/* Was all that was copied from the present range right? */
static bool is_right(struct reading *r)
{
	bool ok = r->from >= r->to || !r->header ||
		  region_peer_has(r->header, &r->range, r->from, r->to);

	r->from = UINTPTR_MAX;
	r->to = 0;
	return ok;
}

/*
 * The mapping of this address space that covers addr, or the next above. A sender that unmaps a
 * buffer while it is sent has the reader killed, where the kernel would answer EFAULT.
 */
static bool find_mapping(struct reading *r, uintptr_t addr)
{
	struct os_vma v = { .start = UINTPTR_MAX, .end = UINTPTR_MAX };
	int ret = os_vma_query_next((const void *)addr, &v);

	r->is_range = !ret && v.start <= addr && v.read && !v.is_special;
	r->range = (struct region_range){ .start = v.start, .end = v.end, .arena_off = v.start };
	if (!r->is_range && v.start <= addr)
		r->range.start = v.end;
	return !ret || ret == -ENOENT;
}

static bool find_range(struct reading *r, uintptr_t addr)
{
	uint64_t arena_bytes;

	if (!r->header)
		return find_mapping(r, addr);
	if (!is_right(r))
		return false;
	arena_bytes = r->header->arena_bytes;
	r->is_range = region_peer_find(r->header, addr, &r->range);
	if (r->is_range && (r->range.arena_off > arena_bytes ||
			    r->range.end - r->range.start > arena_bytes - r->range.arena_off))
		return false; /* no region of this arena */
	if (r->is_range)
		populate(r);
	else if (r->range.start <= addr)
		r->range.start = r->range.end > addr ? r->range.end : UINTPTR_MAX;
	return true;
}

static void copy_mapped(struct reading *r, char *to, uintptr_t from, uint64_t bytes)
{
	const char *at =
		(const char *)((uintptr_t)r->header + r->range.arena_off + (from - r->range.start));

	os_copy(to, at, bytes,
		bytes <= PLAIN_MAX_BYTES ? BASE_COPY_PLAIN : os_copy_pick(bytes, bytes));
	r->from = base_min_u64(r->from, from);
	r->to = base_max_u64(r->to, from + bytes);
	r->served += bytes;
}

/* ---- the rest ------------------------------------------------------------------------------ */

/* Tells the owner that the kernel has read so many bytes: the first time, and then one message
 * for COUNT_EACH, as the owner reads the line at each send. */
static void count_private(struct node_header *h, uint64_t bytes)
{
	static _Atomic uint32_t messages;

	if (rate_chooses(&messages, COUNT_EACH))
		bytes *= COUNT_EACH;
	else if (atomic_load_explicit(&h->private_bytes, memory_order_relaxed))
		return;
	atomic_fetch_add_explicit(&h->private_bytes, bytes, memory_order_relaxed);
}

/* Tells the owner which memory the kernel has read. */
static void note_private(struct node_header *h, const struct iovec *v, unsigned long n)
{
	for (unsigned long i = 0; h && i < base_min_u64(n, NOTED_RUNS); i++) {
		uintptr_t from = (uintptr_t)v[i].iov_base, first = from >> NODE_GRANULE_SHIFT;
		uintptr_t last = (from + v[i].iov_len - 1) >> NODE_GRANULE_SHIFT;

		for (uintptr_t g = first; g <= last && v[i].iov_len; g++) {
			if (g == first + NOTED_GRANULES)
				g = last;
			/* the owner reads the line at each send */
			if (atomic_load_explicit(node_granule(h, g), memory_order_relaxed) !=
			    (uint32_t)g)
				atomic_store_explicit(node_granule(h, g), (uint32_t)g,
						      memory_order_relaxed);
		}
	}
}

static bool add_piece(struct reading *r, char *to, uintptr_t from, uint64_t bytes)
{
	struct piece *last = r->n ? &r->pieces[r->n - 1] : NULL;

	if (last && last->from + last->bytes == from && last->to + last->bytes == to) {
		last->bytes += bytes;
		return true;
	}
	if (r->n == PIECES)
		return false;
	r->pieces[r->n++] = (struct piece){ to, from, bytes, r->at };
	return true;
}

/* Returns: the length of the message up to the first byte that the kernel did not read, or -1. */
static ssize_t read_pieces(struct reading *r)
{
	struct iovec local[PIECES], remote[PIECES];
	uint64_t bytes = 0;
	ssize_t n;

	for (int i = 0; i < r->n; i++) {
		local[i] = (struct iovec){ r->pieces[i].to, r->pieces[i].bytes };
		remote[i] = (struct iovec){ (void *)r->pieces[i].from, r->pieces[i].bytes };
		bytes += r->pieces[i].bytes;
	}
	n = r->call->real(r->call->pid, local, (unsigned)r->n, remote, (unsigned)r->n, 0);
	if (n == (ssize_t)bytes)
		note_private(r->header, remote, (unsigned)r->n);
	if (n < 0 && (errno != EFAULT || r->pieces[0].at == 0))
		return -1;
	if (n == (ssize_t)bytes)
		return (ssize_t)r->total;
	bytes = n > 0 ? (uint64_t)n : 0;
	for (int i = 0; i < r->n; i++) {
		if (bytes < r->pieces[i].bytes)
			return (ssize_t)(r->pieces[i].at + bytes);
		bytes -= r->pieces[i].bytes;
	}
	return (ssize_t)r->total;
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* One run of bytes, contiguous on both sides. Returns: false: the whole call is the kernel's. */
static bool read_run(struct reading *r, char *to, uintptr_t from, uint64_t bytes)
{
	if (r->header && snapshot_copy(r->header, to, from, bytes)) {
		r->served += bytes;
		r->at += bytes;
		return true;
	}
	while (bytes) {
		uint64_t n;
		bool known = r->is_range ? from >= r->range.start && from < r->range.end
					 : from < r->range.start && r->range.start;

		if (!known && !find_range(r, from))
			return false;
		if (r->is_range) {
			n = base_min_u64(bytes, r->range.end - from);
			copy_mapped(r, to, from, n);
		} else {
			n = base_min_u64(bytes, r->range.start - from);
			if (r->header && snapshot_copy(r->header, to, from, n))
				r->served += n;
			else if (r->is_short || !add_piece(r, to, from, n))
				return false;
			r->range.start = 0; /* look again: the next run may lie below */
		}
		r->at += n;
		to += n;
		from += n;
		bytes -= n;
	}
	return true;
}

/* A place in a vector of pieces. */
struct place {
	const struct iovec *piece;
	uint64_t at; /* in the piece */
};

static char *address(const struct place *p) { return (char *)p->piece->iov_base + p->at; }

/* Returns: bytes from both places on that are contiguous on both sides, at most `most`. */
static uint64_t run_bytes(const struct place *to, const struct place *from, uint64_t most)
{
	return base_min_u64(most, base_min_u64(to->piece->iov_len - to->at,
					       from->piece->iov_len - from->at));
}

static void advance(struct place *p, uint64_t bytes)
{
	p->at += bytes;
	if (p->at == p->piece->iov_len)
		*p = (struct place){ p->piece + 1, 0 };
}

static bool read_runs(struct reading *r)
{
	struct place to = { r->call->local, 0 }, from = { r->call->remote, 0 };

	while (r->at < r->total) {
		uint64_t n = run_bytes(&to, &from, r->total - r->at);

		if (!read_run(r, address(&to), (uintptr_t)address(&from), n))
			return false;
		advance(&to, n);
		advance(&from, n);
	}
	return is_right(r);
}

/* Returns: the bytes of a vector, at most READ_MAX_BYTES; 0: the kernel has to check it. */
static uint64_t vector_bytes(const struct iovec *v, unsigned long n)
{
	uint64_t sum = 0;

	if (n > IOV_MAX)
		return 0;
	for (unsigned long i = 0; i < n; i++) {
		if (v[i].iov_len > SSIZE_MAX ||
		    (uintptr_t)v[i].iov_base + v[i].iov_len < (uintptr_t)v[i].iov_base)
			return 0;
		sum = base_min_u64(sum + v[i].iov_len, READ_MAX_BYTES);
	}
	return sum;
}

static ssize_t read_real(const struct message_read *c)
{
	return c->real(c->pid, c->local, c->locals, c->remote, c->remotes, c->flags);
}

/* Hints, relaxed: the time of reads from processes that were not found, since the last search; has
 * mapped memory served a read since then? And the searches in a row after which none did. */
static _Atomic uint64_t unfound_ns;
static _Atomic bool has_served;
static _Atomic uint32_t vain_searches;

static bool is_one_short(const struct message_read *c)
{
	return c->remotes == 1 && c->remote->iov_len <= EDGES_MIN_BYTES;
}

/* Has the kernel read all, and tells the owner. h: NULL: it was not found. */
static ssize_t read_private(const struct message_read *c, struct node_header *h, uint64_t total)
{
	static _Atomic uint32_t messages;
	bool is_long = !h || total >= TIMED_MIN_BYTES;
	uint64_t begin_ns = is_long ? os_now_ns() : rate_begin(&messages);
	ssize_t ret = read_real(c);
	uint32_t reads = is_one_short(c) ? unserved_note(c->pid, h) : 1;

	if (!h)
		atomic_fetch_add_explicit(&unfound_ns, (os_now_ns() - begin_ns) * reads,
					  memory_order_relaxed);
	if (!h || ret != (ssize_t)total)
		return ret;
	if (total >= COUNT_MIN_BYTES)
		count_private(h, total * reads);
	note_private(h, c->remote, c->remotes);
	if (total <= SNAPSHOT_MAX_BYTES)
		rate_end(h->kernel_ps, total, begin_ns);
	if (is_long) {
		uint64_t ns = base_min_u64(os_now_ns() - begin_ns, total * TIMED_PS_MAX / 1000);

		atomic_fetch_add_explicit(&h->long_ns, ns, memory_order_relaxed);
		atomic_fetch_add_explicit(&h->long_bytes, total, memory_order_relaxed);
	}
	return ret;
}

/* Does the kernel read all of a message of at most EDGES_MIN_BYTES? It is served whole or not. */
static bool is_private(const struct message_read *c, struct node_header *h)
{
	struct region_range range;

	return is_one_short(c) && !snapshot_is_any(h) &&
	       !region_peer_find(h, (uintptr_t)c->remote->iov_base, &range);
}

/* h: of the peer; NULL: the peer has this address space. *served: bytes from mapped memory. */
static ssize_t read_served(const struct message_read *c, struct node_header *h, uint64_t total,
			   uint64_t *served)
{
	struct piece pieces[PIECES];
	struct reading r = { .call = c, .header = h, .total = total, .from = UINTPTR_MAX,
			     .pieces = pieces, .is_short = h && total <= EDGES_MIN_BYTES };
	bool is_complete = read_runs(&r);
	ssize_t ret;

	if (!is_complete)
		r.served = 0;
	*served = r.served;
	base_count(BASE_CTR_MESSAGES_REPEATED, !is_complete && !r.is_short);
	if (!r.served)
		return read_private(c, h, total);
	if (h && total - r.served >= COUNT_MIN_BYTES)
		count_private(h, total - r.served);
	if (!atomic_load_explicit(&has_served, memory_order_relaxed))
		atomic_store_explicit(&has_served, true, memory_order_relaxed);
	unserved_end(c->pid);
	ret = r.n ? read_pieces(&r) : (ssize_t)total;
	base_count(BASE_CTR_MESSAGES, 1);
	base_count(BASE_CTR_BYTES_MESSAGES, r.served);
	return ret;
}

/* Is the process an image in this address space? Only where the kernel finds mappings quickly. */
static bool is_sibling(int pid)
{
	return endpoint_space && os_vma_query_is_cheap() && endpoint_is_peer(pid);
}

/* On a worker of the scheduler (endpoints/), where a system call costs microseconds: a copy that
 * stops at what is not mapped. Returns: bytes; or -1 with EFAULT, as the kernel. */
static ssize_t read_decoupled(const struct message_read *c, uint64_t total)
{
	struct place to = { c->local, 0 }, from = { c->remote, 0 };
	uint64_t at = 0, remaining = 0;

	while (at < total && !remaining) {
		uint64_t n = run_bytes(&to, &from, total - at);

		remaining = endpoint_self->copy(address(&to), address(&from), n);
		at += n - remaining;
		advance(&to, n);
		advance(&from, n);
	}
	base_count(BASE_CTR_MESSAGES, 1);
	base_count(BASE_CTR_BYTES_MESSAGES, at);
	if (at)
		return (ssize_t)at;
	errno = EFAULT;
	return -1;
}

/* Returns: searches in vain so far. A process that has sent no long message may be in collectives
 * only, and begins with some. */
static uint32_t find_vain(void)
{
	uint32_t vain = atomic_load_explicit(&vain_searches, memory_order_relaxed);

	if (atomic_load_explicit(&has_served, memory_order_relaxed))
		return 0;
	return atomic_load_explicit(&message_has_sent, memory_order_relaxed)
		       ? vain
		       : (uint32_t)base_max_u64(vain, FIND_VAIN_UNSENT);
}

/*
 * Returns: the header of a peer, or NULL. A search takes FIND_NS, and gains nothing if few messages
 * follow: one for each FIND_TIMES * FIND_NS of reads from processes that were not found. Nor does
 * it where reads of those that were found are not served, as in a collective of the host MPI, in
 * which all ranks wait for each search: the next ones come later and later then.
 */
static struct node_header *find_header(int pid)
{
	struct node_header *h = node_header_of(pid, false);
	uint64_t ns = atomic_load_explicit(&unfound_ns, memory_order_relaxed);
	uint32_t vain = find_vain();

	if (h || (message_is_by_cost() && ns < (uint64_t)FIND_NS * FIND_TIMES << 2 * vain))
		return h;
	atomic_store_explicit(&unfound_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&has_served, false, memory_order_relaxed);
	atomic_store_explicit(&vain_searches, (uint32_t)base_min_u64(vain + 1, FIND_VAIN_MAX),
			      memory_order_relaxed);
	return node_header_of(pid, true);
}

static ssize_t read_any(const struct message_read *c, uint64_t *served)
{
	struct node_header *h;
	uint64_t total;
	ssize_t ret;
	int err = errno;

	if (c->flags || (is_one_short(c) && unserved_is(c->pid)))
		return read_real(c);
	total = base_min_u64(vector_bytes(c->local, c->locals),
			     vector_bytes(c->remote, c->remotes));
	if (total && endpoint_is_decoupled() && endpoint_is_peer(c->pid)) {
		*served = total;
		return read_decoupled(c, total);
	}
	if (total < READ_MIN_BYTES)
		return read_real(c);
	if (total >= DIRECT_MIN_BYTES && is_sibling(c->pid)) {
		ret = read_served(c, NULL, total, served);
	} else {
		h = find_header(c->pid);
		if (!h || is_private(c, h))
			ret = read_private(c, h, total);
		else
			ret = read_served(c, h, total, served);
	}
	if (ret >= 0)
		errno = err;
	return ret;
}

ssize_t message_read(const struct message_read *c)
{
	uint64_t since = trace_message_copy(), served = 0;
	ssize_t ret = read_any(c, &served);

	trace_message_copied(since, ret, served);
	return ret;
}
