/* SPDX-License-Identifier: BSD-3-Clause */
/* Virtual queues over an engine that ends its copies late, in any order, badly, or never. */
#include <errno.h>

#include "xfer_fake.h"

enum { FRAGMENT = 4096, FRAGMENTS = 12, BYTES = FRAGMENT * FRAGMENTS, TIMEOUT_MS = 20000 };
#define TIMEOUT_NS ((uint64_t)TIMEOUT_MS * 1000000)

static struct fake_xfer t;
static struct fake_chan ch;
static struct xfer_queue q;

static void begin(uint64_t bytes, uint64_t fragment_bytes, uint64_t edge)
{
	base_opt.engine_timeout_ms = TIMEOUT_MS;
	fake_chan_init(&ch);
	fake_xfer_init(&t, bytes, fragment_bytes, edge);
	xfer_queue_init(&q);
}

static void end(void)
{
	CHECK(xfer_queue_is_idle(&q));
	CHECK_EQ(ch.count, 0);
	fake_check(&t);
	fake_xfer_fini(&t);
}

static unsigned move_all_by_cpu(void)
{
	unsigned moved = 0;

	while (xfer_move(&t.view, XFER_ANY))
		moved++;
	return moved;
}

static uint64_t counter(enum base_counter c)
{
	return atomic_load(&base_counters[c]);
}

UNIT_TEST(queue_feeds_the_channel_a_few_fragments_at_a_time)
{
	begin(BYTES, FRAGMENT, 0);
	CHECK(fake_start(&t, &q, &ch, 3));
	CHECK_EQ(ch.count, 3);
	CHECK(ch.flushes > 0);
	while (ch.count) {
		CHECK(!xfer_queue_is_idle(&q));
		CHECK_EQ(t.drained, 0);
		fake_end(&ch, 0, 0);
	}
	CHECK_EQ(t.drained, 1);
	CHECK_EQ(ch.most, 3);
	CHECK_EQ(ch.posts, FRAGMENTS);
	CHECK_EQ(move_all_by_cpu(), 0);
	end();
}

UNIT_TEST(queue_gives_an_autonomous_channel_all_fragments_at_once)
{
	begin(BYTES, FRAGMENT, 0);
	CHECK(fake_start(&t, &q, &ch, FAKE_HELD));
	CHECK_EQ(ch.count, FRAGMENTS);
	CHECK_EQ(ch.flushes, 1);
	while (ch.count)
		fake_end(&ch, ch.count / 2, 0);
	CHECK_EQ(t.drained, 1);
	end();
}

UNIT_TEST(queue_takes_the_size_of_pieces_from_the_engine)
{
	begin(4 << 20, 1 << 20, 0);
	CHECK(fake_start(&t, &q, &ch, 1));
	CHECK_EQ(ch.held[0]->bytes, 128 << 10); /* the engine has no wish */
	while (ch.count)
		fake_end(&ch, 0, 0);
	end();
	begin(4 << 20, 1 << 20, 0);
	ch.caps.piece_bytes = 2 << 20;
	CHECK(fake_start(&t, &q, &ch, 1));
	CHECK_EQ(ch.held[0]->bytes, 1 << 20);
	while (ch.count)
		fake_end(&ch, 0, 0);
	CHECK_EQ(ch.posts, 4);
	end();
}

UNIT_TEST(queue_announces_the_memory_of_both_ends)
{
	begin(BYTES, FRAGMENT, 0);
	ch.memory_rc = -ENOMEM;
	CHECK(!fake_start(&t, &q, &ch, 2));
	CHECK_EQ(ch.posts, 0);
	ch.memory_rc = 0;
	ch.announced = 0;
	CHECK(fake_start(&t, &q, &ch, 2));
	CHECK_EQ(ch.announced, 2);
	while (ch.count)
		fake_end(&ch, 0, 0);
	end();
}

/* A guard closes and moves the program's own mapping while an engine copies. */
UNIT_TEST(queue_gives_no_engine_an_address_of_the_program)
{
	begin(BYTES, FRAGMENT, 0);
	t.group.rank = t.view.dst.rank;
	t.view.dst.desc.addr = (uintptr_t)t.view.dst.addr;
	CHECK(!fake_start(&t, &q, &ch, 2));
	CHECK_EQ(ch.posts, 0);
	t.group.rank = 2;
	move_all_by_cpu();
	end();
}

