/* SPDX-License-Identifier: BSD-3-Clause */
#include "policy/policy.h"
#include "unit.h"

static char places[4096];

static int tries_in(struct policy_site *s, int calls, uint64_t free_ns)
{
	int tries = 0;

	for (int i = 0; i < calls; i++) {
		if (!policy_site_may_try(s))
			continue;
		tries++;
		policy_site_learn(s, free_ns, 1000);
	}
	return tries;
}

UNIT_TEST(site_that_is_never_worth_it_is_tried_ever_less)
{
	struct policy_site *s = policy_site(&places[1], false, 1 << 20);

	CHECK_EQ(tries_in(s, 5, 0), 1); /* then four calls in peace */
	CHECK(tries_in(s, 5000, 0) <= 13);
	CHECK(tries_in(s, 5000, 0) >= 3); /* but never given up */
}

UNIT_TEST(site_that_becomes_worth_it_is_tried_at_each_call)
{
	struct policy_site *s = policy_site(&places[2], false, 1 << 20);

	tries_in(s, 1000, 0);
	tries_in(s, 3000, 100000); /* one try of these ends the doubt */
	CHECK_EQ(tries_in(s, 100, 100000), 100);
}

UNIT_TEST(sites_differ_by_place_by_side_and_by_order_of_size)
{
	struct policy_site *s = policy_site(&places[3], false, 1 << 20);

	CHECK(s == policy_site(&places[3], false, (1 << 20) + 5));
	CHECK(s != policy_site(&places[3], true, 1 << 20));
	CHECK(s != policy_site(&places[3], false, 1 << 22));
	CHECK(s != policy_site(&places[4], false, 1 << 20));
}

UNIT_TEST(more_sites_than_places_share_them)
{
	for (int i = 0; i < 4096; i++)
		CHECK(policy_site(&places[i], i & 1, 1 << 21));
}
