/* SPDX-License-Identifier: BSD-3-Clause */
/* A blocking collective that moves data: opens the buffers, builds the schedule, runs it piece by
 * piece. */
#include <errno.h>
#include <string.h>

#include "rt/private.h"
#include "rt/coll/sides.h"

#define SCRATCH_CACHED ((uint64_t)16 << 20) /* longer scratch memory goes back after the call */

/* ---- a buffer of the call ---------------------------------------------------------------- */

void side_complete_pending(const struct coll_side *side)
{
	if (side->count && !side->buf.pack)
		rt_complete_range(side->buf.addr, side->buf.bytes);
	else if (side->count)
		rt_complete_all();
}

static int get_scratch(struct side *s, uint64_t bytes)
{
	int ret;

	if (s->scratch->bytes < bytes) {
		if (s->scratch->bytes)
			region_extent_put(s->scratch);
		s->scratch->bytes = 0;
		ret = region_extent_get(bytes, false, s->scratch);
		if (ret)
			return ret;
	}
	s->addr = (char *)region_arena_base() + s->scratch->offset;
	s->is_packed = true;
	region_describe_extent(s->scratch, bytes, &s->desc);
	return 0;
}

int side_begin(struct side *s, const struct coll_side *of, struct region_extent *scratch,
	       uint64_t scratch_bytes, enum side_memory memory)
{
	*s = (struct side){ .of = of, .scratch = scratch };
	if (!of->count || !of->buf.bytes)
		return 0;
	if (!of->buf.pack && memory != SIDE_COPY) {
		s->addr = of->buf.addr;
		region_describe(of->buf.addr, of->buf.bytes,
				policy_intent(base_opt.region_kind, of->buf.is_shared), &s->desc);
		s->is_unmapped = !(s->desc.flags & REGION_DESC_MAPPED);
		if (memory == SIDE_ANY || !s->is_unmapped)
			return 0;
		region_release(&s->desc);
		s->desc = (struct region_desc){ 0 };
	}
	if (of->buf.pack) {
		s->is_unmapped = true;
		base_count(BASE_CTR_PACKED, 1);
	}
	return get_scratch(s, scratch_bytes);
}

enum trace_region side_region(const struct side *s)
{
	return s->is_packed ? TRACE_REGION_PACKED :
	       s->desc.flags & REGION_DESC_MAPPED ? TRACE_REGION_MAPPED : TRACE_REGION_PLAIN;
}

void side_end(struct side *s)
{
	region_release(&s->desc); /* the pending operation of a detached call owns it */
	if (s->is_packed && s->scratch->bytes > SCRATCH_CACHED) {
		region_extent_put(s->scratch);
		s->scratch->bytes = 0;
	}
}

void side_cut(const struct side *s, uint64_t at, uint64_t n, struct coll_part *out)
{
	uint64_t packed = 0;

	for (int i = 0; i < s->of->count; i++) {
		const struct coll_part *p = &s->of->parts[i];
		uint64_t bytes = p->bytes > at ? base_min_u64(p->bytes - at, n) : 0;

		out[i] = (struct coll_part){ s->is_packed ? packed : p->off + at, bytes };
		packed += bytes;
	}
}

static int copy_part(const struct side *s, uint64_t off, const struct coll_part *part,
		     bool is_unpack)
{
	const struct coll_buf *buf = &s->of->buf;
	char *packed = s->addr + part->off, *plain = (char *)buf->addr + off;

	if (!part->bytes)
		return 0;
	if (buf->pack)
		return is_unpack ? buf->unpack(buf->ctx, off, part->bytes, packed) :
				   buf->pack(buf->ctx, off, part->bytes, packed);
	if (is_unpack)
		memcpy(plain, packed, part->bytes);
	else
		memcpy(packed, plain, part->bytes);
	return 0;
}

int side_pack_range(const struct side *s, uint64_t at, uint64_t n)
{
	return s->is_packed ? copy_part(s, at, &(struct coll_part){ 0, n }, false) : 0;
}

int side_unpack_range(const struct side *s, uint64_t at, uint64_t n)
{
	return s->is_packed ? copy_part(s, at, &(struct coll_part){ 0, n }, true) : 0;
}

int side_pack(const struct side *s, uint64_t at, const struct coll_part *parts, int only)
{
	int ret = 0;

	for (int i = 0; s->is_packed && i < s->of->count && !ret; i++)
		if (only < 0 || i == only)
			ret = copy_part(s, s->of->parts[i].off + at, &parts[i], false);
	return ret;
}

int side_unpack(const struct side *s, uint64_t at, const struct coll_part *parts, int skip)
{
	int ret = 0;

	for (int i = 0; s->is_packed && i < s->of->count && !ret; i++)
		if (i != skip)
			ret = copy_part(s, s->of->parts[i].off + at, &parts[i], true);
	return ret;
}

/* ---- how the call ends ------------------------------------------------------------------- */

