/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules built by the public functions, and what these return that run them. */
#include <errno.h>

#include "goal/sched/private.h"
#include "ranks.h"
#include "sluice/goal.h"

enum { RANKS = 4 };

static struct sluice_goal *begin(void)
{
	struct sluice_goal *g = NULL;

	CHECK_EQ(sluice_goal_create(100, &g), 0);
	return g;
}

static struct sluice_goal_schedule *compiled(struct sluice_goal *g)
{
	struct sluice_goal_schedule *s = NULL;

	CHECK_EQ(sluice_goal_compile(g, RANKS, &s), 0);
	sluice_goal_destroy(g);
	return s;
}

/* The block that goal/ makes of the schedule in the test below. */
static void build_same(struct goal_block *out, uint64_t cap)
{
	struct goal_segment segments[2];
	struct goal_edge edges[3];
	struct goal_op ops[8];
	struct goal_build b;

	goal_build_init(&b, ops, 8, edges, 3);
	b.segments = segments;
	b.segment_cap = 2;
	b.scratch_bytes = 100;
	goal_recv(&b, GOAL_ANY, 7, GOAL_SCRATCH, 0, 64);
	goal_add(&b, &(struct goal_op){ .type = GOAL_MAX,
					.dtype = GOAL_F32,
					.mem = GOAL_USER,
					.off = 4,
					.src_mem = GOAL_USER,
					.src_off = 4,
					.bytes = 64 });
	goal_send(&b, 3, 8, 0, 0, 0, 0);
	goal_segment(&b, 2, GOAL_USER + 2, 5, 3);
	goal_segment(&b, 2, GOAL_SCRATCH, 0, 100);
	goal_copy(&b, GOAL_USER + 1, 9, GOAL_USER, 0, 11);
	goal_add(&b, &(struct goal_op){ .type = GOAL_CALC, .bytes = 500 });
	goal_add(&b,
		 &(struct goal_op){ .type = GOAL_STAMP, .mem = GOAL_USER, .off = 200, .bytes = 8 });
	goal_add(&b, &(struct goal_op){ .type = GOAL_NOP });
	goal_requires(&b, 1, 0);
	goal_irequires(&b, 4, 0);
	goal_requires(&b, 2, 1);
	CHECK_EQ(goal_compile(&b, out, cap), 0);
}

UNIT_TEST(public_schedule_is_the_block_that_it_stands_for)
{
	static _Alignas(8) char room[4096];
	const struct sluice_goal_piece pieces[] = { { sluice_goal_user(2, 5), 3 },
						    { sluice_goal_scratchpad(0), 100 } };
	struct goal_block *want = (struct goal_block *)room;
	struct sluice_goal *g = begin();
	struct sluice_goal_schedule *s;
	uint64_t bytes = 0;
	const void *data;

	CHECK_EQ(sluice_goal_recv(g, sluice_goal_scratchpad(0), 64, SLUICE_GOAL_ANY, 7), 0);
	CHECK_EQ(sluice_goal_local(g, SLUICE_GOAL_MAX, SLUICE_GOAL_F32, sluice_goal_user(0, 4),
				   sluice_goal_user(0, 4), sluice_goal_scratchpad(0), 16),
		 1);
	CHECK_EQ(sluice_goal_sendv(g, pieces, 2, 3, 8), 2);
	CHECK_EQ(sluice_goal_copy(g, sluice_goal_user(1, 9), sluice_goal_user(0, 0), 11), 3);
	CHECK_EQ(sluice_goal_calc(g, 500), 4);
	CHECK_EQ(sluice_goal_stamp(g, sluice_goal_user(0, 200)), 5);
	CHECK_EQ(sluice_goal_nop(g), 6);
	CHECK_EQ(sluice_goal_requires(g, 1, 0), 0);
	CHECK_EQ(sluice_goal_irequires(g, 4, 0), 0);
	CHECK_EQ(sluice_goal_requires(g, 2, 1), 0);
	s = compiled(g);
	data = sluice_goal_data(s, &bytes);

	build_same(want, sizeof room);
	CHECK_EQ(bytes, want->bytes);
	CHECK(!memcmp(data, want, bytes));
	CHECK_EQ(sluice_goal_user_bytes(s, 0), 208);
	CHECK_EQ(sluice_goal_user_bytes(s, 1), 20);
	CHECK_EQ(sluice_goal_user_bytes(s, 2), 8);
	CHECK_EQ(sluice_goal_user_bytes(s, 3), 0);
	CHECK_EQ(sluice_goal_user_bytes(s, 64), 0);
	sluice_goal_schedule_destroy(s);
}

