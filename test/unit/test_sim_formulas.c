/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Simulated times against closed formulas of the LogGOPS model, for many parameter sets, and
 * against results that LogGOPSim's authors have published.
 *
 * A message of s bytes holds the sender's CPU for `out`; the next send may begin after `gap`, and
 * the receiver has the message `trip` after the send began.
 */
#include "sim_case.h"

struct costs {
	struct sim_params p;
	uint64_t s, out, in, gap, trip;
};

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Iterates over parameter sets. Returns: false after the last. */
static bool next_costs(unsigned *i, struct costs *c)
{
	static const double Ls[] = { 0, 100, 2500 }, os[] = { 1, 1500 }, gs[] = { 0, 1000, 4000 },
			    Gs[] = { 0, 0.04, 6 }, Os[] = { 0, 0.5, 9 };
	static const uint64_t sizes[] = { 1, 8, 4096, 100000 }, thresholds[] = { 0, 65535 };
	unsigned n = *i;
	uint64_t bytes, overhead;

	if (n >= 3 * 2 * 3 * 3 * 3 * 4 * 2)
		return false;
	*i += 11; /* one of each eleven: each value meets each other one */
	c->p = sim_case_params(Ls[n % 3], os[n / 3 % 2], gs[n / 6 % 3], Gs[n / 18 % 3],
			       Os[n / 54 % 3], thresholds[n / 648 % 2]);
	c->s = sizes[n / 162 % 4];
	bytes = sim_byte_cost(c->p.costs.gap_byte, c->s);
	overhead = sim_byte_cost(c->p.costs.overhead_byte, c->s);
	c->out = c->p.costs.overhead_ps + overhead;
	c->in = c->p.costs.overhead_ps + most(overhead, bytes);
	c->gap = c->p.costs.gap_ps + bytes;
	c->trip = c->p.costs.overhead_ps + c->p.costs.latency_ps + c->in;
	return true;
}

UNIT_TEST(ping_pong_is_two_trips_a_round)
{
	struct costs c;

	for (unsigned i = 0; next_costs(&i, &c);) {
		struct gen_params p = { .ranks = 2, .bytes = c.s, .rounds = 5 };
		/* the CPU or NIC may still be busy when the reply arrives */
		uint64_t period = most(most(2 * c.trip, c.gap), 2 * (c.out + c.in));

		if (c.out <= c.p.costs.overhead_ps + c.p.costs.latency_ps)
			CHECK_EQ(sim_case_end_of("ping-pong", p, &c.p),
				 4 * most(2 * c.trip, c.gap) + 2 * c.trip);
		else
			CHECK(sim_case_end_of("ping-pong", p, &c.p) <= 5 * period);
	}
}

UNIT_TEST(linear_broadcast_is_limited_by_the_roots_cpu_or_nic)
{
	struct costs c;

	for (unsigned i = 0; next_costs(&i, &c);)
		for (uint32_t n = 2; n < 40; n += 9)
			CHECK_EQ(sim_case_end_of("linear-bcast",
						 (struct gen_params){ .ranks = n, .bytes = c.s },
						 &c.p),
				 (n - 2) * most(c.out, c.gap) + c.trip);
}

/* A tree of 2^k ranks: its root's i-th message goes to a tree of 2^(k-i). */
static uint64_t binomial(const struct costs *c, unsigned k)
{
	uint64_t end = 0;

	for (unsigned i = 1; i <= k; i++)
		end = most(end, (i - 1) * most(c->out, c->gap) + c->trip + binomial(c, k - i));
	return end;
}

UNIT_TEST(binomial_broadcast_follows_its_recursion)
{
	struct costs c;

	for (unsigned i = 0; next_costs(&i, &c);)
		for (unsigned k = 1; k < 8; k += 2) {
			struct gen_params p = { .ranks = 1u << k, .bytes = c.s, .root = k };

			if (k == 1)
				p.root = 1;
			CHECK_EQ(sim_case_end_of("binomial-bcast", p, &c.p), binomial(&c, k));
		}
}

UNIT_TEST(dissemination_takes_a_trip_each_round)
{
	struct costs c;

	for (unsigned i = 0; next_costs(&i, &c);)
		for (uint32_t rounds = 1; rounds < 8; rounds++) {
			struct gen_params p = { .ranks = (1u << rounds) - (rounds > 2),
						.bytes = c.s,
						.op = GOAL_MAX };
			/* a message may find the CPU still sending */
			uint64_t flight = c.p.costs.overhead_ps + c.p.costs.latency_ps;
			uint64_t trip = most(flight, c.out) + c.in;

			CHECK_EQ(sim_case_end_of("dissemination-allreduce", p, &c.p),
				 (rounds - 1) * most(trip, c.gap) + trip);
		}
}