uint64_t side_bytes(const struct coll_side *s)
{
	uint64_t sum = 0;

	for (int i = 0; i < s->count; i++)
		sum += s->parts[i].bytes;
	return sum;
}

/*
 * May its memory be closed? What lies between the parts may be in use by others, a message that
 * comes in, say. Parts in another order than that of the ranks are not looked at any closer.
 */
static bool may_be_closed(const struct side *s)
{
	uint64_t end = 0;

	for (int i = 0; i < s->of->count; i++) {
		const struct coll_part *p = &s->of->parts[i];

		if (p->bytes && p->off > end)
			return false;
		end = p->bytes ? base_max_u64(end, p->off + p->bytes) : end;
	}
	return !s->is_packed;
}

void ending_begin(struct ending *end, const struct rt_comm *c, const struct coll_call *call,
		  const struct sides *s, bool in_one_run)
{
	uint64_t sent = side_bytes(&call->send), received = side_bytes(&call->recv),
		 bytes = base_max_u64(sent, received);
	const struct coll_side *larger = received >= sent ? &call->recv : &call->send;

	*end = (struct ending){
		.detach = {
			.name = call->name,
			.site = call->site,
			.is_root = node_rank(c->group) == call->root,
			.bytes = bytes,
			.copy_bytes = bytes,
			.partner_copy_bytes = larger->count ? bytes / (uint64_t)larger->count : 0,
		},
		.may_detach = in_one_run && may_be_closed(&s->send) && may_be_closed(&s->recv),
	};
}

int ending_run(struct rt_comm *c, struct exec_run *r, struct ending *end, struct region_desc *send,
	       struct region_desc *recv)
{
	if (!end->may_detach)
		return exec_wait(r);
	end->detach.descs[0] = send;
	end->detach.descs[1] = recv;
	return detach_or_wait(c, r, &end->detach, &end->detached);
}

/* ---- a run ------------------------------------------------------------------------------- */

int run_begin(struct rt_comm *c, const struct exec_call *call, struct exec_run **out)
{
	int ret;

	requests_before_blocking(c);
	ret = exec_begin(c->exec, call, out);
	while (ret == -EBUSY) { /* EXEC_SLOTS collectives of this communicator are in flight */
		pending_complete_run(*out);
		requests_make_room(c);
		ret = exec_begin(c->exec, call, out);
	}
	return ret;
}

int run_shape(struct rt_comm *c, const struct exec_shape *shape, const struct side *send,
	      const struct side *recv, const char *name, struct exec_run **out)
{
	const struct exec_call call = {
		.shape = shape,
		.user = { send->addr, recv->addr },
		.desc = { [COLL_SEND] = send->desc, [COLL_RECV] = recv->desc },
		.prefer_vm = c->prefer_vm,
		.name = name,
	};

	return run_begin(c, &call, out);
}

static int run(struct rt_comm *c, const struct exec_shape *shape, struct side *send,
	       struct side *recv, struct ending *end)
{
	struct exec_run *r;
	int ret = run_shape(c, shape, send, recv, end->detach.name, &r);

	return ret ? ret : ending_run(c, r, end, &send->desc, &recv->desc);
}

/* After an error the communicator is of no more use to Sluice, and no peer may wait for this rank.
 */
void rt_abandon(struct rt_comm *c, const struct coll_call *call, int error)
{
	if (error != -EOWNERDEAD)
		base_log(BASE_LOG_ERROR, "rt", "%s: %s", call->name, strerror(-error));
	exec_abandon(c->exec, error);
}

/* ---- the kinds --------------------------------------------------------------------------- */

/* Does a rank send the same bytes to all, or all to one? */
static bool sends_one_range(enum coll kind)
{
	return kind == COLL_BCAST || coll_pattern(kind) == COLL_GATHER;
}

/* Returns: this rank's part of the receive side, which does not change; -1: all parts arrive. */
static int own_part(const struct coll_call *call, int rank)
{
	return call->in_place && call->kind != COLL_SCATTER && call->kind != COLL_SCATTERV &&
	       coll_pattern(call->kind) != COLL_ALLTOALL && call->recv.count ? rank : -1;
}

bool call_own_part_fits(const struct coll_call *call, int rank)
{
	const struct coll_side *send = &call->send, *recv = &call->recv;

	return call->in_place || call->kind == COLL_BCAST ||
	       call->kind >= COLL_NEIGHBOR_ALLGATHER || !send->count || !recv->count ||
	       send->parts[send->count > 1 ? rank : 0].bytes ==
		       recv->parts[recv->count > 1 ? rank : 0].bytes;
}

/* Bytes of one rank that one run moves. The fault point cuts small messages. */
static uint64_t piece_bytes(const struct coll_call *call, int ranks)
{
	bool is_uniform = !coll_is_local(call->kind) && call->kind != COLL_ALLGATHERV;

	if (!is_uniform)
		return UINT64_MAX;
	return base_fault("piece")
		       ? base_min_u64(call->bytes, 5 * OS_PAGE + 123)
		       : policy_piece_bytes(call->bytes, call->kind == COLL_BCAST ? 1 : ranks);
}

