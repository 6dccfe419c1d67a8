/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Facts and duties of a rank before it detaches: the partners that only wait for this rank, and the
 * fragments that no other mover would copy. What movers do with the rest, a killed one too.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "coll/coll.h"
#include "engine_late.h"
#include "exec/private.h"
#include "exec_mover.h"
#include "os/os.h"
#include "ranks.h"

enum { BYTES = 512 << 10, LATE_US = 20000, WAITED_NS = 5000000 };
/* a collective's number, the same on all ranks; who waits is looked at before its root goes on */
enum { WORD_SEEN, WORD_LEFT, WORD_WAITED };

static struct bench {
	struct ranks *r;
	struct node_group *g;
	struct exec_comm *e;
	struct region_extent mem[2];
	char *user[2];
} bench;

/* A gather's root receives from all. */
static uint64_t user_bytes(int i) { return (uint64_t)(i ? bench.r->size : 1) * BYTES; }

static void bench_begin(struct ranks *r)
{
	const struct node_oob oob = r->oob;

	bench.r = r;
	CHECK_EQ(node_group_create(&oob, exec_area_bytes(r->size, EXEC_SLOTS), &bench.g), 0);
	CHECK(bench.g);
	CHECK_EQ(exec_create(bench.g, EXEC_SLOTS, NULL, &bench.e), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(region_extent_get(user_bytes(i), false, &bench.mem[i]), 0);
		bench.user[i] = (char *)region_arena_base() + bench.mem[i].offset;
	}
}

static void bench_end(void)
{
	ranks_barrier(bench.r);
	exec_destroy(bench.e);
	node_group_destroy(bench.g);
}

static struct exec_run *begin(bool is_gather)
{
	const struct coll_part whole = { 0, BYTES };
	struct coll_part parts[RANKS_MAX];
	const struct exec_shape shape = { .kind = is_gather ? COLL_GATHER : COLL_BCAST,
					  .send = &whole,
					  .recv = parts };
	struct exec_call call = { .shape = &shape,
				  .user = { bench.user[0], bench.user[1] },
				  .name = "shape" };
	struct exec_run *run;

	for (int i = 0; i < bench.r->size; i++)
		parts[i] = (struct coll_part){ (uint64_t)i * BYTES, BYTES };
	for (int i = 0; i < 2; i++)
		region_describe_extent(&bench.mem[i], user_bytes(i), &call.desc[COLL_SEND + i]);
	CHECK_EQ(exec_begin(bench.e, &call, &run), 0);
	return run;
}

static void until(int word, uint64_t value)
{
	while (atomic_load(&bench.r->words[word]) < value)
		usleep(100);
}

/* Returns: the time that rank 1 has waited, as a root that comes late_us late sees it.
 * Context: both ranks; rank 1 may come late as well. */
static uint64_t waited_ns(struct ranks *r, bool is_gather, unsigned late_us)
{
	struct exec_run *run;

	ranks_barrier(r);
	if (r->rank == 0)
		usleep(late_us);
	run = begin(is_gather);
	if (r->rank == 0)
		atomic_store(&r->words[WORD_WAITED], exec_waited_for_ns(run));
	CHECK_EQ(exec_wait(run), 0);
	ranks_barrier(r);
	return atomic_load(&r->words[WORD_WAITED]);
}

/* Rank 1 waits in the collective for as long as root is late. */
static void body_waits(struct ranks *r)
{
	bench_begin(r);
	for (int round = 0; round < 3; round++) {
		uint64_t ns = 0;

		for (int i = 0; i < 7 && ns <= WAITED_NS; i++)
			ns = waited_ns(r, round == 1, LATE_US << i);
		CHECK(ns > WAITED_NS);
	}
	bench_end();
}

