/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs that are no patterns: matching, waiting, deadlocks, critical paths. */
#include <errno.h>
#include <time.h>

#include "goal/sim/private.h"
#include "sim_case.h"

static struct sim_case one;
static struct sim_params defaults(void) { return sim_case_params(2500, 1500, 1000, 6, 0, 65535); }

static uint32_t send_to(uint32_t peer, uint32_t tag, uint64_t bytes)
{
	return goal_send(&one.build, peer, tag, 0, GOAL_NOWHERE, 0, bytes);
}
static uint32_t recv_from(uint32_t peer, uint32_t tag, uint64_t bytes)
{
	return goal_recv(&one.build, peer, tag, GOAL_NOWHERE, 0, bytes);
}

/* ---- the queue of events ----------------------------------------------------------------- */

UNIT_TEST(events_come_by_time_and_then_by_age_whenever_they_were_pushed)
{
	struct sim_queue q;
	struct sim_event e = { .time = 0 }, last = { .time = 0 };
	uint64_t seq = 1, random = 1, popped = 0, old = 0;

	sim_queue_init(&q);
	for (unsigned step = 0; step < 200000; step++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		if ((random >> 60) < (step < 100000 ? 9 : 5)) {
			bool is_old = old && (random >> 40) % 8 == 0;

			/* an event that waited keeps its number and comes at a later time */
			e = (struct sim_event){ .time = q.last +
							(random >> 33) %
								((random >> 20) % 2 ? 4 : 1u << 20),
						.seq = is_old ? old : seq++ };
			if (is_old && e.time == q.last)
				e.time++;
			old = is_old ? 0 : old;
			CHECK_EQ(sim_queue_push(&q, &e), 0);
		} else if (sim_queue_pop(&q, &e) > 0) {
			CHECK(e.time > last.time || (e.time == last.time && e.seq > last.seq));
			last = e;
			old = (random >> 30) % 16 == 0 ? e.seq : old;
			popped++;
		}
	}
	CHECK(popped > 70000);
	while (sim_queue_pop(&q, &e) > 0) {
		CHECK(e.time > last.time || (e.time == last.time && e.seq > last.seq));
		last = e;
	}
	CHECK_EQ(q.count, 0);
	sim_queue_fini(&q);
}

/* ---- matching ---------------------------------------------------------------------------- */

enum { PEERS = 3, TAGS = 4, MESSAGES = 600 };

struct naive {
	uint32_t peer[2 * MESSAGES], tag[2 * MESSAGES], op[2 * MESSAGES], count;
};

static bool fits(const struct naive *n, uint32_t i, uint32_t peer, uint32_t tag)
{
	return (n->peer[i] == peer || n->peer[i] == GOAL_ANY || peer == GOAL_ANY) &&
	       (n->tag[i] == tag || n->tag[i] == GOAL_ANY || tag == GOAL_ANY);
}

/* Removes and returns the op of the first match; GOAL_NONE: none. */
static uint32_t naive_take(struct naive *n, uint32_t peer, uint32_t tag)
{
	for (uint32_t i = 0; i < n->count; i++) {
		uint32_t op = n->op[i];

		if (!fits(n, i, peer, tag))
			continue;
		n->count--;
		for (; i < n->count; i++) {
			n->peer[i] = n->peer[i + 1];
			n->tag[i] = n->tag[i + 1];
			n->op[i] = n->op[i + 1];
		}
		return op;
	}
	return GOAL_NONE;
}

static void naive_add(struct naive *n, uint32_t peer, uint32_t tag, uint32_t op)
{
	n->peer[n->count] = peer;
	n->tag[n->count] = tag;
	n->op[n->count++] = op;
}

static uint32_t draw(uint64_t *random, uint32_t below)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*random >> 33) % below;
}

/* Rank 0 has receives of all kinds, ranks 1 to PEERS sends of all tags; op numbers are in order of
 * adding. */
static void make_matching(uint64_t *random, uint32_t open_in)
{
	const struct sim_params p = defaults();

	sim_case_begin(&one, PEERS + 1, &p);
	for (uint32_t i = 0; i < MESSAGES; i++)
		recv_from(draw(random, open_in) ? 1 + draw(random, PEERS) : GOAL_ANY,
			  draw(random, open_in) ? draw(random, TAGS) : GOAL_ANY, 1);
	sim_case_rank(&one, 0);
	for (uint32_t rank = 1; rank <= PEERS; rank++) {
		for (uint32_t i = 0; i < MESSAGES; i++)
			send_to(0, draw(random, TAGS), 1);
		sim_case_rank(&one, rank);
	}
}

