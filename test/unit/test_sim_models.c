/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages inside a node, and the model of ATLAHS: who pays what, and when. */
#include "sim_case.h"

enum { SHORT = 4096, LONG = 8192, START = 10, L = 100, O = 20 };
static struct sim_case one;

static uint32_t send_to(uint32_t peer, uint64_t bytes)
{
	return goal_send(&one.build, peer, 0, 0, GOAL_NOWHERE, 0, bytes);
}
static uint32_t recv_from(uint32_t peer, uint64_t bytes)
{
	return goal_recv(&one.build, peer, 0, GOAL_NOWHERE, 0, bytes);
}
static uint64_t end_ns(uint32_t rank) { return sim_rank_end(one.sim, rank) / SIM_PS_PER_NS; }

/* ns: a message alone, one to each of two CPUs, copy, add. */
static void add_row(struct sim_node *n, uint64_t bytes, const uint64_t ns[SIM_NODE_COLUMNS])
{
	struct sim_node_row *row = &n->rows[n->row_count++];

	row->bytes = bytes;
	for (int c = 0; c < SIM_NODE_COLUMNS; c++)
		row->ps[c] = ns[c] * SIM_PS_PER_NS;
}

static struct sim_params node_params(uint32_t ranks)
{
	struct sim_params p = sim_case_params(2500, 1500, 1000, 6, 0, 65535);

	p.node = (struct sim_node){ .ranks = ranks,
				    .cpus = 2,
				    .start_ps = START * SIM_PS_PER_NS,
				    .latency_ps = L * SIM_PS_PER_NS,
				    .overhead_ps = O * SIM_PS_PER_NS,
				    .eager_bytes = SHORT };
	add_row(&p.node, 8, (const uint64_t[]){ 2 * O + L, 150, 30, 40 });
	add_row(&p.node, SHORT, (const uint64_t[]){ 1140, 1200, 300, 400 });
	add_row(&p.node, LONG, (const uint64_t[]){ 2140, 4140, 600, 800 });
	return p;
}

static void run_exchange(uint64_t bytes)
{
	struct sim_params p = node_params(2);

	sim_case_begin(&one, 2, &p);
	for (uint32_t r = 0; r < 2; r++) {
		send_to(!r, bytes);
		recv_from(!r, bytes);
		sim_case_rank(&one, r);
	}
	CHECK_EQ(sim_run(one.sim), 0);
}

static void run_message(const struct sim_params *p, uint64_t bytes, uint64_t busy_ns)
{
	sim_case_begin(&one, 2, p);
	send_to(1, bytes);
	sim_case_rank(&one, 0);
	if (busy_ns)
		goal_requires(&one.build, recv_from(0, bytes), sim_case_calc(&one, busy_ns, 0));
	else
		recv_from(0, bytes);
	sim_case_rank(&one, 1);
	CHECK_EQ(sim_run(one.sim), 0);
}

/* ---- inside a node ----------------------------------------------------------------------- */

UNIT_TEST(a_short_message_costs_both_sides_half_of_its_bytes)
{
	struct sim_params p = node_params(2);

	run_message(&p, 8, 0);
	CHECK_EQ(end_ns(0), START + O);
	CHECK_EQ(end_ns(1), START + 2 * O + L);
	sim_case_end(&one);
	run_message(&p, SHORT, 0);
	CHECK_EQ(end_ns(0), START + O + 500);
	CHECK_EQ(end_ns(1), START + 1140);
	sim_case_end(&one);
}

UNIT_TEST(a_long_message_ends_on_both_sides_when_its_receiver_has_copied_it)
{
	struct sim_params p = node_params(2);
	struct sim_stats stats;

	run_message(&p, LONG, 0);
	CHECK_EQ(end_ns(0), START + 2140);
	CHECK_EQ(end_ns(1), START + 2140);
	sim_get_stats(one.sim, &stats);
	CHECK_EQ(stats.end_ps, (START + 2140) * SIM_PS_PER_NS);
	sim_case_end(&one);
}

/* It arrives while the receiver computes, costs o after that, and is copied after that. */
UNIT_TEST(a_long_message_is_copied_only_when_its_receive_is_posted)
{
	struct sim_params p = node_params(2);

	run_message(&p, LONG, 5000);
	CHECK_EQ(end_ns(1), START + 5000 + O + 2140 - O - L);
	CHECK_EQ(end_ns(0), end_ns(1));
	sim_case_end(&one);
}

