/* SPDX-License-Identifier: BSD-3-Clause */
#include "policy/policy.h"
#include "unit.h"

UNIT_TEST(policy_prefers_system_calls_by_kind_cores_and_measurement)
{
	static const struct {
		int64_t kind;
		struct policy_group g;
		bool want;
	} cases[] = {
		/* kind, { ranks, oversubscribed, ns by system call, ns by memcpy } */
		{ BASE_REGION_STAGED, { 2, true, 1, 1000 }, false },
		{ BASE_REGION_STAGED, { 2, false, 1, 1000 }, false },
		{ BASE_REGION_CMA, { 2, false, 100000, 1 }, true },
		{ BASE_REGION_CMA, { 2, false, 0, 1000 }, false }, /* it does not work */
		{ BASE_REGION_CMA, { 2, true, 0, 1000 }, false },
		{ BASE_REGION_AUTO, { 4, true, 100000, 1 }, true },
		{ BASE_REGION_AUTO,
		  { 2, false, 2000, 1000 },
		  true }, /* both ends copy: twice as fast */
		{ BASE_REGION_AUTO, { 2, false, 2001, 1000 }, false },
		{ BASE_REGION_AUTO,
		  { 5, false, 1250, 1000 },
		  true }, /* four leaves share the sender */
		{ BASE_REGION_AUTO, { 5, false, 1251, 1000 }, false },
		{ BASE_REGION_ARENA, { 2, false, 500, 1000 }, true },
		{ BASE_REGION_AUTO, { 1, false, 2000, 1000 }, true },
		{ BASE_REGION_AUTO, { 2, false, UINT32_MAX, UINT32_MAX }, true }, /* no overflow */
	};

	for (unsigned i = 0; i < BASE_ARRAY_LEN(cases); i++)
		if (policy_prefer_vm(cases[i].kind, &cases[i].g) != cases[i].want)
			unit_fail(__FILE__, __LINE__, "case %u", i);
}

UNIT_TEST(policy_adopts_at_once_only_where_told_to)
{
	CHECK_EQ(policy_intent(BASE_REGION_ARENA, false), REGION_FORCE);
	CHECK_EQ(policy_intent(BASE_REGION_AUTO, false), REGION_USE);
	CHECK_EQ(policy_intent(BASE_REGION_ARENA, true), REGION_LOOKUP);
	CHECK_EQ(policy_intent(BASE_REGION_AUTO, true), REGION_LOOKUP);
}

UNIT_TEST(policy_cuts_long_messages_so_that_scratch_memory_stays_small)
{
	const uint64_t mib = 1 << 20, most = policy_piece_most((uint64_t)1 << 45);

	CHECK_EQ(policy_piece_bytes(1, 1, most), 1);
	CHECK_EQ(policy_piece_bytes(100 * mib, 1, most), 100 * mib);
	CHECK_EQ(policy_piece_bytes(5000 * mib, 1, most), 256 * mib);
	CHECK_EQ(policy_piece_bytes(5000 * mib, 4, most), 64 * mib);
	CHECK_EQ(policy_piece_bytes(UINT64_MAX, 1000000, most),
		 mib); /* never so small that it costs more */
	for (int parts = 1; parts < 5000; parts = parts * 2 + 1)
		CHECK_EQ(policy_piece_bytes(7, parts, most), 7);
}

UNIT_TEST(policy_cuts_messages_as_a_small_arena_demands)
{
	const uint64_t mib = 1 << 20, most = policy_piece_most(64 * mib);

	CHECK_EQ(policy_piece_bytes(mib, 1, most), mib);
	CHECK_EQ(policy_piece_bytes(100 * mib, 1, most), 4 * mib);
	CHECK_EQ(policy_piece_bytes(100 * mib, 8, most), mib / 2);
	CHECK_EQ(policy_piece_bytes(100 * mib, 1000, most), 64 << 10);
	CHECK_EQ(policy_piece_bytes(5000 * mib, 1, policy_piece_most(64 * 1024 * mib)), 256 * mib);
}

