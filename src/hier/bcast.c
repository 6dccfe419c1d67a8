/* SPDX-License-Identifier: BSD-3-Clause */
/* A broadcast over several nodes: one segment crosses the network while the previous one moves
 * inside the node. */
#include <errno.h>

#include "base/base.h"
#include "hier/hier.h"

/* The call's buffer as segments. A buffer with gaps passes through HIER_SLOTS slots of staging
 * memory. */
struct bcast {
	struct flow *f;
	char *at;
	uint64_t slots; /* 0: the buffer itself holds all segments */
	bool is_root;
	struct coll_part part;
	struct coll_call call; /* broadcast inside the node */
	struct post recv[HIER_SLOTS], send[HIER_SLOTS][HIER_CHILDREN];
};

static uint64_t offset(const struct bcast *b, uint64_t k)
{
	return (b->slots ? k % b->slots : k) * b->f->cut.segment;
}

static char *segment(const struct bcast *b, uint64_t k)
{
	return b->at ? b->at + offset(b, k) : b->f->s->dummy;
}

static void begin(struct bcast *b, struct flow *f)
{
	const struct coll_buf *buf = &f->t->call.send.buf;
	uint64_t bytes = f->cut.bytes;
	int err = 0;

	*b = (struct bcast){ .f = f, .at = buf->addr, .is_root = f->t->is_root };
	if (buf->pack || f->err) { /* a rank without a described buffer receives all the same */
		b->slots = HIER_SLOTS;
		bytes = HIER_SLOTS * f->cut.segment;
		b->at = hier_staging(f->s, bytes);
		err = b->at ? 0 : -ENOMEM;
	}
	b->call = flow_call(f, COLL_BCAST);
	b->call.send = flow_side(b->at, bytes, &b->part);
	b->call.bytes = bytes;
	if (!err && f->s->local && !f->err)
		err = rt_pieces_begin(f->s->local, &b->call, f->cut.segment, &f->inside);
	flow_note_error(f, err);
}

static void convert(struct bcast *b, uint64_t k)
{
	const struct coll_buf *buf = &b->f->t->call.send.buf;
	uint64_t at = k * b->f->cut.segment, bytes = hier_length(&b->f->cut, k);

	if (buf->pack && !b->f->err)
		flow_note_error(b->f, b->is_root
					      ? buf->pack(buf->ctx, at, bytes, segment(b, k))
					      : buf->unpack(buf->ctx, at, bytes, segment(b, k)));
}

static void wait_sent(struct bcast *b, uint64_t k)
{
	for (int i = 0; i < b->f->child_count; i++)
		flow_wait(b->f, &b->send[k % HIER_SLOTS][i]);
}

static void expect(struct bcast *b, uint64_t k)
{
	struct flow *f = b->f;

	if (f->parent < 0 || k >= hier_count(&f->cut))
		return;
	wait_sent(b, k); /* the slot's previous segment has been sent */
	flow_recv(f, &b->recv[k % HIER_SLOTS], segment(b, k), hier_length(&f->cut, k), f->parent,
		  FLOW_DOWN);
}

static void forward(struct bcast *b, uint64_t k)
{
	struct flow *f = b->f;

	for (int i = 0; i < f->child_count; i++)
		flow_send(f, &b->send[k % HIER_SLOTS][i], segment(b, k), hier_length(&f->cut, k),
			  f->children[i], FLOW_DOWN);
}

static void step(struct bcast *b, uint64_t k)
{
	struct flow *f = b->f;

	if (k)
		expect(b, k - 1 + HIER_SLOTS);
	flow_wait(f, &b->recv[k % HIER_SLOTS]);
	wait_sent(b, k);
	if (b->is_root)
		convert(b, k);
	forward(b, k);
	if (f->acts && k + 1 == hier_count(&f->cut)) /* the status precedes the last segment
						        inside the node */
		flow_status(f, &f->parent, f->parent >= 0, f->children, f->child_count);
	flow_run(f, f->inside, offset(b, k), 0, hier_length(&f->cut, k));
	if (!b->is_root)
		convert(b, k);
}

void hier_bcast(struct flow *f)
{
	struct bcast b;

	begin(&b, f);
	for (uint64_t k = 0; k < HIER_SLOTS; k++)
		expect(&b, k);
	for (uint64_t k = 0; k < hier_count(&f->cut); k++)
		step(&b, k);
	for (uint64_t k = 0; k < HIER_SLOTS; k++)
		wait_sent(&b, k);
	flow_close(f);
}
