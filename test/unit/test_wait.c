/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "unit.h"
#include "os/endpoint.h"
#include "wait/private.h"

static enum wait_mode decide(int64_t option, int ranks, int cpus)
{
	return wait_decide(&(struct wait_facts){ option, ranks, cpus, false });
}

UNIT_TEST(more_ranks_than_cpus_wait_politely)
{
	CHECK_EQ(decide(BASE_WAIT_AUTO, 4, 2), WAIT_POLITE);
	CHECK_EQ(decide(BASE_WAIT_AUTO, 2, 2), WAIT_SPIN);
	CHECK_EQ(decide(BASE_WAIT_AUTO, -1, 2), WAIT_SPIN);
	CHECK_EQ(decide(BASE_WAIT_AUTO, 4, -1), WAIT_SPIN);
	CHECK_EQ(decide(BASE_WAIT_SPIN, 4, 2), WAIT_SPIN);
	CHECK_EQ(decide(BASE_WAIT_POLITE, 1, 2), WAIT_POLITE);
	CHECK_EQ(wait_decide(&(struct wait_facts){ BASE_WAIT_AUTO, 2, 2, true }), WAIT_POLITE);
	CHECK_EQ(wait_decide(&(struct wait_facts){ BASE_WAIT_SPIN, 2, 2, true }), WAIT_SPIN);
}

UNIT_TEST(a_quota_counts_as_cpus)
{
	CHECK_EQ(wait_quota_cpus("max 100000\n"), -1);
	CHECK_EQ(wait_quota_cpus("200000 100000\n"), 2);
	CHECK_EQ(wait_quota_cpus("150000 100000\n"), 2);
	CHECK_EQ(wait_quota_cpus("50000 100000\n"), 1);
	CHECK_EQ(wait_quota_cpus("50000\n"), -1);
	CHECK_EQ(wait_quota_cpus(""), -1);
	CHECK_EQ(wait_quota_cpus("0 0\n"), -1);
}

UNIT_TEST(facts_are_those_of_this_process)
{
	struct wait_facts facts;
	struct os_cpumask cpus;

	base_opt.wait = BASE_WAIT_AUTO;
	os_cpumask_self(&cpus);
	setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3", 1);
	wait_facts_read(&facts);
	CHECK_EQ(facts.local_ranks, 3);
	CHECK(facts.cpus >= 1);
	unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
	setenv("SLURM_STEP_TASKS_PER_NODE", "8(x4),7", 1);
	wait_facts_read(&facts);
	CHECK_EQ(facts.local_ranks, 8);
	unsetenv("SLURM_STEP_TASKS_PER_NODE");
	wait_facts_read(&facts);
	CHECK_EQ(facts.local_ranks, -1);
	CHECK(facts.cpus <= os_cpumask_count(&cpus));
}

/* ---- rounds -------------------------------------------------------------------------------- */

static uint64_t sleeps(void) { return base_counter_value(BASE_CTR_SLEEPS); }

static void begin(int64_t option)
{
	base_opt.wait = option;
	wait_start();
	wait_thread = NULL;
	/* as another thread, which waits alone after a while */
	while (wait_mode() == WAIT_POLITE && !wait_round())
		sched_yield();
}

static void end(void) { begin(BASE_WAIT_SPIN); }

static void round_of_a_program(bool each_call)
{
	if (each_call)
		wait_call_begin();
	if (!wait_round())
		sched_yield();
}

