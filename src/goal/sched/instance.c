/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open schedules. A process runs a private copy of a schedule's block, its own or a peer's, and
 * verifies the copy before. The block in the arena serves as the source of these copies.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "goal/sched/private.h"

void inst_free(struct sched_inst *s)
{
	if (!s)
		return;
	free(s->block);
	free(s);
}

/* Returns: a verified copy; NULL with errno. */
static struct goal_block *copy_block(const void *from, uint64_t bytes,
				     const struct goal_limits *limits)
{
	struct goal_block *b;
	uint32_t *work;
	int ret = -ENOMEM;

	if (bytes < sizeof *b || bytes > UINT64_MAX / 4) {
		errno = EINVAL;
		return NULL;
	}
	b = aligned_alloc(BASE_CACHE_LINE, base_round_up(bytes, BASE_CACHE_LINE));
	work = calloc(bytes / sizeof(struct goal_op) + 1, sizeof *work);
	if (b && work) {
		memcpy(b, from, bytes);
		ret = goal_verify(b, bytes, limits, work);
	}
	free(work);
	if (!ret)
		return b;
	free(b);
	errno = -ret;
	return NULL;
}

/* Writes to `match` of each send of a copy which message of the schedule it is: no peer can change
 * that. Returns: the number of sends. */
static uint32_t number_sends(struct goal_block *b)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->op_count; i++)
		if (goal_ops(b)[i].type == GOAL_SEND)
			goal_ops(b)[i].match = n++;
	return n;
}

/* ---- other ranks' ------------------------------------------------------------------------ */

/* Where this process maps the memory of a peer's schedule. */
static void map_spaces(struct sched_inst *s)
{
	for (uint32_t m = 0; m < s->mem_count; m++) {
		struct region_desc d = s->body->mem[m];
		uint64_t lo = d.head, hi = d.bytes - d.tail;

		s->at[m] = (struct sched_space){ 0 };
		if (!(d.flags & REGION_DESC_MAPPED) || lo > hi || hi > d.bytes)
			continue;
		s->at[m].base = arena_at(s->group, s->rank, d.arena_off, hi - lo);
		if (!s->at[m].base)
			continue;
		s->at[m].base -= lo;
		s->at[m].lo = lo;
		s->at[m].hi = hi;
	}
}

/* Returns: NULL when the part is not inside the body. */
static void *part_at(const struct sched_inst *s, const struct sched_body *b, uint64_t off,
		     uint64_t bytes)
{
	if (off % BASE_CACHE_LINE || off > b->bytes || bytes > b->bytes - off)
		return NULL;
	return (char *)s->body + off;
}

static bool map_body(struct sched_driver *d, struct sched_inst *s, const struct sched_body *b)
{
	uint64_t mem_bytes[GOAL_SPACES_MAX] = { 0 };
	struct goal_limits limits = { .ranks = (uint32_t)d->g->size,
				      .mems = b->mem_count,
				      .mem_bytes = mem_bytes };
	const struct goal_block *shared;

	if (b->mem_count > GOAL_SPACES_MAX || b->slot != s->slot ||
	    !ref_at(d->g, s->ref, b->bytes) ||
	    !part_at(s, b, 0, sizeof *b + b->mem_count * sizeof b->mem[0]))
		return false;
	for (uint32_t m = 0; m < b->mem_count; m++)
		mem_bytes[m] = s->body->mem[m].bytes;
	shared = part_at(s, b, b->block_off, base_max_u64(b->block_bytes, sizeof *shared));
	/* before any memory is allocated for it */
	if (!shared || goal_block_bytes(shared->op_count, shared->adjacency_count,
					shared->segment_count) != b->block_bytes)
		return false;
	s->block = copy_block(shared, b->block_bytes, &limits);
	if (!s->block || s->block->op_count != b->op_count ||
	    number_sends(s->block) != b->send_count)
		return false;
	s->mem_count = b->mem_count;
	s->ops = part_at(s, b, b->ops_off, b->op_count * sizeof *s->ops);
	s->msgs = part_at(s, b, b->msgs_off, b->send_count * sizeof *s->msgs);
	if (b->times_off)
		s->times = part_at(s, b, b->times_off, b->op_count * sizeof *s->times);
	if (b->runs && ref_rank(b->runs) == s->rank)
		s->runs = ref_at(d->g, b->runs, sizeof *s->runs);
	return s->ops && s->msgs && (s->times || !b->times_off) && (s->runs || !b->runs);
}

void inst_refuse(struct sched_driver *d)
{
	d->refused = true;
	atomic_store_explicit(&d->st->refused, 1, memory_order_relaxed);
}

struct sched_inst *inst_map_peer(struct sched_driver *d, uint32_t slot, struct sched_inst *s)
{
	sched_ref ref = atomic_load_explicit(&d->directory[slot],
					     memory_order_acquire); /* partner: sched_open */
	struct sched_body *body =
		ref && ref_rank(ref) == d->rank ? ref_at(d->g, ref, sizeof *body) : NULL;
	struct sched_body copy;

