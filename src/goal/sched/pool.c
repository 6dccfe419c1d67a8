/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An allocator for memory of this process's arena. Its lists lie outside the arena: neither a peer
 * nor a program that writes past the end of its buffer can damage them.
 */
#include <stdlib.h>

#include "goal/sched/private.h"

#define POOL_EXTENT_BYTES (8ull << 20)
#define POOL_PAGE_BYTES   OS_HUGE /* larger pieces begin at a page */

struct piece {
	char *at;
	uint64_t bytes;
	bool used;
	struct piece *next; /* pieces of an extent in order of addresses */
};

struct chunk {
	struct region_extent extent;
	struct piece *pieces;
	uint64_t free_bytes;
	struct chunk *next;
};

struct sched_pool {
	pthread_mutex_t lock;
	struct chunk *chunks;
};

struct sched_pool *pool_create(void)
{
	struct sched_pool *p = calloc(1, sizeof *p);

	if (p)
		pthread_mutex_init(&p->lock, NULL);
	return p;
}

static struct chunk *add_chunk(struct sched_pool *p, uint64_t bytes)
{
	struct chunk *c = calloc(1, sizeof *c);
	struct piece *all = malloc(sizeof *all);

	if (!c || !all ||
	    region_extent_get(base_max_u64(bytes, POOL_EXTENT_BYTES), false, &c->extent)) {
		free(c);
		free(all);
		return NULL;
	}
	*all = (struct piece){ (char *)region_arena_base() + c->extent.offset, c->extent.bytes,
			       false, NULL };
	c->pieces = all;
	c->free_bytes = all->bytes;
	c->next = p->chunks;
	p->chunks = c;
	return c;
}

static void *carve(struct chunk *c, struct piece *f, uint64_t bytes)
{
	if (f->bytes > bytes) {
		struct piece *rest = malloc(sizeof *rest);

		if (!rest)
			return NULL;
		*rest = (struct piece){ f->at + bytes, f->bytes - bytes, false, f->next };
		f->next = rest;
		f->bytes = bytes;
	}
	f->used = true;
	c->free_bytes -= bytes;
	return f->at;
}

static void *get_locked(struct sched_pool *p, uint64_t bytes)
{
	struct chunk *c;

	for (c = p->chunks; c; c = c->next)
		for (struct piece *f = c->free_bytes >= bytes ? c->pieces : NULL; f; f = f->next)
			if (!f->used && f->bytes >= bytes)
				return carve(c, f, bytes);
	c = add_chunk(p, bytes);
	return c ? carve(c, c->pieces, bytes) : NULL;
}

void *pool_get(struct sched_pool *p, uint64_t bytes)
{
	void *memory;

	if (!bytes || bytes > UINT64_MAX / 2)
		return NULL;
	pthread_mutex_lock(&p->lock);
	memory = get_locked(
		p, base_round_up(bytes, bytes >= POOL_PAGE_BYTES ? OS_PAGE : BASE_CACHE_LINE));
	pthread_mutex_unlock(&p->lock);
	return memory;
}

static void put_piece(struct chunk *c, struct piece *before, struct piece *f)
{
	struct piece *after = f->next;

	f->used = false;
	c->free_bytes += f->bytes;
	if (after && !after->used) {
		f->bytes += after->bytes;
		f->next = after->next;
		free(after);
	}
	if (before && !before->used) {
		before->bytes += f->bytes;
		before->next = f->next;
		free(f);
	}
}

void pool_put(struct sched_pool *p, void *memory)
{
	char *base = region_arena_base();

	if (!memory)
		return;
	pthread_mutex_lock(&p->lock);
	for (struct chunk *c = p->chunks; c; c = c->next) {
		uint64_t off = (uint64_t)((char *)memory - base) - c->extent.offset;
		struct piece *before = NULL, *f = c->pieces;

		if (off >= c->extent.bytes)
			continue;
		while (f && f->at != memory) {
			before = f;
			f = f->next;
		}
		if (f && f->used)
			put_piece(c, before, f);
		break;
	}
	pthread_mutex_unlock(&p->lock);
}

void pool_destroy(struct sched_pool *p)
{
	struct chunk *c;

	if (!p)
		return;
	while ((c = p->chunks) != NULL) {
		p->chunks = c->next;
		region_extent_put(&c->extent);
		for (struct piece *f = c->pieces, *next; f; f = next) {
			next = f->next;
			free(f);
		}
		free(c);
	}
	pthread_mutex_destroy(&p->lock);
	free(p);
}