/* Idle rounds for this long; each_call: every round belongs to another call. */
static uint64_t sleeps_of(uint64_t ns, bool each_call)
{
	uint64_t before = sleeps();

	for (uint64_t start = os_now_ns(); os_now_ns() - start < ns;)
		round_of_a_program(each_call);
	return sleeps() - before;
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Has a wait slept so often before it has used so much of a CPU? On a busy machine other processes
 * get most of the time that passes. Reading this clock takes longer than a poll. */
static bool sleeps_before(uint64_t ns, uint64_t times)
{
	uint64_t before = sleeps(), start = cpu_ns();

	for (unsigned i = 1; sleeps() - before < times; i++) {
		round_of_a_program(false);
		if (!(i % 64) && cpu_ns() - start > ns)
			return false;
	}
	return true;
}

UNIT_TEST(a_polite_wait_sleeps)
{
	struct rusage r;
	uint64_t cpu;

	begin(BASE_WAIT_POLITE);
	CHECK(sleeps_before(100000000, 10));
	getrusage(RUSAGE_THREAD, &r);
	cpu = (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) +
	      (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000;
	sleeps_of(200000000, false);
	getrusage(RUSAGE_THREAD, &r);
	cpu = (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) +
	      (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000 - cpu;
	CHECK(cpu < 80000);
	end();
}

static void *round_of_another(void *is_polite)
{
	*(bool *)is_polite = wait_round();
	return NULL;
}

UNIT_TEST(threads_that_wait_at_the_same_time_do_as_without_sluice)
{
	bool is_polite = true;
	pthread_t other;

	begin(BASE_WAIT_POLITE);
	CHECK(wait_round());
	CHECK_EQ(pthread_create(&other, NULL, round_of_another, &is_polite), 0);
	pthread_join(other, NULL);
	CHECK(!is_polite);
	CHECK(!wait_round());
	CHECK(sleeps_before(100000000, 1)); /* alone again */
	end();
}

UNIT_TEST(a_spinning_wait_never_sleeps)
{
	begin(BASE_WAIT_SPIN);
	CHECK_EQ(sleeps_of(30000000, false), 0);
	CHECK(!wait_round());
}

UNIT_TEST(short_waits_of_many_calls_do_not_sleep)
{
	begin(BASE_WAIT_POLITE);
	CHECK_EQ(sleeps_of(20000000, true), 0);
	end();
}

/* Idle rounds for this long, of a host MPI whose polls take poll_ns. */
static void poll_for(uint64_t poll_ns, uint32_t polls)
{
	for (uint64_t at = os_now_ns(); os_now_ns() - at < poll_ns;)
		;
	wait_round_after(polls);
}

static uint64_t sleeps_of_polls(uint64_t ns, uint64_t poll_ns, uint32_t polls)
{
	uint64_t before = sleeps();

	for (uint64_t start = os_now_ns(); os_now_ns() - start < ns;)
		poll_for(poll_ns, polls);
	return sleeps() - before;
}

/* As under Hydra, in a session of its own: a poll of 1 us is progress there. */
static void wait_for_parts(void *arg)
{
	(void)arg;
	setsid();
	begin(BASE_WAIT_POLITE);
	CHECK(sleeps_before(10000000, 20)); /* it has learnt how short a poll can be */
	/* With the average of all rounds as the usual length these looked idle. */
	CHECK_EQ(sleeps_of_polls(20000000, 5000, 1), 0);
	CHECK(sleeps_before(10000000, 1));
}

UNIT_TEST(a_long_message_in_parts_does_not_sleep)
{
	CHECK_EQ(unit_fork(wait_for_parts, NULL), 0);
}

/* A host MPI that looks at its sockets in each poll of a probe, and else in one of 512. */
static void wait_after_probes(void *arg)
{
	(void)arg;
	setsid();
	begin(BASE_WAIT_POLITE);
	CHECK(sleeps_before(10000000, 20));
	CHECK(sleeps_of_polls(20000000, 12000, 512) > 0);
	CHECK_EQ(sleeps_of_polls(20000000, 40000, 512), 0);
}

UNIT_TEST(many_polls_take_longer_than_the_one_of_a_probe)
{
	CHECK_EQ(unit_fork(wait_after_probes, NULL), 0);
}

static void wait_with_slower_polls(void *arg)
{
	uint64_t before, start;

	(void)arg;
	setsid();
	begin(BASE_WAIT_POLITE);
	CHECK(sleeps_before(10000000, 20));
	before = sleeps();
	for (start = cpu_ns(); sleeps() == before && cpu_ns() - start < 300000000;)
		poll_for(3000, 1);
	CHECK(sleeps() > before);
}

UNIT_TEST(polls_that_become_slow_are_learnt)
{
	CHECK_EQ(unit_fork(wait_with_slower_polls, NULL), 0);
}

/* Else it counts as a sleeper where it does not sleep, and not where it does: nobody wakes it. */
UNIT_TEST(a_thread_that_is_armed_leaves_its_word_first)
{
	begin(BASE_WAIT_POLITE);
	while (!wait_thread || !wait_thread->is_armed)
		wait_round();
	wait_disconnect();
	CHECK(!wait_thread->is_armed);
	end();
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
static bool keeps_cpu;

/* In place of syscall(), whose callers fill as many registers as they like. On a busy machine
 * almost each yield would take the time slices of others. */
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	if (number == SYS_sched_yield && keeps_cpu)
		return 0;
	return __real_syscall(number, a, b, c, d, e, f);
}

/* Does the first round of a wait yield, and then each third? Not if one of them found something, as
 * a thread that loses its CPU seems to, or napped. */
static bool yields_each_third(void)
{
	static const uint32_t polled[] = { 0, 1, 2, 0, 1 };
	bool is_so = true;

	wait_call_begin();
	for (size_t i = 0; i < BASE_ARRAY_LEN(polled); i++) {
		CHECK(wait_round());
		is_so = is_so && wait_thread->polled == polled[i];
	}
	return is_so;
}

UNIT_TEST(a_wait_polls_three_times_for_each_yield)
{
	int waits = 0;

	begin(BASE_WAIT_POLITE);
	CHECK(wait_round());
	keeps_cpu = true;
	for (int i = 0; i < 100; i++)
		waits += yields_each_third();
	keeps_cpu = false;
	CHECK(waits > 50);
	end();
}

static int turns;

static int take_turn(struct endpoint *self)
{
	(void)self;
	turns++;
	return 1;
}

/* Polls of one wait, until one yields. */
static int polls_to_the_next_turn(void)
{
	int before = turns, polls = 0;

	for (; turns == before && polls < 100; polls++)
		CHECK(wait_round());
	return polls;
}

UNIT_TEST(a_hint_makes_a_rank_that_takes_turns_poll_again_at_once)
{
	static struct endpoint fake = { .yield = take_turn };

	endpoint_self = &fake;
	begin(BASE_WAIT_POLITE);
	polls_to_the_next_turn();
	CHECK_EQ(polls_to_the_next_turn(), 1);
	word_hint(own_word());
	CHECK_EQ(polls_to_the_next_turn(), 1);
	CHECK_EQ(polls_to_the_next_turn(), 4);
	CHECK_EQ(polls_to_the_next_turn(), 1);
	word_hint(own_word());
	CHECK_EQ(polls_to_the_next_turn(), 1);
	wait_call_begin(); /* the wait of another call has no hint yet */
	CHECK_EQ(polls_to_the_next_turn(), 1);
	endpoint_self = NULL;
	end();
}

static void test_for(uint64_t ns, uint64_t work_ns)
{
	int flag = 0;

	for (uint64_t start = os_now_ns(); os_now_ns() - start < ns;)
		for (int i = 0; i < 100; i++) {
			for (uint64_t at = work_ns ? os_now_ns() : 0;
			     at && os_now_ns() - at < work_ns;)
				;
			wait_test_begin();
			CHECK_EQ(wait_test_end(0, &flag), 0);
		}
}

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
static int further_reads;

/* In place of clock_gettime(): a read takes as long as 1 + further_reads. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
	struct timespec unused;
	int ret = __real_clock_gettime(clock, out);

	for (int i = 0; i < further_reads; i++)
		__real_clock_gettime(clock, &unused);
	return ret;
}

UNIT_TEST(tests_sleep_where_reads_of_the_clock_are_slow)
{
	uint64_t before = sleeps();

	begin(BASE_WAIT_POLITE);
	further_reads = 4;
	test_for(50000000, 0);
	further_reads = 0;
	CHECK(sleeps() > before);
	end();
}

UNIT_TEST(tests_without_other_work_sleep)
{
	int flag = 1;
	uint64_t before = sleeps();

	begin(BASE_WAIT_POLITE);
	test_for(50000000, 0);
	CHECK(sleeps() > before);
	CHECK_EQ(wait_test_end(7, NULL), 7);
	CHECK_EQ(wait_test_end(0, &flag), 0);
	end();
}

/* RandomAccess of HPCC tests once an update, and was up to 70 times slower when that slept. */
UNIT_TEST(tests_between_short_work_never_sleep)
{
	uint64_t before = sleeps();

	begin(BASE_WAIT_POLITE);
	test_for(20000000, 150);
	test_for(20000000, 5000);
	CHECK_EQ(sleeps(), before);
	end();
}

UNIT_TEST(tests_between_other_calls_never_sleep)
{
	uint64_t before = sleeps();

	begin(BASE_WAIT_POLITE);
	for (uint64_t start = os_now_ns(); os_now_ns() - start < 20000000;) {
		test_for(1000, 0);
		wait_call_begin();
		wait_call_end(0);
	}
	CHECK_EQ(sleeps(), before);
	end();
}

static void wait_in_child(void *arg)
{
	(void)arg;
	CHECK_EQ(wait_mode(), WAIT_SPIN);
	CHECK(!wait_round());
}

UNIT_TEST(a_forked_child_does_not_wait_politely)
{
	begin(BASE_WAIT_POLITE);
	CHECK_EQ(unit_fork(wait_in_child, NULL), 0);
	end();
}