	if (s && body && s->ref == ref && s->id == body->id)
		return s;
	inst_free(s);
	atomic_store_explicit(&d->insts[slot], NULL, memory_order_relaxed);
	s = body ? calloc(1, sizeof *s) : NULL;
	if (!s)
		return NULL;
	memcpy(&copy, body, sizeof copy); /* checks and uses see the same values */
	s->group = d->g;
	s->rank = d->rank;
	s->slot = slot;
	s->id = copy.id;
	s->ref = ref;
	s->body = body;
	if (!map_body(d, s, &copy)) {
		base_log(BASE_LOG_WARN, "sched",
			 "schedule %u of rank %d does not verify: rank %d does not help it", slot,
			 d->rank, d->g->rank);
		inst_refuse(d);
		inst_free(s);
		return NULL;
	}
	map_spaces(s);
	atomic_store_explicit(&d->insts[slot], s, memory_order_relaxed);
	return s;
}

/* ---- own --------------------------------------------------------------------------------- */

static struct sched_channel *channel_get(struct sched_group *g, uint32_t number)
{
	struct sched_channel *c = g->channels;

	while (c && c->number != number)
		c = c->next;
	if (c)
		return c;
	c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->runs = pool_get(g->pool, sizeof *c->runs);
	if (!c->runs) {
		free(c);
		return NULL;
	}
	*c->runs = (struct sched_runs){ 0 };
	c->number = number;
	c->next = g->channels;
	g->channels = c;
	return c;
}

static bool slot_get_locked(struct sched_group *g, struct sched_inst *s)
{
	struct sched_driver *d = &g->drivers[g->rank];

	for (uint32_t n = 0; n < SCHED_INSTS; n++) {
		uint32_t slot = g->next_slot++ % SCHED_INSTS;

		if (atomic_load_explicit(&d->insts[slot], memory_order_relaxed))
			continue;
		s->slot = slot;
		s->id = ++g->last_id;
		atomic_store_explicit(&d->insts[slot], s, memory_order_release);
		return true;
	}
	return false;
}

static void slot_put_locked(struct sched_group *g, struct sched_inst *s)
{
	struct sched_driver *d = &g->drivers[g->rank];

	atomic_store_explicit(&d->directory[s->slot], 0, memory_order_relaxed);
	atomic_store_explicit(&d->insts[s->slot], NULL, memory_order_relaxed);
}

static uint64_t add_part(uint64_t *bytes, uint64_t part)
{
	uint64_t off = *bytes;

	*bytes += base_round_up(part, BASE_CACHE_LINE);
	return off;
}

static sched_ref own_ref(const struct sched_inst *s, const void *p)
{
	return ref_of(s->rank, (uint64_t)((const char *)p - (const char *)region_arena_base()));
}

/* One piece of the arena: body, block, operations, messages, times. */
static int body_create(struct sched_inst *s)
{
	uint32_t sends = number_sends(s->block);
	struct sched_body h = { .id = s->id,
				.mem_count = s->mem_count,
				.op_count = s->block->op_count,
				.send_count = sends,
				.slot = s->slot,
				.block_bytes = s->block->bytes,
				.channel = s->channel->number };

	if (!(s->flags & SCHED_STREAM)) {
		s->runs = s->channel->runs;
		h.runs = own_ref(s, s->runs);
	}

	h.bytes = base_round_up(sizeof h + s->mem_count * sizeof h.mem[0], BASE_CACHE_LINE);
	h.block_off = add_part(&h.bytes, s->block->bytes);
	h.segments_off = h.block_off +
			 (uint64_t)((const char *)goal_segments(s->block) - (const char *)s->block);
	h.ops_off = add_part(&h.bytes, h.op_count * sizeof *s->ops);
	h.msgs_off = add_part(&h.bytes, sends * sizeof *s->msgs);
	if (s->group->keep_times)
		h.times_off = add_part(&h.bytes, h.op_count * sizeof *s->times);
	s->body = pool_get(s->group->pool, h.bytes);
	if (!s->body)
		return -ENOMEM;
	memset(s->body, 0, h.bytes);
	memcpy(s->body, &h, sizeof h);
	memcpy((char *)s->body + h.block_off, s->block, s->block->bytes);
	s->ops = (struct sched_op *)((char *)s->body + h.ops_off);
	s->msgs = (struct sched_msg *)((char *)s->body + h.msgs_off);
	s->times = h.times_off ? (struct sched_times *)((char *)s->body + h.times_off) : NULL;
	s->ref = own_ref(s, s->body);
	s->needs_clock = s->times;
	s->is_flat = true;
	for (uint32_t i = 0; i < h.op_count; i++) {
		const struct goal_op *op = inst_goal(s, i);

		s->is_flat &= (op->type == GOAL_SEND || op->type == GOAL_RECV) && !op->requires &&
			      op->bytes <= SCHED_FLAT_BYTES;
		s->needs_clock |= op->type == GOAL_STAMP;
		s->sends_long |= op->type == GOAL_SEND && job_fragments(op->bytes) > 1;
	}
	return 0;
}

