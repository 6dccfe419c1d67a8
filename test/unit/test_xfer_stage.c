/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring of chunks, every interleaving: a sender that streams through it to two receivers, or to
 * one in several collectives. The functions are those of xfer/stage.c and xfer/protocol.c; the ring
 * is cut to two chunks of a byte.
 */
#include <stdlib.h>
#include <string.h>

#include "unit.h"
#include "xfer/xfer.h"

enum { CHUNKS = 3, RECEIVERS_MAX = 2, COLLECTIVES_MAX = 3, DATA = 32 };
static struct {
	uint64_t receivers, collectives;
	bool without_limit;
} shape;

static void copy_byte(char *dst, const char *src);
#include "interleave_xfer.h"
#define xfer_stage_fill        model_fill
#define xfer_stage_consumed    model_consumed
#define xfer_stage_drain        model_take
#define xfer_finish            model_finish
#define node_wake(group, rank) ((void)0)
#define os_copy(dst, src, n, kernel) copy_byte(dst, src)
#undef XFER_CHUNK_BYTES
#undef XFER_RING_CHUNKS
#define XFER_CHUNK_BYTES 1u
#define XFER_RING_CHUNKS 2u
static int model_fill(_Atomic uint64_t *filled, uint64_t tag, char *ring, const char *src,
		      uint64_t bytes, uint64_t consumed);
static uint64_t model_consumed(struct xfer *x, uint64_t tag);
static int model_take(struct xfer_view *v, _Atomic uint64_t *filled, const char *ring);
static void model_finish(struct xfer_view *v, uint64_t bits)
{
	model_complete(v->x, bits, v->plan.total);
}
#include "xfer/stage.c"
#undef os_copy

struct world {
	struct xfer x[RECEIVERS_MAX];
	_Atomic uint64_t filled, published, opened[RECEIVERS_MAX];
	char ring[XFER_RING_CHUNKS];
};

/* Where a thread is; a sender asks one receiver after the other. */
struct place {
	uint64_t tag, phase, asked, consumed, all_done;
};
enum { PHASE_BEGIN, PHASE_MEET, PHASE_MOVE };

/* Sources and destinations lie nowhere; their addresses tell collective and chunk. */
static const char nowhere[DATA];

static bool is_nowhere(const char *p)
{
	return p >= nowhere && p < nowhere + DATA;
}
static const char *data_of(uint64_t tag)
{
	return nowhere + tag * (CHUNKS + 1);
}

static void copy_byte(char *dst, const char *src)
{
	if (is_nowhere(src))
		il_store(dst, 1, (uint64_t)(src - nowhere), memory_order_relaxed);
	else if (il_load(src, 1) != (uint64_t)(dst - nowhere))
		il_fail("a receiver took a chunk that was not there or is overwritten");
}

static void world_init(void *shared)
{
	struct world *w = shared;
	uint64_t zero = xfer_word(1, 0);

	*w = (struct world){ 0 };
	for (int r = 0; r < RECEIVERS_MAX; r++) {
		__builtin_memcpy((void *)&w->x[r].done, &zero, sizeof zero);
		__builtin_memcpy((void *)&w->x[r].claimed, &zero, sizeof zero);
		__builtin_memcpy((void *)&w->x[r].consumed, &zero, sizeof zero);
	}
}

static void begin_asking(struct place *p)
{
	p->phase = PHASE_MOVE;
	p->asked = 0;
	p->consumed = UINT64_MAX;
	p->all_done = true;
}

static void ask(struct world *w, struct place *p)
{
	uint64_t r = p->asked++, consumed = 0;

	if (atomic_load_explicit(&w->opened[r], memory_order_acquire) < p->tag) {
		p->all_done = false;
	} else {
		p->all_done = p->all_done && model_is_done(&w->x[r], p->tag, 1);
		consumed = model_consumed(&w->x[r], p->tag);
	}
	p->consumed = base_min_u64(p->consumed, consumed);
}

static bool sender_round(struct world *w, struct place *p)
{
	if (p->phase == PHASE_BEGIN) {
		p->tag++;
		atomic_store_explicit(&w->filled, xfer_word(p->tag, 0), memory_order_relaxed);
		atomic_store_explicit(&w->published, p->tag, memory_order_release);
		begin_asking(p);
	} else if (p->asked < shape.receivers) {
		ask(w, p);
	} else if (p->all_done) {
		p->phase = PHASE_BEGIN;
		return p->tag < shape.collectives;
	} else {
		model_fill(&w->filled, p->tag, w->ring, data_of(p->tag), CHUNKS,
			   shape.without_limit ? CHUNKS : p->consumed);
		begin_asking(p);
	}
	return true;
}

static bool receiver_round(int r, struct world *w, struct place *p)
{
	struct xfer_view v = { .x = &w->x[r],
			       .tag = p->tag,
			       .plan = { .bytes = CHUNKS, .total = 1 },
			       .dst = { .addr = (char *)data_of(p->tag) } };

	switch (p->phase) {
	case PHASE_BEGIN:
		v.tag = ++p->tag;
		if (p->tag > 1) /* the first is open, or there would be too many states */
			model_open(v.x, p->tag);
		atomic_store_explicit(&w->opened[r], p->tag, memory_order_release);
		p->phase = PHASE_MEET;
		return true;
	case PHASE_MEET:
		if (atomic_load_explicit(&w->published, memory_order_acquire) == p->tag)
			p->phase = PHASE_MOVE;
		return true;
	}
	if (model_take(&v, &w->filled, w->ring) || !model_is_done(v.x, p->tag, 1))
		return true;
	p->phase = PHASE_BEGIN;
	return p->tag < shape.collectives;
}

static bool world_round(int t, void *shared, void *local)
{
	return t ? receiver_round(t - 1, shared, local) : sender_round(shared, local);
}

static const char *explore(int receivers, uint64_t collectives, unsigned mutation)
{
	const struct il_model m = {
		.threads = 1 + receivers,
		.shared_bytes = sizeof(struct world),
		.local_bytes = sizeof(struct place),
		.mutation = mutation,
		.init = world_init,
		.round = world_round,
	};

	shape.receivers = (uint64_t)receivers;
	shape.collectives = collectives;
	return il_violation(&m);
}

UNIT_TEST(staging_holds_in_every_interleaving)
{
	CHECK_STR(explore(1, 3, 0) ?: "", "");
	CHECK_STR(explore(2, 1, 0) ?: "", "");
}

UNIT_TEST(staging_without_release_stores_is_caught)
{
	CHECK(explore(1, 2, IL_NO_RELEASE));
}

UNIT_TEST(staging_that_does_not_wait_for_receivers_is_caught)
{
	const char *violation;

	shape.without_limit = true;
	violation = explore(1, 1, 0);
	shape.without_limit = false;
	CHECK(violation);
}
