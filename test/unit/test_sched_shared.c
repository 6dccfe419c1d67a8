/* SPDX-License-Identifier: BSD-3-Clause */
/* Words in shared memory that name memory outside the arena of their rank: another process may have
 * written anything. */
#include <errno.h>
#include <unistd.h>

#include "goal/sched/private.h"
#include "sched_case.h"

static char *const quiet[] = { "SLUICE_LOG=none", NULL };
static struct plan plan; /* large: not on the stack */

/* Opens a schedule that sends the buffer to rank 0. */
static struct sched_inst *open_send(struct sched_group *g, void *buffer, uint64_t bytes)
{
	plan_init(&plan);
	goal_send(&plan.build, 0, 0, 0, GOAL_USER, 0, bytes);
	plan.buffers[0] = buffer;
	plan.bytes[0] = bytes;
	plan.count = 1;
	return plan_open(&plan, g);
}

/* ---- schedules --------------------------------------------------------------------------- */

enum word {
	NOTHING,
	BYTES,
	MEM_COUNT,
	BLOCK_OFF,
	BLOCK_BYTES,
	OPS_OUTSIDE,
	OPS_UNALIGNED,
	MSGS_OUTSIDE,
	TIMES_OUTSIDE,
	RUNS_ELSEWHERE,
	WORDS
};

static void spoil_body(struct sched_body *b, enum word word)
{
	uint64_t *const words[WORDS] = { [OPS_OUTSIDE] = &b->ops_off,
					 [MSGS_OUTSIDE] = &b->msgs_off,
					 [TIMES_OUTSIDE] = &b->times_off };

	if (words[word])
		*words[word] = b->bytes;
	switch (word) {
	case BYTES:
		b->bytes = sizeof *b;
		break;
	case MEM_COUNT:
		b->mem_count = GOAL_SPACES_MAX;
		break;
	case BLOCK_OFF:
		b->block_off = b->bytes - sizeof(struct goal_block) / 2;
		break;
	case BLOCK_BYTES:
		b->block_bytes = 1ull << 40;
		break;
	case OPS_UNALIGNED:
		b->ops_off += 4;
		break;
	case RUNS_ELSEWHERE:
		b->runs = ref_of(0, ref_off(b->runs));
		break;
	default:
		break;
	}
}

/* Rank 0 spoils the schedule that rank 1 has opened, a word at a time, and maps it. */
static void map_spoilt(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_driver *d = &g->drivers[1];
	struct sched_body *b, *kept;
	struct sched_inst *s = NULL;
	static char buf[64];

	if (r->rank) {
		r->words[0] = open_send(g, buf, sizeof buf)->slot;
		ranks_barrier(r);
		ranks_barrier(r);
		_exit(0);
	}
	ranks_barrier(r);
	d->insts = calloc(SCHED_INSTS, sizeof *d->insts);
	b = ref_at(g, d->directory[r->words[0]], sizeof *b);
	CHECK(d->insts && b);
	kept = malloc(b->bytes);
	memcpy(kept, b, b->bytes);
	for (enum word word = NOTHING; word < WORDS; word++) {
		uint64_t bytes = kept->bytes;

		spoil_body(b, word);
		s = inst_map_peer(d, (uint32_t)r->words[0], s);
		if (word == NOTHING ? !s : s != NULL)
			unit_fail(__FILE__, __LINE__, "word %d was %s", word,
				  s ? "accepted" : "refused");
		inst_free(s);
		s = NULL;
		atomic_store(&d->insts[r->words[0]], NULL);
		memcpy(b, kept, bytes);
	}
	/* a schedule of rank 1 in the arena of rank 0 */
	b = pool_get(g->pool, kept->bytes);
	memcpy(b, kept, kept->bytes);
	atomic_store(&d->directory[r->words[0]],
		     ref_of(0, (uint64_t)((char *)b - (char *)region_arena_base())));
	CHECK(!inst_map_peer(d, (uint32_t)r->words[0], NULL));
	ranks_barrier(r);
	_exit(0);
}

UNIT_TEST(a_schedule_that_names_memory_outside_its_arena_is_refused)
{
	ranks_run(2, quiet, map_spoilt, NULL);
}

