/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include "private.h"

struct chunk {
	uint32_t next, count; /* the pool links free elements through `next` */
	struct sim_event event[SIM_CHUNK_EVENTS];
};

void sim_queue_init(struct sim_queue *q)
{
	*q = (struct sim_queue){ .last = 0 };
	sim_pool_init(&q->chunks, sizeof(struct chunk));
}

void sim_queue_fini(struct sim_queue *q)
{
	sim_pool_fini(&q->chunks);
	free(q->late);
	q->late = NULL;
}

static int append(struct sim_queue *q, unsigned b, const struct sim_event *e)
{
	uint32_t tail = q->bucket[b].tail;
	struct chunk *c = tail ? sim_pool_at(&q->chunks, tail) : NULL;

	if (!c || c->count == SIM_CHUNK_EVENTS) {
		uint32_t fresh = sim_pool_get(&q->chunks);

		if (!fresh)
			return -ENOMEM;
		if (tail)
			((struct chunk *)sim_pool_at(&q->chunks, tail))->next = fresh;
		else
			q->bucket[b].head = fresh;
		q->bucket[b].tail = fresh;
		c = sim_pool_at(&q->chunks, fresh);
		c->next = SIM_NONE;
		c->count = 0;
	}
	c->event[c->count++] = *e;
	return 0;
}

static int push_late(struct sim_queue *q, const struct sim_event *e)
{
	uint32_t i = q->late_count;

	if (goal_grow(&q->late, &q->late_cap, i + 1ull, sizeof(*q->late)))
		return -ENOMEM;
	for (; i && q->late[(i - 1) / 2].seq > e->seq; i = (i - 1) / 2)
		q->late[i] = q->late[(i - 1) / 2];
	q->late[i] = *e;
	q->late_count++;
	return 0;
}

static void pop_late(struct sim_queue *q, struct sim_event *out)
{
	struct sim_event moved = q->late[--q->late_count];
	uint32_t i = 0, child;

	*out = q->late[0];
	for (; (child = 2 * i + 1) < q->late_count; i = child) {
		if (child + 1 < q->late_count && q->late[child + 1].seq < q->late[child].seq)
			child++;
		if (moved.seq <= q->late[child].seq)
			break;
		q->late[i] = q->late[child];
	}
	q->late[i] = moved;
}

static int put(struct sim_queue *q, const struct sim_event *e)
{
	unsigned b = e->time == q->last ? 0 : 64 - (unsigned)__builtin_clzll(e->time ^ q->last);

	if (b)
		q->filled |= 1ull << (b - 1);
	else if (q->bucket[0].head && e->seq < q->newest)
		return push_late(q, e);
	else
		q->newest = e->seq;
	return append(q, b, e);
}

int sim_queue_push(struct sim_queue *q, const struct sim_event *e)
{
	q->count++;
	return put(q, e);
}

/* Bucket 0 is empty: distributes the lowest other bucket around its earliest time. */
static int refill(struct sim_queue *q)
{
	unsigned b = (unsigned)__builtin_ctzll(q->filled) + 1;
	uint32_t at = q->bucket[b].head;
	uint64_t first = UINT64_MAX;

	for (uint32_t i = at; i; i = ((struct chunk *)sim_pool_at(&q->chunks, i))->next) {
		const struct chunk *c = sim_pool_at(&q->chunks, i);

		for (uint32_t k = 0; k < c->count; k++)
			first = c->event[k].time < first ? c->event[k].time : first;
	}
	q->last = first;
	q->filled &= ~(1ull << (b - 1));
	q->bucket[b].head = q->bucket[b].tail = SIM_NONE;
	while (at) {
		uint32_t next = ((struct chunk *)sim_pool_at(&q->chunks, at))->next;

		/* by value: adding an event may move the chunks */
		for (uint32_t k = 0; k < ((struct chunk *)sim_pool_at(&q->chunks, at))->count;
		     k++) {
			struct sim_event e =
				((struct chunk *)sim_pool_at(&q->chunks, at))->event[k];

			if (put(q, &e))
				return -ENOMEM;
		}
		sim_pool_put(&q->chunks, at);
		at = next;
	}
	return 0;
}

static void drop_first_chunk(struct sim_queue *q)
{
	uint32_t head = q->bucket[0].head;

	q->bucket[0].head = ((struct chunk *)sim_pool_at(&q->chunks, head))->next;
	if (!q->bucket[0].head)
		q->bucket[0].tail = SIM_NONE;
	q->read = 0;
	sim_pool_put(&q->chunks, head);
}

int sim_queue_pop(struct sim_queue *q, struct sim_event *out)
{
	struct chunk *c;

	if (!q->count)
		return 0;
	if (!q->bucket[0].head && !q->late_count && refill(q))
		return -ENOMEM;
	q->count--;
	c = q->bucket[0].head ? sim_pool_at(&q->chunks, q->bucket[0].head) : NULL;
	if (q->late_count && (!c || q->late[0].seq < c->event[q->read].seq)) {
		pop_late(q, out);
		return 1;
	}
	*out = c->event[q->read++];
	if (q->read == c->count)
		drop_first_chunk(q);
	return 1;
}

const struct sim_event *sim_queue_peek(const struct sim_queue *q, uint32_t ahead)
{
	const struct chunk *c = sim_pool_at(&q->chunks, q->bucket[0].head);

	return q->bucket[0].head && q->read + ahead < c->count ? &c->event[q->read + ahead] : NULL;
}
