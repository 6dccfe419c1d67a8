/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/buffer.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "rt/private.h"
#include "trace/reasons.h"

/* ---- the pool of copies ------------------------------------------------------------------ */

#define POOL_EXTENTS 16
#define POOL_SHORT_BYTES ((uint64_t)16 << 20)
#define POOL_SHORT_SHARE 64 /* of os_memory_share_bytes(), for all short extents */
#define POOL_LONG_BYTES ((uint64_t)256 << 20) /* most bytes of longer extents, all together */
#define POOL_LONG_SHARE 16 /* and: a part of os_memory_share_bytes() */

static struct {
	pthread_mutex_t lock;
	struct region_extent extents[POOL_EXTENTS]; /* in the order of their last uses */
	int n;
	uint64_t long_bytes;
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool is_long(const struct region_extent *e)
{
	uint64_t most = os_memory_share_bytes() / POOL_SHORT_SHARE / POOL_EXTENTS;

	return e->bytes > base_min_u64(most, POOL_SHORT_BYTES);
}

static struct region_extent pool_remove_locked(int i)
{
	struct region_extent e = pool.extents[i];

	memmove(&pool.extents[i], &pool.extents[i + 1],
		(size_t)(--pool.n - i) * sizeof pool.extents[0]);
	return e;
}

static bool pool_get(uint64_t bytes, struct region_extent *out)
{
	uint64_t most = 4 * base_max_u64(bytes, REGION_UNIT);
	bool found = false;

	pthread_mutex_lock(&pool.lock);
	for (int i = pool.n - 1; i >= 0 && !found; i--) {
		found = pool.extents[i].bytes >= bytes && pool.extents[i].bytes <= most;
		if (!found)
			continue;
		*out = pool_remove_locked(i);
		pool.long_bytes -= is_long(out) ? out->bytes : 0;
	}
	pthread_mutex_unlock(&pool.lock);
	return found;
}

/* A call that packs more than the arena's own pool holds would get new pages each time. */
static uint64_t long_most(void)
{
	return base_min_u64(os_memory_share_bytes() / POOL_LONG_SHARE, POOL_LONG_BYTES);
}

/* Removes the extent, a long one if only_long, that was unused for longest. */
static void pool_drop_locked(bool only_long)
{
	struct region_extent oldest;
	int i = 0;

	while (only_long && !is_long(&pool.extents[i]))
		i++;
	oldest = pool_remove_locked(i);
	pool.long_bytes -= is_long(&oldest) ? oldest.bytes : 0;
	region_extent_put(&oldest);
}

/* Frees the extent, or those that were unused for longest. */
static void pool_put(struct region_extent e)
{
	uint64_t bytes = is_long(&e) ? e.bytes : 0, most = bytes ? long_most() : 0;

	if (bytes > most) {
		region_extent_put(&e);
		return;
	}
	pthread_mutex_lock(&pool.lock);
	while (bytes && pool.long_bytes + bytes > most)
		pool_drop_locked(true);
	if (pool.n == POOL_EXTENTS)
		pool_drop_locked(false);
	pool.extents[pool.n++] = e;
	pool.long_bytes += bytes;
	pthread_mutex_unlock(&pool.lock);
}

void buffer_pool_fini(void)
{
	pthread_mutex_lock(&pool.lock);
	while (pool.n)
		pool_drop_locked(false);
	pthread_mutex_unlock(&pool.lock);
}

/* ---- one buffer -------------------------------------------------------------------------- */

static int open_copy(struct buffer *b, uint64_t bytes)
{
	if (!pool_get(bytes, &b->copy)) {
		int ret = region_extent_get(bytes, false, &b->copy);

		if (ret == -ENOSPC) { /* of a small arena the pool may hold all that is free */
			buffer_pool_fini();
			ret = region_extent_get(bytes, false, &b->copy);
		}
		if (ret) {
			b->copy.bytes = 0;
			return ret;
		}
	}
	b->addr = (char *)region_arena_base() + b->copy.offset;
	region_describe_extent(&b->copy, bytes, &b->desc);
	return 0;
}

/* As region_describe(); records an adoption. */
static void describe(const struct coll_buf *buf, struct region_desc *out)
{
	enum region_intent intent = policy_intent(base_opt.region_kind, buf->is_shared);
	uint64_t begin_ns = trace_activity_begin();
	uint64_t before = base_counter_value(BASE_CTR_BYTES_ADOPTED), adopted;

	region_describe(buf->addr, buf->bytes, intent, out);
	adopted = base_counter_value(BASE_CTR_BYTES_ADOPTED) - before;
	if (adopted)
		trace_activity(TRACE_ADOPTION, begin_ns, adopted);
}

int buffer_open(struct buffer *b, const struct coll_side *side, uint64_t copy_bytes,
		enum buffer_memory memory)
{
	const struct coll_buf *buf = &side->buf;

