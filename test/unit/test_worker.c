/* SPDX-License-Identifier: BSD-3-Clause */
/* The worker process: it works and disturbs nothing. Without MPI, see ranks.h. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard/guard.h"
#include "ranks.h"
#include "rt/early.h"
#include "rt_case.h"
#include "rt/rt.h"
#include "unit.h"
#include "worker/private.h"
#include "worker_case.h"

enum { BYTES = 4 << 20, ROUNDS = 12 };

/* ---- the process, as others see it ------------------------------------------------------- */

static uint64_t switches_of(int pid)
{
	char path[64], text[2048], *at;
	struct dirent *e;
	uint64_t all = 0;
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		if (atoi(e->d_name) <= 0 ||
		    !read_file(text, sizeof text, "/proc/%d/status", atoi(e->d_name)))
			continue;
		at = strstr(text, "\nvoluntary_ctxt_switches:");
		all += at ? strtoull(at + 25, NULL, 10) : 0;
	}
	if (dir)
		closedir(dir);
	return all;
}

/* ---- jobs -------------------------------------------------------------------------------- */

static char *make_buffer(size_t bytes)
{
	char *b = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(b != MAP_FAILED);
	memset(b, 1, bytes);
	return b;
}

static uint64_t word(int round, size_t i) { return (uint64_t)round * 0x9e3779b97f4a7c15ull + i; }

/* Rank 0 sends; `between` runs in each rank before it reads the received data. */
static void bcast_round(struct ranks *r, struct rt_comm *c, uint64_t *b, int round,
			void (*between)(struct ranks *, int))
{
	struct coll_buf buf = { .addr = b, .bytes = BYTES };

	for (size_t i = 0; r->rank == 0 && i < BYTES / 8; i++)
		b[i] = word(round, i);
	CHECK_EQ(rt_bcast(c, &buf, 0, &bcast_round), 0);
	if (between)
		between(r, round);
	for (size_t i = 0; i < BYTES / 8; i++)
		CHECK_EQ(b[i], word(round, i));
}

static void bcasts(struct ranks *r, int rounds, void (*between)(struct ranks *, int))
{
	uint64_t *b = (uint64_t *)make_buffer(BYTES);
	struct rt_comm *c;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	for (int round = 0; round < rounds; round++)
		bcast_round(r, c, b, round, between);
	rt_complete_all();
	ranks_barrier(r);
	rt_comm_destroy(c);
	ranks_barrier(r);
}

static void compute(struct ranks *r, int round)
{
	(void)r, (void)round;
	usleep(10000);
}

static uint64_t counter(enum base_counter c) { return atomic_load(&base_counters[c]); }

static void job_that_is_served(struct ranks *r)
{
	bcasts(r, ROUNDS, compute);
	if (!can_be_early())
		return;
	CHECK(worker_is_alive());
	if (r->rank == 0)
		CHECK(worker_of(getpid()));
	/* either rank may have announced the work */
	atomic_fetch_add(&r->words[0], counter(BASE_CTR_BYTES_ENGINE));
	ranks_barrier(r);
	CHECK(atomic_load(&r->words[0]) > BYTES);
	worker_detach();
	ranks_barrier(r);
	CHECK(is_gone_soon(r->pids[0]));
}

UNIT_TEST(worker_moves_what_ranks_leave_and_ends_with_them)
{
	ranks_run(2, OPTIONS(), job_that_is_served, NULL);
	ranks_run(4, OPTIONS("SLUICE_WORKERS=3"), job_that_is_served, NULL);
}

/* Ranks touch at once, so that they and the worker move parts of one transfer. */
static void job_that_is_shared(struct ranks *r) { bcasts(r, 3 * ROUNDS, NULL); }

UNIT_TEST(worker_cuts_transfers_as_the_ranks_are_told_to)
{
	ranks_run(2, OPTIONS("SLUICE_TEST=xfer_fragment=1M"), job_that_is_shared, NULL);
	ranks_run(2, OPTIONS("SLUICE_TEST=xfer_fragment=16K"), job_that_is_shared, NULL);
}

/* The program can wait for no child of the rank's. */
static void job_that_waits(struct ranks *r)
{
	int fds[2];
	struct stat ours, theirs;
	char path[64];

	CHECK_EQ(pipe(fds), 0); /* like a launcher's pipe, it must close when the ranks are gone */
	CHECK_EQ(fstat(fds[1], &ours), 0);
	bcasts(r, 2, NULL);
	CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
	CHECK_EQ(errno, ECHILD);
	for (int fd = 0; r->rank == 0 && fd < 64; fd++) {
		snprintf(path, sizeof path, "/proc/%d/fd/%d", worker_of(getpid()), fd);
		CHECK(stat(path, &theirs) || theirs.st_ino != ours.st_ino ||
		      theirs.st_dev != ours.st_dev);
	}
	if (r->rank == 0 && worker_of(getpid())) {
		CHECK_EQ(getpgid(worker_of(getpid())), worker_of(getpid()));
		snprintf(path, sizeof path, "/proc/%d/environ", worker_of(getpid()));
		CHECK(!stat(path, &theirs));
	}
	ranks_barrier(r);
}

