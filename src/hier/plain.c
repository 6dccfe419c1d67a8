/* SPDX-License-Identifier: BSD-3-Clause */
/* Contiguous buffers of a call over several nodes. */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "hier/hier.h"

static bool is_significant(const struct coll_side *s) { return s->count && s->buf.bytes; }

int plain_begin(struct flow *f, bool copies_send, uint64_t more_bytes, struct plain *out)
{
	const struct coll_side *send = &f->t->call.send, *recv = &f->t->call.recv;
	bool has_send = is_significant(send), has_recv = is_significant(recv);
	uint64_t sent = has_send && (send->buf.pack || copies_send) ? send->buf.bytes : 0;
	uint64_t received = has_recv && recv->buf.pack ? recv->buf.bytes : 0;
	char *window;

	*out = (struct plain){ 0 };
	if (f->err)
		return f->err;
	window = hier_window(f->s, sent + received + more_bytes);
	if (!window && sent + received + more_bytes)
		return -ENOMEM;
	out->send = sent ? window : has_send ? send->buf.addr : NULL;
	out->send_bytes = has_send ? send->buf.bytes : 0;
	out->recv = received ? window + sent : has_recv ? recv->buf.addr : NULL;
	out->recv_bytes = has_recv ? recv->buf.bytes : 0;
	out->more = window + sent + received;
	if (sent && send->buf.pack)
		return send->buf.pack(send->buf.ctx, 0, sent, window);
	if (sent)
		memcpy(window, send->buf.addr, sent);
	return 0;
}

void plain_end(struct flow *f, const struct plain *p, int but)
{
	const struct coll_side *recv = &f->t->call.recv;
	int err = 0;

	for (int i = 0; p->recv && recv->buf.pack && !f->err && i < recv->count && !err; i++)
		if (i != but)
			err = recv->buf.unpack(recv->buf.ctx, recv->parts[i].off,
					       recv->parts[i].bytes, p->recv + recv->parts[i].off);
	if (err)
		flow_fail(f, err);
}

int plain_copy_own(const struct flow *f, const struct plain *p)
{
	const struct coll_side *send = &f->t->call.send, *recv = &f->t->call.recv;
	const struct coll_part *from = &send->parts[send->count > 1 ? f->t->cs->rank : 0];
	const struct coll_part *to = &recv->parts[recv->count > 1 ? f->t->cs->rank : 0];

	if (f->t->call.in_place || !p->send || !p->recv)
		return 0;
	if (from->bytes != to->bytes)
		return -EREMOTEIO;
	memcpy(p->recv + to->off, p->send + from->off, to->bytes);
	return 0;
}
