/* SPDX-License-Identifier: BSD-3-Clause */
/* Contiguous buffers of a call over several nodes, and its steps inside the node. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "hier/hier.h"

static bool is_significant(const struct coll_side *s) { return s->count && s->buf.bytes; }

int flow_open(struct flow *f, bool copies_send, uint64_t more_bytes)
{
	const struct coll_side *send = &f->t->call.send, *recv = &f->t->call.recv;
	bool has_send = is_significant(send), has_recv = is_significant(recv);
	uint64_t sent = has_send && (send->buf.pack || copies_send) ? send->buf.bytes : 0;
	uint64_t received = has_recv && recv->buf.pack ? recv->buf.bytes : 0;
	char *staging;

	if (f->err)
		return f->err;
	staging = hier_staging(f->s, sent + received + more_bytes);
	if (!staging && sent + received + more_bytes)
		return -ENOMEM;
	f->bufs = (struct flow_bufs){
		.send = sent ? staging : has_send ? send->buf.addr : NULL,
		.send_bytes = has_send ? send->buf.bytes : 0,
		.recv = received ? staging + sent : has_recv ? recv->buf.addr : NULL,
		.recv_bytes = has_recv ? recv->buf.bytes : 0,
		.more = staging + sent + received,
	};
	if (sent && send->buf.pack)
		return send->buf.pack(send->buf.ctx, 0, sent, staging);
	if (sent)
		memcpy(staging, send->buf.addr, sent);
	return 0;
}

int flow_copy_own(const struct flow *f)
{
	const struct coll_side *send = &f->t->call.send, *recv = &f->t->call.recv;
	const struct coll_part *from = &send->parts[send->count > 1 ? f->t->cs->rank : 0];
	const struct coll_part *to = &recv->parts[recv->count > 1 ? f->t->cs->rank : 0];

	if (f->t->call.in_place || !send->count || !recv->count)
		return 0;
	if (from->bytes != to->bytes)
		return -EREMOTEIO;
	if (to->bytes)
		memcpy(f->bufs.recv + to->off, f->bufs.send + from->off, to->bytes);
	return 0;
}

void flow_close(struct flow *f)
{
	const struct coll_side *recv = &f->t->call.recv;
	int own = f->t->call.in_place && recv->count > 1 ? f->t->cs->rank : -1, err = 0;

	rt_pieces_end(f->inside);
	free(f->partners);
	free(f->parts);
	for (int i = 0; f->bufs.recv && recv->buf.pack && !f->err && i < recv->count && !err; i++)
		if (i != own)
			err = recv->buf.unpack(recv->buf.ctx, recv->parts[i].off,
					       recv->parts[i].bytes,
					       f->bufs.recv + recv->parts[i].off);
	flow_note_error(f, err);
}

/* ---- inside the node --------------------------------------------------------------------- */

struct coll_call flow_call(const struct flow *f, enum coll kind)
{
	return (struct coll_call){
		.kind = kind,
		.root = kind == COLL_BCAST || kind == COLL_REDUCE ? f->l->place[f->acting] : -1,
		.name = f->t->call.name,
		.site = f->t->call.site,
	};
}

struct coll_side flow_side(void *addr, uint64_t bytes, struct coll_part *part)
{
	*part = (struct coll_part){ 0, bytes };
	return (struct coll_side){ .buf = { .addr = addr, .bytes = bytes },
				   .parts = part,
				   .count = 1 };
}

void flow_run(struct flow *f, struct rt_pieces *p, uint64_t send_at, uint64_t recv_at,
	      uint64_t bytes)
{
	if (p && !f->err)
		flow_note_error(f, base_fault("hier_piece")
					   ? -EIO
					   : rt_pieces_run(p, send_at, recv_at, bytes));
}

int flow_open_exchanges(struct flow *f, struct coll_buf send, struct coll_buf recv,
			uint64_t longest_bytes)
{
	size_t n = (size_t)hier_node_size(f->l, f->node);

	rt_pieces_end(f->inside);
	f->inside = NULL;
	if (!f->partners)
		f->partners = malloc(n * sizeof(*f->partners));
	if (!f->parts)
		f->parts = malloc(2 * n * sizeof(*f->parts));
	if (!f->partners || !f->parts)
		return -ENOMEM;
	f->near = flow_call(f, f->t->call.kind);
	f->near.root = -1;
	f->near.send.buf = send;
	f->near.recv.buf = recv;
	return f->s->local
		       ? rt_exchanges_begin(f->s->local, &f->near, longest_bytes, &f->inside)
		       : 0;
}

void flow_exchange(struct flow *f, const struct rt_exchange *x)
{
	if (f->inside && !f->err)
		flow_note_error(f, base_fault("hier_piece") ? -EIO
							    : rt_exchanges_run(f->inside, x));
}

void flow_move(struct flow *f, bool is_sender, int n)
{
	const struct rt_exchange send = { .targets = f->partners,
					  .sent = f->parts,
					  .target_count = n };
	const struct rt_exchange recv = { .sources = f->partners,
					  .received = f->parts,
					  .source_count = n };

	flow_exchange(f, is_sender ? &send : &recv);
}
