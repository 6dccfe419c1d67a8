/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives on memory of GPUs (ADR 43): each rank pulls what it receives by its own GPU.
 *
 *   announce   all ranks: where my buffers lie, and the allocation that others copy from
 *   open       each rank: the allocations that it copies from
 *   agree      all ranks: could every rank open what it needs?
 *   pull       each rank: one copy for each part, then wait for all of them
 *   agree      all ranks: are all copies complete? So no buffer is used when its call returns
 *
 * All ranks decide by the same announcements and agreements, so they all go the same way. A pull
 * writes to receive buffers only: after one that fails the host MPI executes the whole call.
 */
#include <errno.h>
#include <stdlib.h>

#include "cuda/cuda.h"
#include "rt/coll/run.h"
#include "rt/trials.h"

struct announcement {
	uint64_t memory;               /* enum rt_memory */
	uint64_t bytes, kind_and_root; /* of the call: they differ in wrong programs only */
	struct cuda_memory sent;
};
enum { WORDS = sizeof(struct announcement) / sizeof(uint64_t) };

/* By rank. One call of the communicator at a time uses it. */
struct device_room {
	struct announcement *all;
	uint64_t op; /* number of the exchange, for the trace */
	struct cuda_peer *open[];
};

/* ---- creation ---------------------------------------------------------------------------- */

int device_room_create(struct rt_comm *c)
{
	size_t n = (size_t)c->size;
	struct device_room *d;

	if (base_likely(!base_opt.device))
		return 0;
	d = calloc(1, sizeof(*d) + n * (sizeof(d->open[0]) + sizeof(d->all[0])));
	if (!d)
		return -ENOMEM;
	d->all = (struct announcement *)&d->open[n];
	c->device = d;
	return 0;
}

bool rt_device_is_asked(enum coll kind, uint64_t bytes)
{
	const uint32_t kinds = 1u << COLL_BCAST | 1u << COLL_GATHER | 1u << COLL_SCATTER |
			       1u << COLL_ALLGATHER | 1u << COLL_ALLTOALL;

	return base_unlikely(base_opt.device) && bytes >= base_opt.coll_threshold_bytes &&
	       kinds >> kind & 1;
}

/* ---- announcements ----------------------------------------------------------------------- */

/* Does this rank copy from the send buffer of `peer`? */
static bool reads_from(const struct coll_call *call, int rank, int peer)
{
	switch (call->kind) {
	case COLL_BCAST:
		return peer == call->root && rank != peer;
	case COLL_SCATTER:
		return peer == call->root;
	case COLL_GATHER:
		return rank == call->root;
	default:
		return true;
	}
}

/* Do others copy from this rank's send buffer? */
static bool is_read(const struct coll_call *call, int rank)
{
	switch (call->kind) {
	case COLL_BCAST:
	case COLL_SCATTER:
		return rank == call->root;
	case COLL_GATHER:
		return rank != call->root;
	default:
		return true;
	}
}

/* Returns: the send buffer; in place, the own part of the receive buffer. */
static const char *sent_buffer(const struct coll_call *call, int rank)
{
	if (call->kind == COLL_ALLGATHER && call->in_place)
		return (const char *)call->recv.buf.addr + (uint64_t)rank * call->bytes;
	return call->send.buf.addr;
}

static bool is_on_gpu(const struct coll_side *side)
{
	return !side->count || !cuda_describe(side->buf.addr, side->buf.bytes, NULL);
}

static void announce(const struct coll_call *call, int rank, enum rt_memory memory,
		     struct announcement *out)
{
	uint64_t bytes = call->kind == COLL_ALLGATHER ? call->bytes : call->send.buf.bytes;

	*out = (struct announcement){ .memory = memory,
				      .bytes = call->bytes,
				      .kind_and_root =
					      (uint64_t)call->kind << 32 | (uint32_t)call->root };
	if (memory == RT_MEMORY_DEVICE &&
	    (cuda_begin() || !is_on_gpu(&call->send) || !is_on_gpu(&call->recv) ||
	     (is_read(call, rank) && cuda_describe(sent_buffer(call, rank), bytes, &out->sent))))
		out->memory = RT_MEMORY_OTHER;
}

/* An allgather of the announcements, which travel in the slots. */
static int exchange(struct rt_comm *c, const struct coll_call *call, struct announcement *mine)
{
	const struct coll_part sent = { 0, sizeof(*mine) };
	const struct exec_shape shape = {
		.kind = COLL_ALLGATHER, .root = -1, .send = &sent, .recv = c->parts[1]
	};
	const struct buffer from = { .addr = (char *)mine,
				     .desc = admit_describe_words((uint64_t *)mine, WORDS) };
	const struct buffer to = { .addr = (char *)c->device->all,
				   .desc = { .addr = (uintptr_t)c->device->all,
					     .bytes = (uint64_t)c->size * sizeof(*mine) } };
	struct exec_call e = run_describe(c, call, &from, &to);
	struct exec_run *r;
	int ret;

	runs_enter(c);
	for (int i = 0; i < c->size; i++)
		c->parts[1][i] = (struct coll_part){ (uint64_t)i * sizeof(*mine), sizeof(*mine) };
	e.shape = &shape;
	ret = run_begin(c, &e, &r);
	if (!ret) {
		c->device->op = exec_number(r);
		ret = exec_wait(r);
	}
	runs_exit(c);
	return ret;
}

