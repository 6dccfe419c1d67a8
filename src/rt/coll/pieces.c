/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives that the caller runs piece by piece. */
#include "rt/pieces.h"

#include <errno.h>
#include <stdlib.h>

#include "rt/coll/run.h"

struct rt_pieces {
	struct rt_comm *comm;
	const struct coll_call *call;
	struct buffers buffers;
	struct coll_side sent, received; /* the parts of the present exchange */
	bool has_failed;
};

static int pieces_open(struct rt_pieces *p, const struct coll_side *send,
		       enum buffer_memory send_memory, const struct coll_side *recv,
		       enum buffer_memory recv_memory, uint64_t longest_bytes,
		       struct rt_pieces **out)
{
	int ret = buffer_open(&p->buffers.send, send, longest_bytes, send_memory);

	if (!ret)
		ret = buffer_open(&p->buffers.recv, recv, longest_bytes, recv_memory);
	if (ret)
		rt_pieces_end(p);
	else
		*out = p;
	return ret;
}

int rt_pieces_begin(struct rt_comm *c, const struct coll_call *call, uint64_t longest_bytes,
		    struct rt_pieces **out)
{
	struct rt_pieces *p = malloc(sizeof *p);
	bool is_reduce = coll_is_reduce(call->kind);
	static const struct coll_side none;

	if (!p)
		return -ENOMEM;
	*p = (struct rt_pieces){ .comm = c, .call = call };
	/* a reduction reads its input where it is mapped; in place, in the receive buffer */
	return pieces_open(p, is_reduce && call->in_place ? &none : &call->send,
			   is_reduce ? BUFFER_MAPPED : BUFFER_ANY, &call->recv, BUFFER_MAPPED,
			   longest_bytes, out);
}

int rt_exchanges_begin(struct rt_comm *c, const struct coll_call *call, uint64_t longest_bytes,
		       struct rt_pieces **out)
{
	struct rt_pieces *p = malloc(sizeof *p);
	static const struct coll_part none;

	if (!p)
		return -ENOMEM;
	*p = (struct rt_pieces){
		.comm = c,
		.call = call,
		.sent = { .buf = call->send.buf, .parts = &none, .count = 1 },
		.received = { .buf = call->recv.buf, .parts = &none, .count = 1 },
	};
	/* see memory_of() in move.c */
	return pieces_open(p, &p->sent, c->prefer_vm ? BUFFER_ANY : BUFFER_MAPPED, &p->received,
			   BUFFER_ANY, longest_bytes, out);
}

static int run_bcast(struct rt_pieces *p, uint64_t at, uint64_t bytes)
{
	struct exec_shape shape = run_shape(p->call);
	struct coll_part part = { at, bytes };

	shape.send = &part;
	return run_parts(p->comm, &shape, p->call, &p->buffers.send, &p->buffers.recv, NULL);
}

int rt_pieces_run(struct rt_pieces *p, uint64_t send_at, uint64_t recv_at, uint64_t bytes)
{
	int ret;

	runs_enter(p->comm);
	ret = coll_is_reduce(p->call->kind)
		      ? run_reduce(p->comm, p->call, &p->buffers, send_at, recv_at, bytes, NULL)
		      : run_bcast(p, send_at, bytes);
	runs_exit(p->comm);
	p->has_failed |= ret;
	return ret;
}

static int run_exchange(struct rt_pieces *p, const struct rt_exchange *x)
{
	struct rt_comm *c = p->comm;
	struct buffers *b = &p->buffers;
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
	buffer_cut(&b->send, 0, UINT64_MAX, c->parts[0]);
	buffer_cut(&b->recv, 0, UINT64_MAX, c->parts[1]);
	ret = buffer_pack(&b->send, 0, c->parts[0], -1);
	if (!ret)
		ret = run_parts(c, &shape, p->call, &b->send, &b->recv, NULL);
	return ret ? ret : buffer_unpack(&b->recv, 0, c->parts[1], -1, x->sources);
}

int rt_exchanges_run(struct rt_pieces *p, const struct rt_exchange *x)
{
	int ret;

	runs_enter(p->comm);
	ret = run_exchange(p, x);
	runs_exit(p->comm);
	p->has_failed |= ret;
	return ret;
}

void rt_pieces_end(struct rt_pieces *p)
{
	if (!p)
		return;
	buffer_close(&p->buffers.send, p->has_failed ? p->comm : NULL);
	buffer_close(&p->buffers.recv, p->has_failed ? p->comm : NULL);
	free(p);
}
