/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Virtual queues in many orders: xfer/queue.c with a point before and after each atomic operation,
 * claim and post, where something else may happen as a whole: a copy ends or fails, a CPU takes a
 * unit, somebody stops the queue. Every choice at every point is tried. (Threads that stop in the
 * middle of something, while others go on, are in test_xfer_queue_threads.c.)
 */
#include <errno.h>

#include "xfer_fake.h"

enum { UNIT = 64, CHOICES_MAX = 4096, TRANSFERS = 2 };

/* ---- choosing, run after run ------------------------------------------------------------- */

static struct {
	uint8_t taken[CHOICES_MAX], of[CHOICES_MAX];
	unsigned at, count;
	unsigned long runs;
} path;

/* Below n: another number in each run, until every sequence of them was tried. */
static unsigned choose(unsigned n)
{
	if (n < 2)
		return 0;
	if (path.at == path.count) {
		CHECK(path.count < CHOICES_MAX);
		path.of[path.count] = (uint8_t)n;
		path.taken[path.count++] = 0;
	}
	CHECK_EQ(path.of[path.at], n); /* runs repeat each other up to where they differ */
	return path.taken[path.at++];
}

static bool next_path(void)
{
	path.runs++;
	path.at = 0;
	while (path.count && path.taken[path.count - 1] + 1 == path.of[path.count - 1])
		path.count--;
	if (!path.count)
		return false;
	path.taken[path.count - 1]++;
	return true;
}

/* ---- the world --------------------------------------------------------------------------- */

static struct fake_xfer t[TRANSFERS];
static struct fake_chan ch;
static struct xfer_queue q;
static struct {
	/* by transfer: units that the queue has claimed and not finished or given back */
	uint64_t owned[TRANSFERS];
	unsigned errors, depth, transfers;
	bool begun, started, stopped, gone;
} now;
/* Mutations that the test must find. */
static enum { SOUND, COMPLETES_FAILED, KEEPS_REFUSED } fault;

static bool cancels;

static void event(unsigned n);
static unsigned events(void);

static void point(void)
{
	unsigned n;

	if (!now.begun)
		return;
	n = choose(1 + events());
	if (n)
		event(n - 1);
}

static void check_world(void)
{
	for (unsigned k = 0; k < now.transfers; k++)
		CHECK_EQ(fake_held_bits(&t[k], &ch) & ~now.owned[k], 0);
	CHECK(ch.count <= now.depth);
}

static uint64_t *owned(const struct xfer *x) { return &now.owned[x == &t[1].x]; }

static uint32_t point_claim(struct xfer *x, uint64_t tag, uint32_t units, uint32_t start)
{
	uint32_t i;

	point();
	i = xfer_claim(x, tag, units, start);
	if (i != XFER_NONE) {
		CHECK(!(*owned(x) & xfer_bit(i)));
		*owned(x) |= xfer_bit(i);
	}
	point();
	return i;
}

static void point_unclaim(struct xfer *x, uint32_t unit)
{
	point();
	*owned(x) &= ~xfer_bit(unit);
	if (fault != KEEPS_REFUSED)
		xfer_unclaim(x, unit);
	point();
}

static void point_finish(struct xfer_view *v, uint64_t bits)
{
	point();
	*owned(v->x) &= ~bits;
	xfer_finish(v, bits);
	point();
}

static int point_copy_unit(struct xfer_view *v, uint32_t unit)
{
	point();
	*owned(v->x) &= ~xfer_bit(unit);
	if (fault == COMPLETES_FAILED)
		xfer_finish(v, xfer_bit(unit));
	else
		CHECK_EQ(xfer_copy_unit(v, unit), 0);
	point();
	return 0;
}

