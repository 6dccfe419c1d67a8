/* SPDX-License-Identifier: BSD-3-Clause */
/* Staging: two copies through the control segment, for memory that nothing else can reach (yet). */
#include "trace/trace.h"
#include "xfer/xfer.h"

static uint64_t value_of(uint64_t word, uint64_t tag)
{
	return xfer_is_tag(word, tag) ? word & XFER_VALUE_MASK : 0;
}

int xfer_stage_fill(_Atomic uint64_t *filled, uint64_t tag, char *ring, const char *src,
		    uint64_t bytes, uint64_t consumed)
{
	uint64_t i = value_of(atomic_load_explicit(filled, memory_order_relaxed), tag);
	uint64_t at = i * XFER_CHUNK_BYTES, n;

	if (at >= bytes || i >= consumed + XFER_RING_CHUNKS)
		return 0;
	n = base_min_u64(XFER_CHUNK_BYTES, bytes - at);
	os_copy(ring + i % XFER_RING_CHUNKS * XFER_CHUNK_BYTES, src + at, n, BASE_COPY_PLAIN);
	base_count(BASE_CTR_BYTES_STAGED, n);
	atomic_store_explicit(filled, xfer_word(tag, i + 1),
			      memory_order_release); /* partner: take */
	return 1;
}

uint64_t xfer_stage_consumed(struct xfer *x, uint64_t tag)
{
	/*
	 * acquire: the receiver's loads from the chunk end before the sender writes the chunk again
	 */
	return value_of(atomic_load_explicit(&x->consumed, memory_order_acquire), tag);
}

int xfer_stage_drain(struct xfer_view *v, _Atomic uint64_t *filled, const char *ring)
{
	uint64_t i = value_of(atomic_load_explicit(&v->x->consumed, memory_order_relaxed), v->tag);
	uint64_t ready = value_of(atomic_load_explicit(filled, memory_order_acquire), v->tag);
	uint64_t at = i * XFER_CHUNK_BYTES, n, since;

	if (i >= ready)
		return 0;
	n = base_min_u64(XFER_CHUNK_BYTES, v->plan.bytes - at);
	since = trace_copy_begin(n);
	os_copy(v->dst.addr + at, ring + i % XFER_RING_CHUNKS * XFER_CHUNK_BYTES, n,
		BASE_COPY_PLAIN);
	base_count(BASE_CTR_BYTES_STAGED, n);
	trace_copied(since, .bytes = n, .op = v->tag, .group = node_id(v->group),
		     .unit = (uint32_t)i, .src = v->src.rank, .dst = v->dst.rank, .by = v->dst.rank,
		     .mover = TRACE_STAGE);
	atomic_store_explicit(&v->x->consumed, xfer_word(v->tag, i + 1), memory_order_release);
	if (at + n == v->plan.bytes)
		xfer_finish(v, v->plan.total);
	else
		node_wake(v->group, v->src.rank);
	return 1;
}