/* Each call in a schedule of its own, as a schedule reports only its first error. */
#define REFUSED(call)                                            \
	do {                                                     \
		struct sluice_goal_schedule *none = NULL;        \
		struct sluice_goal *g = begin();                 \
		CHECK_EQ(call, -EINVAL);                         \
		CHECK_EQ(sluice_goal_compile(g, RANKS, &none), -EINVAL); \
		CHECK(!none);                                    \
		sluice_goal_destroy(g);                          \
	} while (0)

UNIT_TEST(operations_that_cannot_be_are_refused_at_once_and_again_when_compiled)
{
	const struct sluice_goal_place u = sluice_goal_user(0, 0),
				       far = sluice_goal_user(0, UINT64_MAX - 3);
	const struct sluice_goal_piece bad = { { 0, 65 }, 1 },
				       twice[] = { { u, 1ull << 63 }, { u, 1ull << 63 } };

	REFUSED(sluice_goal_send(g, sluice_goal_scratchpad(1), 100, 0, 0));
	REFUSED(sluice_goal_send(g, far, 4, 0, 0));
	REFUSED(sluice_goal_send(g, sluice_goal_user(64, 0), 1, 0, 0));
	REFUSED(sluice_goal_send(g, sluice_goal_user(0xfffe, 0), 1, 0, 0));
	REFUSED(sluice_goal_send(g, u, 1, SLUICE_GOAL_ANY, 0));
	REFUSED(sluice_goal_send(g, u, 1, 0, SLUICE_GOAL_ANY));
	REFUSED(sluice_goal_copy(g, u, sluice_goal_user(0, 1), 2));
	REFUSED(sluice_goal_local(g, SLUICE_GOAL_AND, SLUICE_GOAL_F64, u, u, u, 1));
	REFUSED(sluice_goal_local(g, (enum sluice_goal_operation)9, SLUICE_GOAL_I8, u, u, u, 1));
	REFUSED(sluice_goal_local(g, SLUICE_GOAL_ADD, (enum sluice_goal_type)12, u, u, u, 1));
	REFUSED(sluice_goal_local(g, SLUICE_GOAL_ADD, SLUICE_GOAL_I64, u, u, u, 1ull << 61));
	REFUSED(sluice_goal_stamp(g, far));
	REFUSED(sluice_goal_sendv(g, &bad, 1, 0, 0));
	REFUSED(sluice_goal_recvv(g, twice, 2, 0, 0));
	REFUSED(sluice_goal_requires(g, 0, 0));
	REFUSED(sluice_goal_irequires(g, -1, 0));
	/* the rank may exist: the group is known when the schedule is compiled */
	REFUSED((sluice_goal_send(g, u, 1, RANKS, 0), -EINVAL));
}

UNIT_TEST(circle_of_requirements_is_refused)
{
	struct sluice_goal_schedule *s = NULL;
	struct sluice_goal *g = begin();

	sluice_goal_nop(g);
	sluice_goal_nop(g);
	sluice_goal_requires(g, 0, 1);
	CHECK_EQ(sluice_goal_compile(g, RANKS, &s), 0);
	sluice_goal_schedule_destroy(s);
	sluice_goal_irequires(g, 1, 0);
	CHECK_EQ(sluice_goal_compile(g, RANKS, &s), -ELOOP);
	sluice_goal_destroy(g);
}