UNIT_TEST(queue_does_not_mind_the_order_of_ends)
{
	begin(BYTES + 123, FRAGMENT, 0);
	CHECK(fake_start(&t, &q, &ch, 4));
	for (unsigned k = 1; ch.count; k = k * 7 + 3)
		fake_end(&ch, k % ch.count, 0);
	CHECK_EQ(t.drained, 1);
	end();
}

UNIT_TEST(queue_shares_a_transfer_with_cpus)
{
	begin(BYTES, FRAGMENT, 0);
	CHECK(fake_start(&t, &q, &ch, 2));
	CHECK_EQ(xfer_move(&t.view, 5), 1);
	CHECK(xfer_is_done(&t.x, t.view.tag, xfer_bit(5)));
	CHECK_EQ(move_all_by_cpu(), FRAGMENTS - 3);
	CHECK(!xfer_is_done(&t.x, t.view.tag, t.view.plan.total));
	fake_end(&ch, 1, 0);
	fake_end(&ch, 0, 0);
	CHECK_EQ(ch.posts, 2);
	end();
}

UNIT_TEST(queue_in_cpu_mode_posts_nothing_and_what_the_channel_holds_ends_there)
{
	begin(BYTES, FRAGMENT, 0);
	CHECK(fake_start(&t, &q, &ch, 3));
	xfer_queue_stop(&q);
	fake_end(&ch, 1, 0);
	CHECK_EQ(ch.count, 2);
	CHECK_EQ(t.drained, 0);
	CHECK_EQ(move_all_by_cpu(), FRAGMENTS - 3);
	fake_end(&ch, 0, 0);
	fake_end(&ch, 0, 0);
	CHECK_EQ(t.drained, 1);
	CHECK_EQ(ch.posts, 3);
	CHECK(!fake_start(&t, &q, &ch, 3)); /* until it is made anew */
	end();
}

UNIT_TEST(queue_in_cpu_mode_takes_back_what_the_engine_has_not_begun)
{
	uint64_t errors = counter(BASE_CTR_ENGINE_ERRORS);

	begin(BYTES, FRAGMENT, 0);
	ch.cancels = true;
	CHECK(fake_start(&t, &q, &ch, 6));
	xfer_queue_stop(&q);
	CHECK_EQ(ch.count, 1);
	CHECK_EQ(t.drained, 0);
	CHECK_EQ(move_all_by_cpu(), FRAGMENTS - 1);
	fake_end(&ch, 0, 0);
	CHECK_EQ(t.drained, 1);
	xfer_queue_stop(&q);
	CHECK_EQ(counter(BASE_CTR_ENGINE_ERRORS), errors);
	end();
}

UNIT_TEST(queue_copies_by_cpu_what_the_engine_fails)
{
	uint64_t errors = counter(BASE_CTR_ENGINE_ERRORS);

	begin(BYTES, FRAGMENT, 0);
	CHECK(fake_start(&t, &q, &ch, 2));
	for (unsigned n = 0; ch.count; n++)
		fake_end(&ch, 0, n % 3 ? 0 : -EIO);
	CHECK_EQ(counter(BASE_CTR_ENGINE_ERRORS) - errors, FRAGMENTS / 3);
	CHECK_EQ(t.drained, 1);
	end();
}

UNIT_TEST(queue_gives_failed_fragments_back_to_those_who_wait)
{
	begin(BYTES, FRAGMENT, 0);
	CHECK(fake_start(&t, &q, &ch, 2));
	xfer_queue_stop(&q);
	fake_end(&ch, 0, -EIO);
	CHECK(!xfer_is_done(&t.x, t.view.tag, xfer_bit(0)));
	fake_end(&ch, 0, 0);
	CHECK_EQ(t.drained, 1);
	CHECK_EQ(xfer_move(&t.view, 0), 1); /* the one that failed, as all others */
	CHECK(xfer_is_done(&t.x, t.view.tag, xfer_bits(2)));
	CHECK_EQ(move_all_by_cpu(), FRAGMENTS - 2);
	end();
}

