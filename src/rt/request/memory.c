/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program's buffers while a request uses them. This rank may be computing when its data moves,
 * so peers must reach the memory by themselves: it is the program's own where that is mapped, else
 * a copy in the arena, made at the start and copied back when the request is collected.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "rt/request/request.h"

#define CACHE_EXTENTS 16                     /* extents kept for the next requests ... */
#define CACHE_EXTENT_BYTES ((uint64_t)16 << 20) /* ... that are at most so long */

static struct {
	pthread_mutex_t lock;
	struct region_extent extents[CACHE_EXTENTS];
	int n;
} cache = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool cache_get(uint64_t bytes, struct region_extent *out)
{
	bool found = false;

	pthread_mutex_lock(&cache.lock);
	for (int i = cache.n - 1; i >= 0 && !found; i--) {
		if (cache.extents[i].bytes < bytes ||
		    cache.extents[i].bytes > 4 * base_max_u64(bytes, REGION_UNIT))
			continue;
		*out = cache.extents[i];
		cache.extents[i] = cache.extents[--cache.n];
		found = true;
	}
	pthread_mutex_unlock(&cache.lock);
	return found;
}

static int scratch_get(uint64_t bytes, struct region_extent *out)
{
	return cache_get(bytes, out) ? 0 : region_extent_get(bytes, false, out);
}

static void scratch_put(struct region_extent *e)
{
	bool is_cached = false;

	if (!e->bytes)
		return;
	pthread_mutex_lock(&cache.lock);
	if (cache.n < CACHE_EXTENTS && e->bytes <= CACHE_EXTENT_BYTES) {
		cache.extents[cache.n++] = *e;
		is_cached = true;
	}
	pthread_mutex_unlock(&cache.lock);
	if (!is_cached)
		region_extent_put(e);
	e->bytes = 0;
}

void request_memory_fini(void)
{
	pthread_mutex_lock(&cache.lock);
	while (cache.n)
		region_extent_put(&cache.extents[--cache.n]);
	pthread_mutex_unlock(&cache.lock);
}

static int fill(const struct request_side *s, const struct coll_buf *buf)
{
	if (buf->pack)
		return buf->pack(buf->ctx, 0, buf->bytes, s->addr);
	memcpy(s->addr, buf->addr, buf->bytes);
	return 0;
}

/* Opens a copy in the arena; has_input: with the present contents. */
static int side_copy(struct request_side *s, const struct coll_buf *buf, bool has_input)
{
	int ret = scratch_get(buf->bytes, &s->scratch);

	base_count(BASE_CTR_PACKED, !!buf->pack);
	if (ret)
		return ret;
	s->addr = (char *)region_arena_base() + s->scratch.offset;
	region_describe_extent(&s->scratch, buf->bytes, &s->desc);
	return has_input ? fill(s, buf) : 0;
}

/* has_input: the present contents are sent, or kept. */
static int side_open(struct request_side *s, const struct coll_side *given, bool has_input)
{
	const struct coll_buf *buf = &given->buf;

	if (!given->count || !buf->bytes)
		return 0;
	if (!buf->pack) {
		region_describe(buf->addr, buf->bytes,
				policy_intent(base_opt.region_kind, buf->is_shared), &s->desc);
		s->addr = buf->addr;
		if (s->desc.flags & REGION_DESC_MAPPED)
			return 0;
		region_release(&s->desc);
		s->addr = NULL;
	}
	return side_copy(s, buf, has_input);
}

/* Copies results back. from: source of each part, negative: none; NULL: every part has one. */
static int copy_back(const struct request_side *s, const struct coll_side *given, const int *from)
{
	const struct coll_buf *buf = &given->buf;
	int ret = 0;

	for (int i = 0; i < given->count && !ret; i++) {
		const struct coll_part *p = &given->parts[i];

		if (!p->bytes || (from && from[i] < 0))
			continue;
		if (buf->unpack)
			ret = buf->unpack(buf->ctx, p->off, p->bytes, s->addr + p->off);
		else
			memcpy((char *)buf->addr + p->off, s->addr + p->off, p->bytes);
	}
	return ret;
}

static int side_close(struct request_side *s, const struct coll_side *given, bool has_output,
		      const int *from)
{
	int ret = s->scratch.bytes && has_output ? copy_back(s, given, from) : 0;

	if (s->scratch.bytes)
		scratch_put(&s->scratch);
	else if (s->addr)
		region_release(&s->desc);
	s->addr = NULL;
	return ret;
}

static bool is_bcast_leaf(const struct rt_request *r)
{
	return r->call->kind == COLL_BCAST && node_rank(r->comm->group) != r->call->root;
}

int request_open(struct rt_request *r)
{
	const struct coll_call *call = r->call;
	/* where results are others' inputs still, in place means a copy */
	bool is_both = call->in_place && (request_is_alltoall(r) || request_is_reduce_scatter(r)) &&
		       call->send.buf.bytes;
	int ret;

	r->send = r->recv = (struct request_side){ 0 };
	if (is_both)
		ret = side_copy(&r->send, &call->send.buf, true);
	else if (call->in_place && request_is_reduce(r))
		ret = 0;
	else
		ret = side_open(&r->send, &call->send, !is_bcast_leaf(r));
	if (!ret)
		ret = side_open(&r->recv, &call->recv, call->in_place);
	policy_reuse_count(r->reuse, (is_both || !r->send.scratch.bytes) && !r->recv.scratch.bytes);
	return ret;
}

struct trace_op rt_request_op(const struct rt_request *r)
{
	const struct node_group *g = r->comm->group;

	if (!r->traced_op)
		return (struct trace_op){ 0 };
	return (struct trace_op){ r->traced_op, node_id(g), (uint16_t)node_rank(g),
				  (uint16_t)node_size(g) };
}

enum trace_region request_region(const struct rt_request *r)
{
	const struct request_side *s = r->recv.addr ? &r->recv : &r->send;
	const struct coll_side *given = r->recv.addr ? &r->call->recv : &r->call->send;

	if (!s->addr)
		return TRACE_REGION_NONE;
	return !s->scratch.bytes ? TRACE_REGION_MAPPED
	       : given->buf.pack ? TRACE_REGION_PACKED
				 : TRACE_REGION_PLAIN;
}

int request_close(struct rt_request *r, bool is_good)
{
	int ret = side_close(&r->send, &r->call->send, is_good && is_bcast_leaf(r), NULL);
	bool gets = r->call->kind != COLL_EXSCAN || node_rank(r->comm->group);
	int err = side_close(&r->recv, &r->call->recv, is_good && gets, r->call->sources);

	return ret ? ret : err;
}
