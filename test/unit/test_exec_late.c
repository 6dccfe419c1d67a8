/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that is so late that its peers have used all their slots again: it must find that its part
 * of the old collective is over, not wait for something that has gone.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "exec/exec.h"
#include "os/os.h"
#include "ranks.h"
#include "rt_case.h"

enum { BYTES = 16 << 10, WARM_UP = 4, RANKS = EXEC_SLOTS + 4, RUNNER = RANKS - 1 };

static struct ranks *job;
static int op, late_at;
static int (*late_until)(void);

/* Lends rank 0's time to something else, while the others' collective does not need it any more. */
static void dawdle(void *ctx)
{
	uint64_t give_up = os_now_ns() + 20000000000u;

	if (op != late_at)
		return;
	atomic_store(&job->words[2], 1);
	while (!late_until() && os_now_ns() < give_up)
		usleep(100);
}

static int runner_is_far(void)
{
	return atomic_load(&job->words[0]) >= (uint64_t)late_at + EXEC_SLOTS - 1;
}

static char *make_buffer(void)
{
	char *b = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(b != MAP_FAILED);
	return b;
}

static void bcast(struct rt_comm *c, char *b, int root)
{
	struct coll_buf buf = { .addr = b, .bytes = BYTES };

	if (job->rank == root)
		memset(b, op + 1, BYTES);
	CHECK_EQ(rt_bcast(c, &buf, root, NULL), 0);
	for (int k = 0; k < BYTES; k++)
		CHECK_EQ(b[k], (char)(op + 1));
}

/* Each collective has another root, so that a rank which nobody needs as a root can run ahead of
 * one that is late by as many collectives as there are others. */
static void rotate(struct ranks *r)
{
	struct rt_comm *c;
	char *b = make_buffer();

	job = r;
	late_at = WARM_UP;
	late_until = runner_is_far;
	if (r->rank == 0)
		r->oob.progress = dawdle;
	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	for (op = 0; op < WARM_UP + 3 * EXEC_SLOTS; op++) {
		int root = op < WARM_UP ? 0 : (op - WARM_UP) % (RANKS - 1);

		while (op == WARM_UP && r->rank && !atomic_load(&r->words[2]))
			usleep(100); /* rank 0 comes first and waits */
		bcast(c, b, root);
		if (r->rank == RUNNER)
			atomic_store(&r->words[0], (uint64_t)op);
		if (op == WARM_UP && !r->rank)
			atomic_store(&r->words[1], runner_is_far() ? 2 : 1);
	}
	ranks_barrier(r);
	CHECK_EQ(atomic_load(&r->words[1]), 2); /* or the test has tested nothing */
	rt_comm_destroy(c);
}

UNIT_TEST(late_root_finds_that_its_slots_have_been_used_again)
{
	ranks_run(RANKS,
		  (char *[]){ "SLUICE_REGION_KIND=arena", "SLUICE_TEST=region_adopt_min=4K",
			      "SLUICE_TEST=fault=slots:all", NULL },
		  rotate, NULL);
}

/* The worker process finds the slots of a group that it has not made. */
static void slots_of_the_first(struct ranks *r)
{
	static const uint32_t slots[] = { EXEC_SLOTS, EXEC_SLOTS_MAX };

	for (size_t i = 0; i < BASE_ARRAY_LEN(slots); i++) {
		const struct node_oob oob = r->oob;
		struct exec_comm *e, *observer;
		struct node_group *g;

		CHECK_EQ(node_group_create(&oob, exec_area_bytes(r->size, slots[i]), &g), 0);
		CHECK_EQ(exec_create(g, slots[i], NULL, &e), 0);
		ranks_barrier(r);
		CHECK_EQ(exec_create(g, 0, NULL, &observer), 0);
		CHECK_EQ(exec_slots(observer), slots[i]);
		ranks_barrier(r);
		exec_destroy(observer);
		exec_destroy(e);
		node_group_destroy(g);
	}
}

UNIT_TEST(another_process_finds_how_many_slots_there_are)
{
	ranks_run(2, (char *[]){ NULL }, slots_of_the_first, NULL);
}
