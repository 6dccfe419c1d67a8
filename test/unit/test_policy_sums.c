/* SPDX-License-Identifier: BSD-3-Clause */
/* The order of reductions, and which of them have bits that depend on it. */
#include <string.h>

#include "goal/local.h"
#include "policy/gate.h"
#include "unit.h"

enum { RANKS_MAX = 4, ROUNDS = 40 };

static const enum goal_type ops[] = { GOAL_ADD, GOAL_MUL, GOAL_MAX, GOAL_MIN,
				      GOAL_AND, GOAL_OR,  GOAL_XOR };

static bool is_exact(int ranks, enum goal_type op, enum goal_dtype type)
{
	const struct policy_reduction r = { ranks, true, true, op, type };

	return policy_is_exact(&r);
}

static uint64_t random_bits(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void combine(enum goal_type op, enum goal_dtype type, uint64_t *to, const uint64_t *a,
		    const uint64_t *b)
{
	goal_local(GOAL_ISA_BASE, op, type, to, a, b, goal_dtype_bytes(type));
}

static bool is_nan(enum goal_dtype type, uint64_t bits)
{
	return type == GOAL_F64 ? (bits & INT64_MAX) > 0x7ffull << 52
				: (bits & INT32_MAX) > 0x7f800000u;
}

/* Combines in the order of the ranks, in reverse order, and in order but grouped from the end. */
static void check_orders(int ranks, enum goal_type op, enum goal_dtype type)
{
	uint64_t in[RANKS_MAX], up, down, mixed;

	for (int r = 0; r < ranks; r++)
		in[r] = random_bits();
	up = in[0];
	down = mixed = in[ranks - 1];
	for (int r = 1; r < ranks; r++)
		combine(op, type, &up, &up, &in[r]);
	for (int r = ranks - 2; r >= 0; r--) {
		combine(op, type, &down, &down, &in[r]);
		combine(op, type, &mixed, &in[r], &mixed);
	}
	if (goal_dtype_is_float(type) && is_nan(type, up)) {
		CHECK(is_nan(type, down) && is_nan(type, mixed));
		return;
	}
	CHECK(!memcmp(&up, &down, goal_dtype_bytes(type)));
	CHECK(!memcmp(&up, &mixed, goal_dtype_bytes(type)));
}

UNIT_TEST(exact_reductions_give_equal_bits_in_any_order)
{
	for (int ranks = 2; ranks <= RANKS_MAX; ranks++)
		for (enum goal_dtype type = 0; type < GOAL_DTYPE_COUNT; type++)
			for (size_t i = 0; i < BASE_ARRAY_LEN(ops); i++)
				for (int n = 0; n < ROUNDS; n++)
					if (is_exact(ranks, ops[i], type))
						check_orders(ranks, ops[i], type);
}

UNIT_TEST(integers_are_exact_and_floating_point_is_not)
{
	for (size_t i = 0; i < BASE_ARRAY_LEN(ops); i++) {
		CHECK(is_exact(3, ops[i], GOAL_I32));
		CHECK(is_exact(100, ops[i], GOAL_U64));
	}
	CHECK(is_exact(3, GOAL_NOP, GOAL_I8)); /* MPI_LAND */
	CHECK(!is_exact(3, GOAL_ADD, GOAL_F64));
	CHECK(!is_exact(3, GOAL_MUL, GOAL_F32));
	CHECK(!is_exact(3, GOAL_ADD, GOAL_DTYPE_COUNT));
	CHECK(!is_exact(3, GOAL_MAX, GOAL_F64));
}

UNIT_TEST(short_integers_are_exact_except_their_sums)
{
	for (enum goal_dtype type = GOAL_I8; type <= GOAL_U64; type++) {
		bool is_short = goal_dtype_bytes(type) < 4;

		CHECK(is_exact(2, GOAL_ADD, type) == !is_short);
		CHECK(is_exact(3, GOAL_ADD, type) == !is_short);
		CHECK(is_exact(2, GOAL_MUL, type) && is_exact(3, GOAL_MAX, type));
	}
}

UNIT_TEST(two_ranks_have_one_order)
{
	CHECK(is_exact(2, GOAL_ADD, GOAL_F64));
	CHECK(is_exact(2, GOAL_MUL, GOAL_F32));
	CHECK(is_exact(2, GOAL_ADD, GOAL_DTYPE_COUNT));  /* long double, complex */
	CHECK(!is_exact(2, GOAL_MUL, GOAL_DTYPE_COUNT)); /* complex */
	CHECK(!is_exact(2, GOAL_MIN, GOAL_F64));         /* NaN, and zeros of both signs */
	CHECK(!is_exact(2, GOAL_NOP, GOAL_DTYPE_COUNT)); /* MPI_MAXLOC */
}

UNIT_TEST(operations_of_the_program_are_exact_for_two_ranks_in_order)
{
	struct policy_reduction r = { .ranks = 2, .op = GOAL_NOP, .type = GOAL_I32 };

	CHECK(policy_is_exact(&r));
	r.commutes = true;
	CHECK(!policy_is_exact(&r));
	r = (struct policy_reduction){ .ranks = 3, .op = GOAL_NOP, .type = GOAL_I32 };
	CHECK(!policy_is_exact(&r));
}

UNIT_TEST(the_option_decides_about_inexact_reductions_only)
{
	CHECK(policy_leaves_to_host(BASE_SUMS_HOST, false));
	CHECK(!policy_leaves_to_host(BASE_SUMS_HOST, true));
	CHECK(!policy_leaves_to_host(BASE_SUMS_FIXED, false));
	CHECK(!policy_leaves_to_host(BASE_SUMS_ANY, false));
}

/* ---- the order ------------------------------------------------------------------------------ */

enum { HEIGHT_MAX = 12, TEXT = 64 };

/* The order as text, such as "((01)2)". Returns: the highest the stack was. */
static uint32_t order_of(uint32_t ranks, char text[TEXT])
{
	char stack[HEIGHT_MAX][TEXT], both[2 * TEXT + 2];
	uint32_t n = 0, highest = 0;

	for (uint32_t r = 0; r < ranks; r++) {
		CHECK(n < HEIGHT_MAX);
		snprintf(stack[n++], TEXT, "%u", r % 10);
		highest = base_max_u64(highest, n);
		for (uint32_t k = coll_combines_after(ranks, r); k; k--, n--) {
			CHECK(n >= 2);
			snprintf(both, sizeof both, "(%s%s)", stack[n - 2], stack[n - 1]);
			snprintf(stack[n - 2], TEXT, "%.*s", TEXT - 1, both);
		}
	}
	CHECK_EQ(n, 1);
	memcpy(text, stack[0], TEXT);
	return highest;
}

UNIT_TEST(ranks_are_combined_in_the_order_of_recursive_doubling)
{
	static const char *const want[] = {
		NULL, "0", "(01)", "((01)2)", "((01)(23))", "(((01)2)(34))", "(((01)(23))(45))",
		"(((01)(23))((45)6))", "(((01)(23))((45)(67)))", "((((01)2)(34))((56)(78)))",
	};
	char got[TEXT];

	for (uint32_t ranks = 1; ranks < BASE_ARRAY_LEN(want); ranks++) {
		order_of(ranks, got);
		CHECK_STR(got, want[ranks]);
	}
}

UNIT_TEST(every_number_of_ranks_has_an_order)
{
	char text[TEXT];

	for (uint32_t ranks = 1; ranks <= 1025; ranks++)
		CHECK(order_of(ranks, text) <= coll_combine_depth(ranks));
}