static int run_piece(struct rt_comm *c, const struct coll_call *call, struct sides *s, uint64_t at,
		     uint64_t n, struct ending *end)
{
	int rank = node_rank(c->group), own = own_part(call, rank), ret;
	bool one_buffer = own >= 0 && coll_pattern(call->kind) == COLL_ALLGATHER;
	struct side none = { 0 };
	struct exec_shape shape = {
		.kind = call->kind,
		.root = call->root,
		.send = c->parts[0],
		.recv = c->parts[1],
		/* the copy that is sent in place of a buffer that is received into leaves the own
		   part alone */
		.in_place = call->in_place,
		.sources = call->sources,
		.targets = call->targets,
		.source_count = call->recv.count,
		.target_count = call->target_count,
	};

	side_cut(&s->send, at, n, c->parts[0]);
	side_cut(&s->recv, at, n, c->parts[1]);
	ret = call->kind == COLL_BCAST && rank != call->root
		      ? 0
		      : side_pack(&s->send, at, c->parts[0], -1);
	if (!ret && one_buffer)
		ret = side_pack(&s->recv, at, c->parts[1], own);
	if (!ret)
		ret = run(c, &shape, one_buffer ? &s->recv : &s->send,
			  one_buffer ? &none : &s->recv, end);
	if (!ret && call->kind == COLL_BCAST && rank != call->root)
		ret = side_unpack(&s->send, at, c->parts[0], -1);
	return ret ? ret : side_unpack(&s->recv, at, c->parts[1], call->in_place ? rank : -1);
}

/*
 * Memory that is not mapped is copied by a system call, or from and to memory that is: so it takes
 * part as it is where one of the two can be relied on. A rank that staged would have to stage one
 * range only (exec/exec.h): all but those with one lay out what they send then.
 */
static enum side_memory memory_of(const struct rt_comm *c, const struct coll_call *call,
				  const struct coll_side *side)
{
	bool is_sent = side == &call->send ||
		       (call->in_place &&
			coll_pattern(call->kind) == COLL_ALLGATHER); /* from where it is received */

	if (call->in_place && coll_pattern(call->kind) == COLL_ALLTOALL && side == &call->send)
		return SIDE_COPY;
	return is_sent && !c->prefer_vm && !sends_one_range(call->kind) ? SIDE_MAPPED
									      : SIDE_ANY;
}

static int begin_sides(struct rt_comm *c, const struct coll_call *call, struct sides *s,
		       uint64_t piece)
{
	uint64_t send = side_bytes(&call->send), recv = side_bytes(&call->recv);
	int ret;

	if (piece < call->bytes) {
		send = piece * (uint64_t)call->send.count;
		recv = piece * (uint64_t)call->recv.count;
	}
	s->recv = (struct side){ .of = &call->recv };
	ret = side_begin(&s->send, &call->send, &c->scratch[0], send,
			 memory_of(c, call, &call->send));
	return ret ? ret
		   : side_begin(&s->recv, &call->recv, &c->scratch[1], recv,
				memory_of(c, call, &call->recv));
}

static int move_collective(struct rt_comm *c, const struct coll_call *call)
{
	uint64_t piece = piece_bytes(call, node_size(c->group));
	int rank = node_rank(c->group), ret = -EREMOTEIO;
	struct ending end;
	struct sides s;

	if (call_own_part_fits(call, rank))
		ret = begin_sides(c, call, &s, piece);
	else
		s = (struct sides){ .send = { .of = &call->send }, .recv = { .of = &call->recv } };
	ending_begin(&end, c, call, &s, piece >= call->bytes);
	reuse_note(c, !s.send.is_unmapped && !s.recv.is_unmapped);
	trace_admitted(side_region(s.recv.of->count ? &s.recv : &s.send), call->root,
		    rank == call->root);
	/* those that are not cut run once, also when this rank has nothing in them */
	for (uint64_t at = 0; !ret && (!at || at < call->bytes); at += piece) {
		ret = run_piece(c, call, &s, at, base_min_u64(piece, UINT64_MAX - at), &end);
		if (piece == UINT64_MAX)
			break;
	}
	side_end(&s.send);
	side_end(&s.recv);
	return ret;
}

int rt_collective(struct rt_comm *c, const struct coll_call *call)
{
	int ret;

	host_call_begin();
	rt_reap();
	side_complete_pending(&call->send);
	side_complete_pending(&call->recv);
	requests_enter_blocking(c);
	ret = coll_is_reduce(call->kind) ? reduce_collective(c, call) : move_collective(c, call);
	requests_exit_blocking(c);
	host_call_end();
	if (ret)
		rt_abandon(c, call, ret);
	return ret;
}