static void receive_next(struct naive *posted, struct naive *arrived, uint32_t index)
{
	const struct sim_op *op = sim_op_of(one.sim, sim_rank_of(one.sim, 0), index);
	uint32_t peer = sim_peer(one.sim, 0, op), want = naive_take(arrived, peer, op->tag);
	struct sim_arrived got;

	if (want == GOAL_NONE) {
		CHECK(!sim_match_arrived(one.sim, 0, op, &got));
		CHECK_EQ(sim_post(one.sim, 0, index, 0), 0);
		naive_add(posted, peer, op->tag, index);
	} else {
		CHECK(sim_match_arrived(one.sim, 0, op, &got));
		CHECK_EQ(got.rank * MESSAGES + got.op, want);
	}
}

static void message_arrives(struct naive *posted, struct naive *arrived, uint32_t rank,
			    uint32_t index)
{
	uint32_t tag = sim_op_of(one.sim, sim_rank_of(one.sim, rank), index)->tag,
		 want = naive_take(posted, rank, tag);
	struct sim_posted got;

	if (want == GOAL_NONE) {
		struct sim_arrived a = { .rank = rank, .op = index };

		CHECK(!sim_match_posted(one.sim, 0, rank, tag, &got));
		CHECK_EQ(sim_arrive(one.sim, 0, &a), 0);
		naive_add(arrived, rank, tag, rank * MESSAGES + index);
	} else {
		CHECK(sim_match_posted(one.sim, 0, rank, tag, &got));
		CHECK_EQ(got.op, want);
	}
}

static void match_randomly(uint64_t seed, uint32_t open_in, uint32_t recvs_in_10)
{
	static struct naive posted, arrived;
	uint32_t next[PEERS + 1] = { 0 };

	posted.count = arrived.count = 0;
	make_matching(&seed, open_in);
	for (uint32_t step = 0; step < 2 * MESSAGES; step++) {
		uint32_t rank = draw(&seed, 10) < recvs_in_10 ? 0 : 1 + draw(&seed, PEERS);

		if (next[rank] == MESSAGES)
			continue;
		if (rank)
			message_arrives(&posted, &arrived, rank, next[rank]++);
		else
			receive_next(&posted, &arrived, next[0]++);
	}
	sim_case_end(&one);
}

UNIT_TEST(messages_and_receives_match_in_order_in_short_and_long_lists)
{
	/* few or many open receives; more messages than receives, as many, fewer */
	for (uint64_t seed = 0; seed < 3; seed++)
		for (uint32_t recvs = 2; recvs < 10; recvs += 3) {
			match_randomly(seed, 3, recvs);
			match_randomly(seed, 40, recvs);
			match_randomly(seed, 1u << 30, recvs);
		}
}

UNIT_TEST(receives_from_anybody_do_not_search_all_messages_that_wait)
{
	enum { SENDERS = 35, EACH = 4000 };
	const struct sim_params p = defaults();
	const struct sim_op *recv;
	struct sim_arrived got;
	clock_t begun = clock();

	sim_case_begin(&one, SENDERS + 1, &p);
	recv_from(GOAL_ANY, GOAL_ANY, 1);
	sim_case_rank(&one, 0);
	for (uint32_t rank = 1; rank <= SENDERS; rank++) {
		for (uint32_t i = 0; i < EACH; i++)
			send_to(0, i, 1);
		sim_case_rank(&one, rank);
	}
	recv = sim_op_of(one.sim, sim_rank_of(one.sim, 0), 0);
	for (uint32_t i = 0; i < SENDERS * EACH; i++) {
		struct sim_arrived a = { .rank = 1 + i % SENDERS, .op = i / SENDERS };

		CHECK_EQ(sim_arrive(one.sim, 0, &a), 0);
	}
	for (uint32_t i = 0; i < SENDERS * EACH; i++) {
		CHECK(sim_match_arrived(one.sim, 0, recv, &got));
		CHECK_EQ(got.rank, 1 + i % SENDERS);
		CHECK_EQ(got.op, i / SENDERS);
		CHECK(clock() - begun < 8 * CLOCKS_PER_SEC);
	}
	CHECK(!sim_match_arrived(one.sim, 0, recv, &got));
	sim_case_end(&one);
}