/* Memory of sched_alloc() is mapped by every rank. Other memory of the program stays private: peers
 * read and write it by process_vm_readv() and process_vm_writev(). */
static void describe(const void *p, uint64_t bytes, struct region_desc *out)
{
	*out = (struct region_desc){ .addr = (uintptr_t)p, .bytes = bytes };
	if (!is_arena_memory(p, bytes))
		return;
	out->flags = REGION_DESC_MAPPED;
	out->arena_off = (uint64_t)((const char *)p - (const char *)region_arena_base());
}

static int describe_memory(struct sched_inst *s, const struct sched_open *o)
{
	struct region_desc *desc = s->body->mem;

	s->is_mapped = true;
	if (s->block->scratch_bytes) {
		s->scratch = pool_get(s->group->pool, s->block->scratch_bytes);
		if (!s->scratch)
			return -ENOMEM;
		describe(s->scratch, s->block->scratch_bytes, &desc[0]);
		s->at[0] = (struct sched_space){ s->scratch, 0, s->block->scratch_bytes };
	}
	for (uint32_t i = 0; i < o->buffer_count; i++) {
		s->at[1 + i] = (struct sched_space){ o->buffers[i], 0, o->buffer_bytes[i] };
		describe(o->buffers[i], o->buffer_bytes[i], &desc[1 + i]);
		s->is_mapped &= desc[1 + i].flags == REGION_DESC_MAPPED;
	}
	return 0;
}

static int inst_open(struct sched_group *g, const struct sched_open *o, struct sched_inst *s)
{
	uint64_t mem_bytes[GOAL_SPACES_MAX] = { UINT64_MAX };
	struct goal_limits limits = { (uint32_t)g->size, 1 + o->buffer_count, mem_bytes, false };
	int ret = 0;

	for (uint32_t i = 0; i < o->buffer_count; i++)
		mem_bytes[1 + i] = o->buffer_bytes[i];
	s->block = copy_block(o->block, o->block_bytes, &limits);
	if (!s->block)
		return -errno;
	s->mem_count = limits.mems;
	pthread_mutex_lock(&g->lock);
	s->channel = channel_get(g, o->channel);
	if (!s->channel)
		ret = -ENOMEM;
	else if (!slot_get_locked(g, s))
		ret = -ENOSPC;
	pthread_mutex_unlock(&g->lock);
	if (ret)
		return ret;
	ret = body_create(s);
	if (!ret)
		ret = describe_memory(s, o);
	if (ret) {
		pthread_mutex_lock(&g->lock);
		slot_put_locked(g, s);
		pthread_mutex_unlock(&g->lock);
	}
	return ret;
}

int sched_open(struct sched_group *g, const struct sched_open *o, struct sched_inst **out)
{
	struct sched_inst *s;
	int ret;

	if (o->buffer_count > GOAL_USERS_MAX)
		return -EINVAL;
	s = calloc(1, sizeof *s);
	if (!s)
		return -ENOMEM;
	s->group = g;
	s->rank = g->rank;
	s->flags = o->flags;
	snprintf(s->name, sizeof s->name, "%s", o->name ? o->name : "schedule");
	ret = inst_open(g, o, s);
	if (ret) {
		pool_put(g->pool, s->scratch);
		pool_put(g->pool, s->body);
		inst_free(s);
		return ret;
	}
	pthread_mutex_lock(&g->lock);
	s->next = g->instances;
	g->instances = s;
	pthread_mutex_unlock(&g->lock);
	atomic_store_explicit(&g->drivers[g->rank].directory[s->slot], s->ref,
			      memory_order_release);
	/* partner: inst_map_peer */
	*out = s;
	return 0;
}

void *sched_scratch(const struct sched_inst *s) { return s->scratch; }

int sched_close(struct sched_inst *s)
{
	struct sched_group *g = s->group;
	uint32_t phase = atomic_load_explicit(&s->body->phase, memory_order_acquire);

	if (phase == RUN_GOING)
		return -EBUSY;
	run_finalize(s);
	pthread_mutex_lock(&g->lock);
	for (struct sched_inst **link = &g->instances; *link; link = &(*link)->next) {
		if (*link == s) {
			*link = s->next;
			break;
		}
	}
	if (phase == RUN_FAILED) { /* peers hold references to its messages */
		s->next = g->zombies;
		g->zombies = s;
	} else {
		slot_put_locked(g, s);
	}
	pthread_mutex_unlock(&g->lock);
	if (phase == RUN_FAILED)
		return 0;
	pool_put(g->pool, s->scratch);
	pool_put(g->pool, s->body);
	inst_free(s);
	return 0;
}
