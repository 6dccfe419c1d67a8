/* SPDX-License-Identifier: BSD-3-Clause */
/* Trials: which executor a class of calls gets, and what the trials themselves cost. */
#include "policy/policy.h"
#include "unit.h"

#define US 1000u

static bool is_of_sluice(uint32_t call) { return __builtin_parity(call); }

static struct policy_trial_result result_of(uint64_t host_ns, uint64_t sluice_ns)
{
	struct policy_trial_result r = { .ranks = 2 };

	for (uint32_t i = 0; i < POLICY_TRIAL_CALLS; i++) {
		r.cost_ns[i] = is_of_sluice(i) ? sluice_ns : host_ns;
		r.bytes[i] = 1 << 20;
	}
	return r;
}

static void run_trial(struct policy_trial *t, const struct policy_trial_result *r)
{
	policy_trial_begin(t);
	for (t->calls = 0; t->calls < POLICY_TRIAL_CALLS; t->calls++)
		policy_trial_next(t);
	CHECK_EQ(policy_trial_next(t), TRIAL_JUDGE);
	policy_trial_judge(t, r);
}

static uint32_t calls_until_due(struct policy_trial *t)
{
	uint32_t n = 0;

	while (policy_trial_next(t) != TRIAL_DUE)
		n++;
	return n;
}

UNIT_TEST(a_trial_takes_both_ways_in_turn)
{
	struct policy_trial t = { 0 };
	char order[POLICY_TRIAL_CALLS + 1] = "";

	CHECK_EQ(policy_trial_next(&t), TRIAL_DUE);
	CHECK_EQ(policy_trial_next(&t), TRIAL_DUE);
	policy_trial_begin(&t);
	for (; t.calls < POLICY_TRIAL_CALLS; t.calls++)
		order[t.calls] = policy_trial_next(&t) == TRIAL_SLUICE ? 'S' : 'H';
	CHECK_STR(order, "HSSHSHHS");
	CHECK_EQ(policy_trial_next(&t), TRIAL_JUDGE);
}

/* Several requests at once have one time: each executor gets as many calls in a row. */
UNIT_TEST(a_trial_of_requests_at_once_has_batches)
{
	struct policy_trial t = { .batch = 3 };
	char order[3 * POLICY_TRIAL_CALLS + 1] = "";

	policy_trial_begin(&t);
	for (; t.calls < 3 * POLICY_TRIAL_CALLS; t.calls++)
		order[t.calls] = policy_trial_next(&t) == TRIAL_SLUICE ? 'S' : 'H';
	CHECK_STR(order, "HHHSSSSSSHHHSSSHHHHHHSSS");
	CHECK_EQ(policy_trial_next(&t), TRIAL_JUDGE);
}

UNIT_TEST(a_trial_without_a_result_leaves_the_decision)
{
	struct policy_trial_result faster = result_of(1000, 500);
	struct policy_trial t = { 0 };

	run_trial(&t, &faster);
	policy_trial_begin(&t);
	policy_trial_give_up(&t);
	CHECK(t.is_for_sluice);
	CHECK_EQ(policy_trial_next(&t), TRIAL_USE_SLUICE);
	CHECK(calls_until_due(&t) >= 1000);
}

UNIT_TEST(the_faster_executor_gets_the_calls)
{
	static const struct {
		uint64_t host_ns, sluice_ns;
		bool is_for_sluice;
	} cases[] = {
		{ 1000, 500, true },	 { 500, 1000, false },	  { 1000, 960, true },
		{ 1000, 980, false }, /* too little to leave the host MPI */
		{ 1000, 1000, false }, { 0, 0, false },	  { UINT64_MAX / 16, 1, true },
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		struct policy_trial_result r = result_of(cases[i].host_ns, cases[i].sluice_ns);
		struct policy_trial t = { 0 };

		run_trial(&t, &r);
		CHECK_EQ(t.is_for_sluice, cases[i].is_for_sluice);
		CHECK_EQ(policy_trial_next(&t),
			 cases[i].is_for_sluice ? TRIAL_USE_SLUICE : TRIAL_USE_HOST);
		CHECK_EQ(policy_trial_passes(&t), !cases[i].is_for_sluice);
	}
}

UNIT_TEST(a_decision_needs_a_clear_gain_to_change)
{
	struct policy_trial_result faster = result_of(1000, 900), close = result_of(980, 1000),
				   slower = result_of(900, 1000);
	struct policy_trial t = { 0 };

	run_trial(&t, &faster);
	run_trial(&t, &close);
	CHECK(t.is_for_sluice);
	run_trial(&t, &slower);
	CHECK(!t.is_for_sluice);
}