UNIT_TEST(a_receive_from_anybody_takes_the_message_that_came_first)
{
	struct sim_params p = defaults();

	sim_case_begin(&one, 3, &p);
	recv_from(GOAL_ANY, GOAL_ANY, 8);
	goal_requires(&one.build, sim_case_calc(&one, 100000, 0), 0);
	recv_from(2, 5, 8);
	sim_case_rank(&one, 0);
	send_to(0, 4, 8);
	sim_case_rank(&one, 1);
	goal_requires(&one.build, send_to(0, 5, 8), sim_case_calc(&one, 10, 0));
	sim_case_rank(&one, 2);
	CHECK_EQ(sim_run(one.sim), 0);
	/* 4000 + 1500 + 42, then the second message, which has come meanwhile, or the computing;
	 * both have ended by then */
	CHECK_EQ(sim_rank_end(one.sim, 0), (4000 + 2ull * 1542 + 100000) * SIM_PS_PER_NS);
	sim_case_end(&one);
}

/* ---- waiting ----------------------------------------------------------------------------- */

UNIT_TEST(messages_that_wait_for_one_cpu_cost_a_few_events_each)
{
	struct sim_params p = defaults();
	struct gen_params g = { .ranks = 5000, .bytes = 8 };
	struct sim *s = sim_case_pattern("linear-gather", g, &p, 0);
	struct sim_stats stats;

	sim_get_stats(s, &stats);
	CHECK(stats.events < 4 * stats.ops);
	CHECK_EQ(stats.end_ps, (4000 + 4999ull * 1542) * SIM_PS_PER_NS);
	sim_destroy(s);
}

UNIT_TEST(nothing_begins_before_what_it_requires_has_ended_on_another_cpu)
{
	struct sim_params p = defaults();

	sim_case_begin(&one, 1, &p);
	sim_case_calc(&one, 700, 0);
	sim_case_calc(&one, 10, 1);
	goal_requires(&one.build, 1, 0);
	sim_case_calc(&one, 3, 1);
	goal_irequires(&one.build, 2, 0);
	sim_case_rank(&one, 0);
	CHECK_EQ(sim_run(one.sim), 0);
	CHECK_EQ(sim_rank_end(one.sim, 0), 710 * SIM_PS_PER_NS);
	sim_case_end(&one);
}

/* Each message has a CPU and a NIC of its own, so all travel at the same time. */
UNIT_TEST(state_grows_with_the_cpus_and_nics_that_are_used_together)
{
	enum { N = 1300 };
	struct sim_params p = sim_case_params(100, 10, 5, 0, 0, 1000);

	sim_case_begin(&one, 2, &p);
	for (uint16_t i = 0; i < N; i++)
		goal_add(&one.build, &(struct goal_op){ .type = GOAL_SEND, .mem = GOAL_NOWHERE,
							.bytes = 1, .peer = 1, .tag = i,
							.cpu = (uint16_t)(65535 - i), .nic = i });
	sim_case_rank(&one, 0);
	for (uint16_t i = 0; i < N; i++)
		goal_add(&one.build, &(struct goal_op){ .type = GOAL_RECV, .mem = GOAL_NOWHERE,
							.bytes = 1, .tag = i, .cpu = 7 });
	sim_case_calc(&one, 115, 3);
	sim_case_rank(&one, 1);
	CHECK_EQ(sim_run(one.sim), 0);
	CHECK_EQ(sim_rank_end(one.sim, 0), 10 * SIM_PS_PER_NS);
	CHECK_EQ(sim_rank_end(one.sim, 1), 120 * SIM_PS_PER_NS);
	sim_case_end(&one);
}

UNIT_TEST(zero_bytes_cost_no_bytes)
{
	struct sim_params p = defaults();

	CHECK_EQ(sim_case_end_of("linear-bcast", (struct gen_params){ .ranks = 2, .bytes = 0 }, &p),
		 5500000);
	CHECK_EQ(sim_case_end_of("linear-bcast", (struct gen_params){ .ranks = 2, .bytes = 1 }, &p),
		 5500000);
}

UNIT_TEST(local_operations_cost_what_C_says)
{
	const struct sim_preset preset = { "", 0, 0, 0, 0, 0, 0.5, 65535 };
	struct sim_params p;

	sim_params_from(&p, &preset);
	CHECK_EQ(sim_case_end_of("linear-gather", (struct gen_params){ .ranks = 1, .bytes = 1000 },
				 &p),
		 500000);
}

/* ---- what cannot go on ------------------------------------------------------------------- */

static struct sim_stuck told[8];
static unsigned told_count;

static void tell(void *ctx, const struct sim_stuck *what)
{
	if (told_count < 8)
		told[told_count] = *what;
	told_count++;
}

static void run_into_deadlock(unsigned expected)
{
	told_count = 0;
	CHECK_EQ(sim_run(one.sim), -EDEADLK);
	sim_stuck(one.sim, tell, NULL);
	sim_case_end(&one);
	CHECK_EQ(told_count, expected);
}

