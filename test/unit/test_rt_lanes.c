/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that are started again and again, between processes without MPI: request_lanes.c, and
 * what it stands on. */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mailbox/mailbox.h"
#include "ranks.h"
#include "rt/collective.h"
#include "rt/early.h"
#include "rt/requests.h"
#include "rt/rt.h"
#include "unit.h"

#ifdef __SANITIZE_THREAD__
enum { ROUNDS = 20 }; /* as in test_rt_early.c */
#else
enum { ROUNDS = 120 };
#endif
enum { SHORT = 24, LONG = 40000, JOBS = 6 };
static const enum coll kinds[JOBS] = { COLL_BCAST,     COLL_ALLREDUCE, COLL_BCAST,
					  COLL_ALLREDUCE, COLL_ALLGATHER, COLL_BARRIER };

/* A request with buffers of its own. `words` 64-bit words are what one rank brings. */
struct job {
	struct coll_call call;
	struct coll_part one, all[RANKS_MAX];
	struct rt_request *request;
	uint64_t *send, *recv, words;
	int lane, turns;
	bool is_over;
};

UNIT_UNSANITIZED static uint64_t word_of(int job, int turn, int rank, uint64_t i)
{
	return (uint64_t)turn * 1000003u + (uint64_t)rank * 7919u + (uint64_t)job * 31 + i;
}

static void job_open(struct job *j, struct ranks *r, enum coll kind, uint64_t bytes, int root)
{
	int n = kind == COLL_ALLGATHER ? r->size : 1;

	*j = (struct job){ .words = bytes / 8, .lane = -1, .is_over = true };
	j->send = calloc(1, bytes);
	j->recv = calloc((size_t)n, bytes);
	CHECK(j->send && j->recv);
	j->one = (struct coll_part){ 0, bytes };
	for (int i = 0; i < n; i++)
		j->all[i] = (struct coll_part){ (uint64_t)i * bytes, bytes };
	j->call = (struct coll_call){ .kind = kind,
				      .root = kind == COLL_BCAST ? root : -1,
				      .bytes = bytes,
				      .name = "lanes" };
	if (kind == COLL_BARRIER) {
		j->call.bytes = 0;
		return;
	}
	j->call.send = (struct coll_side){ { .addr = j->send, .bytes = bytes }, &j->one, 1 };
	if (kind == COLL_BCAST)
		return;
	j->call.recv =
		(struct coll_side){ { .addr = j->recv, .bytes = bytes * (uint64_t)n }, j->all, n };
	j->call.reduce = (struct coll_reduce){
		.op = GOAL_ADD, .type = GOAL_U64, .element_bytes = 8, .commutes = true
	};
}

/* Collective. */
static void job_init(struct job *j, struct rt_comm *c, struct ranks *r)
{
	CHECK_EQ(rt_request_create(c, &j->call, j, &j->request), 0);
	CHECK_EQ(rt_lane_allocate(c, &r->oob, true, &j->lane), 0);
	if (j->lane >= 0)
		rt_request_set_lane(j->request, j->lane);
}

static void job_close(struct job *j)
{
	if (j->request)
		rt_request_destroy(j->request);
	free(j->send);
	free(j->recv);
}

static void job_start(struct job *j, int number, int rank)
{
	j->turns++;
	j->is_over = false;
	for (uint64_t i = 0; i < j->words && j->call.send.count; i++)
		j->send[i] = j->call.kind == COLL_BCAST && rank != j->call.root
				     ? 0
				     : word_of(number, j->turns, rank, i);
	rt_request_start(j->request);
}

static bool progress(void)
{
	bool any = rt_requests_progress();
	struct job *j;
	int result;

	while ((j = rt_request_next_done(&result))) {
		CHECK_EQ(result, 0);
		CHECK(!j->is_over);
		j->is_over = any = true;
		rt_intercept_unref();
	}
	return any;
}

static void job_wait(struct job *j)
{
	struct rt_nap nap = { 0 };

	while (!j->is_over) {
		if (progress())
			rt_requests_woke(&nap);
		else
			rt_requests_nap(&nap);
	}
	rt_requests_woke(&nap);
}

UNIT_UNSANITIZED static void job_check(const struct job *j, int number, const struct ranks *r)
{
	for (uint64_t i = 0; i < j->words; i++) {
		uint64_t sum = 0;

		for (int q = 0; q < r->size; q++) {
			sum += word_of(number, j->turns, q, i);
			if (j->call.kind == COLL_ALLGATHER)
				CHECK_EQ(j->recv[(uint64_t)q * j->words + i],
					 word_of(number, j->turns, q, i));
		}
		if (j->call.kind == COLL_BCAST)
			CHECK_EQ(j->send[i], word_of(number, j->turns, j->call.root, i));
		if (j->call.kind == COLL_ALLREDUCE)
			CHECK_EQ(j->recv[i], sum);
	}
}