UNIT_TEST(policy_returns_early_where_it_can_win)
{
	const struct policy_detach_facts good = { .mode = BASE_EARLY_AUTO,
						 .wait_us = -1,
						 .bytes = 1 << 20,
						 .min_bytes = 512 << 10,
						 .guard_is_ready = true,
						 .has_mover = true,
						 .site_may_try = true,
						 .copy_ns = 150000 };
	static const struct {
		int64_t mode, wait_us;
		uint64_t bytes;
		bool ready, mover, site;
		enum policy_detach want;
		uint64_t wait_ns;
	} cases[] = {
		{ BASE_EARLY_AUTO, -1, 1 << 20, 1, 1, 1, DETACH_NOW, 0 },
		{ BASE_EARLY_AUTO, -1, 1 << 20, 1, 0, 1, DETACH_IF_LATE, 30000 },
		{ BASE_EARLY_AUTO, 7, 1 << 20, 1, 0, 1, DETACH_IF_LATE, 7000 },
		{ BASE_EARLY_AUTO, 0, 1 << 20, 1, 0, 1, DETACH_IF_LATE, 0 },
		{ BASE_EARLY_AUTO, -1, 512 << 10, 1, 1, 1, DETACH_NOW, 0 },
		{ BASE_EARLY_AUTO, -1, (512 << 10) - 1, 1, 1, 1, DETACH_NEVER, 0 },
		{ BASE_EARLY_AUTO, -1, 1 << 20, 0, 1, 1, DETACH_NEVER, 0 },
		{ BASE_EARLY_AUTO, -1, 1 << 20, 1, 1, 0, DETACH_NEVER, 0 },
		{ BASE_EARLY_ON, -1, 1 << 20, 1, 0, 0, DETACH_NOW, 0 },
		{ BASE_EARLY_ON, 50, 1 << 20, 1, 0, 0, DETACH_IF_LATE, 50000 },
		{ BASE_EARLY_ON, -1, 1 << 20, 0, 1, 1, DETACH_NEVER, 0 }, /* no guard */
		{ BASE_EARLY_ON, -1, 1, 1, 1, 1, DETACH_NEVER, 0 },
		{ BASE_EARLY_OFF, -1, 1 << 20, 1, 1, 1, DETACH_NEVER, 0 },
	};

	for (unsigned i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		struct policy_detach_facts f = good;
		struct policy_detach_choice choice;

		f.mode = cases[i].mode;
		f.wait_us = cases[i].wait_us;
		f.bytes = cases[i].bytes;
		f.guard_is_ready = cases[i].ready;
		f.has_mover = cases[i].mover;
		f.site_may_try = cases[i].site;
		policy_detach(&f, &choice);
		if (i == 0) { /* a copy that is shorter than waking a worker */
			f.copy_ns = 149999;
			policy_detach(&f, &choice);
			CHECK_EQ(choice.how, DETACH_IF_LATE);
			f.has_process = true; /* one that need not be woken */
			policy_detach(&f, &choice);
			CHECK_EQ(choice.how, DETACH_NOW);
			f.copy_ns = 119999;
			policy_detach(&f, &choice);
			CHECK_EQ(choice.how, DETACH_IF_LATE);
			f.has_process = false;
			f.copy_ns = 150000;
			policy_detach(&f, &choice);
		}
		CHECK(choice.reason && choice.how == cases[i].want);
		CHECK_EQ(choice.wait_ns, cases[i].wait_ns);
	}
}

UNIT_TEST(policy_leaves_the_copying_to_a_partner_that_has_waited_for_long)
{
	static const struct {
		uint64_t copy_ns, partner_copy_ns, waited_ns;
		bool mover, site;
		enum policy_detach want;
	} cases[] = {
		{ 400000, 400000, 400000, 0, 1, DETACH_NOW },
		{ 400000, 400000, 399999, 0, 1,
		  DETACH_IF_LATE }, /* copying alone would keep it for too long */
		{ 400000, 400000, 0, 0, 1,
		  DETACH_IF_LATE }, /* it came at the same time, or does not wait */
		{ 400000, 200000, 200000, 0, 1,
		  DETACH_NOW }, /* a gather's root: of several partners one copies its part */
		{ 149999, 149999, 9000000, 0, 1, DETACH_IF_LATE }, /* guarding costs as much */
		{ 400000, 400000, 9000000, 0, 0, DETACH_NEVER },
		{ 149999, 149999, 9000000, 1, 1, DETACH_IF_LATE },
		{ 400000, 400000, 0, 1, 1, DETACH_NOW }, /* a channel needs no partner */
	};

	for (unsigned i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		const struct policy_detach_facts f = { .mode = BASE_EARLY_AUTO,
						      .wait_us = -1,
						      .bytes = 4 << 20,
						      .min_bytes = 1,
						      .guard_is_ready = true,
						      .has_mover = cases[i].mover,
						      .site_may_try = cases[i].site,
						      .copy_ns = cases[i].copy_ns,
						      .partner_copy_ns = cases[i].partner_copy_ns,
						      .waited_ns = cases[i].waited_ns };
		struct policy_detach_choice choice;

		policy_detach(&f, &choice);
		if (choice.how != cases[i].want || (choice.how == DETACH_NOW && choice.wait_ns) ||
		    !choice.reason)
			unit_fail(__FILE__, __LINE__, "case %u: %d", i, choice.how);
	}
}

UNIT_TEST(policy_sees_that_a_worker_had_no_cpu)
{
	static const struct { uint64_t free_ns, waited_ns, copy_ns, want; } cases[] = {
		{ 300000, 10000, 300000, 290000 }, /* all was moved meanwhile, but for the fault */
		{ 300000, 300000, 300000, 0 },     /* nothing was: the program has copied itself */
		{ 300000, 900000, 300000, 0 },     /* and waited for a worker that was displaced */
		{ 5000, 295000, 300000, 5000 },    /* touched at once */
		{ 1000000, 10000, 300000, 290000 }, /* no more than the copy can be won ... */
		{ 1000000, 300000, 0, 1000000 },   /* ... but by not waiting for a late partner */
	};

	for (unsigned i = 0; i < BASE_ARRAY_LEN(cases); i++)
		CHECK_EQ(policy_gain_ns(cases[i].free_ns, cases[i].waited_ns, cases[i].copy_ns),
			 cases[i].want);
}