#define xfer_claim            point_claim
#define xfer_unclaim          point_unclaim
#define xfer_finish           point_finish
#define xfer_copy_unit        point_copy_unit
#define xfer_queue_init       model_init
#define xfer_queue_start      model_start
#define xfer_queue_stop       model_stop
#define xfer_queue_is_stopped model_is_stopped
#define xfer_queue_is_idle    model_is_idle
#define xfer_queue_rescue     model_rescue
#define xfer_queue_due_ns     model_due_ns
#define os_now_ns()           ((uint64_t)1)
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#ifdef __clang__ /* its other builtins take no _Atomic object */
#define BUILTIN(name)           __c11_atomic_##name
#define COMPARE(p, e, v, o, f) __c11_atomic_compare_exchange_strong((p), (e), (v), (o), (f))
#else
#define BUILTIN(name)           BUILTIN_##name
#define BUILTIN_load            __atomic_load_n
#define BUILTIN_store           __atomic_store_n
#define BUILTIN_exchange        __atomic_exchange_n
#define BUILTIN_fetch_add       __atomic_fetch_add
#define BUILTIN_fetch_sub       __atomic_fetch_sub
#define COMPARE(p, e, v, o, f) __atomic_compare_exchange_n((p), (e), (v), false, (o), (f))
#endif
#define atomic_load_explicit(p, o)         (point(), BUILTIN(load)((p), (o)))
#define atomic_store_explicit(p, v, o)     (point(), BUILTIN(store)((p), (v), (o)))
#define atomic_fetch_add_explicit(p, v, o) (point(), BUILTIN(fetch_add)((p), (v), (o)))
#define atomic_fetch_sub_explicit(p, v, o) (point(), BUILTIN(fetch_sub)((p), (v), (o)))
#define atomic_exchange_explicit(p, v, o)  (point(), BUILTIN(exchange)((p), (v), (o)))
#define atomic_compare_exchange_strong_explicit(p, e, v, o, f)                                     \
	(point(), COMPARE((p), (e), (v), (o), (f)))
#define atomic_compare_exchange_weak_explicit atomic_compare_exchange_strong_explicit
#define base_count(counter, n)             ((void)0)
#define UNUSED                             __attribute__((unused))
static void model_init(struct xfer_queue *m);
static bool model_start(struct xfer_queue *m, xfer_view_at *at, uint32_t count,
			struct engine_chan *chan, uint32_t depth, void (*drained)(void *arg),
			void *arg);
static void model_stop(struct xfer_queue *m);
static bool model_is_stopped(const struct xfer_queue *m);
static bool model_is_idle(const struct xfer_queue *m) UNUSED;
static bool model_rescue(struct xfer_queue *m, uint64_t now_ns) UNUSED;
static uint64_t model_due_ns(const struct xfer_queue *m) UNUSED;
#include "xfer/queue.c"
#undef xfer_claim
#undef xfer_unclaim
#undef xfer_finish
#undef xfer_copy_unit

/* ---- what may happen --------------------------------------------------------------------- */

/* In this order; the numbers depend on what can happen now. */
static bool can_stop(void) { return !now.stopped && !now.gone; }
/* The first transfer of which a CPU can take a unit; NULL: none. */
static struct xfer_view *can_move(void)
{
	for (unsigned k = 0; k < now.transfers; k++)
		if (!xfer_is_all_claimed(&t[k].x, t[k].view.tag, t[k].view.units))
			return &t[k].view;
	return NULL;
}
static bool can_fail(void) { return ch.count && !now.errors; }

static unsigned events(void) { return ch.count + can_fail() + can_stop() + !!can_move(); }

static void event(unsigned n)
{
	check_world();
	if (n < ch.count) {
		fake_end(&ch, n, 0);
		return;
	}
	n -= ch.count;
	if (can_fail() && n-- == 0) {
		now.errors++;
		fake_end(&ch, 0, -EIO);
	} else if (can_stop() && n-- == 0) {
		now.stopped = true;
		model_stop(&q);
	} else {
		CHECK_EQ(xfer_move(can_move(), 0), 1);
	}
	check_world();
}

/* Nobody looks at it any more, or crashes. */
static void drained(void *arg)
{
	CHECK_EQ((uintptr_t)arg, (uintptr_t)t);
	CHECK(!now.gone);
	t->drained++;
	now.gone = true;
	memset(q.posts, 0xdd, sizeof q.posts);
	q.at = NULL;
	q.chan = NULL;
	q.drained = NULL;
}