UNIT_TEST(ring_takes_a_trip_each_step)
{
	struct costs c;

	for (unsigned i = 0; next_costs(&i, &c);)
		for (uint32_t n = 2; n < 12; n += 3) {
			struct gen_params p = { .ranks = n, .bytes = c.s };
			uint64_t flight = c.p.costs.overhead_ps + c.p.costs.latency_ps;
			uint64_t trip = most(flight, c.out) + c.in;

			CHECK_EQ(sim_case_end_of("ring-allgather", p, &c.p),
				 (n - 2) * most(trip, c.gap) + trip);
		}
}

UNIT_TEST(a_pipeline_fills_once_and_then_gives_a_segment_each_period)
{
	struct costs c;

	for (unsigned i = 0; next_costs(&i, &c);)
		for (uint32_t n = 2; n < 12; n += 3) {
			struct gen_params p = { .ranks = n,
						.bytes = 20 * c.s,
						.segment_bytes = c.s };
			uint64_t period = most(c.out, c.gap);

			/* segments leave the root no faster than other ranks forward them */
			if (n > 2 ? period >= c.in + c.out : period >= c.in)
				CHECK_EQ(sim_case_end_of("ring-bcast", p, &c.p),
					 19 * period + (n - 1) * c.trip);
		}
}

UNIT_TEST(linear_gather_is_limited_by_the_roots_cpu_or_nic)
{
	struct costs c;

	for (unsigned i = 0; next_costs(&i, &c);) {
		struct gen_params p = { .ranks = 30, .bytes = c.s };

		CHECK_EQ(sim_case_end_of("linear-gather", p, &c.p),
			 c.p.costs.overhead_ps + c.p.costs.latency_ps +
				 28 * most(c.in, c.gap) + c.in);
	}
}

static struct sim_case one;

/* The receiver computes for 50 us before it receives. */
static void late_receive(const struct costs *c, uint64_t *out_sender, uint64_t *out_receiver)
{
	uint32_t calc;

	sim_case_begin(&one, 2, &c->p);
	goal_send(&one.build, 1, 0, 0, GOAL_NOWHERE, 0, c->s);
	sim_case_rank(&one, 0);
	calc = sim_case_calc(&one, 50000, 0);
	goal_requires(&one.build, goal_recv(&one.build, 0, 0, GOAL_NOWHERE, 0, c->s), calc);
	sim_case_rank(&one, 1);
	CHECK_EQ(sim_run(one.sim), 0);
	*out_sender = sim_rank_end(one.sim, 0);
	*out_receiver = sim_rank_end(one.sim, 1);
	sim_case_end(&one);
}

UNIT_TEST(an_eager_sender_goes_on_and_one_by_rendezvous_waits_for_the_receive)
{
	const uint64_t late = 50000 * SIM_PS_PER_NS;
	struct costs c;

	for (unsigned i = 0; next_costs(&i, &c);) {
		uint64_t sender, receiver;

		late_receive(&c, &sender, &receiver);
		CHECK_EQ(sender, c.s > c.p.eager_bytes ? most(late, c.out) : c.out);
		CHECK_EQ(receiver, late + c.in);
	}
}

/* ---- results that were published --------------------------------------------------------- */

UNIT_TEST(published_dissemination_and_binary_tree_of_16_end_at_22000)
{
	struct gen_params p = { .ranks = 16, .bytes = 1 };
	struct sim_params defaults;

	sim_params_from(&defaults, &sim_presets[0]);
	CHECK_EQ(sim_case_end_of("dissemination-allreduce", p, &defaults), 22000000);
	CHECK_EQ(sim_case_end_of("binomial-bcast", p, &defaults), 22000000);
	p.ranks = 32;
	CHECK_EQ(sim_case_end_of("binomial-bcast", p, &defaults), 27500000);
}

UNIT_TEST(published_reduction_of_8_ends_at_34914)
{
	/* by position in the tree; the example numbers the ranks in another way */
	static const uint64_t ends[] = { 34914, 1500, 13138, 1500, 24776, 1500, 13138, 1500 };
	struct sim_params defaults;
	struct sim *s;

	sim_params_from(&defaults, &sim_presets[0]);
	s = sim_case_pattern("binomial-reduce", (struct gen_params){ .ranks = 8, .bytes = 1024 },
			     &defaults, 0);
	for (uint32_t rank = 0; rank < 8; rank++)
		CHECK_EQ(sim_rank_end(s, rank), ends[rank] * SIM_PS_PER_NS);
	sim_destroy(s);
}
