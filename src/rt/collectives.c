/* SPDX-License-Identifier: BSD-3-Clause */
/* A taken collective: describe the buffers, build the schedule, run it, piece by piece. */
#include <errno.h>
#include <string.h>

#include "rt/private.h"

#define SCRATCH_KEPT ((uint64_t)16 << 20) /* longer scratch memory goes back after the call */

/* A buffer of the program while a collective uses it. */
struct side {
	const struct rt_buf *buf; /* NULL: this rank has none */
	struct region_extent *scratch;
	struct region_desc desc;
	char *addr;
};

static bool is_packed(const struct side *s) { return s->buf && s->buf->pack; }

/* What was left and names this memory is completed first. */
static void clear_way(const struct rt_buf *buf)
{
	if (buf && !buf->pack)
		rt_complete_range(buf->addr, buf->bytes);
	else if (buf)
		rt_complete_all();
}

/* A buffer with gaps takes part by its packed form, piece by piece, in scratch memory that peers can
 * reach; a contiguous one takes part as it is, whole. */
static int side_begin(struct side *s, const struct rt_buf *buf, struct region_extent *scratch, uint64_t scratch_bytes)
{
	int ret;

	*s = (struct side){ .buf = buf, .scratch = scratch };
	if (!buf)
		return 0;
	if (!is_packed(s)) {
		s->addr = buf->addr;
		region_describe(buf->addr, buf->bytes, policy_intent(base_opt.region_kind), &s->desc);
		return 0;
	}
	base_count(BASE_CTR_PACKED, 1);
	if (scratch->bytes < scratch_bytes) {
		if (scratch->bytes)
			region_extent_put(scratch);
		scratch->bytes = 0;
		ret = region_extent_get(scratch_bytes, false, scratch);
		if (ret)
			return ret;
	}
	s->addr = (char *)region_arena_base() + scratch->offset;
	region_describe_extent(scratch, scratch_bytes, &s->desc);
	return 0;
}

static enum trace_region region_of(const struct side *s)
{
	return is_packed(s) ? TRACE_REGION_PACKED :
	       s->desc.flags & REGION_DESC_MAPPED ? TRACE_REGION_MAPPED : TRACE_REGION_PLAIN;
}

static void side_end(struct side *s)
{
	if (!s->buf)
		return;
	region_release(&s->desc); /* a call that was left has taken it over */
	if (is_packed(s) && s->scratch->bytes > SCRATCH_KEPT) {
		region_extent_put(s->scratch);
		s->scratch->bytes = 0;
	}
}

/* How a call may end: `left` and then *out_left, when nothing has to be done after it. */
struct ending {
	struct leave leave;
	bool may_leave, left;
};

static int run(struct rt_comm *c, struct goal_build *b, struct side *send, struct side *recv, struct ending *end)
{
	struct exec_call call = {
		.schedule = c->block,
		.user = { send->addr, recv ? recv->addr : NULL },
		.desc = { [COLL_SEND] = send->desc },
		.prefer_vm = c->prefer_vm,
		.name = end->leave.name,
	};
	struct exec_run *r;
	int ret = goal_compile(b, c->block, c->block_cap);

	if (recv)
		call.desc[COLL_RECV] = recv->desc;
	if (!ret)
		ret = exec_begin(c->exec, &call, &r);
	while (ret == -EBUSY) { /* EXEC_SLOTS collectives of this communicator are in flight */
		pending_complete_run(r);
		ret = exec_begin(c->exec, &call, &r);
	}
	if (ret)
		return ret;
	if (!end->may_leave)
		return exec_wait(r);
	end->leave.descs[0] = &send->desc;
	end->leave.descs[1] = recv ? &recv->desc : NULL;
	return leave_or_wait(c, r, &end->leave, &end->left);
}

static void begin_build(struct rt_comm *c, struct goal_build *b)
{
	uint32_t cap = coll_ops_max(node_size(c->group));

	goal_build_init(b, c->ops, cap, c->edges, cap);
}

/* After an error the communicator is of no more use to Sluice, and no peer may wait for this rank. */
static int finish(struct rt_comm *c, int ret, const char *name)
{
	if (base_likely(!ret))
		return 0;
	if (ret != -EOWNERDEAD)
		base_log(BASE_LOG_ERROR, "rt", "%s: %s", name, strerror(-ret));
	exec_abandon(c->exec, ret);
	return ret;
}