/* The offset of its memory reaches into the bits that name a rank. */
static void map_elsewhere(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_driver *d = &g->drivers[1];
	struct sched_body *b;
	struct sched_inst *s;

	if (r->rank) {
		r->words[0] = open_send(g, sched_alloc(g, 64), 64)->slot;
		ranks_barrier(r);
		ranks_barrier(r);
		_exit(0);
	}
	ranks_barrier(r);
	d->insts = calloc(SCHED_INSTS, sizeof *d->insts);
	b = ref_at(g, d->directory[r->words[0]], sizeof *b);
	CHECK(d->insts && b);
	s = inst_map_peer(d, (uint32_t)r->words[0], NULL);
	CHECK(s && inst_addr(s, 1, 0, 64) && !inst_addr(s, 1, UINT64_MAX - 7, 16));
	inst_free(s);
	atomic_store(&d->insts[r->words[0]], NULL);
	b->mem[1].arena_off |= 1ull << 48;
	s = inst_map_peer(d, (uint32_t)r->words[0], NULL);
	CHECK(s && !inst_addr(s, 1, 0, 64));
	ranks_barrier(r);
	_exit(0);
}

UNIT_TEST(memory_outside_the_arena_of_its_rank_is_not_mapped)
{
	ranks_run(2, quiet, map_elsewhere, NULL);
}

/* ---- messages ---------------------------------------------------------------------------- */

enum field { ALL_RIGHT, SPACE, OFFSET, LIST, LONG_LIST, BODY, ELSEWHERE, FIELDS };

static void spoil_message(struct sched_group *g, struct sched_msg *m, enum field field)
{
	struct sched_body *b = ref_at(g, m->body, sizeof *b), *copy;

	switch (field) {
	case SPACE:
		m->mem = 1u << 30;
		break;
	case OFFSET:
		m->off = UINT64_MAX - 7;
		break;
	case LIST:
		m->segment = UINT32_MAX;
		m->segment_count = 1;
		break;
	case LONG_LIST:
		m->segment_count = UINT32_MAX;
		break;
	case BODY:
		m->body |= (1ull << 47) | 1;
		break;
	case ELSEWHERE:
		copy = pool_get(g->pool, b->bytes);
		memcpy(copy, b, b->bytes);
		m->body = ref_of(0, (uint64_t)((char *)copy - (char *)region_arena_base()));
		break;
	default:
		break;
	}
}

/* Rank 1 announces messages, and rank 0 receives each after a field of it was spoilt. */
static void receive_spoilt(struct ranks *r)
{
	enum { BYTES_SENT = 100000 };
	struct sched_group *g = case_group(r);
	struct sched_state *st = g->drivers[0].st;
	static char buf[BYTES_SENT];

	for (enum field field = ALL_RIGHT; field < FIELDS; field++) {
		struct sched_inst *s;
		struct sched_msg *m;
		int ret;

		plan_init(&plan);
		if (r->rank)
			goal_send(&plan.build, 0, 0, 0, GOAL_USER, 0, BYTES_SENT);
		else
			goal_recv(&plan.build, 1, 0, GOAL_USER, 0, BYTES_SENT);
		plan.buffers[0] = buf;
		plan.bytes[0] = sizeof buf;
		plan.count = 1;
		plan.channel = field;
		s = plan_open(&plan, g);
		if (r->rank)
			CHECK_EQ(sched_run(s), 0);
		ranks_barrier(r);
		while (!r->rank && !st->unexpected.head)
			state_drive(&g->drivers[0]);
		m = r->rank ? NULL : ref_at(g, st->unexpected.head, sizeof *m);
		if (m)
			spoil_message(g, m, field);
		ranks_barrier(r);
		ret = r->rank ? sched_wait(s, UINT64_MAX) : sched_execute(s, UINT64_MAX);
		if (field == ALL_RIGHT ? ret : !ret)
			unit_fail(__FILE__, __LINE__, "field %d: rank %d got %d", field, r->rank,
				  ret);
		CHECK_EQ(sched_close(s), 0);
		ranks_barrier(r);
	}
	_exit(0);
}