UNIT_TEST(worker_is_no_child_of_the_program_and_has_none_of_its_descriptors)
{
	ranks_run(2, OPTIONS(), job_that_waits, NULL);
}

static void job_that_rests(struct ranks *r)
{
	bool is_at_rest = false;
	uint64_t before;
	int pid;

	bcasts(r, 3, NULL);
	pid = worker_of(r->pids[0]);
	if (r->rank || !can_be_early())
		return ranks_barrier(r);
	CHECK(pid);
	/* the worker may poll for a while, longer on a busy machine */
	for (int i = 0; i < 30 && !is_at_rest; i++) {
		before = switches_of(pid);
		usleep(300000);
		is_at_rest = switches_of(pid) == before;
	}
	CHECK(is_at_rest);
	ranks_barrier(r);
}

UNIT_TEST(worker_without_work_never_wakes_up)
{
	ranks_run(2, OPTIONS(), job_that_rests, NULL);
}

enum { LOOKED_AT_FIRST = 2, LOOKED_AT_LAST };

/* Nobody tells this process that all data is in place; system calls of the program open the memory.
 * Moving takes as long as other load leaves no CPU for it. */
static void calls_after_the_copy(struct ranks *r, int round)
{
	uint64_t before, looked_at = 1000;

	(void)round;
	for (int i = 0; i < 100 && looked_at >= 500; i++) {
		usleep(20000);
		before = counter(BASE_CTR_DISPATCHED);
		for (int k = 0; k < 1000; k++)
			syscall(SYS_getppid);
		looked_at = counter(BASE_CTR_DISPATCHED) - before;
		if (!i)
			atomic_fetch_add(&r->words[LOOKED_AT_FIRST], looked_at);
	}
	atomic_fetch_add(&r->words[LOOKED_AT_LAST], looked_at);
}

static void job_with_system_calls(struct ranks *r)
{
	bcasts(r, 4, calls_after_the_copy);
	ranks_barrier(r);
	/* two ranks, four rounds */
	CHECK(atomic_load(&r->words[LOOKED_AT_LAST]) < 8 * 500);
	if (can_be_early() && !strcmp(guard_kind_name(), "mremap"))
		CHECK(atomic_load(&r->words[LOOKED_AT_FIRST]) > 0);
}

UNIT_TEST(worker_that_has_moved_all_leaves_no_system_call_looked_at)
{
	ranks_run(2, OPTIONS("SLUICE_GUARD_KIND=mremap"), job_with_system_calls, NULL);
}

/* ---- without one ------------------------------------------------------------------------- */

static void job_with_threads(struct ranks *r)
{
	bcasts(r, ROUNDS, compute);
	CHECK(!worker_is_alive());
	CHECK(!worker_of(r->pids[0]));
	atomic_fetch_add(&r->words[0], counter(BASE_CTR_BYTES_ENGINE));
	ranks_barrier(r);
	if (can_be_early())
		CHECK(atomic_load(&r->words[0]) > 0);
}

UNIT_TEST(worker_that_is_not_wanted_or_cannot_start_is_replaced_by_threads)
{
	ranks_run(2, (char *[]){ EARLY, "SLUICE_WORKER_KIND=thread", NULL }, job_with_threads,
		  NULL);
	ranks_run(2, OPTIONS("SLUICE_LOG=info", "SLUICE_TEST=fault=worker_start:all"),
		  job_with_threads, NULL);
	/* an older kernel has no guard, so nobody asks for a worker */
	CHECK(strstr(ranks_text, "no worker process") ||
	      strstr(ranks_text, "calls do not return early"));
}

static void job_without_attached_rank(struct ranks *r)
{
	if (r->rank == 1)
		ranks_options((char *[]){ EARLY, "SLUICE_TEST=fault=worker_attach:all", NULL });
	bcasts(r, ROUNDS, compute);
	if (r->rank == 0)
		CHECK_EQ(counter(BASE_CTR_ENGINE_RETIRED), 0);
}

UNIT_TEST(worker_that_one_rank_cannot_reach_is_used_by_none)
{
	ranks_run(2, OPTIONS(), job_without_attached_rank, NULL);
}

/* ---- death ------------------------------------------------------------------------------- */

