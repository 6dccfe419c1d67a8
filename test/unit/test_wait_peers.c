/* SPDX-License-Identifier: BSD-3-Clause */
/* Wake words of a job: who has one, and who wakes whom. */
#include <signal.h>
#include <unistd.h>

#include "ranks.h"
#include "wait/private.h"

#define OPTIONS(...) ((char *const[]){ __VA_ARGS__, NULL })
#define FAR 5000 /* added to the numbers of ranks: a large job, of which one node is here */

static uint32_t wakes_of(int world_rank)
{
	uint64_t before = base_counter_value(BASE_CTR_WAKES);

	wait_wake(world_rank);
	return (uint32_t)(base_counter_value(BASE_CTR_WAKES) - before);
}

/* arg: number of the first rank. */
static void connect(struct ranks *r, int world_size)
{
	int first = *(int *)r->arg;

	ranks_announce(r);
	wait_connect(first + r->rank, world_size);
	ranks_barrier(r);
}

/* Each rank counts as a sleeper until all have woken it. */
static void all_wake_all(struct ranks *r)
{
	int first = *(int *)r->arg;
	uint32_t before;

	connect(r, first + r->size);
	CHECK_EQ(has_all_peers(), !first);
	CHECK_EQ(own_word()->owner, 1 + first + r->rank);
	CHECK_EQ(wakes_of(WAIT_ALL), 0);
	ranks_barrier(r);
	before = own_word()->wakes;
	atomic_fetch_add(&own_word()->sleepers, 1);
	ranks_barrier(r);
	CHECK_EQ(wakes_of(WAIT_ALL), r->size - 1);
	for (int q = 0; q < r->size; q++)
		CHECK_EQ(wakes_of(first + q), q != r->rank);
	CHECK_EQ(wakes_of(first + r->size), 0); /* on another node */
	CHECK_EQ(wakes_of(first + !r->rank + 4096), 0);
	CHECK_EQ(wakes_of(-1), 0); /* MPI_PROC_NULL and others */
	ranks_barrier(r);
	CHECK_EQ(own_word()->wakes, before + 2u * (uint32_t)(r->size - 1));
	wait_disconnect();
	CHECK_EQ(wakes_of(WAIT_ALL), 0);
	CHECK_EQ(own_word()->owner, 0);
	ranks_barrier(r);
}

UNIT_TEST(ranks_of_a_node_wake_each_other)
{
	int first = 0;

	ranks_run(5, OPTIONS("SLUICE_LOG=info"), all_wake_all, &first);
}

UNIT_TEST(ranks_of_a_node_wake_each_other_whatever_their_numbers_are)
{
	int first = FAR;

	ranks_run(5, OPTIONS("SLUICE_LOG=info"), all_wake_all, &first);
}

/* Rank 1 claims its word after rank 0 has looked for it. */
static void one_is_late(struct ranks *r)
{
	ranks_announce(r);
	if (!r->rank) {
		wait_connect(0, 2);
		CHECK_EQ(wakes_of(1), 0);
		CHECK(!has_all_peers());
	}
	ranks_barrier(r);
	if (r->rank) {
		wait_connect(1, 2);
		atomic_fetch_add(&own_word()->sleepers, 1);
	}
	ranks_barrier(r);
	CHECK_EQ(wakes_of(1), !r->rank);
	CHECK(has_all_peers());
	ranks_barrier(r);
}

UNIT_TEST(a_rank_that_claims_its_word_late_is_woken)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), one_is_late, NULL);
}

/* The others have mapped the words, in the memory of the first. */
static void any_one_ends(struct ranks *r)
{
	int ends = *(int *)r->arg;

	ranks_announce(r);
	wait_connect(r->rank, r->size);
	ranks_barrier(r);
	if (r->rank == ends)
		raise(SIGKILL);
	while (!node_process_has_exited(r->pids[ends]))
		usleep(1000);
	atomic_fetch_add(&own_word()->sleepers, 1);
	atomic_fetch_add(&r->words[0], 1);
	while (atomic_load(&r->words[0]) < 2)
		usleep(1000);
	CHECK_EQ(wakes_of(WAIT_ALL), 1);
}

UNIT_TEST(words_outlive_their_process)
{
	for (int ends = 0; ends < 3; ends++) {
		int status[3];

		ranks_run_any(3, OPTIONS("SLUICE_LOG=info"), any_one_ends, &ends, status);
		for (int q = 0; q < 3; q++)
			CHECK_EQ(status[q], q == ends ? 128 + SIGKILL : 0);
	}
}

/* Ranks with other options belong to another job. */
static void of_two_jobs(struct ranks *r)
{
	if (r->rank)
		ranks_options(OPTIONS("SLUICE_SUMS=any"));
	ranks_announce(r);
	wait_connect(r->rank, r->size);
	atomic_fetch_add(&own_word()->sleepers, 1);
	ranks_barrier(r);
	CHECK_EQ(wakes_of(WAIT_ALL), r->rank ? r->size - 2 : 0);
	CHECK_EQ(wakes_of(!r->rank), 0);
	CHECK(!has_all_peers());
	ranks_barrier(r);
}

UNIT_TEST(ranks_with_other_options_have_other_words)
{
	ranks_run(3, OPTIONS("SLUICE_LOG=info"), of_two_jobs, NULL);
}

static void nobody_announces(struct ranks *r)
{
	CHECK(!node_wake_words());
	wait_connect(r->rank, r->size);
	CHECK_EQ(own_word()->owner, 0);
	CHECK_EQ(wakes_of(WAIT_ALL), 0);
	CHECK(!has_all_peers());
}

UNIT_TEST(without_an_announcement_nobody_is_woken)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), nobody_announces, NULL);
}
