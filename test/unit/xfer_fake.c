/* SPDX-License-Identifier: BSD-3-Clause */
#include "xfer_fake.h"

#include <errno.h>

enum { MARGIN = 64 }; /* around the destination; and how both are aligned */

/* ---- the engine -------------------------------------------------------------------------- */

static int fake_post(struct engine_chan *base, struct engine_copy *c)
{
	struct fake_chan *ch = (struct fake_chan *)base;

	if (ch->on_post)
		ch->on_post();
	if (ch->is_closed)
		return -ESHUTDOWN;
	CHECK(c->bytes > 0 && c->bytes <= ch->caps.max_copy_bytes);
	CHECK(((uintptr_t)c->dst | (uintptr_t)c->src | c->bytes) % ch->caps.align_bytes == 0);
	if (ch->count == ch->depth)
		return -EAGAIN;
	ch->held[ch->count++] = c;
	ch->posts++;
	ch->most = ch->count > ch->most ? ch->count : ch->most;
	return 0;
}

static int fake_memory(struct engine_chan *base, void *at, size_t bytes, uint32_t id)
{
	struct fake_chan *ch = (struct fake_chan *)base;

	(void)at, (void)id;
	ch->announced += bytes > 0;
	return ch->memory_rc;
}

static void fake_flush(struct engine_chan *base)
{
	((struct fake_chan *)base)->flushes++;
}

void fake_end(struct fake_chan *ch, unsigned k, int result)
{
	struct engine_copy *c = ch->held[k];

	CHECK(k < ch->count);
	ch->held[k] = ch->held[--ch->count];
	memcpy(c->dst, c->src, result ? c->bytes / 3 : c->bytes);
	if (result)
		memset((char *)c->dst + c->bytes / 3, 0xee, c->bytes / 3);
	c->done(c, result);
}

static int fake_poll(struct engine_chan *base)
{
	struct fake_chan *ch = (struct fake_chan *)base;

	if (!ch->ends_in_poll || !ch->count)
		return 0;
	fake_end(ch, 0, 0);
	return 1;
}

/* The copy that was posted first has begun. */
static void fake_cancel(struct engine_chan *base, const void *from, size_t bytes)
{
	struct fake_chan *ch = (struct fake_chan *)base;

	for (unsigned k = ch->count; ch->cancels && k-- > 1;)
		if (k < ch->count && (uintptr_t)ch->held[k] - (uintptr_t)from < bytes)
			fake_end(ch, k, -ECANCELED);
}

static void fake_retire(struct engine_chan *base)
{
	struct fake_chan *ch = (struct fake_chan *)base;

	ch->is_closed = true;
	while (ch->count)
		fake_end(ch, 0, -ECANCELED);
}

static void fake_caps(const struct engine_chan *base, struct engine_caps *out)
{
	*out = ((const struct fake_chan *)base)->caps;
}

static const struct engine_ops fake_ops = {
	.name = "fake",
	.caps = fake_caps,
	.memory = fake_memory,
	.post = fake_post,
	.flush = fake_flush,
	.poll = fake_poll,
	.cancel = fake_cancel,
	.retire = fake_retire,
};

void fake_chan_init(struct fake_chan *ch)
{
	*ch = (struct fake_chan){
		.base = { &fake_ops },
		.depth = FAKE_HELD,
		.caps = { .depth = FAKE_HELD, .max_copy_bytes = 1 << 30, .align_bytes = 1 }
	};
}

/* ---- the transfer ------------------------------------------------------------------------ */

static void open_transfer(struct fake_xfer *t)
{
	xfer_open(&t->x, t->view.tag);
	memset(t->dst - MARGIN, 0x55, t->view.plan.bytes + 2 * MARGIN);
	t->drained = 0;
}

void fake_xfer_init(struct fake_xfer *t, uint64_t bytes, uint64_t fragment_bytes, uint64_t edge)
{
	uint64_t saved = base_opt.xfer_fragment_bytes;
	struct xfer_plan p = { .way = XFER_DIRECT, .bytes = bytes, .lo = edge, .hi = bytes - edge,
			       .edges = edge ? XFER_EDGES_ALL : XFER_EDGES_NONE,
			       .receiver_moves = true, .sender_moves = true, .others_move = true };

	*t = (struct fake_xfer){ 0 };
	base_opt.xfer_fragment_bytes = fragment_bytes;
	xfer_cut(&p);
	base_opt.xfer_fragment_bytes = saved;
	p.units = p.fragments + (edge > 0);
	p.total = xfer_bits(p.units);
	t->src = aligned_alloc(MARGIN, base_round_up(bytes, MARGIN));
	t->dst = (char *)aligned_alloc(MARGIN, base_round_up(bytes, MARGIN) + 2 * MARGIN) + MARGIN;
	for (uint64_t k = 0; k < bytes; k++)
		t->src[k] = (char)(k * 31 + k / 253 + 1);
	memcpy(t->edges, t->src, edge);
	memcpy(t->edges + XFER_EDGE_BYTES, t->src + p.hi, edge);
	t->group = (struct node_group){ .rank = 2, .size = 2, .ranks = t->bells };
	t->view = (struct xfer_view){ .x = &t->x,
				      .plan = p,
				      .tag = 7,
				      .group = &t->group,
				      .src = { .desc = { .bytes = bytes, .head = (uint32_t)edge,
							 .tail = (uint32_t)edge,
							 .flags = REGION_DESC_MAPPED },
					       .rank = 0, .edges = t->edges, .addr = t->src,
					       .lo = p.lo, .hi = p.hi },
				      .dst = { .rank = 1, .addr = t->dst },
				      .units = p.units,
				      .can_move = true,
				      .edges_done = true };
	open_transfer(t);
}

void fake_xfer_again(struct fake_xfer *t)
{
	t->view.tag++;
	open_transfer(t);
}

void fake_xfer_fini(struct fake_xfer *t)
{
	free(t->src);
	free(t->dst - MARGIN);
}

static void count_drained(void *arg)
{
	((struct fake_xfer *)arg)->drained++;
}

struct xfer_view *fake_view(void *arg, uint32_t i) { return &((struct fake_xfer *)arg + i)->view; }

bool fake_start(struct fake_xfer *t, struct xfer_queue *q, struct fake_chan *ch, uint32_t depth)
{
	return xfer_queue_start(q, fake_view, 1, &ch->base, depth, count_drained, t);
}

void fake_check(const struct fake_xfer *t)
{
	uint64_t bytes = t->view.plan.bytes;

	CHECK(xfer_is_done((struct xfer *)&t->x, t->view.tag, t->view.plan.total));
	CHECK(!memcmp(t->dst, t->src, bytes));
	for (int k = 1; k <= MARGIN; k++) {
		CHECK_EQ(t->dst[-k], 0x55);
		CHECK_EQ(t->dst[bytes + (uint64_t)k - 1], 0x55);
	}
}

uint64_t fake_held_bits(const struct fake_xfer *t, const struct fake_chan *ch)
{
	uint64_t bits = 0;

	for (unsigned k = 0; k < ch->count; k++) {
		uint64_t at = (uint64_t)((char *)ch->held[k]->dst - t->dst), bit;

		if (at >= t->view.plan.bytes)
			continue; /* of another transfer */
		bit = xfer_bit(xfer_fragment_of(&t->view.plan, at));
		CHECK(!(bits & bit)); /* a fragment is in the channel once */
		bits |= bit;
	}
	return bits;
}