UNIT_TEST(a_cycle_across_ranks_is_told_by_its_receives)
{
	struct sim_params p = defaults();

	sim_case_begin(&one, 2, &p);
	for (uint32_t rank = 0; rank < 2; rank++) {
		recv_from(1 - rank, 7, 8);
		goal_requires(&one.build, send_to(1 - rank, 7, 8), 0);
		sim_case_rank(&one, rank);
	}
	run_into_deadlock(2);
	CHECK_EQ(told[1].kind, SIM_STUCK_RECEIVE);
	CHECK_EQ(told[1].rank, 1);
	CHECK_EQ(told[1].peer, 0);
	CHECK_EQ(told[1].tag, 7);
}

UNIT_TEST(a_long_send_without_receive_is_stuck_a_short_one_is_a_message_nobody_receives)
{
	struct sim_params p = defaults();

	for (unsigned is_long = 0; is_long < 2; is_long++) {
		sim_case_begin(&one, 2, &p);
		send_to(1, 3, is_long ? 65536 : 65535);
		sim_case_rank(&one, 0);
		run_into_deadlock(1);
		CHECK_EQ(told[0].kind, is_long ? SIM_STUCK_SEND : SIM_STUCK_MESSAGE);
		CHECK_EQ(told[0].rank, 0);
	}
}

UNIT_TEST(what_waits_for_half_of_what_it_requires_is_told)
{
	struct sim_params p = defaults();

	sim_case_begin(&one, 1, &p);
	recv_from(0, 1, 8);
	sim_case_calc(&one, 5, 0);
	sim_case_calc(&one, 6, 0);
	goal_requires(&one.build, 2, 0);
	goal_requires(&one.build, 2, 1);
	sim_case_rank(&one, 0);
	run_into_deadlock(2);
	CHECK_EQ(told[1].kind, SIM_STUCK_REQUIRES);
	CHECK_EQ(told[1].type, GOAL_CALC);
}

static bool has_no_memory;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes) { return has_no_memory ? NULL : __real_malloc(bytes); }

UNIT_TEST(what_is_stuck_is_told_without_memory)
{
	struct sim_params p = defaults();

	sim_case_begin(&one, 2, &p);
	for (uint32_t rank = 0; rank < 2; rank++) {
		recv_from(1 - rank, 1, 8);
		sim_case_calc(&one, 5, 0);
		sim_case_calc(&one, 6, 0);
		goal_requires(&one.build, 2, 0);
		goal_requires(&one.build, 2, 1);
		sim_case_rank(&one, rank);
	}
	told_count = 0;
	CHECK_EQ(sim_run(one.sim), -EDEADLK);
	has_no_memory = true;
	sim_stuck(one.sim, tell, NULL);
	has_no_memory = false;
	sim_case_end(&one);
	CHECK_EQ(told_count, 4);
	CHECK_EQ(told[2].kind, SIM_STUCK_REQUIRES);
	CHECK_EQ(told[3].kind, SIM_STUCK_REQUIRES);
	CHECK_EQ(told[2].rank + told[3].rank, 1);
	CHECK_EQ(told[3].op, 2);
}

UNIT_TEST(longer_than_can_be_counted_is_an_error)
{
	struct sim_params p = defaults();

	sim_case_begin(&one, 1, &p);
	goal_requires(&one.build, sim_case_calc(&one, UINT64_MAX, 0),
		      sim_case_calc(&one, UINT64_MAX, 0));
	sim_case_rank(&one, 0);
	CHECK_EQ(sim_run(one.sim), -EOVERFLOW);
	sim_case_end(&one);
}

UNIT_TEST(ranks_without_a_schedule_have_nothing_to_do)
{
	struct sim_params p = defaults();

	sim_case_begin(&one, 3, &p);
	sim_case_calc(&one, 5, 0);
	sim_case_rank(&one, 1);
	CHECK_EQ(sim_run(one.sim), 0);
	CHECK_EQ(sim_rank_end(one.sim, 0), 0);
	CHECK_EQ(sim_rank_end(one.sim, 1), 5000);
	sim_case_end(&one);
}

/* ---- schedules once ---------------------------------------------------------------------- */

