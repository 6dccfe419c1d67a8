/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Relations across processes. A copy belongs to the calls of both its ends, whichever rank made it;
 * a detached operation belongs to its call.
 *
 * Early return saves the time that the program would have spent in the call otherwise:
 *
 *   call ends           partner arrives                   wanted, or all in place
 *       |--- late ----------->|--- others move its data -------->|
 *
 *   saved = late + the time that this rank would have needed, at its own speed, to copy what others
 *           moved until then (at most the time that it took them)
 *   cost  = closing the memory (from the decision until the call ended), and opening it again when
 *           the program wanted it, which takes as long
 */
#include <stdlib.h>

#include "base/base.h"
#include "os/os.h"
#include "trace_data.h"


/* Calls by a key: an open-addressing hash table; the keys stand in the calls. */
struct index {
	uint32_t *slots; /* 1 + call */
	size_t mask;
};

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t x =
		(a * 0x9e3779b97f4a7c15ull ^ b) * 0xbf58476d1ce4e5b9ull ^ c * 0x94d049bb133111ebull;

	return x ^ x >> 29;
}

static struct index index_make(size_t count)
{
	struct index in = { .mask = 64 };

	while (in.mask < 2 * count)
		in.mask *= 2;
	in.slots = trace_alloc(in.mask * sizeof *in.slots);
	in.mask--;
	return in;
}

static void index_put(struct index *in, uint64_t hash, uint32_t call)
{
	while (in->slots[hash & in->mask])
		hash++;
	in->slots[hash & in->mask] = call + 1;
}

static struct trace_call *find_by_id(struct trace_data *d, const struct index *in, uint32_t process,
				     uint32_t thread, uint32_t id)
{
	for (uint64_t h = mix(process, thread, id); in->slots[h & in->mask]; h++) {
		struct trace_call *c = &d->calls[in->slots[h & in->mask] - 1];

		if (c->process == process && c->thread == thread && c->id == id)
			return c;
	}
	return NULL;
}

static struct trace_call *find_by_op(struct trace_data *d, const struct index *in, uint32_t group,
				     uint64_t op, uint32_t rank)
{
	for (uint64_t h = mix(group, op, rank); in->slots[h & in->mask]; h++) {
		struct trace_call *c = &d->calls[in->slots[h & in->mask] - 1];

		if (c->group == group && c->rank == rank && op >= c->op && op < c->op + c->ops)
			return c;
	}
	return NULL;
}

static size_t ops_count(const struct trace_data *d)
{
	size_t n = 0;

	for (size_t i = 0; i < d->calls_count; i++)
		n += d->calls[i].group ? d->calls[i].ops : 0;
	return n;
}

static struct index index_by_id(const struct trace_data *d)
{
	struct index by_id = index_make(d->calls_count);

	for (uint32_t i = 0; i < d->calls_count; i++)
		if (d->calls[i].id) /* nothing refers to the others, and they are many */
			index_put(&by_id,
				  mix(d->calls[i].process, d->calls[i].thread, d->calls[i].id), i);
	return by_id;
}

static struct index index_by_op(const struct trace_data *d)
{
	struct index by_op = index_make(ops_count(d));

	for (uint32_t i = 0; i < d->calls_count; i++) {
		const struct trace_call *c = &d->calls[i];

		for (uint64_t op = c->op; c->group && op < c->op + c->ops; op++)
			index_put(&by_op, mix(c->group, op, c->rank), i);
	}
	return by_op;
}

/* ---- copies ------------------------------------------------------------------------------ */

static void count_received(struct trace_call *c, const struct trace_copied *copy)
{
	if (copy->mover == TRACE_CHANNEL || copy->mover == TRACE_WORKER)
		c->channel += copy->bytes;
	else if (copy->by == c->rank)
		c->own += copy->bytes;
	else
		c->peers += copy->bytes;
}

/* Converts a rank number, possibly a TRACE_TO_ constant, into a range of ranks of a group. */
static void range_of(uint32_t end, uint32_t ranks, uint32_t *out_first, uint32_t *out_end)
{
	bool is_one =
		end != TRACE_FROM_ALL && end != TRACE_TO_EACH && end != TRACE_TO_EACH_BUT_FIRST;

	*out_first = is_one ? end : end == TRACE_TO_EACH_BUT_FIRST;
	*out_end = is_one ? end + 1 : ranks;
}

/* Returns: the size of the largest group. Reductions go to all; ranks without known calls are
 * skipped. */