/* Ranks whose calls differ leave it to the host MPI to say so. */
static enum rt_device decide(const struct rt_comm *c)
{
	const struct announcement *all = c->device->all;
	bool is_device = true, is_host = true;

	for (int i = 0; i < c->size; i++) {
		is_host &= all[i].memory == RT_MEMORY_HOST;
		is_device &= all[i].memory == RT_MEMORY_DEVICE && all[i].bytes == all[0].bytes &&
			     all[i].kind_and_root == all[0].kind_and_root;
	}
	return is_host ? RT_DEVICE_NONE : is_device ? RT_DEVICE_DONE : RT_DEVICE_PASSED;
}

/* ---- pulls ------------------------------------------------------------------------------- */

/* Returns: where the bytes for this rank begin in the send buffer of any rank. */
static uint64_t offset_of(const struct coll_call *call, int rank)
{
	return call->kind == COLL_SCATTER || call->kind == COLL_ALLTOALL
		       ? (uint64_t)rank * call->bytes
		       : 0;
}

static bool open_all(struct rt_comm *c, const struct coll_call *call)
{
	struct device_room *d = c->device;

	for (int i = 0; i < c->size; i++) {
		const struct cuda_memory *m = &d->all[i].sent;

		if (i == c->rank || !reads_from(call, c->rank, i))
			continue;
		if (offset_of(call, c->rank) + call->bytes > m->bytes - m->at ||
		    cuda_open(node_pid(c->group, i), m, &d->open[i]))
			return false;
	}
	return true;
}

static bool pull_from(struct rt_comm *c, const struct coll_call *call, int peer)
{
	const struct coll_side *to = call->kind == COLL_BCAST ? &call->send : &call->recv;
	const char *from =
		peer == c->rank ? sent_buffer(call, peer)
				: cuda_address(c->device->open[peer], &c->device->all[peer].sent);
	char *at = to->buf.addr;

	if (call->kind != COLL_BCAST && call->kind != COLL_SCATTER)
		at += (uint64_t)peer * call->bytes;
	base_count(BASE_CTR_BYTES_DEVICE, call->bytes);
	trace_copied(0, .bytes = call->bytes, .op = c->device->op, .group = node_id(c->group),
		     .src = peer, .dst = c->rank, .by = c->rank, .mover = TRACE_CHANNEL);
	return !cuda_copy(at, from + offset_of(call, c->rank), call->bytes);
}

/* Begins with the next rank, so that not all ranks copy from the same one first. */
static bool pull_all(struct rt_comm *c, const struct coll_call *call)
{
	bool ok = true;

	for (int k = 1; ok && k <= c->size; k++) {
		int peer = (c->rank + k) % c->size;

		if (reads_from(call, c->rank, peer) && !(peer == c->rank && call->in_place))
			ok = pull_from(c, call, peer);
	}
	return !cuda_wait() && ok;
}

/* Returns: 1: every rank has succeeded; 0: one has not; -errno. */
static int agree(struct rt_comm *c, const struct coll_call *call, bool ok)
{
	uint64_t mine = ok, all = 0;
	int ret = admit_agree(c, call->name, GOAL_AND, &mine, &all, 1);

	return ret ? ret : all != 0;
}

/* Allocations are given back before the last agreement: after it their owners may free them, and
 * another thread may be told what has taken their place. */
static int open_and_pull(struct rt_comm *c, const struct coll_call *call)
{
	int ret = agree(c, call, open_all(c, call));
	bool ok = ret > 0 && pull_all(c, call);

	for (int i = 0; i < c->size; i++) {
		cuda_put(c->device->open[i]);
		c->device->open[i] = NULL;
	}
	return ret > 0 ? agree(c, call, ok) : ret;
}

int rt_device_collective(struct rt_comm *c, const struct coll_call *call, enum rt_memory memory)
{
	enum rt_device way = RT_DEVICE_PASSED;
	struct announcement mine;
	int ret;

	announce(call, c->rank, memory, &mine);
	ret = exchange(c, call, &mine);
	if (!ret)
		way = decide(c);
	if (way == RT_DEVICE_DONE)
		ret = open_and_pull(c, call);
	if (ret < 0) {
		rt_abandon(c, call, ret);
		return ret;
	}
	if (way == RT_DEVICE_DONE && !ret)
		way = RT_DEVICE_PASSED;
	if (way == RT_DEVICE_PASSED)
		base_count(BASE_CTR_DEVICE_PASSED, 1);
	else if (way == RT_DEVICE_DONE)
		trace_admitted(TRACE_REGION_NONE, call->root, c->rank == call->root);
	return way;
}