/* Rank 1 has come, has waited a little, and does something else: nobody waits. */
static void body_left(struct ranks *r)
{
	struct exec_run *run;

	bench_begin(r);
	if (r->rank) {
		run = begin(false);
		CHECK_EQ(exec_settle(run, EXEC_COPY_ALL, false, 2000000), EXEC_MAY_DETACH);
		atomic_store(&r->words[WORD_LEFT], 1);
		until(WORD_SEEN, 1);
	} else {
		until(WORD_LEFT, 1);
		usleep(LATE_US);
		run = begin(false);
		CHECK_EQ(exec_waited_for_ns(run), 0);
		atomic_store(&r->words[WORD_SEEN], 1);
	}
	CHECK_EQ(exec_wait(run), 0);
	bench_end();
}

/* Rank 1 has waited in this slot before, and has begun only. */
static void body_again(struct ranks *r)
{
	struct exec_run *run;

	bench_begin(r);
	for (int round = 0; round < EXEC_SLOTS; round++) {
		ranks_barrier(r);
		if (r->rank == 0)
			usleep(1000);
		CHECK_EQ(exec_wait(begin(false)), 0);
	}
	run = begin(false);
	ranks_barrier(r);
	CHECK_EQ(exec_waited_for_ns(run), 0);
	ranks_barrier(r);
	CHECK_EQ(exec_wait(run), 0);
	bench_end();
}

/* Rank 1 has left, and waits for its data now, as in a fault: then until it goes on. */
static void body_pauses(struct ranks *r)
{
	struct node_wait w;
	struct exec_run *run;

	bench_begin(r);
	if (r->rank) {
		run = begin(false);
		CHECK_EQ(exec_settle(run, EXEC_COPY_NOTHING, false, 0), EXEC_MAY_DETACH);
		w = (struct node_wait){ 0 };
		while (!atomic_load(&r->words[WORD_SEEN]))
			CHECK_EQ(exec_pause(run, &w), 0);
		exec_resume(run, &w);
		atomic_store(&r->words[WORD_LEFT], 1);
		until(WORD_SEEN, 2);
	} else {
		usleep(LATE_US);
		run = begin(false);
		for (int ms = 0; exec_waited_for_ns(run) < WAITED_NS && ms < 5000; ms++)
			usleep(1000);
		CHECK(exec_waited_for_ns(run) >= WAITED_NS);
		atomic_store(&r->words[WORD_SEEN], 1);
		until(WORD_LEFT, 1);
		CHECK_EQ(exec_waited_for_ns(run), 0);
		atomic_store(&r->words[WORD_SEEN], 2);
	}
	CHECK_EQ(exec_wait(run), 0);
	bench_end();
}

/* A gather's root before its partner has come: is its own block in place? */
static void body_own(struct ranks *r)
{
	static const enum exec_copy copies[] = { EXEC_COPY_NOTHING, EXEC_COPY_OWN };
	struct exec_run *run;

	bench_begin(r);
	for (unsigned round = 0; round < BASE_ARRAY_LEN(copies); round++) {
		memset(bench.user[0], 'a' + r->rank + (int)round, BYTES);
		memset(bench.user[1], 0, BYTES * (size_t)r->size);
		if (r->rank)
			until(WORD_LEFT, round + 1);
		run = begin(true);
		if (!r->rank) {
			CHECK_EQ(exec_settle(run, copies[round], false, 0), EXEC_MAY_DETACH);
			CHECK_EQ(bench.user[1][BYTES / 2],
				 copies[round] == EXEC_COPY_OWN ? 'a' + (int)round : 0);
			atomic_store(&r->words[WORD_LEFT], round + 1);
		}
		CHECK_EQ(exec_wait(run), 0);
		if (!r->rank) {
			CHECK_EQ(bench.user[1][0], 'a' + (int)round);
			CHECK_EQ(bench.user[1][2 * BYTES - 1], 'b' + (int)round);
		}
	}
	bench_end();
}