	*b = (struct buffer){ .side = side };
	if (!side->count || !buf->bytes)
		return 0;
	if (!buf->pack && memory != BUFFER_COPY) {
		describe(buf, &b->desc);
		b->is_unmapped = !(b->desc.flags & REGION_DESC_MAPPED);
		if (memory == BUFFER_ANY || !b->is_unmapped) {
			b->addr = buf->addr;
			return 0;
		}
		region_release(&b->desc);
		b->desc = (struct region_desc){ 0 };
	}
	if (buf->pack) {
		b->is_unmapped = true;
		base_count(BASE_CTR_PACKED, 1);
	}
	return open_copy(b, copy_bytes);
}

static bool is_mapped_whole(const struct region_desc *d)
{
	return d->flags & REGION_DESC_MAPPED && !d->head && !d->tail;
}

/* Describes the pages of the hull; adopts nothing. The layout does not tell which packed bytes lie
 * outside the mapped pages, so all of them have to be mapped. */
static bool find_pages(struct buffer *b, const struct coll_buf *buf)
{
	uintptr_t start = base_round_down((uintptr_t)buf->hull, OS_PAGE),
		  end = base_round_up((uintptr_t)buf->hull + buf->hull_bytes, OS_PAGE);

	region_describe((void *)start, end - start, REGION_LOOKUP, &b->desc);
	b->is_typed = is_mapped_whole(&b->desc);
	b->addr = (char *)start;
	if (!b->is_typed)
		region_release(&b->desc);
	return b->is_typed;
}

/* Counts a use of a hull whose pages are not mapped. Returns: whether they are now. */
static bool adopt_hull(const struct coll_buf *buf)
{
	struct region_desc d;
	bool is_mapped;

	if (buf->is_shared)
		return false;
	region_describe(buf->hull, buf->hull_bytes, policy_intent_packed(base_opt.region_kind), &d);
	is_mapped = is_mapped_whole(&d);
	region_release(&d);
	return is_mapped;
}

int buffer_open_typed(struct buffer *b, const struct coll_side *side, uint64_t copy_bytes,
		      enum buffer_memory memory)
{
	const struct coll_buf *buf = &side->buf;

	*b = (struct buffer){ .side = side };
	if (side->count && buf->bytes && buf->layouts && memory != BUFFER_COPY &&
	    (find_pages(b, buf) || (adopt_hull(buf) && find_pages(b, buf)))) {
		base_count(BASE_CTR_TYPED, 1);
		return 0;
	}
	return buffer_open(b, side, copy_bytes, memory);
}

/* Returns: whether the communicator has taken the copy. */
static bool keep_until_destroyed(struct rt_comm *c, const struct region_extent *copy)
{
	uint32_t i = atomic_fetch_add_explicit(&c->failed_copy_count, 1, memory_order_relaxed);

	if (i < BASE_ARRAY_LEN(c->failed_copies))
		c->failed_copies[i] = *copy;
	return i < BASE_ARRAY_LEN(c->failed_copies);
}

void buffer_close(struct buffer *b, struct rt_comm *failed)
{
	if (!buffer_is_copy(b)) {
		/*
		 * After a failure movers may still write: the region stays pinned for good, so that
		 * its pages are not used again.
		 */
		if (!failed)
			region_release(&b->desc); /* zero after a detach: not ours then */
		return;
	}
	if (!failed || !keep_until_destroyed(failed, &b->copy))
		pool_put(b->copy);
	b->copy.bytes = 0;
}

enum trace_region buffers_region(const struct buffers *b)
{
	const struct buffer *used = b->recv.addr ? &b->recv : &b->send;

	if (!used->addr)
		return TRACE_REGION_NONE;
	if (buffer_is_copy(used))
		return used->side->buf.pack ? TRACE_REGION_PACKED : TRACE_REGION_PLAIN;
	return used->is_unmapped ? TRACE_REGION_PLAIN : TRACE_REGION_MAPPED;
}

/* ---- parts ------------------------------------------------------------------------------- */

uint64_t side_bytes(const struct coll_side *side)
{
	uint64_t sum = 0;

	for (int i = 0; i < side->count; i++)
		sum += side->parts[i].bytes;
	return sum;
}

void buffer_cut(const struct buffer *b, uint64_t at, uint64_t n, struct coll_part *out)
{
	uint64_t packed = 0;

	for (int i = 0; i < b->side->count; i++) {
		const struct coll_part *p = &b->side->parts[i];
		uint64_t bytes = p->bytes > at ? base_min_u64(p->bytes - at, n) : 0;

		out[i] = (struct coll_part){ buffer_is_copy(b) ? packed
					     : b->is_typed     ? at
							       : p->off + at,
					     bytes };
		packed += bytes;
	}
}

static int copy_part(const struct buffer *b, uint64_t off, const struct coll_part *part,
		     bool is_unpack)
{
	const struct coll_buf *buf = &b->side->buf;
	char *packed = b->addr + part->off, *plain = (char *)buf->addr + off;

	if (!part->bytes)
		return 0;
	if (buf->pack)
		return is_unpack ? buf->unpack(buf->ctx, off, part->bytes, packed) :
				   buf->pack(buf->ctx, off, part->bytes, packed);
	if (is_unpack)
		os_copy(plain, packed, part->bytes, BASE_COPY_PLAIN);
	else
		os_copy(packed, plain, part->bytes, BASE_COPY_PLAIN);
	return 0;
}

int buffer_pack_range(const struct buffer *b, uint64_t at, uint64_t n)
{
	return buffer_is_copy(b) ? copy_part(b, at, &(struct coll_part){ 0, n }, false) : 0;
}

int buffer_unpack_range(const struct buffer *b, uint64_t at, uint64_t n)
{
	return buffer_is_copy(b) ? copy_part(b, at, &(struct coll_part){ 0, n }, true) : 0;
}

int buffer_pack(const struct buffer *b, uint64_t at, const struct coll_part *parts, int only)
{
	int ret = 0;

	for (int i = 0; buffer_is_copy(b) && i < b->side->count && !ret; i++)
		if (only < 0 || i == only)
			ret = copy_part(b, b->side->parts[i].off + at, &parts[i], false);
	return ret;
}

int buffer_unpack(const struct buffer *b, uint64_t at, const struct coll_part *parts, int skip,
		  const int *sources)
{
	int ret = 0;

	for (int i = 0; buffer_is_copy(b) && i < b->side->count && !ret; i++) {
		const struct coll_part *own = &b->side->parts[i];

		if (i != skip && (!sources || sources[i] >= 0))
			ret = copy_part(b, own->off + at, parts ? &parts[i] : own, true);
	}
	return ret;
}