UNIT_TEST(copies_at_the_same_time_take_what_was_measured_together)
{
	run_exchange(LONG);
	CHECK_EQ(end_ns(1), START + 4140); /* it sends until rank 0 has copied */
	CHECK_EQ(end_ns(0), START + 4140);
	sim_case_end(&one);
	run_exchange(SHORT);
	CHECK_EQ(end_ns(0), START + 1140);
	sim_case_end(&one);
}

UNIT_TEST(lengths_between_rows_and_beyond_them_are_in_proportion)
{
	struct sim_params p = node_params(2);

	run_message(&p, (SHORT + LONG) / 2, 0);
	CHECK_EQ(end_ns(1), START + (1140 + 2140) / 2);
	sim_case_end(&one);
	run_message(&p, 10 * LONG, 0);
	CHECK_EQ(end_ns(1), START + 21400);
	sim_case_end(&one);
}

/* Rank 1 copies, or receives, `count` times; is_apart: each time another place. Returns: its end.
 */
static uint64_t end_of_places(bool is_message, uint32_t count, bool is_apart)
{
	struct sim_params p = node_params(2);
	uint64_t bytes = is_message ? LONG : SHORT, end;

	add_row(&p.node, 2 * LONG, (const uint64_t[]){ 10000, 10000, 1600, 2000 });
	sim_case_begin(&one, 2, &p);
	for (uint32_t i = 0; is_message && i < count; i++)
		goal_send(&one.build, 1, i, 0, GOAL_USER, is_apart * i * bytes, bytes);
	sim_case_rank(&one, 0);
	for (uint32_t i = 0; i < count; i++)
		if (is_message)
			goal_recv(&one.build, 0, i, GOAL_USER, is_apart * i * bytes, bytes);
		else
			goal_copy(&one.build, GOAL_USER + 1, is_apart * i * bytes, GOAL_USER,
				  is_apart * i * bytes, bytes);
	sim_case_rank(&one, 1);
	CHECK_EQ(sim_run(one.sim), 0);
	end = end_ns(1);
	sim_case_end(&one);
	return end;
}

/* 8 copies of 4 KB touch 64 KB, as one of 16 KB by each of two ranks; 2 messages of 8 KB touch 32
 * KB, as one of 16 KB. */
UNIT_TEST(bytes_cost_what_they_cost_in_a_schedule_that_touches_as_much_memory)
{
	CHECK_EQ(end_of_places(false, 8, false), START + 8 * 300);
	CHECK_EQ(end_of_places(false, 8, true), START + 8 * 400);
	CHECK_EQ(end_of_places(true, 2, true), end_of_places(true, 2, false) + 2 * (5000 - 2140));
	CHECK_EQ(end_of_places(true, 1, true), START + 2140);
}

/* Rank 1 copies, and copies the result. Both ranks touch 64 KB. */
static uint64_t end_of_two_copies(bool is_required)
{
	struct sim_params p = node_params(2);
	uint32_t first, second;
	uint64_t end;

	add_row(&p.node, 2 * LONG, (const uint64_t[]){ 10000, 10000, 1600, 2000 });
	sim_case_begin(&one, 2, &p);
	goal_copy(&one.build, GOAL_USER + 1, 0, GOAL_USER, 0, (64 - 12) / 2 * 1024);
	sim_case_rank(&one, 0);
	first = goal_copy(&one.build, GOAL_USER + 1, 0, GOAL_USER, 0, SHORT);
	second = goal_copy(&one.build, GOAL_USER, SHORT, GOAL_USER + 1, 0, SHORT);
	if (is_required)
		goal_requires(&one.build, second, first);
	sim_case_rank(&one, 1);
	CHECK_EQ(sim_run(one.sim), 0);
	end = end_ns(1);
	sim_case_end(&one);
	return end;
}

UNIT_TEST(half_of_an_operation_costs_little_when_one_that_it_requires_wrote_what_it_reads)
{
	CHECK_EQ(end_of_two_copies(true), START + 400 + 350);
	CHECK_EQ(end_of_two_copies(false), START + 400 + 400);
}

UNIT_TEST(messages_between_nodes_follow_loggops)
{
	struct sim_params p = node_params(1);

	run_message(&p, 101, 0);
	CHECK_EQ(end_ns(1), START + 1500 + 2500 + 1500 + 600);
	sim_case_end(&one);
}

UNIT_TEST(the_path_of_a_copied_message_ends_with_the_run)
{
	struct sim_params p = node_params(2);
	struct sim_path_sum sum;

	one.config.path_bytes = 1 << 16;
	run_message(&p, LONG, 0);
	sim_path(one.sim, NULL, NULL, &sum);
	CHECK_EQ(sum.total_ps, (START + 2140) * SIM_PS_PER_NS);
	CHECK_EQ(sum.latency_ps, L * SIM_PS_PER_NS);
	CHECK_EQ(sum.messages, 1);
	sim_case_end(&one);
	one.config.path_bytes = 0;
}