UNIT_TEST(ranks_that_differ_by_place_share_a_schedule)
{
	static const struct {
		const char *name;
		unsigned shapes;
	} cases[] = {
		{ "dissemination-allreduce", 1 }, { "doubling-allreduce", 1 },
		{ "ring-allgather", 1 },          { "pairwise-alltoall", 1 },
		{ "binomial-bcast", 7 },
	};
	struct sim_params p = defaults();

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct sim_stats stats;
		struct sim *s = sim_case_pattern(
			cases[i].name, (struct gen_params){ .ranks = 64, .bytes = 64 }, &p, 0);

		sim_get_stats(s, &stats);
		sim_destroy(s);
		CHECK_EQ(stats.shapes - 1, cases[i].shapes); /* and that of ranks without any */
	}
}

/* ---- the critical path ------------------------------------------------------------------- */

static void check_chain(void *ctx, const struct sim_step *step)
{
	uint64_t *until = ctx;

	CHECK(step->begin_ps <= *until);
	*until = step->begin_ps;
}

UNIT_TEST(a_critical_path_explains_all_of_the_time)
{
	static const char *const names[] = { "binomial-bcast", "binomial-reduce",
					     "linear-gather",  "linear-alltoall",
					     "ring-allreduce", "halving-allreduce",
					     "bruck-alltoall", "stencil-2d" };
	struct sim_params p = sim_case_params(900, 200, 700, 2, 1, 4000);

	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		for (uint64_t bytes = 64; bytes < 100000; bytes *= 40) {
			struct gen_params g = { .ranks = 23, .bytes = bytes, .calc_ns = 50 };
			struct sim *s = sim_case_pattern(names[i], g, &p, 1u << 20);
			struct sim_path_sum sum;
			uint64_t until = UINT64_MAX;

			sim_path(s, check_chain, &until, &sum);
			CHECK_EQ(until, 0);
			CHECK_EQ(sum.before_ps, 0);
			CHECK_EQ(sum.other_ps, 0);
			CHECK_EQ(sum.latency_ps + sum.overhead_ps + sum.overhead_byte_ps +
					 sum.gap_ps + sum.byte_ps + sum.local_ps,
				 sum.total_ps);
			CHECK_EQ(sum.latency_ps, sum.messages * p.costs.latency_ps);
			sim_destroy(s);
		}
}

UNIT_TEST(of_a_path_too_long_for_memory_the_end_is_known)
{
	struct sim_params p = defaults();
	struct gen_params g = { .ranks = 4, .bytes = 8, .op = GOAL_ADD };
	struct sim *s = sim_case_pattern("ring-allreduce", g, &p, 8 * sizeof(struct sim_record));
	struct sim_path_sum sum;

	sim_path(s, NULL, NULL, &sum);
	CHECK(sum.steps && sum.steps <= 8);
	CHECK(sum.before_ps > 0);
	CHECK_EQ(sum.before_ps + sum.latency_ps + sum.overhead_ps + sum.gap_ps + sum.byte_ps,
		 sum.total_ps);
	sim_destroy(s);
}

UNIT_TEST(a_path_goes_on_where_the_numbers_of_its_records_begin_again)
{
	struct sim_params p = defaults();
	struct sim_path_sum sum;

	sim_case_begin(&one, 1, &p);
	CHECK_EQ(sim_log_init(&one.sim->log, 40 * sizeof(struct sim_record), 30), 0);
	one.sim->log.next = one.sim->log.end - 15;
	one.sim->log.slot = one.sim->log.next % one.sim->log.cap;
	for (uint32_t i = 0; i < 30; i++)
		if (sim_case_calc(&one, 10, 0))
			goal_requires(&one.build, i, i - 1);
	sim_case_rank(&one, 0);
	CHECK_EQ(sim_run(one.sim), 0);
	sim_path(one.sim, NULL, NULL, &sum);
	sim_case_end(&one);
	one.config.path_bytes = 0;
	CHECK_EQ(sum.steps, 30);
	CHECK_EQ(sum.local_ps, 300 * SIM_PS_PER_NS);
}

UNIT_TEST(parameters_are_decimal_nanoseconds)
{
	uint64_t n = 1;

	CHECK_EQ(sim_parse_ns("2500.5", &n), 0);
	CHECK_EQ(n, 2500500);
	CHECK_EQ(sim_parse_byte_ns("0.04", &n), 0);
	CHECK_EQ(sim_byte_cost(n, 1000001), 40000000);
	CHECK_EQ(sim_byte_cost(n, 0), 0);
	CHECK_EQ(sim_parse_ns("-1", &n), -EINVAL);
	CHECK_EQ(sim_parse_ns("1us", &n), -EINVAL);
	CHECK_EQ(sim_parse_ns("nan", &n), -EINVAL);
	CHECK_EQ(sim_parse_ns("", &n), -EINVAL);
}
