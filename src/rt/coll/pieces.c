/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives that the caller runs piece by piece. */
#include "rt/pieces.h"

#include <errno.h>
#include <stdlib.h>

#include "rt/private.h"
#include "rt/coll/sides.h"

struct rt_pieces {
	struct rt_comm *comm;
	const struct coll_call *call;
	struct sides sides;
	struct coll_side sent, received; /* of exchanges: the parts of one of them */
};

int rt_pieces_begin(struct rt_comm *c, const struct coll_call *call, uint64_t longest_bytes,
		    struct rt_pieces **out)
{
	struct rt_pieces *p = malloc(sizeof(*p));
	bool is_reduce = coll_is_reduce(call->kind);
	static const struct coll_side none;
	int ret;

	if (!p)
		return -ENOMEM;
	*p = (struct rt_pieces){ .comm = c, .call = call };
	/* what is combined is read where it lies, so it has to be mapped; what is in place lies in
	 * the receive buffer */
	ret = side_begin(&p->sides.send, is_reduce && call->in_place ? &none : &call->send,
			 &c->scratch[0], longest_bytes, is_reduce ? SIDE_MAPPED : SIDE_ANY);
	p->sides.recv = (struct side){ .of = &call->recv };
	if (!ret)
		ret = side_begin(&p->sides.recv, &call->recv, &c->scratch[1], longest_bytes,
				 SIDE_MAPPED);
	if (ret)
		rt_pieces_end(p);
	else
		*out = p;
	return ret;
}

static int move(struct rt_pieces *p, const struct exec_shape *shape)
{
	struct exec_run *r;
	int ret = run_shape(p->comm, shape, &p->sides.send, &p->sides.recv, p->call->name, &r);

	return ret ? ret : exec_wait(r);
}

static int run_bcast(struct rt_pieces *p, uint64_t at, uint64_t bytes)
{
	struct coll_part part = { at, bytes };
	struct exec_shape shape = {
		.kind = COLL_BCAST,
		.root = p->call->root,
		.send = &part,
	};

	return move(p, &shape);
}

static int run_reduce(struct rt_pieces *p, uint64_t send_at, uint64_t recv_at, uint64_t bytes)
{
	const struct side *send = p->call->in_place ? &p->sides.recv : &p->sides.send,
			  *recv = &p->sides.recv;
	uint64_t from = p->call->in_place ? recv_at : send_at;
	struct exec_reduce reduce;
	struct exec_call e = {
		.reduce = &reduce,
		.user = { p->sides.send.addr, recv->addr },
		.desc = { [COLL_SEND] = p->sides.send.desc, [COLL_RECV] = recv->desc },
		.prefer_vm = p->comm->prefer_vm,
		.name = p->call->name,
	};
	struct exec_run *r;
	int ret = side_pack_range(send, from, bytes);

	if (ret)
		return ret;
	reduce_describe(p->call, bytes, &reduce);
	reduce.in_off = send->is_packed ? 0 : from;
	reduce.out_off = recv->is_packed ? 0 : recv_at;
	ret = run_begin(p->comm, &e, &r);
	if (!ret)
		ret = exec_wait(r);
	return ret ? ret : side_unpack_range(recv, recv_at, bytes);
}

int rt_pieces_run(struct rt_pieces *p, uint64_t send_at, uint64_t recv_at, uint64_t bytes)
{
	int ret;

	host_call_begin();
	requests_enter_blocking(p->comm);
	ret = coll_is_reduce(p->call->kind) ? run_reduce(p, send_at, recv_at, bytes)
					: run_bcast(p, send_at, bytes);
	requests_exit_blocking(p->comm);
	host_call_end();
	return ret;
}

int rt_exchanges_begin(struct rt_comm *c, const struct coll_call *call, uint64_t longest_bytes,
		       struct rt_pieces **out)
{
	struct rt_pieces *p = malloc(sizeof(*p));
	static const struct coll_part none;
	int ret;

	if (!p)
		return -ENOMEM;
	*p = (struct rt_pieces){
		.comm = c,
		.call = call,
		.sent = { .buf = call->send.buf, .parts = &none, .count = 1 },
		.received = { .buf = call->recv.buf, .parts = &none, .count = 1 },
	};
	p->sides.recv = (struct side){ .of = &p->received };
	/* what is not mapped is read by a system call or, where that is not the choice, from memory
	 * that is */
	ret = side_begin(&p->sides.send, &p->sent, &c->scratch[0], longest_bytes,
			 c->prefer_vm ? SIDE_ANY : SIDE_MAPPED);
	if (!ret)
		ret = side_begin(&p->sides.recv, &p->received, &c->scratch[1], longest_bytes,
				 SIDE_ANY);
	if (ret)
		rt_pieces_end(p);
	else
		*out = p;
	return ret;
}

static int run_exchange(struct rt_pieces *p, const struct rt_exchange *x)
{
	struct rt_comm *c = p->comm;
	struct exec_shape shape = {
		.kind = COLL_NEIGHBOR_ALLTOALL,
		.send = c->parts[0],
		.recv = c->parts[1],
		.sources = x->sources,
		.targets = x->targets,
		.source_count = x->source_count,
		.target_count = x->target_count,
	};
	int ret;

	p->sent.parts = x->sent;
	p->sent.count = x->target_count;
	p->received.parts = x->received;
	p->received.count = x->source_count;
	side_cut(&p->sides.send, 0, UINT64_MAX, c->parts[0]);
	side_cut(&p->sides.recv, 0, UINT64_MAX, c->parts[1]);
	ret = side_pack(&p->sides.send, 0, c->parts[0], -1);
	if (!ret)
		ret = move(p, &shape);
	return ret ? ret : side_unpack(&p->sides.recv, 0, c->parts[1], -1);
}

int rt_exchanges_run(struct rt_pieces *p, const struct rt_exchange *x)
{
	int ret;

	host_call_begin();
	requests_enter_blocking(p->comm);
	ret = run_exchange(p, x);
	requests_exit_blocking(p->comm);
	host_call_end();
	return ret;
}

void rt_pieces_end(struct rt_pieces *p)
{
	if (!p)
		return;
	side_end(&p->sides.send);
	side_end(&p->sides.recv);
	free(p);
}