/* ---- ATLAHS ------------------------------------------------------------------------------ */

static struct sim_params atlahs_params(uint64_t S)
{
	struct sim_params p = sim_case_params(2500, 1500, 1000, 6, 2, S);

	p.model = SIM_ATLAHS;
	return p;
}

UNIT_TEST(atlahs_has_the_bytes_on_the_wire_and_then_g_and_o)
{
	struct sim_params p = atlahs_params(65535);

	run_message(&p, 101, 0);
	CHECK_EQ(end_ns(0), 1500 + 200);
	CHECK_EQ(end_ns(1), 1700 + 2500 + 600 + 1000 + 1500 + 200);
	sim_case_end(&one);
}

UNIT_TEST(atlahs_charges_a_message_when_it_is_received)
{
	struct sim_params p = atlahs_params(65535);

	run_message(&p, 101, 50000);
	CHECK_EQ(end_ns(1), 50000 + 1000 + 1500 + 200);
	sim_case_end(&one);
}

UNIT_TEST(atlahs_ends_a_rendezvous_with_its_receive)
{
	struct sim_params p = atlahs_params(100);

	run_message(&p, 101, 50000);
	CHECK_EQ(end_ns(0), 50000 + 2700);
	sim_case_end(&one);
}

/* CPU 1 receives while CPU 0 computes, though the send names CPU 0. */
UNIT_TEST(atlahs_charges_the_cpu_that_the_receive_names)
{
	struct sim_params p = atlahs_params(65535);

	sim_case_begin(&one, 2, &p);
	send_to(1, 101);
	sim_case_rank(&one, 0);
	sim_case_calc(&one, 6000, 0);
	one.ops[recv_from(0, 101)].cpu = 1;
	sim_case_rank(&one, 1);
	CHECK_EQ(sim_run(one.sim), 0);
	CHECK_EQ(end_ns(1), 1700 + 2500 + 600 + 1000 + 1500 + 200);
	sim_case_end(&one);
}

/* The receive came second, so the sender's CPU of its number is occupied until the end, too. */
UNIT_TEST(atlahs_occupies_the_receives_cpu_at_the_sender)
{
	struct sim_params p = atlahs_params(100);
	uint32_t recv;

	sim_case_begin(&one, 2, &p);
	send_to(1, 101);
	sim_case_rank(&one, 0);
	recv = recv_from(0, 101);
	one.ops[recv].cpu = 1;
	goal_requires(&one.build, recv, sim_case_calc(&one, 50000, 0));
	sim_case_rank(&one, 1);
	CHECK_EQ(sim_run(one.sim), 0);
	CHECK_EQ(end_ns(1), 50000 + 2700);
	CHECK_EQ(end_ns(0), end_ns(1));
	sim_case_end(&one);
}

/* ---- classes of lengths ------------------------------------------------------------------ */

/* Given in any order; what a class does not give is as of shorter messages. */
UNIT_TEST(longer_messages_have_the_costs_of_their_class)
{
	struct sim_params p = sim_case_params(2500, 1500, 1000, 6, 2, 65535);

	sim_class_add(&p, 1000)->costs.latency_ps = 700 * SIM_PS_PER_NS;
	sim_class_add(&p, 100)->costs.overhead_ps = 100 * SIM_PS_PER_NS;
	sim_class_add(&p, 1000)->costs.gap_byte = 3 << SIM_FRACTION_BITS;
	p.classes[1].costs.gap_byte *= SIM_PS_PER_NS;
	CHECK_EQ(p.class_count, 2);
	run_message(&p, 100, 0);
	CHECK_EQ(end_ns(1), 1500 + 2500 + 1500 + 6 * 99);
	sim_case_end(&one);
	run_message(&p, 101, 0);
	CHECK_EQ(end_ns(0), 100 + 2 * 100);
	CHECK_EQ(end_ns(1), 100 + 2500 + 100 + 6 * 100);
	sim_case_end(&one);
	run_message(&p, 1001, 0);
	CHECK_EQ(end_ns(1), 100 + 700 + 100 + 3 * 1000);
	sim_case_end(&one);
	for (uint64_t bytes = 1; bytes <= SIM_CLASSES_MAX - 2; bytes++)
		CHECK(sim_class_add(&p, bytes) != NULL);
	CHECK(sim_class_add(&p, 50) == NULL);
	CHECK(sim_class_add(&p, 1000) != NULL);
}
