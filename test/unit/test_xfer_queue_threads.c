/* SPDX-License-Identifier: BSD-3-Clause */
/* Virtual queues over the worker threads of `sw`, while others claim, stop, rescue and start again.
 */
#include <errno.h>
#include <pthread.h>

#include "engine_late.h"
#include "xfer_fake.h"

enum { MOVERS = 2, ROUNDS = 300, FRAGMENT = 4096, FRAGMENTS = 20 };

enum { TRANSFERS = 3 };
static struct fake_xfer t[TRANSFERS];
static struct xfer_queue q;
static struct engine_chan *chan;
static _Atomic unsigned drained;
static struct {
	_Atomic unsigned round; /* movers may touch the transfer of this round */
	_Atomic unsigned at_rest; /* movers that wait for the next one */
	_Atomic bool over;
} world;

static void count(void *arg)
{
	CHECK_EQ((uintptr_t)arg, (uintptr_t)t);
	atomic_fetch_add(&drained, 1);
}

static void mover_round(unsigned me, unsigned round)
{
	struct xfer_view v = t[(round + me) % TRANSFERS].view; /* as every mover has its own */

	if ((round + me) % 4 == 0)
		return;
	for (unsigned k = 0; k < (round * 7 + me) % 40; k++)
		os_cpu_relax();
	if ((round + me) % 5 == 1)
		xfer_queue_stop(&q);
	while (xfer_move(&v, (round * me) % FRAGMENTS) > 0)
		if ((round + me) % 4)
			sched_yield();
}

static void *mover(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg, seen = 0;

	while (!atomic_load(&world.over)) {
		unsigned round = atomic_load(&world.round);

		if (round == seen) {
			sched_yield();
			continue;
		}
		seen = round;
		mover_round(me, round);
		atomic_fetch_add(&world.at_rest, 1);
	}
	return NULL;
}

static void owner_round(unsigned round)
{
	bool started;

	for (unsigned k = 0; k < TRANSFERS; k++)
		fake_xfer_again(&t[k]);
	xfer_queue_init(&q);
	atomic_store(&drained, 0);
	atomic_store(&world.at_rest, 0);
	atomic_store(&world.round, round);
	started = xfer_queue_start(&q, fake_view, TRANSFERS, chan, 1 + round % 4, count, t);
	while (atomic_load(&world.at_rest) < MOVERS)
		sched_yield();
	if (round % 2)
		xfer_queue_stop(&q);
	while (!xfer_queue_is_idle(&q))
		xfer_queue_rescue(&q, os_now_ns());
	while (started && !atomic_load(&drained))
		sched_yield();
	CHECK_EQ(atomic_load(&drained), started);
	for (unsigned k = 0; k < TRANSFERS; k++) {
		while (xfer_move(&t[k].view, XFER_ANY) > 0)
			;
		fake_check(&t[k]);
	}
}

static void run_rounds(unsigned rounds)
{
	pthread_t threads[MOVERS];

	memset(&world, 0, sizeof world);
	for (unsigned k = 0; k < TRANSFERS; k++)
		fake_xfer_init(&t[k], FRAGMENT * (FRAGMENTS >> k) + 600, FRAGMENT, 300);
	for (unsigned k = 0; k < MOVERS; k++)
		CHECK(!pthread_create(&threads[k], NULL, mover, (void *)(uintptr_t)(k + 1)));
	for (unsigned round = 1; round <= rounds; round++)
		owner_round(round);
	atomic_store(&world.over, true);
	for (unsigned k = 0; k < MOVERS; k++)
		pthread_join(threads[k], NULL);
	for (unsigned k = 0; k < TRANSFERS; k++)
		fake_xfer_fini(&t[k]);
}

static void with_engine(const char *name, const char *how, unsigned rounds)
{
	const struct base_options saved = base_opt;
	const struct engine_ops *engine = engine_find(name);
	struct os_cpumask cpus;
	char why[256];

	base_opt.engine_workers = 2;
	base_opt.engine_timeout_ms = 50;
	base_opt.engine_fault = how;
	os_cpumask_self(&cpus);
	engine_set_cpus(&cpus, 2);
	if (engine->probe(why, sizeof why) || engine->chan_open(-1, 0, &chan)) {
		base_opt = saved;
		unit_skip(why);
	}
	run_rounds(rounds);
	engine->chan_close(chan);
	base_opt = saved;
}

UNIT_TEST(queue_over_worker_threads_moves_each_fragment_once)
{
	with_engine("sw", "", ROUNDS);
}

UNIT_TEST(queue_over_an_autonomous_engine_moves_each_fragment_once)
{
	engine_late_add();
	with_engine("late", "", ROUNDS);
	with_engine("fault", "inner=late,delay=20,error=3", ROUNDS / 10);
}

/* All bytes of some transfers arrive after one submission; then one poll ends them. */
static void moves_alone(unsigned transfers, size_t bytes)
{
	uint64_t copied = engine_late_copied(), until = os_now_ns() + 20000000000ull;
	unsigned submissions = engine_late_submissions();
	struct engine_caps caps;

	engine_late_piece_bytes = bytes;
	CHECK(!engine_late.chan_open(-1, 0, &chan));
	chan->ops->caps(chan, &caps);
	for (unsigned k = 0; k < transfers; k++)
		fake_xfer_init(&t[k], bytes, 0, 0);
	xfer_queue_init(&q);
	atomic_store(&drained, 0);
	CHECK(xfer_queue_start(&q, fake_view, transfers, chan, caps.depth, count, t));
	while (engine_late_copied() - copied < transfers * bytes && os_now_ns() < until)
		sched_yield();
	CHECK_EQ(engine_late_copied() - copied, transfers * bytes);
	CHECK_EQ(engine_late_submissions() - submissions, 1);
	CHECK_EQ(atomic_load(&drained), 0);
	CHECK(xfer_queue_rescue(&q, os_now_ns()));
	CHECK_EQ(atomic_load(&drained), 1);
	for (unsigned k = 0; k < transfers; k++) {
		fake_check(&t[k]);
		fake_xfer_fini(&t[k]);
	}
	engine_late.chan_close(chan);
	engine_late_piece_bytes = 0;
}

UNIT_TEST(sixteen_megabytes_are_moved_by_an_autonomous_engine_while_nobody_polls)
{
	moves_alone(1, 16 << 20);
}

UNIT_TEST(several_transfers_are_moved_by_an_autonomous_engine_while_nobody_polls)
{
	moves_alone(TRANSFERS, 1 << 20);
}

UNIT_TEST(queue_over_an_engine_with_errors_moves_each_fragment_once)
{
	with_engine("fault", "delay=20,error=3", ROUNDS / 10);
}

UNIT_TEST(queue_over_an_engine_that_hangs_loses_nothing)
{
	with_engine("fault", "hang=5", 5);
}