/* Before its partner has come, the copy of a gather's root is all that a mover can do. */
static void leave_to_dying(struct exec_run *run, int death, int unit)
{
	uintptr_t own = (uintptr_t)bench.user[1];
	bool is_whole;
	int ret;

	CHECK_EQ(exec_settle(run, EXEC_COPY_NOTHING, false, 0), EXEC_MAY_DETACH);
	exec_detach(run);
	serve_and_die(bench.e, run, death, unit, &is_whole);
	CHECK_EQ(mover.claim != 0, death != DIE_NEVER && death != DIE_BEFORE_WRITING);
	CHECK_EQ(mover.intent != 0, death == DIE_BEFORE_WRITING || death == DIE_AFTER_WRITING);
	do
		ret = exec_advance(run);
	while (ret == 1);
	CHECK_EQ(ret, 0);
	CHECK(exec_is_range_complete(run, own, own + BYTES));
	CHECK(!exec_is_complete(run));
	exec_reattach(run);
}

static void body_dying(struct ranks *r)
{
	bench_begin(r);
	for (int round = 0; round < 3 * DEATHS; round++) {
		struct exec_run *run;

		memset(bench.user[0], 2 * round + r->rank, BYTES);
		memset(bench.user[1], 0x55, user_bytes(1));
		if (r->rank)
			until(WORD_LEFT, (uint64_t)round + 1);
		run = begin(true);
		if (!r->rank) {
			leave_to_dying(run, round % DEATHS, round / DEATHS);
			atomic_store(&r->words[WORD_LEFT], (uint64_t)round + 1);
		}
		CHECK_EQ(exec_wait(run), 0);
		for (int i = 0; !r->rank && i < 2 * BYTES; i++)
			CHECK_EQ(bench.user[1][i], 2 * round + i / BYTES);
	}
	bench_end();
}

#define OPTIONS ((char *[]){ "SLUICE_REGION_KIND=arena", "SLUICE_TEST=fault=slots:all", NULL })
UNIT_TEST(partner_that_waits_in_the_call_is_seen_by_who_comes_last)
{
	ranks_run(2, OPTIONS, body_waits, NULL);
}

UNIT_TEST(partner_that_has_left_is_not_taken_for_one_that_waits)
{
	ranks_run(2, OPTIONS, body_left, NULL);
}

UNIT_TEST(partner_that_waited_in_the_last_use_of_a_slot_is_not_taken_for_one_that_waits)
{
	ranks_run(2, OPTIONS, body_again, NULL);
}

UNIT_TEST(partner_that_waits_for_what_it_left_is_seen_until_it_goes_on)
{
	ranks_run(2, OPTIONS, body_pauses, NULL);
}

UNIT_TEST(who_leaves_copies_its_own_block_first_when_told_to)
{
	ranks_run(2, OPTIONS, body_own, NULL);
}

UNIT_TEST(own_block_of_who_left_survives_a_mover_that_is_killed_at_any_step)
{
	ranks_run(2, OPTIONS, body_dying, NULL);
}

/* A mover is late: the slot has a later collective. What it reads there may be a mixture, and may
 * not be mapped, as the pages of a mapping are made at once. */
static void body_late_for_copy(struct ranks *r)
{
	const struct slot_op *copy;
	struct exec_slot *slot;
	struct exec_run *run;
	struct xfer_view v;

	bench_begin(r);
	run = begin(true);
	if (!r->rank) {
		slot = slot_of(bench.e, 0, run->op);
		copy = slot_ops(slot);
		while (copy->type != OP_COPY)
			copy++;
		CHECK_EQ(match_copy_in(bench.e, slot, 0, run->op, copy, XFER_VIEW_ALIASED, &v), 0);
		v.dst.addr = NULL;
		CHECK_EQ(match_copy_in(bench.e, slot, 0, run->op - EXEC_SLOTS, copy,
				       XFER_VIEW_ALIASED, &v),
			 -EAGAIN);
		CHECK(!v.dst.addr);
	}
	CHECK_EQ(exec_wait(run), 0);
	bench_end();
}