UNIT_TEST(policy_waits_for_a_partner_that_may_need_the_same_cpu)
{
	static const struct {
		bool shares, mover;
		int64_t wait_us;
		enum policy_detach want;
		uint64_t wait_ns;
	} cases[] = {
		{ 1, 0, -1, DETACH_IF_LATE, 2000000 },
		{ 0, 0, -1, DETACH_IF_LATE, 30000 },
		{ 1, 1, -1, DETACH_NOW,
		  0 }, /* a channel on another CPU moves the data in any case */
		{ 1, 0, 70, DETACH_IF_LATE, 70000 }, /* as told */
	};

	for (unsigned i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		const struct policy_detach_facts f = { .mode = BASE_EARLY_AUTO,
						      .wait_us = cases[i].wait_us,
						      .bytes = 4 << 20,
						      .min_bytes = 1,
						      .guard_is_ready = true,
						      .site_may_try = true,
						      .has_mover = cases[i].mover,
						      .shares_cpus = cases[i].shares,
						      .copy_ns = 400000,
						      .partner_copy_ns = 400000 };
		struct policy_detach_choice choice;

		policy_detach(&f, &choice);
		if (choice.how != cases[i].want || choice.wait_ns != cases[i].wait_ns)
			unit_fail(__FILE__, __LINE__, "case %u: %d, %llu ns", i, choice.how,
				  (unsigned long long)choice.wait_ns);
		if (choice.how == DETACH_IF_LATE)
			CHECK_EQ(!strstr(choice.reason, "share CPUs"), !cases[i].shares);
	}
}

UNIT_TEST(policy_counts_an_early_return_as_worth_it_when_it_frees_more_than_it_costs)
{
	CHECK(!policy_was_worth(0, 10));
	CHECK(!policy_was_worth(20, 10));
	CHECK(policy_was_worth(21, 10));
}

/* ---- are buffers used again? ------------------------------------------------------------- */

/* Writes the decisions on the next n calls: '.' passed on, 'T' admitted, 'n' and 'y' asked. again:
 * the calls reuse buffers. */
static void run_reuse(struct policy_reuse *h, bool again, int n, char *out)
{
	for (int i = 0; i < n; i++) {
		enum policy_step step = policy_reuse_next(h);

		out[i] = step == REUSE_PASS ? '.' : step == REUSE_ADMIT ? 'T' : again ? 'y' : 'n';
		if (step == REUSE_ASK)
			policy_reuse_answer(h, again);
	}
	out[n] = '\0';
}

UNIT_TEST(policy_asks_after_a_few_calls_and_less_and_less_often)
{
	struct policy_reuse h = { 0 };
	char calls[1001];

	run_reuse(&h, false, 28, calls);
	CHECK(!strcmp(calls, "...n.......n...............n"));
	h = (struct policy_reuse){ 0 };
	run_reuse(&h, true, 19, calls);
	CHECK(!strcmp(calls, "...yyTyTTTyTTTTTTTy"));
	for (int again = 0; again < 2; again++) {
		int asked = 0;

		h = (struct policy_reuse){ 0 };
		run_reuse(&h, again, 1000, calls);
		for (int i = 0; i < 1000; i++)
			asked += calls[i] == (again ? 'y' : 'n');
		CHECK(asked > 15 && asked < 70); /* for ever, as programs change */
	}
}

UNIT_TEST(policy_notices_soon_that_a_program_has_changed_its_ways)
{
	struct policy_reuse h = { 0 };
	char calls[1001];

	run_reuse(&h, true, 1000, calls);
	run_reuse(&h, false, 16, calls); /* who is taken may be losing */
	CHECK(strchr(calls, 'n') && h.is_admitted == false);
	run_reuse(&h, true, 64, calls);
	CHECK(strchr(calls, 'y') && h.is_admitted == true);
	/* what was right once only is not believed for long */
	h = (struct policy_reuse){ 0 };
	run_reuse(&h, true, 4, calls);
	run_reuse(&h, false, 1, calls);
	CHECK(!strcmp(calls, "n"));
}

UNIT_TEST(policy_asks_with_each_call_until_there_is_an_answer)
{
	struct policy_reuse h = { 0 };
	int calls = 0;

	while (policy_reuse_next(&h) != REUSE_ASK)
		CHECK(++calls < 10);
	for (int i = 0; i < 1000; i++) {
		policy_reuse_defer(&h);
		CHECK_EQ(policy_reuse_next(&h), REUSE_ASK);
		CHECK(!h.is_admitted);
	}
	policy_reuse_answer(&h, true);
	CHECK(h.is_admitted);
}