UNIT_TEST(a_message_that_names_memory_outside_its_arena_fails_the_run)
{
	ranks_run(2, quiet, receive_spoilt, NULL);
}

static void release_spoilt(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_msg m = { .src = 1u << 30, .kind = SCHED_ANNOUNCED };

	msg_release(&g->drivers[0], &m, ref_of(0, 0));
	m.kind = SCHED_INLINE;
	msg_release(&g->drivers[0], &m, ref_of(0, 0));
	_exit(0);
}

UNIT_TEST(a_message_from_no_rank_of_the_group_goes_back_to_nobody)
{
	ranks_run(1, quiet, release_spoilt, NULL);
}

/* ---- jobs -------------------------------------------------------------------------------- */

static char bytes[64];

/* Executes work whose source is another. */
static int do_with(struct sched_group *g, struct sched_work w, struct sched_end src)
{
	w.src = src;
	return work_do(g, &w, 0, w.bytes);
}

static void spoilt_work(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_inst *s = open_send(g, bytes, sizeof bytes);
	struct sched_end end = { .rank = 0, .slot = s->slot, .mem = GOAL_USER }, bad = end;
	struct sched_work w = { .bytes = 16, .units = 1, .type = GOAL_RECV, .dst = end };

	CHECK_EQ(do_with(g, w, end), 0);
	bad.mem = 1u << 30;
	CHECK_EQ(do_with(g, w, bad), -EINVAL);
	bad = end;
	bad.off = UINT64_MAX - 7;
	CHECK_EQ(do_with(g, w, bad), -EINVAL);
	bad = end;
	bad.segment = UINT32_MAX;
	bad.segment_count = 1;
	CHECK_EQ(do_with(g, w, bad), -EINVAL);
	w.src2 = end;
	w.type = GOAL_ADD;
	w.dtype = GOAL_U64;
	CHECK_EQ(do_with(g, w, end), 0);
	w.dtype = 200;
	CHECK_EQ(do_with(g, w, end), -EINVAL);
	w.type = GOAL_XOR;
	w.dtype = GOAL_F64;
	CHECK_EQ(do_with(g, w, end), -EINVAL);
	_exit(0);
}

UNIT_TEST(a_job_that_names_other_memory_or_another_operation_is_not_executed)
{
	ranks_run(1, quiet, spoilt_work, NULL);
}

/* The ranks of the job were changed after it was opened. */
static void spoilt_ranks(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_state *st = g->drivers[0].st;
	struct sched_inst *s = open_send(g, bytes, sizeof bytes);
	struct sched_job *j = &st->job[0];
	struct sched_end end = { .rank = 0, .slot = s->slot, .mem = GOAL_USER };

	j->work = (struct sched_work){
		.bytes = 16, .units = 1, .type = GOAL_RECV, .dst = end, .src = end
	};
	j->work.src.off = 32;
	case_fill(bytes + 32, 16, 7);
	j->tag = 1;
	atomic_store(&j->brief, job_brief(1, &j->work));
	j->work.dst.rank = 1 << 30;
	j->work.src.rank = -1;
	xfer_open(&j->x, 1);
	atomic_store(&st->jobs, 1);
	CHECK(job_work(g, 0));
	CHECK_EQ(case_wrong(bytes, 16, 7), -1);
	_exit(0);
}

UNIT_TEST(a_job_is_executed_for_the_ranks_that_were_checked)
{
	ranks_run(1, quiet, spoilt_ranks, NULL);
}

/* ---- failures ---------------------------------------------------------------------------- */

static void spoilt_failure(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_inst *s = open_send(g, bytes, sizeof bytes);

	s->body->error = -EOWNERDEAD;
	s->body->error_rank = 1 << 30;
	atomic_store(&s->body->phase, RUN_FAILED);
	CHECK_EQ(sched_test(s), -EOWNERDEAD);
	_exit(0);
}

UNIT_TEST(a_failure_that_blames_no_rank_of_the_group_is_told)
{
	ranks_run(1, quiet, spoilt_failure, NULL);
}
