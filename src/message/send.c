/* SPDX-License-Identifier: BSD-3-Clause */
/* The sender's side: its buffers earn adoption. */
#include "message/private.h"
#include "node/node.h"
#include "os/endpoint.h"
#include "region/region.h"

_Atomic bool message_is_on;
_Atomic uint64_t message_gate = UINT64_MAX;
uint64_t message_min_bytes = 8192;
_Atomic bool message_has_sent;

bool message_begin(void)
{
	if (!base_opt.messages || !node_header_self())
		return false;
	atomic_store_explicit(&message_is_on, true, memory_order_relaxed);
	if (endpoint_self)
		return true; /* its peers read private memory, and adoption makes system calls */
	region_set_read_by_peers();
	snapshot_begin(node_header_self());
	atomic_store_explicit(&message_gate, message_min_bytes, memory_order_relaxed);
	return true;
}

bool message_end(void)
{
	atomic_store_explicit(&message_gate, UINT64_MAX, memory_order_relaxed);
	atomic_store_explicit(&message_is_on, false, memory_order_relaxed);
	return posted_end();
}

#define RATED_BYTES (4u << 20)

/* Tells region/ what peers need for a byte of private memory, each time that they have read
 * RATED_BYTES more. */
static void rate(const struct node_header *h)
{
	static _Atomic uint64_t rated;
	uint64_t bytes = atomic_load_explicit(&h->long_bytes, memory_order_relaxed);

	if (bytes - atomic_load_explicit(&rated, memory_order_relaxed) < RATED_BYTES)
		return;
	atomic_store_explicit(&rated, bytes, memory_order_relaxed);
	region_set_private_rate((uint32_t)(
		atomic_load_explicit(&h->long_ns, memory_order_relaxed) * 1000 / bytes));
}

/* Have peers read private memory of this process? */
static bool is_read(void)
{
	const struct node_header *h = node_header_self();

	return h && atomic_load_explicit(&h->private_bytes, memory_order_relaxed);
}

/* Does no peer read the message from a region? A short one is served whole or not, and without a
 * copy both ends would have to lie in regions. To check a region takes 0.8 us. */
static bool is_kernels(uintptr_t start, uint64_t bytes, uint64_t used)
{
	return bytes <= SNAPSHOT_WHOLE_BYTES && used == bytes &&
	       !(region_may_hold(start) && region_may_hold(start + bytes - 1));
}

/* Adopts or checks. Returns: the edges of the buffer that may be worth a copy. */
static struct message_edges describe(const void *buf, uint64_t bytes, uint64_t used,
				     bool is_wanted)
{
	struct message_edges edges = { bytes <= SNAPSHOT_MAX_BYTES ? bytes : 0, 0 };
	uintptr_t start = (uintptr_t)buf;
	struct region_desc d;

	if (!is_wanted &&
	    (!region_may_touch(start, start + bytes) || is_kernels(start, bytes, used)))
		return edges;
	region_describe(buf, bytes, is_wanted ? REGION_USE_SENT : REGION_LOOKUP, &d);
	if (d.flags & REGION_DESC_MAPPED)
		edges = (struct message_edges){ d.head, d.tail };
	region_release(&d);
	return edges;
}

struct snapshot *message_send(const void *buf, uint64_t bytes, uint64_t used,
			      enum message_copy copy)
{
	struct node_header *h = node_header_self();
	struct message_edges edges = { bytes, 0 };
	bool may_be_read = used >= atomic_load_explicit(&message_gate, memory_order_relaxed) &&
			   is_read();
	/* the gaps of a type may be receiving another message now, and adoption could lose bytes */
	bool is_wanted = may_be_read && used == bytes;
	bool may_copy = is_wanted && copy != MESSAGE_UNCOPIED;
	struct snapshot *s = NULL;

	if (!atomic_load_explicit(&message_has_sent, memory_order_relaxed))
		atomic_store_explicit(&message_has_sent, true, memory_order_relaxed);
	if (is_wanted)
		rate(h);
	if (may_copy && bytes <= SNAPSHOT_WHOLE_BYTES)
		s = snapshot_offer(h, buf, bytes, &edges, copy == MESSAGE_POSTED);
	if (s)
		return s;
	/* a short message gains nothing by a region, as its ends still take a system call */
	edges = describe(buf, bytes, used, is_wanted && bytes > SNAPSHOT_WHOLE_BYTES);
	return may_copy && bytes > SNAPSHOT_WHOLE_BYTES ?
		       snapshot_offer(h, buf, bytes, &edges, copy == MESSAGE_POSTED) :
		       NULL;
}
