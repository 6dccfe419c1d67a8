/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers of groups at the worker process: a number belongs to one group at a time. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ranks.h"
#include "rt/early.h"
#include "rt/private.h"
#include "rt_case.h"
#include "unit.h"
#include "worker/private.h"
#include "worker_case.h"

static struct rt_comm *make(struct ranks *r)
{
	struct rt_comm *c = NULL;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	return c;
}

static bool is_open(int group) { return atomic_load(&worker_page->group[group].is_open); }

/* ---- ranks that close at different times ------------------------------------------------- */

static void job_that_closes_late(struct ranks *r)
{
	struct rt_comm *first = make(r), *second, *third;
	int number = first->worker_group;

	if (!can_be_early())
		return;
	CHECK(number && is_open(number));
	ranks_barrier(r);
	if (r->rank == 0)
		rt_comm_destroy(first);
	ranks_barrier(r);
	CHECK(!is_open(number));
	second = make(r);
	CHECK(second->worker_group != number);
	if (r->rank == 1)
		rt_comm_destroy(first);
	ranks_barrier(r);
	CHECK(is_open(second->worker_group));
	third = make(r);
	CHECK_EQ(third->worker_group, number); /* all have closed it */
	CHECK(is_open(number));
	ranks_barrier(r);
	rt_comm_destroy(second);
	rt_comm_destroy(third);
	ranks_barrier(r);
}

UNIT_TEST(number_belongs_to_a_group_until_all_its_ranks_have_closed_it)
{
	ranks_run(2, OPTIONS(), job_that_closes_late, NULL);
}

/* ---- ranks that do not come --------------------------------------------------------------- */

static void job_without_attached_rank(struct ranks *r)
{
	if (r->rank == 1)
		ranks_options((char *[]){ EARLY, "SLUICE_TEST=fault=worker_attach:all", NULL });
	for (int round = 0; round < 3; round++) {
		struct rt_comm *c = make(r);

		CHECK_EQ(c->worker_group, 0);
		if (r->rank == 0 && can_be_early())
			CHECK_EQ(atomic_load(&worker_page->group[1].closed), 2);
		rt_comm_destroy(c);
	}
	if (r->rank == 0 && can_be_early())
		CHECK_EQ(atomic_load(&worker_page->group[2].closed), 0); /* never given */
	ranks_barrier(r);
}

UNIT_TEST(number_that_not_all_ranks_can_use_is_given_back)
{
	ranks_run(2, OPTIONS(), job_without_attached_rank, NULL);
}

/* ---- ranks that are killed ---------------------------------------------------------------- */

static bool all_gone(const struct ranks *r)
{
	return node_process_has_exited(r->pids[1]) && node_process_has_exited(r->pids[2]);
}

static void job_with_killed_ranks(struct ranks *r)
{
	struct rt_comm *all = make(r);
	struct ranks pair;
	int number = 0;

	ranks_channel(r, 1, 1u << 1 | 1u << 2, &pair);
	if (!can_be_early())
		return;
	CHECK_EQ(all->worker_group, 1);
	if (r->rank) {
		CHECK_EQ(make(&pair)->worker_group, 2);
		ranks_barrier(&pair);
		kill(getpid(), SIGKILL);
	}
	for (int i = 0; i < 1000 && !all_gone(r); i++)
		usleep(10000);
	CHECK(all_gone(r));
	/* the worker may learn it after the first request */
	for (int i = 0; i < 100 && number != 2; i++, usleep(10000)) {
		number = worker_group_open(all->group);
		CHECK(number > 1);
		CHECK(is_open(1) && is_open(number));
		worker_group_close(number, r->size);
	}
	CHECK_EQ(number, 2);
}

UNIT_TEST(number_of_killed_ranks_is_given_back)
{
	int status[3];

	ranks_run_any(3, OPTIONS(), job_with_killed_ranks, NULL, status);
	CHECK_EQ(status[0], 0);
}

/* ---- a rank that the worker has lost ------------------------------------------------------ */

/* As a program does that closes every descriptor. */
static void close_sockets(void)
{
	struct stat st;

	for (int fd = 3; fd < 1024; fd++)
		if (!fstat(fd, &st) && S_ISSOCK(st.st_mode))
			close(fd);
}

static void job_without_connection(struct ranks *r)
{
	struct rt_comm *first = make(r), *second;

	if (r->rank == 1)
		close_sockets();
	second = make(r);
	CHECK_EQ(second->worker_group, 0);
	ranks_barrier(r);
	rt_comm_destroy(first);
	rt_comm_destroy(second);
	ranks_barrier(r);
}

UNIT_TEST(number_is_not_given_when_a_rank_has_no_connection)
{
	ranks_run(2, OPTIONS(), job_without_connection, NULL);
}

/* ---- an answer that comes too late -------------------------------------------------------- */

static void job_with_late_answer(struct ranks *r)
{
	struct rt_comm *c = make(r);

	if (r->rank == 0 && can_be_early()) {
		CHECK_EQ(c->worker_group, 1);
		CHECK_EQ(kill(worker_pid(), SIGSTOP), 0);
		CHECK_EQ(worker_group_open(c->group), -ETIMEDOUT);
		CHECK_EQ(kill(worker_pid(), SIGCONT), 0);
		CHECK_EQ(worker_group_open(c->group), -ENOTCONN); /* not the answer to the first */
		CHECK(!is_open(2) && !is_open(3));
	}
	ranks_barrier(r);
	rt_comm_destroy(c);
	ranks_barrier(r);
	worker_detach();
}

UNIT_TEST(number_of_a_late_answer_is_never_used)
{
	ranks_run(2, OPTIONS(), job_with_late_answer, NULL);
}

/* ---- a number that is used again ----------------------------------------------------------- */

enum { BYTES = 4 << 20, AGAIN = 10, LAST_SERVED = 0, SERVED };

/* One collective of a new communicator, whose data the worker moves. */
static void serve_once(struct ranks *r, char *b, uint64_t round)
{
	struct coll_buf buf = { .addr = b, .bytes = BYTES };
	struct rt_comm *c = make(r);

	CHECK_EQ(rt_bcast(c, &buf, 0, b), 0);
	/* nobody touches the buffer meanwhile; either rank may have announced it */
	for (int i = 0; i < 300 && atomic_load(&r->words[LAST_SERVED]) != round; i++) {
		if (!worker_bytes()) {
			usleep(1000);
			continue;
		}
		atomic_store(&r->words[LAST_SERVED], round);
		atomic_fetch_add(&r->words[SERVED], 1);
	}
	rt_complete_all();
	ranks_barrier(r);
	rt_comm_destroy(c);
}

static void job_with_one_call_each(struct ranks *r)
{
	char *b = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(b != MAP_FAILED);
	memset(b, 1, BYTES);
	for (uint64_t round = 1; round <= AGAIN; round++)
		serve_once(r, b, round);
	ranks_barrier(r);
	/* on a busy machine the ranks move some of it */
	if (can_be_early())
		CHECK(atomic_load(&r->words[SERVED]) >= AGAIN / 2);
}

UNIT_TEST(number_that_is_used_again_is_served_again)
{
	ranks_run(2, OPTIONS("SLUICE_WORKERS=1"), job_with_one_call_each, NULL);
}