static int delay_us, the_signal;

/* Stops the worker for ever at some moment of its copying. */
static void harm(struct ranks *r, int round)
{
	static int pid;
	uint64_t until = os_now_ns() + (uint64_t)delay_us * 1000;

	if (r->rank == 0 && round == 2)
		pid = worker_of(getpid()); /* takes longer than a copy */
	while (r->rank == 0 && round == 3 && os_now_ns() < until)
		;
	if (r->rank == 0 && round == 3 && pid)
		kill(pid, the_signal);
	usleep(3000);
}

/* Jobs that could have noticed, and that did. A worker without a copy under way is not missed. */
static struct harmed { _Atomic int jobs, noticed; } *harmed;

static void harmed_begin(void)
{
	harmed = mmap(NULL, OS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(harmed != MAP_FAILED);
}

static void job_that_is_harmed(struct ranks *r)
{
	uint64_t since = os_now_ns();

	bcasts(r, 2 * ROUNDS, harm);
	atomic_fetch_add(&r->words[0], counter(BASE_CTR_ENGINE_RETIRED));
	ranks_barrier(r);
	CHECK(the_signal != SIGKILL || atomic_load(&r->words[0]) <= 1); /* one rank noticed */
	if (r->rank == 0 && can_be_early()) {
		harmed->jobs++;
		harmed->noticed += atomic_load(&r->words[0]) > 0;
	}
	CHECK(os_now_ns() - since < 10000000000ull);
	worker_detach();
	ranks_barrier(r);
	CHECK(is_gone_soon(r->pids[0]));
}

UNIT_TEST(worker_that_is_killed_at_any_moment_loses_nothing)
{
	the_signal = SIGKILL;
	harmed_begin();
	for (delay_us = 0; delay_us < 300; delay_us += 30)
		ranks_run(2, OPTIONS(), job_that_is_harmed, NULL);
	CHECK(!harmed->jobs || harmed->noticed);
}

UNIT_TEST(worker_that_stands_still_is_ended_after_the_time_out)
{
	the_signal = SIGSTOP;
	harmed_begin();
	for (delay_us = 60; delay_us < 200; delay_us += 30)
		ranks_run(2, OPTIONS("SLUICE_TEST=engine_timeout=50"), job_that_is_harmed, NULL);
}

/* Writes the pid for the harness, as the job's memory vanishes with the job. */
static void write_starter(const struct ranks *r)
{
	if (r->rank == 0)
		CHECK_EQ(write(*(int *)r->arg, &(int){ getpid() }, sizeof(int)), sizeof(int));
}

static void job_that_is_killed(struct ranks *r)
{
	bcasts(r, 3, NULL);
	write_starter(r);
	if (r->rank == 0 && can_be_early())
		CHECK(worker_of(getpid()));
	ranks_barrier(r);
	if (r->rank == 0 && fork() == 0) {
		sleep(3); /* it holds a copy of the connection */
		_exit(0);
	}
	kill(getpid(), SIGKILL);
}

static void job_that_exits(struct ranks *r)
{
	bcasts(r, 3, NULL);
	write_starter(r);
	ranks_barrier(r);
	_exit(0);
}

UNIT_TEST(worker_ends_with_the_rank_that_started_it_however_that_ends)
{
	int status[2], fds[2], starter = 0;

	CHECK_EQ(pipe(fds), 0);
	ranks_run_any(2, OPTIONS(), job_that_is_killed, &fds[1], status);
	CHECK_EQ(status[0], 128 + SIGKILL);
	CHECK_EQ(read(fds[0], &starter, sizeof starter), sizeof starter);
	CHECK(is_gone_soon(starter));
	ranks_run_any(2, OPTIONS(), job_that_exits, &fds[1], status);
	CHECK_EQ(status[0], 0);
	CHECK_EQ(read(fds[0], &starter, sizeof starter), sizeof starter);
	CHECK(is_gone_soon(starter));
	close(fds[0]);
	close(fds[1]);
}

/* ---- groups ------------------------------------------------------------------------------ */

static void job_of_many_communicators(struct ranks *r)
{
	uint64_t *b = (uint64_t *)make_buffer(BYTES);

	for (int round = 0; round < (int)WORKER_GROUPS + 50; round++) {
		struct rt_comm *c;

		CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
		CHECK(c);
		if (round % 64 == 0)
			bcast_round(r, c, b, round, NULL);
		/* the group is destroyed while the worker may access it */
		else if (round % 64 == 1) {
			struct coll_buf buf = { .addr = b, .bytes = 1 << 20 };

			CHECK_EQ(rt_bcast(c, &buf, 0, b), 0);
		}
		rt_comm_destroy(c);
	}
	if (can_be_early())
		CHECK(worker_is_alive());
	ranks_barrier(r);
}

UNIT_TEST(worker_outlives_more_communicators_than_it_can_know_at_a_time)
{
	ranks_run(2, OPTIONS(), job_of_many_communicators, NULL);
}

/* ---- strangers --------------------------------------------------------------------------- */

static ssize_t answer_to(const struct worker_ticket *t, uint64_t key, uint32_t version, int passed)
{
	struct worker_hello h = { .type = WORKER_HELLO, .version = version, .key = key };
	struct worker_answer a = { -1 };
	struct sockaddr_un name;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), page = -1;
	ssize_t n;

	CHECK(fd >= 0);
	CHECK_EQ(
		connect(fd, (struct sockaddr *)&name, worker_socket_name(&name, t->pid, t->socket)),
		0);
	CHECK_EQ(node_self(&h.self), 0);
	os_socket_send(fd, &h, sizeof h, passed);
	n = os_socket_receive(fd, &a, sizeof a, 3000, &page);
	CHECK_EQ(page, -1);
	close(fd);
	return n;
}

