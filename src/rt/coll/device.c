/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives on memory of GPUs (ADR 43): one rank of each GPU copies what its ranks receive.
 *
 *   announce   all ranks: where my buffers lie, and on which GPU
 *   open       ranks that copy: the allocations of the others
 *   agree      all ranks: could each open what it needs?
 *   copy       ranks that copy: one copy for each part, then wait for all of them
 *   agree      all ranks: are all copies complete? So no buffer is used when its call returns
 *
 * All ranks decide by the same announcements and agreements, so they all go the same way. Copies
 * write to receive buffers only: after one that fails the host MPI executes the whole call.
 */
#include <errno.h>
#include <stdlib.h>

#include "cuda/cuda.h"
#include "rt/coll/run.h"
#include "rt/trials.h"

struct announcement {
	uint64_t memory;               /* enum rt_memory */
	uint64_t bytes, kind_and_root; /* of the call: they differ in wrong programs only */
	struct cuda_gpu gpu;
	struct cuda_memory sent, received;
	uint32_t in_place;
	uint32_t is_alone; /* others cannot open one of the buffers */
};
enum { WORDS = sizeof(struct announcement) / sizeof(uint64_t) };

/* By rank. One call of the communicator at a time uses it. */
struct device_room {
	struct announcement *all;
	uint64_t op;  /* number of the exchange, for the trace */
	int *copiers; /* of what the rank receives */
	struct cuda_peer **received;
	struct cuda_peer *sent[]; /* open buffers; then `received` */
};

/* ---- creation ---------------------------------------------------------------------------- */