UNIT_TEST(schedules_grow_and_load_from_their_bytes)
{
	struct sluice_goal_schedule *s, *again = NULL;
	struct sluice_goal *g = begin();
	uint64_t bytes = 0, bytes_again = 0;
	char *copy;

	for (int i = 0; i < 5000; i++) {
		struct sluice_goal_piece p = { sluice_goal_user(0, (uint64_t)i), 1 };

		CHECK_EQ(sluice_goal_recvv(g, &p, 1, 1, 0), i);
		if (i)
			CHECK_EQ(sluice_goal_requires(g, i, i - 1), 0);
	}
	s = compiled(g);
	copy = malloc(sluice_goal_data(s, &bytes) ? bytes + 1 : 0);
	memcpy(copy + 1, sluice_goal_data(s, &bytes), bytes); /* at any address */
	CHECK_EQ(sluice_goal_load(copy + 1, bytes, RANKS, &again), 0);
	CHECK(!memcmp(sluice_goal_data(again, &bytes_again), copy + 1, bytes));
	CHECK_EQ(bytes_again, bytes);
	CHECK_EQ(sluice_goal_user_bytes(again, 0), 5000);
	sluice_goal_schedule_destroy(again);
	again = NULL;
	CHECK_EQ(sluice_goal_load(copy + 1, bytes - 1, RANKS, &again), -EINVAL);
	CHECK_EQ(sluice_goal_load(copy + 1, bytes, 1, &again), -EINVAL); /* there is no rank 1 */
	CHECK_EQ(sluice_goal_load(copy + 1, bytes, 0, &again), -EINVAL);
	CHECK_EQ(sluice_goal_load(NULL, 0, RANKS, &again), -EINVAL);
	CHECK(!again);
	free(copy);
	sluice_goal_schedule_destroy(s);
	sluice_goal_schedule_destroy(NULL);
	sluice_goal_destroy(NULL);
}

/* ---- running ----------------------------------------------------------------------------- */

static int create(const struct ranks *r, int rank, int size, struct sluice_goal_group **out)
{
	struct sluice_goal_oob oob = {
		.ctx = r->oob.ctx,
		.rank = rank,
		.size = size,
		.allgather = (int (*)(void *, const void *, uint64_t, void *))r->oob.allgather,
		.allreduce_min = r->oob.allreduce_min,
	};

	return sluice_goal_group_create(&oob, out);
}

/* A receive of 8 bytes into buffer 0, which nobody sends. */
static struct sluice_goal_schedule *receive(uint32_t ranks)
{
	struct sluice_goal_schedule *s = NULL;
	struct sluice_goal *g = begin();

	CHECK_EQ(sluice_goal_recv(g, sluice_goal_user(0, 0), 8, 0, 3), 0);
	CHECK_EQ(sluice_goal_compile(g, ranks, &s), 0);
	sluice_goal_destroy(g);
	return s;
}

static void refused_groups(struct ranks *r)
{
	struct sluice_goal_group *g = NULL;
	char name[66];

	memset(name, 'n', sizeof name);
	name[65] = 0;
	CHECK_EQ(create(r, 0, 0, &g), -EINVAL);
	CHECK_EQ(create(r, -1, 1, &g), -EINVAL);
	CHECK_EQ(create(r, 1, 1, &g), -EINVAL);
	CHECK_EQ(sluice_goal_group_join("", 0, 1, 0, &g), -EINVAL);
	CHECK_EQ(sluice_goal_group_join(name, 0, 1, 0, &g), -EINVAL);
	CHECK_EQ(sluice_goal_group_join("n", -1, 1, 0, &g), -EINVAL);
	CHECK_EQ(sluice_goal_group_join("n", 1, 1, 0, &g), -EINVAL);
	CHECK_EQ(sluice_goal_group_join("n", 0, 0, 0, &g), -EINVAL);
	CHECK(!g);
	sluice_goal_group_destroy(NULL);
}

UNIT_TEST(groups_without_ranks_or_a_name_are_refused)
{
	ranks_run(1, (char *[]){ NULL }, refused_groups, NULL);
}