static void job_with_strangers(struct ranks *r)
{
	struct worker_ticket t;

	bcasts(r, 2, NULL);
	worker_current(&t);
	if (!can_be_early())
		return;
	CHECK(t.key);
	CHECK_EQ(answer_to(&t, t.key + 1, worker_abi(), region_arena_fd()),
		 0); /* closed without an answer */
	CHECK_EQ(answer_to(&t, t.key, worker_abi() + 1, region_arena_fd()), 0);
	CHECK_EQ(answer_to(&t, t.key, worker_abi(), -1), 0);
	ranks_barrier(r);
	bcasts(r, 2, NULL); /* the worker still serves */
	CHECK(worker_is_alive());
	ranks_barrier(r);
}

UNIT_TEST(worker_answers_nobody_who_does_not_know_the_job)
{
	ranks_run(2, OPTIONS(), job_with_strangers, NULL);
}

/* ---- the queue ---------------------------------------------------------------------------- */

UNIT_TEST(queue_keeps_each_announcement_until_it_is_removed)
{
	static struct worker_announcements b;
	uint32_t at = 0;
	uint64_t seen = 0;

	for (uint64_t i = 1; i <= WORKER_ANNOUNCEMENTS; i++)
		CHECK(announce_post(&b, i));
	CHECK(!announce_post(&b, 1000)); /* full: the hint is lost */
	for (int i = 0; i < WORKER_ANNOUNCEMENTS; i++) {
		uint64_t what = announce_peek(&b, &at);

		CHECK(what && !(seen >> (what - 1) & 1));
		seen |= 1ull << (what - 1);
		announce_remove(&b, at, what + 1); /* another value: no effect */
		CHECK_EQ(announce_peek(&b, &at), what);
		announce_remove(&b, at, what);
	}
	CHECK_EQ(announce_peek(&b, &at), 0);
	CHECK(announce_post(&b, 7));
	CHECK_EQ(announce_peek(&b, &at), 7);
}

struct queue_job {
	struct worker_announcements queue;
	_Atomic uint32_t served;
};

/* As a thread of the worker does. */
static void *serve_queue(void *arg)
{
	struct queue_job *j = arg;
	uint32_t at = 0, seen;
	uint64_t what;

	for (;;) {
		seen = atomic_load(&j->queue.count);
		what = announce_peek(&j->queue, &at);
		if (what == UINT64_MAX)
			return NULL;
		if (what) {
			announce_remove(&j->queue, at, what);
			atomic_fetch_add(&j->served, 1);
		} else if (seen % 2 || !announce_poll(&j->queue, seen, os_now_ns() + 2000)) {
			announce_sleep(&j->queue, seen);
		}
	}
}

UNIT_TEST(queue_wakes_a_sleeper_for_each_announcement)
{
	static struct queue_job j;
	uint32_t rung = 0;
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, serve_queue, &j), 0);
	for (int i = 0; i < 20000; i++) {
		uint64_t until = os_now_ns() + 5000000000ull;

		rung += announce_post(&j.queue, (uint64_t)i + 1);
		if (i % 4)
			continue;
		while (atomic_load(&j.served) != rung && os_now_ns() < until)
			os_cpu_relax();
		if (atomic_load(&j.served) != rung)
			break;
	}
	for (int i = 0; i < 5000 && atomic_load(&j.served) != rung; i++)
		usleep(1000);
	CHECK_EQ(atomic_load(&j.served), rung);
	while (!announce_post(&j.queue, UINT64_MAX))
		;
	pthread_join(thread, NULL);
}
