/* SPDX-License-Identifier: BSD-3-Clause */
/* Headers of the processes of a job, found by pid, without a node group. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "node/node.h"
#include "ranks.h"

#define OPTIONS(...) ((char *const[]){ __VA_ARGS__, NULL })

static struct node_header *find(int pid)
{
	struct node_header *h = NULL;

	for (int i = 0; i < 40 && !h; i++) /* a stranger is looked for again after 16 calls */
		h = node_header_of(pid, true);
	return h;
}

static void every_rank_finds_every_other(struct ranks *r)
{
	ranks_announce(r);
	CHECK(node_header_self());
	CHECK_EQ(node_header_self()->job_rank, r->rank);
	for (int q = 0; q < r->size; q++) {
		int pid = r->pids[q];
		struct node_header *h = node_header_of(pid, true);

		CHECK_EQ(!h, q == r->rank);
		if (h) {
			CHECK_EQ(h->pid, pid);
			CHECK_EQ(h->job_rank, q);
			CHECK(node_header_of(pid, true) == h);
			atomic_fetch_add(&h->private_bytes, 1);
		}
	}
	ranks_barrier(r);
	CHECK_EQ(node_header_self()->private_bytes, (uint64_t)r->size - 1);
	ranks_barrier(r);
	node_withdraw();
	node_fini();
	CHECK(!node_header_self());
}

UNIT_TEST(every_rank_of_a_job_finds_the_headers_of_all_others)
{
	ranks_run(4, OPTIONS("SLUICE_LOG=info"), every_rank_finds_every_other, NULL);
}

static int listed; /* folders */

/* In place of libc's. */
DIR *opendir(const char *path)
{
	DIR *(*next)(const char *) = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");

	listed++;
	return next(path);
}

static void open_one(bool is_named)
{
	int fd = is_named ? memfd_create(REGION_ARENA_NAME, 0) : open("/dev/null", O_RDONLY);

	CHECK(fd >= 0 && (!is_named || !ftruncate(fd, 1 << 20)));
}

/* arg: files that rank 1 has open before its arena; the first has the name of an arena. */
static void other_numbers(struct ranks *r)
{
	int more = *(int *)r->arg;

	close_range(STDERR_FILENO + 1, ~0u, 0); /* inherited from whoever runs the tests */
	for (int i = 0; r->rank && i < more; i++)
		open_one(!i);
	ranks_announce(r);
	listed = 0;
	CHECK(node_header_of(r->pids[!r->rank], true));
	CHECK_EQ(listed, more > 3);
	ranks_barrier(r);
}

UNIT_TEST(an_arena_whose_descriptor_has_nearly_our_number_is_found_without_a_list)
{
	for (int more = 0; more <= 3; more++)
		ranks_run(2, OPTIONS("SLUICE_LOG=info"), other_numbers, &more);
}

UNIT_TEST(an_arena_whose_descriptor_has_any_other_number_is_found)
{
	int more = 40;

	ranks_run(2, OPTIONS("SLUICE_LOG=info"), other_numbers, &more);
}

static void strangers(struct ranks *r)
{
	int pid;

	ranks_announce(r);
	pid = fork(); /* has no arena */
	if (!pid) {
		pause();
		_exit(0);
	}
	CHECK(!find(pid));
	CHECK(!find(getppid()));
	CHECK(!find(1));
	CHECK(!find(getpid()));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK(!find(pid));
	ranks_barrier(r);
}

UNIT_TEST(a_process_without_a_header_is_a_stranger)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), strangers, NULL);
}

static void other_options(struct ranks *r)
{
	if (r->rank)
		ranks_options(OPTIONS("SLUICE_SUMS=any"));
	ranks_announce(r);
	CHECK(!find(r->pids[!r->rank]));
	ranks_barrier(r);
}

UNIT_TEST(a_process_with_other_options_is_a_stranger)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), other_options, NULL);
}

/* A process that has ended is found out after 20 ms at the latest; so is one that executes another
 * program, at once. */
static void processes_end(struct ranks *r)
{
	struct node_header *h;

	ranks_announce(r);
	h = r->rank ? NULL : find(r->pids[1]);
	CHECK(r->rank || (h && find(r->pids[2])));
	ranks_barrier(r);
	if (r->rank == 2)
		raise(SIGKILL);
	if (r->rank == 1) {
		atomic_store(&node_header_self()->has_ended, 1);
		atomic_store(&r->words[0], 1);
		while (!atomic_load(&r->words[1]))
			usleep(1000);
		return;
	}
	while (!atomic_load(&r->words[0]))
		usleep(1000);
	CHECK(!node_header_of(r->pids[1], true));
	for (int i = 0; i < 500 && node_header_of(r->pids[2], true); i++)
		usleep(10000);
	CHECK(!find(r->pids[2]));
	atomic_store(&r->words[1], 1);
}

UNIT_TEST(a_process_that_has_ended_is_a_stranger)
{
	int status[3];

	ranks_run_any(3, OPTIONS("SLUICE_LOG=info"), processes_end, NULL, status);
	CHECK_EQ(status[0], 0);
	CHECK_EQ(status[2], 128 + SIGKILL);
}

/* Rank 1 knows the arena of rank 0, which does not know that of rank 1. */
static void one_knows_the_other(struct ranks *r)
{
	struct node_oob oob = r->oob;
	struct node_group *g = NULL;
	uint64_t start;

	ranks_announce(r);
	if (r->rank == 1)
		CHECK(find(r->pids[0]));
	ranks_barrier(r);
	start = os_now_ns();
	CHECK_EQ(node_group_create(&oob, 4096, &g), 0);
	CHECK(g);
	CHECK(os_now_ns() - start < 20000000000u); /* an exchange gives up after 30 s */
	ranks_barrier(r);
	node_group_destroy(g);
}

UNIT_TEST(a_group_forms_where_one_rank_knows_the_other_already)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), one_knows_the_other, NULL);
}

/* Rank 1 has withdrawn: rank 0 found it before and does not look again, rank 2 did not. */
static void found_once(struct ranks *r)
{
	const int all[] = { 0, 1, 2 }, others[] = { 0, 3 };

	ranks_announce(r);
	ranks_barrier(r);
	if (!r->rank) {
		CHECK_EQ(node_first_absent(all, 3), -1);
		CHECK_EQ(node_first_absent(others, 2), 1);
	}
	ranks_barrier(r);
	if (r->rank == 1)
		node_withdraw();
	ranks_barrier(r);
	if (r->rank != 1)
		CHECK_EQ(node_first_absent(all, 3), r->rank ? 1 : -1);
	ranks_barrier(r);
}

UNIT_TEST(a_rank_is_looked_for_until_it_is_found)
{
	ranks_run(3, OPTIONS("SLUICE_LOG=info"), found_once, NULL);
}