UNIT_TEST(a_copy_inside_a_rank_is_not_mapped_when_its_slot_has_passed_on)
{
	ranks_run(2, OPTIONS, body_late_for_copy, NULL);
}

/* The word of the copy has the tag of a collective of long ago, which tags of 24 bits do not tell
 * from this one: nobody may claim by it before this rank shares the copy. */
static void body_old_tag(struct ranks *r)
{
	struct exec_run *run;
	struct xfer *x;

	bench_begin(r);
	run = begin(true);
	CHECK_EQ(exec_wait(run), 0);
	x = slot_copied(bench.e, slot_of(bench.e, r->rank, run->op + 1));
	xfer_open(x, run->op + 1 + (XFER_TAG_MASK + 1));
	ranks_barrier(r);
	run = begin(true);
	CHECK(x == slot_copied(bench.e, run->slot));
	CHECK_EQ(xfer_claim(x, run->op, 1, 0), XFER_NONE);
	CHECK_EQ(exec_wait(run), 0);
	bench_end();
}

UNIT_TEST(a_copy_inside_a_rank_is_not_claimed_by_an_old_tag)
{
	ranks_run(2, OPTIONS, body_old_tag, NULL);
}

/* ---- a channel --------------------------------------------------------------------------- */

static void note_drained(void *arg) { ++*(unsigned *)arg; }

/* The root of a gather leaves its call: the device gets all transfers at once, and nobody polls. */
static void root_leaves_all_to_a_channel(struct ranks *r, struct exec_run *run)
{
	uint64_t others = (uint64_t)(r->size - 1) * BYTES, give_up = os_now_ns() + 20000000000u;
	struct engine_chan *chan;
	struct engine_caps caps;
	unsigned drained = 0;

	CHECK_EQ(engine_late.chan_open(-1, 0, &chan), 0);
	engine_late.caps(chan, &caps);
	CHECK_EQ(exec_settle(run, EXEC_COPY_OWN, true, 0), EXEC_MAY_DETACH);
	exec_detach(run);
	exec_start_channel(run, chan, caps.depth, note_drained, &drained);
	while (engine_late_copied() < others && os_now_ns() < give_up)
		usleep(100);
	CHECK_EQ(engine_late_copied(), others);
	CHECK_EQ(engine_late_submissions(), 1);
	CHECK(exec_is_in_channel(run) && !drained);
	for (int i = 0; i < r->size; i++)
		CHECK_EQ(bench.user[1][(uint64_t)(i + 1) * BYTES - 1], i + 1);
	while (exec_is_in_channel(run))
		CHECK(exec_rescue(run));
	CHECK_EQ(exec_rescue(run), OS_FOR_EVER);
	CHECK_EQ(drained, 1);
	CHECK(exec_is_complete(run));
	exec_end(run);
	engine_late.chan_close(chan);
}

static void body_channel(struct ranks *r)
{
	struct exec_run *run;

	bench_begin(r);
	engine_late_piece_bytes = BYTES;
	memset(bench.user[0], r->rank + 1, BYTES);
	memset(bench.user[1], 0, user_bytes(1));
	if (!r->rank) /* comes last: a root that waits for long would copy */
		until(WORD_SEEN, (uint64_t)r->size - 1);
	run = begin(true);
	if (r->rank) {
		atomic_fetch_add(&r->words[WORD_SEEN], 1);
		until(WORD_LEFT, 1);
		CHECK_EQ(exec_wait(run), 0);
	} else {
		root_leaves_all_to_a_channel(r, run);
		atomic_store(&r->words[WORD_LEFT], 1);
	}
	bench_end();
}

UNIT_TEST(an_autonomous_channel_moves_all_transfers_of_a_run_while_nobody_polls)
{
	ranks_run(4, OPTIONS, body_channel, NULL);
}