UNIT_TEST(single_late_calls_do_not_decide)
{
	struct policy_trial_result r = result_of(1000, 900);
	struct policy_trial t = { 0 };

	r.cost_ns[1] = r.cost_ns[4] = 1000000; /* of Sluice's calls */
	run_trial(&t, &r);
	CHECK(t.is_for_sluice);
}

/* A program that alternates between a short and a long message, of one size class. */
UNIT_TEST(costs_are_compared_per_byte)
{
	struct policy_trial_result r = result_of(1000, 1200);
	struct policy_trial t = { 0 };

	for (uint32_t i = 0; i < POLICY_TRIAL_CALLS; i += 2) {
		r.cost_ns[i] /= 2;
		r.bytes[i] /= 2;
	}
	run_trial(&t, &r);
	CHECK(!t.is_for_sluice);
	CHECK_EQ(policy_trial_us(&t, BY_HOST, 1 << 30), 1024);
	CHECK_EQ(policy_trial_us(&t, BY_SLUICE, 1 << 20), 1);
}

UNIT_TEST(short_and_long_exchanges_are_not_compared)
{
	struct policy_trial_result r = result_of(1000, 500);
	struct policy_trial t = { 0 };

	r.bytes[3] = 100;
	run_trial(&t, &r);
	CHECK(!t.is_for_sluice);
}

UNIT_TEST(trials_become_rare_while_they_agree)
{
	struct policy_trial_result host = result_of(500 * US, 550 * US),
				   sluice = result_of(550 * US, 500 * US);
	struct policy_trial t = { 0 };
	uint32_t last = 0, n = 0;

	for (int i = 0; i < 5; i++) {
		run_trial(&t, &host);
		n = calls_until_due(&t);
		CHECK(i == 0 || n == last * 8 || n == 65536);
		last = n;
	}
	CHECK_EQ(last, 65536);
	run_trial(&t, &sluice);
	CHECK_EQ(calls_until_due(&t), 128);
}

/* Between two trials the calls take a hundred times as long as a trial in excess; but the first one
 * may have been wrong. */
UNIT_TEST(dear_trials_are_rare)
{
	struct policy_trial_result twice = result_of(500 * US, 1000 * US),
				   tenfold = result_of(1 * US, 10 * US);
	struct policy_trial t = { 0 };
	uint32_t n;

	run_trial(&t, &twice);
	n = calls_until_due(&t);
	CHECK(n >= 400 && n <= 410);
	t = (struct policy_trial){ 0 };
	run_trial(&t, &tenfold);
	CHECK_EQ(calls_until_due(&t), 2048);
	run_trial(&t, &tenfold);
	CHECK(calls_until_due(&t) >= 8 * 2048);
}

UNIT_TEST(short_calls_have_their_first_trial_later)
{
	struct policy_trial t = { 0 };

	policy_trial_init(&t, policy_size_class(16 << 10));
	CHECK(policy_trial_passes(&t));
	CHECK_EQ(calls_until_due(&t), 1023);
	t = (struct policy_trial){ 0 };
	policy_trial_init(&t, policy_size_class(63 << 10));
	CHECK_EQ(calls_until_due(&t), 512);
	t = (struct policy_trial){ 0 };
	policy_trial_init(&t, policy_size_class(64 << 10));
	CHECK_EQ(policy_trial_next(&t), TRIAL_DUE);
	policy_trial_init(&t, policy_size_class(0)); /* of exchanges: unknown sizes */
	CHECK_EQ(policy_trial_next(&t), TRIAL_DUE);
}

UNIT_TEST(few_short_calls_look_whether_buffers_are_reused)
{
	struct policy_reuse r = { 0 };

	CHECK_EQ(policy_reuse_stride(&r, policy_size_class(16 << 10)), 63);
	CHECK_EQ(policy_reuse_stride(&r, policy_size_class(64 << 10)), 15);
	CHECK_EQ(policy_reuse_stride(&r, policy_size_class(1 << 20)), 1);
	CHECK_EQ(policy_reuse_stride(&r, POLICY_SIZE_CLASSES - 1), 1);
	for (int i = 0; i < 1000; i++)
		if (policy_reuse_next(&r) == REUSE_ASK)
			policy_reuse_answer(&r, false);
	CHECK_EQ(policy_reuse_stride(&r, policy_size_class(16 << 10)), 125);
	CHECK_EQ(policy_reuse_stride(&r, policy_size_class(1 << 20)), 1);
}