static void shuffle(int *order, int n, uint64_t *seed)
{
	for (int i = 0; i < n; i++)
		order[i] = i;
	for (int i = n; i > 1; i--) {
		int k = (int)ranks_below(seed, (uint64_t)i), kept = order[i - 1];

		order[i - 1] = order[k];
		order[k] = kept;
	}
}

static struct rt_comm *open_lanes(struct ranks *r)
{
	struct rt_comm *c;

	CHECK_EQ(rt_comm_create_lanes(&r->oob, &c), 0);
	CHECK(c);
	return c;
}

static void close_lanes(struct rt_comm *c, struct ranks *r)
{
	ranks_barrier(r);
	rt_comm_destroy(c);
}

/* ---- orders ------------------------------------------------------------------------------ */

/* Some are started twice in a round, each by every rank in an order of its own, waited for in
 * another. */
static void own_orders(struct ranks *r)
{
	struct rt_comm *c = open_lanes(r);
	uint64_t seed = (uint64_t)r->rank + 77;
	struct job jobs[JOBS];
	int order[JOBS];

	for (int i = 0; i < JOBS; i++) {
		job_open(&jobs[i], r, kinds[i], i < 2 ? SHORT : LONG, i % r->size);
		job_init(&jobs[i], c, r);
		CHECK_EQ(jobs[i].lane, i);
	}
	for (int round = 0; round < ROUNDS; round++) {
		shuffle(order, JOBS, &seed);
		for (int i = 0; i < JOBS; i++)
			job_start(&jobs[order[i]], order[i], r->rank);
		shuffle(order, JOBS, &seed);
		for (int i = 0; i < JOBS; i++) {
			job_wait(&jobs[order[i]]);
			job_check(&jobs[order[i]], order[i], r);
			if ((order[i] + round) % 3)
				continue;
			job_start(&jobs[order[i]], order[i], r->rank);
		}
		for (int i = 0; i < JOBS; i++) {
			job_wait(&jobs[i]);
			job_check(&jobs[i], i, r);
		}
	}
	for (int i = 0; i < JOBS; i++)
		job_close(&jobs[i]);
	close_lanes(c, r);
}

UNIT_TEST(requests_of_lanes_are_started_in_any_order)
{
	ranks_run(2, NULL, own_orders, NULL);
	ranks_run(4, NULL, own_orders, NULL);
	ranks_run(2, (char *[]){ "SLUICE_TEST=fault=slots:all", NULL }, own_orders, NULL);
}

/* Slots and records of a lane count their turns apart; those of longer messages come 64 at a time.
 */
static void thousands(struct ranks *r)
{
	struct rt_comm *c = open_lanes(r);
	struct job jobs[2];

	for (int i = 0; i < 2; i++) {
		job_open(&jobs[i], r, COLL_BCAST, i ? LONG : SHORT, 0);
		job_init(&jobs[i], c, r);
	}
	for (int turn = 0; turn < 5000; turn++) {
		struct job *j = &jobs[turn % 7 == 0];

		job_start(j, 0, r->rank);
		job_wait(j);
		CHECK_EQ(j->send[1], word_of(0, j->turns, 0, 1));
	}
	job_close(&jobs[0]);
	job_close(&jobs[1]);
	close_lanes(c, r);
}

UNIT_TEST(a_lane_has_thousands_of_turns) { ranks_run(2, NULL, thousands, NULL); }

/* The root's are over at once while it is no more than MAILBOX_TURNS ahead; the next is when others
 * have read the first. */
static void root_ahead(struct ranks *r)
{
	struct rt_comm *c = open_lanes(r);
	struct job j;

	job_open(&j, r, COLL_BCAST, SHORT, 0);
	job_init(&j, c, r);
	for (int round = 0; round < 20; round++) {
		ranks_barrier(r);
		for (uint32_t turn = 0; turn < MAILBOX_TURNS && !r->rank; turn++) {
			job_start(&j, 0, 0);
			progress();
			CHECK(j.is_over);
		}
		if (!r->rank) {
			job_start(&j, 0, 0);
			for (int i = 0; i < 50; i++)
				progress();
			CHECK(!j.is_over);
		}
		ranks_barrier(r);
		if (!r->rank)
			job_wait(&j);
		for (uint32_t turn = 0; turn <= MAILBOX_TURNS && r->rank; turn++) {
			job_start(&j, 0, r->rank);
			job_wait(&j);
			job_check(&j, 0, r);
		}
	}
	ranks_barrier(r);
	job_close(&j);
	close_lanes(c, r);
}

UNIT_TEST(a_root_is_ahead_by_the_turns_of_a_lane)
{
	ranks_run(2, NULL, root_ahead, NULL);
	ranks_run(3, NULL, root_ahead, NULL);
}

/* ---- which lane -------------------------------------------------------------------------- */

static int take(struct rt_comm *c, struct ranks *r, bool asks)
{
	int lane = 99;

	CHECK_EQ(rt_lane_allocate(c, &r->oob, asks, &lane), 0);
	return lane;
}

/* As many as there are; what one rank alone has given back is nobody's, and what all have is used
 * again. */