int device_room_create(struct rt_comm *c)
{
	size_t n = (size_t)c->size;
	struct device_room *d;

	if (base_likely(!base_opt.device))
		return 0;
	d = calloc(1, sizeof(*d) + n * (2 * sizeof(d->sent[0]) + sizeof(d->all[0]) +
					sizeof(d->copiers[0])));
	if (!d)
		return -ENOMEM;
	d->received = &d->sent[n];
	d->all = (struct announcement *)&d->sent[2 * n];
	d->copiers = (int *)&d->all[n];
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

/* Does this rank receive bytes that `peer` sends? */
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

/* Do others receive what this rank sends? */
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

static char *received_buffer(const struct coll_call *call)
{
	return call->kind == COLL_BCAST ? call->send.buf.addr : call->recv.buf.addr;
}

/* Describes a buffer if it is used. Returns: whether it lies on the GPU, where it is used. */
static bool describe(const struct coll_side *side, const void *at, struct cuda_memory *out,
		     bool *has_handle)
{
	uint64_t bytes = side->buf.bytes - (uint64_t)((const char *)at - (char *)side->buf.addr);
	int ret;

	*out = (struct cuda_memory){ 0 };
	*has_handle = true;
	if (!side->count)
		return true;
	ret = cuda_describe(at, bytes, out);
	*has_handle = !ret;
	return !ret || ret == -ENOTSUP;
}

static bool describe_both(const struct coll_call *call, int rank, struct announcement *out)
{
	bool sent_in_recv = call->kind == COLL_ALLGATHER && call->in_place;
	bool recv_is_sent = call->kind == COLL_BCAST;
	bool sent_ok, received_ok;

	if (cuda_begin(&out->gpu) ||
	    !describe(sent_in_recv ? &call->recv : &call->send, sent_buffer(call, rank), &out->sent,
		      &sent_ok) ||
	    !describe(recv_is_sent ? &call->send : &call->recv, received_buffer(call),
		      &out->received, &received_ok))
		return false;
	out->is_alone = !sent_ok || !received_ok;
	return sent_ok || !is_read(call, rank);
}

static void announce(const struct coll_call *call, int rank, enum rt_memory memory,
		     struct announcement *out)
{
	*out = (struct announcement){ .memory = memory,
				      .in_place = call->in_place,
				      .bytes = call->bytes,
				      .kind_and_root =
					      (uint64_t)call->kind << 32 | (uint32_t)call->root };
	if (memory == RT_MEMORY_DEVICE && !describe_both(call, rank, out))
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

/* ---- copies ------------------------------------------------------------------------------ */

/* Do these ranks share a GPU, and can each open the other's buffers? */
static bool shares(const struct announcement *all, int a, int b)
{
	return !all[a].is_alone && !all[b].is_alone && all[a].gpu.id[0] == all[b].gpu.id[0] &&
	       all[a].gpu.id[1] == all[b].gpu.id[1];
}

/*
 * The rank that copies what `rank` receives: one of each GPU copies for all that share it. A GPU
 * gives each process in turn a slice of 0.15 ms, so that two that copy take 0.3 ms for 64 KB (ADR
 * 43). A rank whose buffers others cannot open copies for itself.
 */
static int elect(const struct announcement *all, int root, int rank)
{
	int i = 0;

	if (all[rank].is_alone)
		return rank;
	if (root >= 0 && shares(all, rank, root))
		return root;
	while (!shares(all, rank, i))
		i++;
	return i;
}

/* Returns: where the bytes for this rank begin in the send buffer of any rank. */
static uint64_t offset_of(const struct coll_call *call, int rank)
{
	return call->kind == COLL_SCATTER || call->kind == COLL_ALLTOALL
		       ? (uint64_t)rank * call->bytes
		       : 0;
}

/* Returns: where the bytes of this rank begin in the receive buffer of any rank. */
static uint64_t place_of(const struct coll_call *call, int rank)
{
	return call->kind == COLL_BCAST || call->kind == COLL_SCATTER
		       ? 0
		       : (uint64_t)rank * call->bytes;
}

/* Is this the rank that copies from `peer` to `rank`? */
static bool copies(const struct rt_comm *c, const struct coll_call *call, int rank, int peer)
{
	return reads_from(call, rank, peer) && !(peer == rank && c->device->all[rank].in_place) &&
	       c->device->copiers[rank] == c->rank;
}

/* Opens a buffer of another rank, once for a call. */
static bool open_one(struct rt_comm *c, int rank, const struct cuda_memory *m, uint64_t end,
		     struct cuda_peer **out)
{
	if (rank == c->rank || *out)
		return true;
	return end <= m->bytes - m->at && !cuda_open(node_pid(c->group, rank), m, out);
}

static bool open_all(struct rt_comm *c, const struct coll_call *call)
{
	struct device_room *d = c->device;

	for (int rank = 0; rank < c->size; rank++)
		d->copiers[rank] = elect(d->all, call->root, rank);
	for (int rank = 0; rank < c->size; rank++)
		for (int peer = 0; peer < c->size; peer++)
			if (copies(c, call, rank, peer) &&
			    (!open_one(c, peer, &d->all[peer].sent,
				       offset_of(call, rank) + call->bytes, &d->sent[peer]) ||
			     !open_one(c, rank, &d->all[rank].received,
				       place_of(call, peer) + call->bytes, &d->received[rank])))
				return false;
	return true;
}

static char *received_by(const struct rt_comm *c, const struct coll_call *call, int rank)
{
	const struct device_room *d = c->device;

	return rank == c->rank ? received_buffer(call)
			       : cuda_address(d->received[rank], &d->all[rank].received);
}

/* Begins a copy to the receive buffer of a rank. `peer`: it has the bytes. */
static bool copy_to(struct rt_comm *c, const struct coll_call *call, int rank, uint64_t at,
		    int peer, const char *from, uint64_t bytes)
{
	base_count(BASE_CTR_BYTES_DEVICE, bytes);
	trace_copied(0, .bytes = bytes, .op = c->device->op, .group = node_id(c->group),
		     .src = peer, .dst = rank, .by = c->rank, .mover = TRACE_CHANNEL);
	return !cuda_copy(received_by(c, call, rank) + at, from, bytes);
}

static bool copy_parts(struct rt_comm *c, const struct coll_call *call, int rank)
{
	struct device_room *d = c->device;
	bool ok = true;

	for (int peer = 0; ok && peer < c->size; peer++) {
		const char *from = NULL;

		if (!copies(c, call, rank, peer))
			continue;
		from = peer == c->rank ? sent_buffer(call, peer)
				       : cuda_address(d->sent[peer], &d->all[peer].sent);
		ok = copy_to(c, call, rank, place_of(call, peer), peer,
			     from + offset_of(call, rank), call->bytes);
	}
	return ok;
}

/* The result of an allgather from this rank's receive buffer, where earlier copies put it: one copy
 * in place of one for each part, which all take 5 us to begin. In place, the own part stays. */
static bool copy_result(struct rt_comm *c, const struct coll_call *call, int rank)
{
	const char *result = received_buffer(call);
	uint64_t end = (uint64_t)c->size * call->bytes, own = end, after = end;

	if (c->device->all[rank].in_place) {
		own = (uint64_t)rank * call->bytes;
		after = own + call->bytes;
	}
	return (!own || copy_to(c, call, rank, 0, c->rank, result, own)) &&
	       (after == end ||
		copy_to(c, call, rank, after, c->rank, result + after, end - after));
}

/* This rank is first, as an allgather copies the results of the others from its own. */
static bool copy_all(struct rt_comm *c, const struct coll_call *call)
{
	bool ok = true;

	for (int k = 0; ok && k < c->size; k++) {
		int rank = (c->rank + k) % c->size;

		if (c->device->copiers[rank] == c->rank)
			ok = k && call->kind == COLL_ALLGATHER ? copy_result(c, call, rank)
							       : copy_parts(c, call, rank);
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
static int open_and_copy(struct rt_comm *c, const struct coll_call *call)
{
	int ret = agree(c, call, open_all(c, call));
	bool ok = ret > 0 && copy_all(c, call);

	for (int i = 0; i < 2 * c->size; i++) {
		cuda_put(c->device->sent[i]);
		c->device->sent[i] = NULL;
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
		ret = open_and_copy(c, call);
	if (ret < 0) {
		rt_abandon(c, call->name, ret);
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
