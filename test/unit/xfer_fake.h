/* SPDX-License-Identifier: BSD-3-Clause */
/* A transfer within this process, and an engine that does what a test says, when it says so. */
#ifndef SLUICE_UNIT_XFER_FAKE_H
#define SLUICE_UNIT_XFER_FAKE_H

#include "engine/engine.h"
#include "node/private.h"
#include "unit.h"
#include "xfer/xfer.h"

enum { FAKE_BYTES = 8 << 20, FAKE_HELD = 64 };

/* Its channel: what was posted waits here until fake_end(). */
struct fake_chan {
	struct engine_chan base;
	struct engine_copy *held[FAKE_HELD];
	unsigned count, most, posts, flushes;
	/* as the test wants it */
	unsigned depth;
	struct engine_caps caps;
	bool is_closed;
	bool ends_in_poll;
	bool cancels;  /* all but the copy posted first */
	int memory_rc; /* of memory() */
	unsigned announced;
	void (*on_post)(void); /* may be NULL; called inside of post, before the copy is held */
};

/* The transfer of `tag` from `src` to `dst`. */
struct fake_xfer {
	struct xfer x;
	struct xfer_view view;
	struct node_group group;
	struct node_rank bells[2];
	char *src, *dst;
	char edges[2 * XFER_EDGE_BYTES];
	unsigned drained;
};

void fake_chan_init(struct fake_chan *ch);
/* Sets the result of held copy k: 0, or an error that leaves half of the bytes wrong. */
void fake_end(struct fake_chan *ch, unsigned k, int result);
/* `bytes` in fragments of `fragment_bytes`; the first and last `edge` bytes of them come as edges.
 */
void fake_xfer_init(struct fake_xfer *t, uint64_t bytes, uint64_t fragment_bytes, uint64_t edge);
void fake_xfer_fini(struct fake_xfer *t);
/* Prepares the next collective with these ends and bytes, not yet moved. */
void fake_xfer_again(struct fake_xfer *t);
/* The view of transfer i of an array: an xfer_view_at. */
struct xfer_view *fake_view(void *arg, uint32_t i);
/* Starts the queue; t->drained counts. */
bool fake_start(struct fake_xfer *t, struct xfer_queue *q, struct fake_chan *ch, uint32_t depth);
/* Every byte is in its place, and nothing else was written. */
void fake_check(const struct fake_xfer *t);
/* Bits of the fragments that the channel holds. */
uint64_t fake_held_bits(const struct fake_xfer *t, const struct fake_chan *ch);

#endif