/* Tests cut small messages. */
static uint64_t piece_bytes(uint64_t bytes, int parts)
{
	return base_fault("piece") ? base_min_u64(bytes, 5 * HOST_PAGE + 123) : policy_piece_bytes(bytes, parts);
}

int rt_bcast(struct rt_comm *c, struct rt_buf *buf, int root, const void *site)
{
	uint64_t piece = piece_bytes(buf->bytes, 1);
	int rank = node_rank(c->group), ret;
	struct ending end = {
		.leave = { .name = "MPI_Bcast", .site = site, .is_root = rank == root, .bytes = buf->bytes,
			   .partner_bytes = buf->bytes },
		.may_leave = !buf->pack && piece >= buf->bytes,
	};
	struct goal_build b;
	struct side s;

	host_call_begin();
	rt_reap();
	clear_way(buf);
	ret = side_begin(&s, buf, &c->scratch[0], piece);
	trace_taken(region_of(&s), root, rank == root);
	for (uint64_t at = 0; at < buf->bytes && !ret; at += piece) {
		uint64_t n = base_min_u64(piece, buf->bytes - at);

		if (is_packed(&s) && rank == root)
			ret = buf->pack(buf->ctx, at, n, s.addr);
		if (ret)
			break;
		begin_build(c, &b);
		coll_bcast(&b, rank, node_size(c->group), root, is_packed(&s) ? 0 : at, n);
		ret = run(c, &b, &s, NULL, &end);
		if (!ret && is_packed(&s) && rank != root)
			ret = buf->unpack(buf->ctx, at, n, s.addr);
	}
	side_end(&s);
	host_call_end();
	base_count(BASE_CTR_BCAST_TAKEN, 1);
	return finish(c, ret, "MPI_Bcast");
}

/* The root's receive buffer has gaps: put every rank's part of this piece where it belongs. */
static int gather_unpack(struct rt_comm *c, const struct side *recv, uint64_t bytes, uint64_t at, uint64_t n, int skip)
{
	int ret = 0;

	for (int r = 0; r < node_size(c->group) && !ret; r++)
		if (r != skip)
			ret = recv->buf->unpack(recv->buf->ctx, (uint64_t)r * bytes + at, n,
						recv->addr + (uint64_t)r * n);
	return ret;
}

int rt_gather(struct rt_comm *c, const struct rt_buf *send, struct rt_buf *recv, uint64_t bytes, int root,
	      const void *site)
{
	int rank = node_rank(c->group), size = node_size(c->group), ret;
	uint64_t piece = piece_bytes(bytes, size);
	struct ending end = {
		.leave = { .name = "MPI_Gather", .site = site, .is_root = rank == root,
			   .bytes = rank == root ? bytes * (uint64_t)size : bytes, .partner_bytes = bytes },
		.may_leave = !(send && send->pack) && !(rank == root && recv->pack) && piece >= bytes,
	};
	struct side s, d = { 0 };
	struct goal_build b;

	host_call_begin();
	rt_reap();
	clear_way(send);
	clear_way(rank == root ? recv : NULL);
	ret = side_begin(&s, send, &c->scratch[0], piece);
	if (!ret)
		ret = side_begin(&d, rank == root ? recv : NULL, &c->scratch[1], piece * (uint64_t)size);
	trace_taken(region_of(rank == root ? &d : &s), root, rank == root);
	for (uint64_t at = 0; at < bytes && !ret; at += piece) {
		uint64_t n = base_min_u64(piece, bytes - at);
		struct coll_gather_shape shape = {
			.bytes = n,
			.send_off = is_packed(&s) ? 0 : at,
			.recv_off = is_packed(&d) ? 0 : at,
			.recv_stride = is_packed(&d) ? n : bytes,
			.in_place = !send,
		};

		if (is_packed(&s))
			ret = send->pack(send->ctx, at, n, s.addr);
		if (ret)
			break;
		begin_build(c, &b);
		coll_gather(&b, rank, size, root, &shape);
		ret = run(c, &b, &s, &d, &end);
		if (!ret && is_packed(&d))
			ret = gather_unpack(c, &d, bytes, at, n, send ? -1 : root);
	}
	side_end(&s);
	side_end(&d);
	host_call_end();
	base_count(BASE_CTR_GATHER_TAKEN, 1);
	return finish(c, ret, "MPI_Gather");
}
