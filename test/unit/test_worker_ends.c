/* SPDX-License-Identifier: BSD-3-Clause */
/* When the worker process ends, and when it does not. Without MPI, see ranks.h. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ranks.h"
#include "unit.h"
#include "worker/private.h"
#include "worker_case.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* ---- without its starter ----------------------------------------------------------------- */

enum { ALONE_MS = 300 };

struct resting { _Atomic int tid, is_over; };

static void *rest(void *arg)
{
	struct resting *r = arg;

	atomic_store(&r->tid, (int)syscall(SYS_gettid));
	while (!atomic_load(&r->is_over))
		usleep(1000);
	return NULL;
}

static int page_for(int starter)
{
	int fd = memfd_create("page", MFD_CLOEXEC);
	struct worker_page *p;

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, sizeof *p), 0);
	p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	p->version = worker_abi();
	p->threads = 1;
	p->starter_pid = starter;
	p->alone_ms = ALONE_MS;
	p->key = 1;
	CHECK(os_cpumask_here(&p->cpus));
	munmap(p, sizeof *p);
	return fd;
}

/* Starts a worker that takes `starter` for the rank that started it. Returns: a connection to it as
 * a rank. */
static int worker_with(int starter)
{
	struct worker_hello h = { .type = WORKER_HELLO, .version = worker_abi(), .key = 1 };
	int page = page_for(starter), listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0),
	    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct worker_answer a = { -1 };
	struct sockaddr_un name;
	socklen_t bytes = worker_socket_name(&name, getpid(), os_random_u64());
	char reason[256] = "";

	CHECK_EQ(bind(listener, (struct sockaddr *)&name, bytes), 0);
	CHECK_EQ(listen(listener, 1), 0);
	/* before the worker exists, as it waits for ALONE_MS only */
	CHECK_EQ(connect(fd, (struct sockaddr *)&name, bytes), 0);
	CHECK_EQ(node_self(&h.self), 0);
	CHECK_EQ(os_socket_send(fd, &h, sizeof h, region_arena_fd()), 0);
	CHECK(worker_spawn(listener, page, reason, sizeof reason) > 0);
	close(listener);
	close(page);
	CHECK_EQ(os_socket_receive(fd, &a, sizeof a, 10000, &page), sizeof a);
	CHECK_EQ(a.value, 0);
	close(page);
	return fd;
}

/* Kills the worker that stays. */
static bool ends_by_itself(void)
{
	bool is_gone = is_gone_soon(getpid());
	int pid = is_gone ? 0 : worker_of(getpid());

	if (pid)
		kill(pid, SIGKILL);
	return is_gone;
}

/* No pidfd can be had of a thread. */
static void job_without_pidfd(struct ranks *r)
{
	struct resting rank = { 0 };
	pthread_t starter;
	int fd, tid;

	(void)r;
	CHECK_EQ(pthread_create(&starter, NULL, rest, &rank), 0);
	while (!(tid = atomic_load(&rank.tid)))
		usleep(1000);
	CHECK(syscall(SYS_pidfd_open, tid, 0) < 0);
	fd = worker_with(tid);
	usleep(3 * ALONE_MS * 1000);
	CHECK(worker_of(getpid())); /* a rank is connected, and the starter lives */
	close(fd);
	CHECK(ends_by_itself());
	fd = worker_with(tid);
	atomic_store(&rank.is_over, 1);
	pthread_join(starter, NULL);
	CHECK(ends_by_itself()); /* although a process holds a connection */
	close(fd);
}

UNIT_TEST(worker_ends_without_ranks_or_its_starter_where_pidfd_open_is_refused)
{
	ranks_run(1, OPTIONS(), job_without_pidfd, NULL);
}

/* ---- without /proc ------------------------------------------------------------------------ */

static void job_without_proc(struct ranks *r)
{
	struct worker_setup setup = { .threads = 1 };
	struct worker_ticket mine;
	char reason[256] = "";

	(void)r;
	CHECK_EQ(region_init(), 0);
	CHECK(os_cpumask_here(&setup.cpus));
	CHECK_EQ(worker_start(&setup, &mine, reason, sizeof reason), 0);
	CHECK_EQ(worker_attach(&mine), 0);
	for (int i = 0; i < 1000 && !atomic_load(&worker_page->thread[0].tid); i++)
		usleep(10000);
	atomic_store(&worker_page->start, 0); /* as os_process_start() returns it there */
	CHECK_EQ(kill(worker_pid(), SIGSTOP), 0);
	worker_detach();
	CHECK(ends_by_itself());
}

UNIT_TEST(worker_that_is_stopped_is_killed_without_proc_too)
{
	ranks_run(1, OPTIONS(), job_without_proc, NULL);
}

/* ---- two workers --------------------------------------------------------------------------- */

/* Each rank starts a worker; both use that of rank 0. */
static void job_with_two_workers(struct ranks *r)
{
	struct worker_setup setup = { .threads = 1 };
	struct worker_ticket mine, all[2];
	char reason[256] = "";

	CHECK_EQ(region_init(), 0);
	CHECK(os_cpumask_here(&setup.cpus));
	CHECK_EQ(worker_start(&setup, &mine, reason, sizeof reason), 0);
	CHECK_EQ(ranks_allgather(r, &mine, sizeof mine, all), 0);
	CHECK_EQ(worker_attach(&all[0]), 0);
	ranks_barrier(r);
	if (r->rank == 1)
		worker_detach(); /* at most a worker of its own ends */
	ranks_barrier(r);
	CHECK(worker_of(r->pids[0]));
	ranks_barrier(r);
	if (r->rank == 0)
		worker_detach();
	ranks_barrier(r);
	CHECK(is_gone_soon(r->pids[0]));
}

UNIT_TEST(worker_of_another_rank_is_not_stopped)
{
	ranks_run(2, OPTIONS(), job_with_two_workers, NULL);
}