static void hang(bool stopped)
{
	uint64_t retired = counter(BASE_CTR_ENGINE_RETIRED),
		 errors = counter(BASE_CTR_ENGINE_ERRORS);

	begin(BYTES, FRAGMENT, 0);
	CHECK(fake_start(&t, &q, &ch, 3));
	fake_end(&ch, 0, 0);
	if (stopped)
		xfer_queue_stop(&q);
	CHECK(!xfer_queue_rescue(&q, os_now_ns() + TIMEOUT_NS / 2));
	CHECK_EQ(ch.count, 3);
	CHECK(xfer_queue_rescue(&q, xfer_queue_due_ns(&q)));
	CHECK_EQ(ch.count, 0);
	CHECK_EQ(t.drained, 1);
	CHECK_EQ(counter(BASE_CTR_ENGINE_RETIRED) - retired, 1);
	CHECK_EQ(counter(BASE_CTR_ENGINE_ERRORS), errors);
	CHECK(xfer_queue_is_idle(&q));
	CHECK(!xfer_queue_rescue(&q, UINT64_MAX));
	CHECK_EQ(move_all_by_cpu(), stopped ? FRAGMENTS - 1 : FRAGMENTS - 4);
	end();
}

UNIT_TEST(queue_retires_a_channel_that_hangs)
{
	hang(false);
	hang(true);
}

UNIT_TEST(queue_counts_the_time_from_when_somebody_waits)
{
	begin(BYTES, FRAGMENT, 0);
	CHECK(fake_start(&t, &q, &ch, 1));
	atomic_store(&q.moved_ns, os_now_ns() - 2 * TIMEOUT_NS); /* an engine at idle priority */
	xfer_queue_stop(&q);
	CHECK(!xfer_queue_rescue(&q, os_now_ns()));
	CHECK_EQ(ch.count, 1);
	fake_end(&ch, 0, 0);
	move_all_by_cpu();
	end();
}

UNIT_TEST(queue_gives_back_what_a_full_or_retired_channel_does_not_take)
{
	begin(BYTES, FRAGMENT, 0);
	ch.depth = 0;
	CHECK(!fake_start(&t, &q, &ch, 3));
	ch.depth = 2;
	CHECK(fake_start(&t, &q, &ch, 3));
	CHECK_EQ(ch.count, 2);
	ch.is_closed = true;
	fake_end(&ch, 0, 0);
	fake_end(&ch, 0, 0);
	CHECK_EQ(t.drained, 1);
	CHECK(!fake_start(&t, &q, &ch, 3));
	CHECK_EQ(move_all_by_cpu(), FRAGMENTS - 2);
	end();
}

UNIT_TEST(queue_posts_long_fragments_in_pieces)
{
	begin(1 << 20, 1 << 19, 0);
	ch.caps.max_copy_bytes = 100 << 10;
	ch.caps.align_bytes = 64;
	CHECK(fake_start(&t, &q, &ch, 1));
	while (ch.count)
		fake_end(&ch, 0, 0);
	CHECK_EQ(ch.posts, 12);
	CHECK_EQ(t.drained, 1);
	end();
}

UNIT_TEST(queue_stopped_between_pieces_gives_the_fragment_back)
{
	begin(1 << 20, 1 << 19, 0);
	ch.caps.max_copy_bytes = 100 << 10;
	CHECK(fake_start(&t, &q, &ch, 1));
	fake_end(&ch, 0, 0);
	xfer_queue_stop(&q);
	fake_end(&ch, 0, 0);
	CHECK_EQ(t.drained, 1);
	CHECK_EQ(move_all_by_cpu(), 2);
	end();
}

UNIT_TEST(queue_finishes_a_fragment_whose_next_piece_is_refused)
{
	begin(1 << 20, 1 << 19, 0);
	ch.caps.max_copy_bytes = 100 << 10;
	CHECK(fake_start(&t, &q, &ch, 1));
	ch.is_closed = true;
	fake_end(&ch, 0, 0);
	CHECK_EQ(t.drained, 1);
	CHECK(xfer_is_done(&t.x, t.view.tag, xfer_bit(0)));
	CHECK_EQ(move_all_by_cpu(), 1);
	end();
}