static void calls_in_wrong_order(struct ranks *r)
{
	struct sluice_goal_schedule *s = receive(1), *other = receive(2);
	struct sluice_goal_options odd = { .flags = 2 };
	struct sluice_goal_failure f = { 0 };
	struct sluice_goal_instance *i = NULL;
	struct sluice_goal_buffer b = { &f, 8 };
	struct sluice_goal_group *g = NULL;
	char text[128];

	CHECK_EQ(create(r, 0, 1, &g), 0);
	CHECK_EQ(sluice_goal_open(g, other, &b, 1, NULL, &i), -EINVAL);
	CHECK_EQ(sluice_goal_open(g, s, NULL, 0, NULL, &i), -EINVAL);
	CHECK_EQ(sluice_goal_open(g, s, &b, 65, NULL, &i), -EINVAL);
	CHECK_EQ(sluice_goal_open(g, s, &b, 1, &odd, &i), -EINVAL);
	CHECK_EQ(sluice_goal_open(g, s, &(struct sluice_goal_buffer){ &f, 7 }, 1, NULL, &i),
		 -EINVAL);
	CHECK_EQ(sluice_goal_open(g, s, &(struct sluice_goal_buffer){ NULL, 8 }, 1, NULL, &i),
		 -EINVAL);
	CHECK(!i);
	CHECK_EQ(sluice_goal_open(g, s, &b, 1, NULL, &i), 0);
	sluice_goal_schedule_destroy(s);
	CHECK_EQ(sluice_goal_test(i), 1);
	CHECK_EQ(sluice_goal_wait(i, -1), 0);
	CHECK_EQ(sluice_goal_cancel(i), -EALREADY);
	CHECK_EQ(sluice_goal_start(i), 0);
	CHECK_EQ(sluice_goal_start(i), -EBUSY);
	CHECK_EQ(sluice_goal_execute(i, 0), -EBUSY);
	CHECK_EQ(sluice_goal_close(i), -EBUSY);
	CHECK_EQ(sluice_goal_wait(i, 0), -ETIMEDOUT);
	CHECK_EQ(sluice_goal_test(i), 0);
	CHECK_EQ(sluice_goal_stuck(i, NULL, 0), sluice_goal_stuck(i, text, sizeof text));
	CHECK_STR(text, "rank 0 op 0: recv 8b from 0 tag 3: no message\n");
	CHECK_EQ(sluice_goal_cancel(i), 0);
	CHECK_EQ(sluice_goal_cancel(i), -EALREADY); /* although the run has failed */
	CHECK_EQ(sluice_goal_test(i), -ECANCELED);
	CHECK_EQ(sluice_goal_start(i), -ECANCELED);
	sluice_goal_failure(i, &f);
	CHECK(f.error == -ECANCELED && !f.rank && !f.at_rank && f.op == UINT32_MAX);
	CHECK_EQ(sluice_goal_close(i), 0);
	sluice_goal_schedule_destroy(other);
	sluice_goal_free(g, NULL);
	CHECK(!sluice_goal_alloc(g, 1ull << 62) && errno == ENOMEM);
	CHECK(!sluice_goal_alloc(g, 0) && errno == ENOMEM);
	sluice_goal_group_destroy(g);
}

UNIT_TEST(calls_in_the_wrong_order_return_what_the_header_says)
{
	ranks_run(1, (char *[]){ "SLUICE_LOG=none", NULL }, calls_in_wrong_order, NULL);
}

static void run_that_cannot_start(struct ranks *r)
{
	struct sluice_goal_schedule *s = receive(1);
	struct sluice_goal_instance *i = NULL;
	struct sluice_goal_group *g = NULL;
	struct sched_group *inner;
	uint64_t word = 0;

	CHECK_EQ(create(r, 0, 1, &g), 0);
	inner = (struct sched_group *)g;
	inner->drivers[0].st->broken = 1;
	CHECK_EQ(sluice_goal_run(g, s, &(struct sluice_goal_buffer){ &word, 8 }, 1, &i),
		 -EOWNERDEAD);
	CHECK(!i && !inner->instances);
	inner->drivers[0].st->broken = 0;
	CHECK_EQ(sluice_goal_run(g, s, &(struct sluice_goal_buffer){ &word, 8 }, 1, &i), 0);
	CHECK(i);
	sluice_goal_schedule_destroy(s);
	sluice_goal_group_destroy(g); /* ends the run */
}

UNIT_TEST(a_run_that_cannot_start_leaves_no_schedule_open)
{
	ranks_run(1, (char *[]){ "SLUICE_LOG=none", NULL }, run_that_cannot_start, NULL);
}