UNIT_TEST(sluice_loses_for_good_only_in_mapped_memory)
{
	struct policy_trial_result r = result_of(500, 900);
	struct policy_trial t = { 0 };

	r.unmapped = 1;
	run_trial(&t, &r);
	CHECK(t.needs_reuse && !t.is_for_sluice);
	CHECK_EQ(policy_trial_next(&t), TRIAL_DUE); /* as soon as buffers are reused */
	r.unmapped = 0;
	run_trial(&t, &r);
	CHECK(!t.needs_reuse);
	CHECK_EQ(policy_trial_next(&t), TRIAL_USE_HOST);
}

UNIT_TEST(adoption_that_promises_no_gain_is_not_waited_for)
{
	struct policy_trial_result r = result_of(500, 1100);
	struct policy_trial t = { 0 };

	r.unmapped = 1;
	run_trial(&t, &r);
	CHECK(!t.needs_reuse && !t.is_for_sluice);
	CHECK_EQ(policy_trial_next(&t), TRIAL_USE_HOST);
	CHECK(calls_until_due(&t) >= 100);
	r.computes = 2; /* of a reduction more is left to gain */
	run_trial(&t, &r);
	CHECK(t.needs_reuse && !t.is_for_sluice);
}

UNIT_TEST(sluice_gets_calls_in_new_memory_only_where_it_has_won_there)
{
	struct policy_trial_result r = result_of(1000, 500);
	struct policy_trial t = { 0 };

	run_trial(&t, &r);
	CHECK(t.needs_reuse && t.is_for_sluice);
	r.unmapped = 1;
	run_trial(&t, &r);
	CHECK(!t.needs_reuse && t.is_for_sluice);
	r.unmapped = 0;
	run_trial(&t, &r);
	CHECK(!t.needs_reuse && t.is_for_sluice);
	r.unmapped = r.without_clock = 1;
	run_trial(&t, &r);
	CHECK(t.needs_reuse && t.is_for_sluice);
}

UNIT_TEST(short_calls_wait_for_reused_buffers)
{
	struct policy_trial t = { 0 }, of_short = { 0 };

	policy_trial_init(&t, policy_size_class(64 << 10));
	policy_trial_init(&of_short, policy_size_class(32 << 10));
	CHECK(!t.needs_reuse && of_short.needs_reuse);
	CHECK_EQ(policy_trial_next(&t), TRIAL_DUE);
	CHECK(calls_until_due(&of_short) >= 500);
}

UNIT_TEST(a_trial_says_what_a_call_gains)
{
	struct policy_trial_result faster = result_of(1000000, 400000),
				   slower = result_of(400000, 1000000);
	struct policy_trial t = { 0 };

	run_trial(&t, &faster);
	CHECK_EQ(policy_trial_gain_us(&t, 1 << 20), 600);
	CHECK_EQ(policy_trial_gain_us(&t, 1 << 19), 300);
	run_trial(&t, &slower);
	CHECK_EQ(policy_trial_gain_us(&t, 1 << 20), 0);
}

UNIT_TEST(without_a_common_clock_the_figures_decide)
{
	struct policy_trial_result r = result_of(500, 1000);
	struct policy_trial t = { 0 };

	r.without_clock = 1;
	run_trial(&t, &r);
	CHECK(t.is_for_sluice);
}

/* The extra time of `calls` calls, in thousandths of the time of the better way. */
static uint64_t regret(uint32_t calls, uint64_t host_ns, uint64_t sluice_ns)
{
	struct policy_trial_result r = result_of(host_ns, sluice_ns);
	uint64_t best = base_min_u64(host_ns, sluice_ns), sum = 0;
	struct policy_trial t = { 0 };

	for (uint32_t i = 0; i < calls;) {
		enum policy_trial_step step = policy_trial_next(&t);

		if (step == TRIAL_DUE) {
			policy_trial_begin(&t);
		} else if (step == TRIAL_JUDGE) {
			policy_trial_judge(&t, &r);
		} else {
			t.calls += step == TRIAL_HOST || step == TRIAL_SLUICE;
			sum += step == TRIAL_HOST || step == TRIAL_USE_HOST ? host_ns : sluice_ns;
			i++;
		}
	}
	return (sum - best * calls) * 1000 / (best * calls);
}