UNIT_TEST(queue_leaves_odd_bytes_at_the_end_to_the_cpu)
{
	begin(BYTES + 77, FRAGMENT, 0);
	ch.caps.align_bytes = 16;
	CHECK_EQ((uintptr_t)t.src % 16, 0);
	CHECK_EQ((uintptr_t)t.dst % 16, 0);
	CHECK(fake_start(&t, &q, &ch, 2));
	while (ch.count)
		fake_end(&ch, 0, 0);
	end();
	begin(FRAGMENT + 7, FRAGMENT, 0); /* a last fragment of less than a unit */
	ch.caps.align_bytes = 16;
	if (fake_start(&t, &q, &ch, 2))
		while (ch.count)
			fake_end(&ch, 0, 0);
	move_all_by_cpu();
	end();
}

UNIT_TEST(queue_does_not_use_a_channel_whose_alignment_the_buffers_do_not_have)
{
	begin(BYTES, FRAGMENT, 0);
	ch.caps.align_bytes = 16;
	t.view.src.lo = 0;
	t.view.plan.lo = 8;
	CHECK(!fake_start(&t, &q, &ch, 2));
	t.view.plan.lo = 0;
	CHECK_EQ(move_all_by_cpu(), FRAGMENTS);
	end();
}

UNIT_TEST(queue_brings_the_edges_too)
{
	begin(BYTES + 2000, FRAGMENT, 1000);
	CHECK(fake_start(&t, &q, &ch, 2));
	while (ch.count)
		fake_end(&ch, 0, 0);
	CHECK_EQ(ch.posts, FRAGMENTS);
	CHECK_EQ(move_all_by_cpu(), 0);
	end();
	begin(2000, FRAGMENT, 1000); /* nothing else */
	CHECK(!fake_start(&t, &q, &ch, 2));
	CHECK_EQ(t.drained, 0);
	end();
}

UNIT_TEST(queue_with_nothing_left_to_claim_is_not_started)
{
	begin(BYTES, FRAGMENT, 0);
	move_all_by_cpu();
	CHECK(!fake_start(&t, &q, &ch, 2));
	CHECK_EQ(ch.posts, 0);
	end();
}

/* ---- several transfers --------------------------------------------------------------------- */

enum { TRANSFERS = 3 };
static struct fake_xfer some[TRANSFERS];

static void begin_some(void)
{
	begin(BYTES, FRAGMENT, 0);
	fake_xfer_fini(&t);
	for (unsigned k = 0; k < TRANSFERS; k++)
		fake_xfer_init(&some[k], BYTES / 4, FRAGMENT, 0);
}

/* drained: of the queue. */
static void end_some(unsigned drained)
{
	CHECK_EQ(some[0].drained, drained);
	CHECK(xfer_queue_is_idle(&q));
	for (unsigned k = 0; k < TRANSFERS; k++) {
		while (xfer_move(&some[k].view, XFER_ANY))
			;
		fake_check(&some[k]);
		fake_xfer_fini(&some[k]);
	}
}

static void count_some(void *arg) { ((struct fake_xfer *)arg)->drained++; }

static bool start_some(uint32_t depth)
{
	return xfer_queue_start(&q, fake_view, TRANSFERS, &ch.base, depth, count_some, some);
}

UNIT_TEST(queue_feeds_several_transfers_at_once)
{
	begin_some();
	CHECK(start_some(FAKE_HELD));
	CHECK_EQ(ch.count, FRAGMENTS / 4 * TRANSFERS);
	CHECK_EQ(ch.flushes, 1);
	CHECK_EQ(ch.announced, 2 * TRANSFERS);
	while (ch.count)
		fake_end(&ch, ch.count / 2, 0);
	end_some(1);
}

UNIT_TEST(queue_leaves_no_gap_between_transfers)
{
	begin_some();
	CHECK(start_some(2));
	for (unsigned left = FRAGMENTS / 4 * TRANSFERS; left; left--) {
		CHECK_EQ(ch.count, left > 1 ? 2 : 1);
		fake_end(&ch, 0, left % 4 ? 0 : -EIO);
	}
	end_some(1);
}

UNIT_TEST(queue_leaves_out_transfers_that_it_cannot_copy)
{
	begin_some();
	some[0].view.can_move = false;
	while (xfer_move(&some[1].view, XFER_ANY))
		;
	CHECK(start_some(FAKE_HELD));
	CHECK_EQ(ch.count, FRAGMENTS / 4);
	while (ch.count)
		fake_end(&ch, 0, 0);
	some[0].view.can_move = true;
	end_some(1);
	begin_some();
	some[0].view.can_move = some[1].view.can_move = some[2].view.can_move = false;
	CHECK(!start_some(2));
	some[0].view.can_move = some[1].view.can_move = some[2].view.can_move = true;
	end_some(0);
}