static void one_run(uint32_t transfers, uint32_t depth)
{
	memset(&now, 0, sizeof now);
	now.depth = depth;
	now.transfers = transfers;
	ch.count = 0;
	for (unsigned k = 0; k < transfers; k++)
		fake_xfer_again(&t[k]);
	model_init(&q); /* nobody else has it yet */
	now.begun = true;
	now.started = model_start(&q, fake_view, transfers, &ch.base, depth, drained, t);
	CHECK(now.started || !t->drained);
	if (!now.started)
		now.gone = true; /* the owner may forget it */
	while (ch.count || can_move())
		event(choose(events()));
	CHECK_EQ(t->drained, now.started);
	for (unsigned k = 0; k < transfers; k++) {
		CHECK_EQ(now.owned[k], 0);
		fake_check(&t[k]);
	}
}

static void prepare(struct fake_xfer *x, uint32_t fragments, uint64_t edge)
{
	struct xfer_plan *p = &x->view.plan;

	fake_xfer_init(x, fragments * UNIT + 2 * edge, 4096, edge);
	p->small_bytes = UNIT;
	p->half_bytes = fragments * UNIT;
	p->in_half = p->fragments = fragments;
	p->units = x->view.units = fragments + (edge > 0);
	p->total = xfer_bits(x->view.units);
}

static void explore(uint32_t transfers, uint32_t fragments, uint64_t edge, uint32_t depth,
		    uint64_t piece, unsigned room)
{
	fake_chan_init(&ch);
	ch.caps.max_copy_bytes = piece;
	ch.depth = room;
	ch.cancels = cancels;
	for (unsigned k = 0; k < transfers; k++)
		prepare(&t[k], fragments, edge);
	memset(&path, 0, sizeof path);
	do
		one_run(transfers, depth);
	while (next_path());
	for (unsigned k = 0; k < transfers; k++)
		fake_xfer_fini(&t[k]);
	if (getenv("INTERLEAVE_SHOW"))
		printf("  %lu runs\n", path.runs);
}

UNIT_TEST(queue_holds_in_every_order_with_one_copy_at_a_time) { explore(1, 3, 0, 1, UNIT, 8); }

UNIT_TEST(queue_holds_in_every_order_with_two_copies_at_a_time) { explore(1, 3, 0, 2, UNIT, 8); }

UNIT_TEST(queue_holds_in_every_order_with_edges) { explore(1, 2, 8, 2, UNIT, 8); }

UNIT_TEST(queue_holds_in_every_order_with_pieces) { explore(1, 2, 0, 2, UNIT / 2, 8); }

UNIT_TEST(queue_holds_in_every_order_with_two_transfers)
{
	explore(2, 1, 0, 1, UNIT, 8);
	explore(2, 1, 0, 2, UNIT, 8);
}

UNIT_TEST(queue_holds_in_every_order_with_a_channel_that_is_full) { explore(1, 3, 0, 2, UNIT, 1); }

UNIT_TEST(queue_holds_in_every_order_with_copies_that_are_cancelled)
{
	cancels = true;
	explore(1, 3, 0, 3, UNIT, 8);
	explore(1, 2, 0, 2, UNIT / 2, 8);
	cancels = false;
}

static void explore_broken(void *arg)
{
	if (!freopen("/dev/null", "w", stdout))
		return;
	fault = *(int *)arg;
	explore(1, 3, 0, 2, UNIT, 1);
}

UNIT_TEST(queue_that_says_done_of_what_failed_is_caught)
{
	CHECK(unit_fork(explore_broken, &(int){ COMPLETES_FAILED }) == 1);
}

UNIT_TEST(queue_that_keeps_what_the_channel_refused_is_caught)
{
	CHECK(unit_fork(explore_broken, &(int){ KEEPS_REFUSED }) == 1);
}