static uint32_t ranks_most(const struct trace_data *d)
{
	uint32_t most = 0;

	for (size_t i = 0; i < d->calls_count; i++)
		most = base_max_u64(most, d->calls[i].ranks);
	return most;
}

static void join_copy(struct trace_data *d, const struct index *by_op, struct trace_copied *copy,
		      uint32_t ranks)
{
	struct trace_call *from = find_by_op(d, by_op, copy->group, copy->op, copy->src);
	uint32_t r, end;

	for (range_of(copy->dst, ranks, &r, &end); r < end; r++) {
		struct trace_call *to = find_by_op(d, by_op, copy->group, copy->op, r);

		if (!to)
			continue;
		copy->call = (uint32_t)(to - d->calls);
		count_received(to, copy);
		to->done_ns = base_max_u64(to->done_ns, copy->end_ns);
	}
	if (from)
		from->done_ns = base_max_u64(from->done_ns, copy->end_ns);
}

static void join_copies(struct trace_data *d, const struct index *by_op)
{
	uint32_t ranks = ranks_most(d);

	for (size_t i = 0; i < d->copies_count; i++)
		join_copy(d, by_op, &d->copies[i], ranks);
}

/* ---- what was left ----------------------------------------------------------------------- */

static double *own_speeds(const struct trace_data *d)
{
	double *speed = trace_alloc(d->processes_count * sizeof *speed);
	uint64_t *ns = trace_alloc(d->processes_count * sizeof *ns);

	for (size_t i = 0; i < d->copies_count; i++) {
		const struct trace_copied *c = &d->copies[i];

		if (!c->end_ns || c->mover == TRACE_CHANNEL || c->mover == TRACE_WORKER)
			continue;
		speed[c->process] += (double)c->bytes;
		ns[c->process] += c->end_ns - c->begin_ns;
	}
	for (size_t p = 0; p < d->processes_count; p++)
		speed[p] = ns[p] ? speed[p] / (double)ns[p] : (double)OS_COPY_BYTES_PER_NS;
	free(ns);
	return speed;
}

/* Returns: when the last rank that exchanges data with this one had arrived. */
static uint64_t partners_came(struct trace_data *d, const struct index *by_op,
			      const struct trace_call *c)
{
	uint64_t last = 0;

	for (uint32_t r = 0; r < c->ranks; r++) {
		const struct trace_call *other =
			r == c->rank ? NULL : find_by_op(d, by_op, c->group, c->op, r);

		if (other && (c->is_root || r == c->root))
			last = base_max_u64(last, other->begin_ns);
	}
	return last;
}

/* Returns: the time until which the program ran on. */
static uint64_t free_until(const struct trace_call *c, const struct trace_detached *l)
{
	uint64_t done = c->done_ns ? c->done_ns : l->end_ns;

	return l->wanted_ns ? base_min_u64(l->wanted_ns, done) : done;
}

static bool is_by_others(const struct trace_call *c, const struct trace_copied *copy)
{
	return copy->mover == TRACE_CHANNEL || copy->mover == TRACE_WORKER || copy->by != c->rank;
}

/* Returns: bytes of a copy moved in an interval; of a row of fragments, by its share of the
 * time. */
static uint64_t moved_between(const struct trace_copied *copy, uint64_t from, uint64_t to)
{
	uint64_t begin = base_max_u64(copy->begin_ns, from), end = base_min_u64(copy->end_ns, to);

	if (!copy->more)
		return copy->end_ns > from && copy->end_ns <= to ? copy->bytes : 0;
	if (begin >= end)
		return 0;
	return (uint64_t)((double)copy->bytes * (double)(end - begin) /
			  (double)(copy->end_ns - copy->begin_ns));
}

/* Returns: bytes of each detached call that others moved while the program ran on. */
static uint64_t *moved_meanwhile(struct trace_data *d, const struct index *by_op)
{
	uint64_t *bytes = trace_alloc(d->detached_count * sizeof *bytes);
	uint32_t ranks = ranks_most(d);

	for (size_t i = 0; i < d->copies_count; i++) {
		const struct trace_copied *copy = &d->copies[i];
		/* of a reduction: the receivers */
		uint32_t ends[2] = { copy->src == TRACE_FROM_ALL ? copy->dst : copy->src,
				     copy->dst },
			 r, end;

		for (int k = 0; k < (ends[0] == ends[1] ? 1 : 2) && copy->end_ns; k++) {
			for (range_of(ends[k], ranks, &r, &end); r < end; r++) {
				const struct trace_call *c =
					find_by_op(d, by_op, copy->group, copy->op, r);

				if (c && c->detached != TRACE_NO_CALL && is_by_others(c, copy))
					bytes[c->detached] += moved_between(
						copy, c->end_ns,
						free_until(c, &d->detached[c->detached]));
			}
		}
	}
	return bytes;
}