UNIT_TEST(queue_of_several_transfers_stops_in_the_middle)
{
	begin_some();
	CHECK(start_some(2));
	fake_end(&ch, 0, 0);
	fake_end(&ch, 0, 0);
	xfer_queue_stop(&q); /* it holds fragments of two transfers */
	fake_end(&ch, 1, -EIO);
	fake_end(&ch, 0, 0);
	CHECK_EQ(ch.count, 0);
	end_some(1);
}

/* ---- started again by its own end ---------------------------------------------------------- */

static unsigned rounds;

static void next_round(void *arg)
{
	CHECK(xfer_queue_is_idle(&q));
	fake_check(arg);
	fake_xfer_again(arg);
	if (++rounds < 5)
		CHECK(xfer_queue_start(&q, fake_view, 1, &ch.base, 2, next_round, arg));
}

UNIT_TEST(queue_can_be_started_again_when_it_is_drained)
{
	begin(BYTES, FRAGMENT, 300);
	rounds = 0;
	CHECK(xfer_queue_start(&q, fake_view, 1, &ch.base, 2, next_round, &t));
	while (ch.count)
		fake_end(&ch, ch.count - 1, 0);
	CHECK_EQ(rounds, 5);
	move_all_by_cpu();
	end();
}

UNIT_TEST(queue_lets_waiters_do_what_the_engine_has_not_begun)
{
	begin(BYTES, FRAGMENT, 0);
	ch.ends_in_poll = true;
	CHECK(fake_start(&t, &q, &ch, 2));
	xfer_queue_stop(&q);
	CHECK(xfer_queue_rescue(&q, os_now_ns()));
	CHECK(xfer_queue_rescue(&q, os_now_ns()));
	CHECK(!xfer_queue_rescue(&q, os_now_ns()));
	CHECK_EQ(t.drained, 1);
	CHECK_EQ(move_all_by_cpu(), FRAGMENTS - 2);
	end();
}

/* ---- anything in any order --------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* A fragment in the channel is claimed and not in place. */
static void check_held(void)
{
	uint64_t held = fake_held_bits(&t, &ch);

	CHECK_EQ(atomic_load(&t.x.claimed) & held, held);
	CHECK_EQ(atomic_load(&t.x.done) & held, 0);
}

static void random_step(uint64_t *seed)
{
	switch (next_random(seed) % 16) {
	case 0:
		xfer_queue_stop(&q);
		break;
	case 1:
		xfer_move(&t.view, (uint32_t)(next_random(seed) % t.view.plan.units));
		break;
	case 2:
		ch.depth = (unsigned)next_random(seed) % 4;
		break;
	case 3:
		if (ch.count)
			fake_end(&ch, (unsigned)next_random(seed) % ch.count, -EIO);
		break;
	case 4:
		if (next_random(seed) % 8 == 0)
			xfer_queue_rescue(&q, UINT64_MAX / 2);
		break;
	default:
		if (ch.count)
			fake_end(&ch, (unsigned)next_random(seed) % ch.count, 0);
	}
}

UNIT_TEST(queue_loses_nothing_and_copies_nothing_twice_whatever_happens)
{
	for (uint64_t n = 0; n < 3000; n++) {
		uint64_t seed = n, edge = n % 3 ? 0 : n % 500;
		bool started;

		begin(BYTES / 2 + n % 4097 + 2 * edge, FRAGMENT << n % 2, edge);
		ch.caps.max_copy_bytes = n % 5 ? 1 << 20 : 3000;
		started = fake_start(&t, &q, &ch, 1 + (uint32_t)n % 4);
		for (int k = 0; k < 40 && ch.count; k++) {
			random_step(&seed);
			check_held();
		}
		CHECK_EQ(t.drained, started && !ch.count);
		while (ch.count)
			fake_end(&ch, 0, n % 2 ? 0 : -EIO);
		CHECK_EQ(t.drained, started);
		move_all_by_cpu();
		end();
	}
}
