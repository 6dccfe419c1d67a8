/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program's buffers while a request uses them. Nobody of this rank may be there when its data
 * moves, so all of it is memory that others reach by themselves: the program's own where that is
 * mapped, else a copy of it in the arena, made at the start and taken back when the request is
 * handed out.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "rt/request/request.h"

#define KEPT_MAX 16                     /* extents that wait for the next request ... */
#define KEPT_BYTES ((uint64_t)16 << 20) /* ... which are not longer than that */

static struct {
	pthread_mutex_t lock;
	struct region_extent extents[KEPT_MAX];
	int n;
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool take_kept(uint64_t bytes, struct region_extent *out)
{
	bool found = false;

	pthread_mutex_lock(&kept.lock);
	for (int i = kept.n - 1; i >= 0 && !found; i--) {
		if (kept.extents[i].bytes < bytes ||
		    kept.extents[i].bytes > 4 * base_max_u64(bytes, REGION_UNIT))
			continue;
		*out = kept.extents[i];
		kept.extents[i] = kept.extents[--kept.n];
		found = true;
	}
	pthread_mutex_unlock(&kept.lock);
	return found;
}

static int scratch_get(uint64_t bytes, struct region_extent *out)
{
	return take_kept(bytes, out) ? 0 : region_extent_get(bytes, false, out);
}

static void scratch_put(struct region_extent *e)
{
	bool is_kept = false;

	if (!e->bytes)
		return;
	pthread_mutex_lock(&kept.lock);
	if (kept.n < KEPT_MAX && e->bytes <= KEPT_BYTES) {
		kept.extents[kept.n++] = *e;
		is_kept = true;
	}
	pthread_mutex_unlock(&kept.lock);
	if (!is_kept)
		region_extent_put(e);
	e->bytes = 0;
}

void request_memory_fini(void)
{
	pthread_mutex_lock(&kept.lock);
	while (kept.n)
		region_extent_put(&kept.extents[--kept.n]);
	pthread_mutex_unlock(&kept.lock);
}

static int fill(const struct request_side *s, const struct coll_buf *buf)
{
	if (buf->pack)
		return buf->pack(buf->ctx, 0, buf->bytes, s->addr);
	memcpy(s->addr, buf->addr, buf->bytes);
	return 0;
}

/* In the arena, a copy of what is there now if that counts. */
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

/* has_input: what is there now counts. */
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

/* from: whom each part comes from, where that may be nobody; NULL: all come. */
static int take_back(const struct request_side *s, const struct coll_side *given, const int *from)
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
	int ret = s->scratch.bytes && has_output ? take_back(s, given, from) : 0;

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
