/* SPDX-License-Identifier: BSD-3-Clause */
/* A worker thread is displaced in the middle of a copy that another thread waits for. */
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/engine.h"
#include "unit.h"

enum { BYTES = 32 << 20, NOWHERE = 1 << 20 };

static _Atomic uint32_t hogging; /* futex: 0 sleep, 1 spin, 2 end */
static _Atomic int ended_on;     /* 1 + CPU */
static int near_cpu = -1, far_cpu = -1;

static void run_on(int cpu)
{
	struct os_cpumask m = { { 0 } };

	m.bits[cpu / 64] = (uint64_t)1 << cpu % 64;
	CHECK(!os_cpumask_apply(0, &m));
}

static void *hog(void *arg)
{
	(void)arg;
	run_on(far_cpu);
	while (atomic_load(&hogging) != 2) {
		os_futex_wait(&hogging, 0, OS_FOR_EVER);
		while (atomic_load(&hogging) == 1)
			;
	}
	return NULL;
}

static void set_hog(uint32_t to)
{
	atomic_store(&hogging, to);
	os_futex_wake(&hogging, 1);
}

static void note_cpu(struct engine_copy *c, int result)
{
	(void)c;
	CHECK_EQ(result, 0);
	/* a copy that the worker had not begun is executed by the waiting thread: not counted */
	atomic_store(&ended_on, syscall(SYS_gettid) == getpid() ? NOWHERE : 1 + sched_getcpu());
}

/* Returns: true when the worker ran on this thread's CPU. */
static bool one_try(struct engine_chan *ch, char *to, const char *from)
{
	struct engine_copy c = { .dst = to, .src = from, .bytes = BYTES, .done = note_cpu };
	uint64_t give_up;

	atomic_store(&ended_on, 0);
	CHECK(!engine_post(ch, &c));
	engine_flush(ch);
	give_up = os_now_ns() + 1000000;
	while (os_now_ns() < give_up)
		os_cpu_relax(); /* the copy has begun but not ended */
	set_hog(1);
	give_up = os_now_ns() + 5000000000u;
	while (!atomic_load(&ended_on) && os_now_ns() < give_up)
		engine_poll(ch);
	set_hog(0);
	CHECK(atomic_load(&ended_on));
	CHECK(!memcmp(to, from, BYTES));
	return atomic_load(&ended_on) == 1 + near_cpu;
}

static void find_cpus(const struct os_cpumask *all)
{
	for (int cpu = 0; cpu < OS_CPUMASK_WORDS * 64; cpu++)
		if (all->bits[cpu / 64] >> cpu % 64 & 1) {
			near_cpu = near_cpu < 0 ? cpu : near_cpu;
			far_cpu = cpu;
		}
}

/* In a child process, which exits with its threads wherever they are. */
static void displace(void *arg)
{
	struct os_cpumask far = { { 0 } };
	char *to = malloc(BYTES), *from = malloc(BYTES);
	struct engine_chan *ch;
	pthread_t thread;
	uint64_t give_up = os_now_ns() + 15000000000u;
	bool lent = false;

	(void)arg;
	memset(from, 7, BYTES);
	memset(to, 1, BYTES);
	base_opt.engine_workers = 1;
	far.bits[far_cpu / 64] = (uint64_t)1 << far_cpu % 64;
	engine_set_cpus(&far, 1);
	run_on(near_cpu);
	CHECK(!engine_find("sw")->chan_open(-1, 0, &ch));
	CHECK(!pthread_create(&thread, NULL, hog, NULL));
	/* on a busy machine the worker seldom begins in time */
	while (!lent && os_now_ns() < give_up)
		lent = one_try(ch, to, from);
	CHECK(lent);
	set_hog(2);
	pthread_join(thread, NULL);
	ch->ops->chan_close(ch);
	free(to);
	free(from);
}

UNIT_TEST(engine_sw_lends_its_cpu_to_a_displaced_worker_that_is_waited_for)
{
	struct os_cpumask all;
	char why[256];

	os_cpumask_self(&all);
	find_cpus(&all);
	base_opt.engine_workers = 1;
	if (near_cpu == far_cpu)
		unit_skip("there is one CPU only");
	if (engine_find("sw")->probe(why, sizeof why))
		unit_skip(why);
	CHECK_EQ(unit_fork(displace, NULL), 0);
}