UNIT_TEST(trials_cost_less_than_a_hundredth)
{
	CHECK(regret(1000, 1000 * US, 2000 * US) < 10);
	CHECK(regret(3000, 1000, 10000) < 25);
	CHECK(regret(100000, 1000, 10000) < 2);
	CHECK(regret(1000, 2000, 1000) < 10);
	CHECK(regret(1000, 1000, 1010) < 1);
	CHECK(regret(100000, 1000, 2000) < 1);
	CHECK(regret(100000, 3000, 1000) < 1);
}

/* ---- cost of a call ---------------------------------------------------------------------- */

UNIT_TEST(waiting_for_a_late_partner_is_no_cost)
{
	const struct policy_trial_call early = { .begin_ns = 1000, .end_ns = 9000 };

	CHECK_EQ(policy_trial_cost(COLL_ALLTOALL, false, &early, 8000, 0), 1000);
	CHECK_EQ(policy_trial_cost(COLL_ALLREDUCE, false, &early, 8000, 0), 1000);
	CHECK_EQ(policy_trial_cost(COLL_BCAST, false, &early, 8000, 6000), 3000);
	CHECK_EQ(policy_trial_cost(COLL_SCATTERV, false, &early, 8000, 6000), 3000);
	CHECK_EQ(policy_trial_cost(COLL_GATHER, true, &early, 8000, 1000), 1000);
	CHECK_EQ(policy_trial_cost(COLL_SCAN, false, &early, 10000, 0), 0);
}

UNIT_TEST(waiting_without_need_is_a_cost)
{
	const struct policy_trial_call call = { .begin_ns = 1000, .end_ns = 9000 };

	/* the root of a broadcast could go, and so could the ranks that send to a root */
	CHECK_EQ(policy_trial_cost(COLL_BCAST, true, &call, 8000, 1000), 8000);
	CHECK_EQ(policy_trial_cost(COLL_REDUCE, false, &call, 8000, 7000), 8000);
	CHECK_EQ(policy_trial_cost(COLL_GATHERV, false, &call, 8000, 7000), 8000);
}

UNIT_TEST(a_rank_that_leaves_before_the_last_comes_has_another_clock)
{
	const struct policy_trial_call call = { .begin_ns = 1000, .end_ns = 2000 };

	CHECK(!policy_trial_has_clock(COLL_ALLREDUCE, &call, 2001, 0));
	CHECK(policy_trial_has_clock(COLL_ALLREDUCE, &call, 2000, 0));
	CHECK(!policy_trial_has_clock(COLL_BCAST, &call, 5000, 2001));
	CHECK(policy_trial_has_clock(COLL_BCAST, &call, 5000, 1500));
	/* these may */
	CHECK(policy_trial_has_clock(COLL_GATHER, &call, 5000, 5000));
	CHECK(policy_trial_has_clock(COLL_EXSCAN, &call, 5000, 0));
	CHECK(policy_trial_has_clock(COLL_ALLTOALLV, &call, 5000, 0));
}

UNIT_TEST(computation_before_a_request_completes_is_no_cost)
{
	const struct policy_trial_call call = { .begin_ns = 1000, .start_ns = 100,
						.polled_at_ns = 6000, .polled_ns = 1000,
						.end_ns = 7000 };

	CHECK_EQ(policy_trial_request_cost(COLL_ALLTOALL, false, &call, 2000, 0), 1100);
	/* the last rank came while this one waited */
	CHECK_EQ(policy_trial_request_cost(COLL_ALLTOALL, false, &call, 6400, 0), 700);
	CHECK_EQ(policy_trial_request_cost(COLL_ALLTOALL, false, &call, 9000, 0), 100);
	CHECK_EQ(policy_trial_request_cost(COLL_BCAST, true, &call, 6400, 1000), 1100);
	CHECK_EQ(policy_trial_request_cost(COLL_GATHER, false, &call, 6400, 6400), 1100);
}

UNIT_TEST(polls_cost_the_time_inside_mpi)
{
	/* half of the time in tests, or one of two requests of a wait */
	const struct policy_trial_call call = { .begin_ns = 1000, .start_ns = 100,
						.polled_at_ns = 2000, .polled_ns = 2000,
						.end_ns = 6000 };

	CHECK_EQ(policy_trial_request_cost(COLL_ALLREDUCE, false, &call, 1000, 0), 2100);
	CHECK_EQ(policy_trial_request_cost(COLL_ALLREDUCE, false, &call, 5000, 0), 600);
}