static void judge(struct trace_data *d, const struct index *by_op)
{
	uint64_t *bytes = moved_meanwhile(d, by_op);
	double *speed = own_speeds(d);

	for (size_t i = 0; i < d->detached_count; i++) {
		struct trace_detached *l = &d->detached[i];
		const struct trace_call *c = l->call == TRACE_NO_CALL ? NULL : &d->calls[l->call];
		uint64_t until, came, from, moving;

		if (!c || c->outcome == TRACE_STARTED)
			continue; /* the program has waited or tested */
		until = free_until(c, l);
		came = base_min_u64(partners_came(d, by_op, c), until);
		from = base_max_u64(c->end_ns, came);
		moving = until > from ? until - from : 0;
		l->saved_ns = came > c->end_ns ? came - c->end_ns : 0;
		l->saved_ns +=
			base_min_u64(moving, (uint64_t)((double)bytes[i] / speed[c->process]));
		l->cost_ns = c->end_ns > l->begin_ns ? c->end_ns - l->begin_ns : 0;
		l->cost_ns *= l->wanted_ns ? 2 : 1;
	}
	free(bytes);
	free(speed);
}

/* A request whose call was recorded before its operation was known: its end names the
 * collective. */
static void join_requests(struct trace_data *d, const struct index *by_id)
{
	for (uint32_t i = 0; i < d->detached_count; i++) {
		const struct trace_detached *l = &d->detached[i];
		struct trace_call *c =
			l->group ? find_by_id(d, by_id, l->process, l->caller, l->id) : NULL;

		if (!c || c->ops)
			continue;
		c->op = l->op;
		c->ops = 1;
		c->group = l->group;
		c->rank = l->rank;
		c->ranks = l->ranks;
	}
}

static void join_detached(struct trace_data *d, const struct index *by_id)
{
	for (uint32_t i = 0; i < d->detached_count; i++) {
		struct trace_detached *l = &d->detached[i];
		struct trace_call *c = find_by_id(d, by_id, l->process, l->caller, l->id);

		if (!c)
			continue;
		l->call = (uint32_t)(c - d->calls);
		c->detached = i;
		/* the next Sluice call retires it, perhaps long after its data is in place */
		if (c->outcome != TRACE_STARTED && c->done_ns >= l->begin_ns &&
		    c->done_ns < l->end_ns)
			l->end_ns = c->done_ns;
	}
	for (size_t i = 0; i < d->touches_count; i++) {
		struct trace_touch *t = &d->touches[i];
		struct trace_call *c = find_by_id(d, by_id, t->process, t->caller, t->id);

		if (c)
			t->call = (uint32_t)(c - d->calls);
	}
}

/* ---- places ------------------------------------------------------------------------------ */

static void sum_places(struct trace_data *d)
{
	for (size_t i = 0; i < d->calls_count; i++) {
		const struct trace_call *c = &d->calls[i];
		struct trace_place *p = &d->places[c->place];

		p->own += c->own;
		p->peers += c->peers;
		p->channel += c->channel;
		p->received += c->own + c->peers + c->channel;
		p->mapped += c->region == TRACE_REGION_MAPPED;
		p->plain += c->region == TRACE_REGION_PLAIN;
		p->packed += c->region == TRACE_REGION_PACKED;
	}
	for (size_t i = 0; i < d->detached_count; i++) {
		const struct trace_detached *l = &d->detached[i];
		struct trace_place *p =
			l->call == TRACE_NO_CALL ? NULL : &d->places[d->calls[l->call].place];

		if (!p)
			continue;
		p->detached_ns += l->end_ns - l->begin_ns;
		p->waited_ns += l->waited_ns;
		p->saved_ns += l->saved_ns;
		p->cost_ns += l->cost_ns;
		if (d->calls[l->call].outcome == TRACE_STARTED) {
			p->started++;
			continue;
		}
		p->unseen += !l->wanted_ns;
		p->called += l->wanted_ns && l->by_call;
		p->touched += l->wanted_ns && !l->by_call;
	}
}

void trace_join(struct trace_data *d)
{
	struct index by_id, by_op;

	by_id = index_by_id(d);
	join_requests(d, &by_id);
	by_op = index_by_op(d);
	join_copies(d, &by_op);
	join_detached(d, &by_id);
	judge(d, &by_op);
	sum_places(d);
	trace_late(d);
	free(by_id.slots);
	free(by_op.slots);
}