static void all_lanes(struct ranks *r)
{
	struct rt_comm *c = open_lanes(r);
	static struct job jobs[MAILBOX_LANES_MAX];

	for (int i = 0; i < (int)MAILBOX_LANES_MAX; i++) {
		CHECK_EQ(take(c, r, r->rank != i % r->size), -1); /* one does not ask */
		job_open(&jobs[i], r, COLL_BCAST, SHORT, 0);
		job_init(&jobs[i], c, r);
		CHECK_EQ(jobs[i].lane, i);
	}
	CHECK_EQ(take(c, r, true), -1);
	job_start(&jobs[20], 20, r->rank);
	job_wait(&jobs[20]);
	ranks_barrier(r); /* all have ended it */
	for (int i = 20; i < 22; i++)
		rt_request_destroy(jobs[i].request);
	if (!r->rank)
		rt_request_destroy(jobs[10].request);
	for (int i = 20; i < 22; i++) {
		CHECK_EQ(rt_request_create(c, &jobs[i].call, &jobs[i], &jobs[i].request), 0);
		CHECK_EQ(take(c, r, true), i);
		rt_request_set_lane(jobs[i].request, i);
		for (int turn = 0; turn < 10; turn++) { /* where the one before has ended */
			job_start(&jobs[i], i, r->rank);
			job_wait(&jobs[i]);
			job_check(&jobs[i], i, r);
		}
	}
	CHECK_EQ(take(c, r, true), -1); /* 10 is free on one rank only */
	if (!r->rank)
		jobs[10].request = NULL;
	for (int i = 0; i < (int)MAILBOX_LANES_MAX; i++)
		job_close(&jobs[i]);
	close_lanes(c, r);
}

UNIT_TEST(lanes_are_taken_and_given_back_by_all) { ranks_run(3, NULL, all_lanes, NULL); }

/* The last rank has no memory for something that a communicator needs: none has one, and nobody
 * waits. */
static void without_memory(struct ranks *r)
{
	struct rt_comm *c = NULL;

	if (r->rank == r->size - 1)
		ranks_options(r->arg);
	CHECK_EQ(rt_comm_create_lanes(&r->oob, &c), 0);
	CHECK(!c);
	CHECK_EQ(rt_comm_create_lanes(&r->oob, &c), 0); /* there was none the first time only */
	CHECK(c);
	close_lanes(c, r);
}

UNIT_TEST(a_rank_without_memory_keeps_nobody_waiting)
{
	ranks_run(3, NULL, without_memory, (char *[]){ "SLUICE_TEST=fault=lanes:1", NULL });
	ranks_run(3, NULL, without_memory, (char *[]){ "SLUICE_TEST=fault=group:1", NULL });
}

/* Requests that need a worker process run without one. */
static void without_worker(struct ranks *r)
{
	struct rt_comm *c = NULL;

	if (r->rank == r->size - 1)
		ranks_options(r->arg);
	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	close_lanes(c, r);
}

UNIT_TEST(a_rank_without_memory_is_without_a_worker)
{
	ranks_run(2, NULL, without_worker, (char *[]){ "SLUICE_TEST=fault=offers:1", NULL });
}

/* ---- who packs --------------------------------------------------------------------------- */

static int packed_elsewhere;

static int pack(void *ctx, uint64_t off, uint64_t len, void *out)
{
	packed_elsewhere += syscall(SYS_gettid) != getpid();
	memcpy(out, (char *)ctx + off, len);
	return 0;
}

/*
 * The root has no room for its last broadcasts, whose data has gaps, and goes away: a thread of
 * ours posts them when others wait. Packing calls the host MPI, so it has been done.
 */
static void packs_at_once(struct ranks *r)
{
	enum { MANY = 40 };
	static struct job jobs[MANY];
	struct rt_comm *c;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	for (int i = 0; i < MANY; i++) {
		job_open(&jobs[i], r, COLL_BCAST, SHORT, 0);
		if (!r->rank) {
			jobs[i].call.send.buf.pack = pack;
			jobs[i].call.send.buf.ctx = jobs[i].send;
		}
		CHECK_EQ(rt_request_create(c, &jobs[i].call, &jobs[i], &jobs[i].request), 0);
		if (!r->rank)
			job_start(&jobs[i], i, 0);
	}
	ranks_barrier(r);
	for (int i = 0; i < MANY && r->rank; i++) {
		job_start(&jobs[i], i, 1);
		job_wait(&jobs[i]);
		job_check(&jobs[i], i, r);
	}
	ranks_barrier(r); /* until then the root is away */
	for (int i = 0; i < MANY && !r->rank; i++)
		job_wait(&jobs[i]);
	CHECK_EQ(packed_elsewhere, 0);
	for (int i = 0; i < MANY; i++)
		job_close(&jobs[i]);
	close_lanes(c, r);
}

UNIT_TEST(what_waits_for_room_is_packed_by_its_program) { ranks_run(2, NULL, packs_at_once, NULL); }
