/* SPDX-License-Identifier: BSD-3-Clause */
/* Node groups between forked processes: created by all or by none, several at once, without
 * leaks. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "os/os.h"
#include "node/private.h"
#include "ranks.h"

#define OPTIONS(...) ((char *const[]){ __VA_ARGS__, NULL })

static struct node_group *create(const struct ranks *r)
{
	struct node_oob oob = r->oob;
	struct node_group *g = NULL;

	CHECK_EQ(node_group_create(&oob, 3 * OS_PAGE, &g), 0);
	return g;
}

/* Each rank writes to its area and reads those of the others. */
static void use(const struct ranks *r, struct node_group *g, int key)
{
	struct ranks *mutable = (struct ranks *)r;

	CHECK(g);
	CHECK_EQ(node_rank(g), r->rank);
	CHECK_EQ(node_size(g), r->size);
	memset(node_area(g, r->rank), key + r->rank, 3 * OS_PAGE);
	ranks_barrier(mutable);
	for (int q = 0; q < r->size; q++) {
		CHECK_EQ(((char *)node_area(g, q))[0], (char)(key + q));
		CHECK_EQ(((char *)node_area(g, q))[3 * OS_PAGE - 1], (char)(key + q));
	}
	ranks_barrier(mutable);
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void many_groups(struct ranks *r)
{
	int fds = 0, maps = 0;

	for (int i = 0; i < 40; i++) {
		struct node_group *g = create(r);

		use(r, g, i);
		node_group_destroy(g);
		if (i == 1) { /* mappings of peers from the first group stay */
			fds = count_fds();
			maps = unit_count_mappings();
		}
	}
	CHECK_EQ(count_fds(), fds);
	CHECK(unit_count_mappings() <= maps + 2); /* the heap may have grown */
	node_fini();
}

UNIT_TEST(groups_made_one_after_the_other_leave_nothing)
{
	ranks_run(4, OPTIONS("SLUICE_LOG=info"), many_groups, NULL);
}

/* The group says which way to read is faster; to measure it takes memory and time. */
static void rates_of_groups(struct ranks *r)
{
	struct node_group *g;
	struct node_rates rates, again;

	CHECK_EQ(node_group_create(&r->oob, 256 << 10, &g), 0);
	rates = node_probe_rates(g);
	CHECK(rates.vm_ps && rates.copy_ps && rates.new_ps);
	node_group_destroy(g);
	for (int i = 0; i < 3; i++) {
		g = create(r);
		again = node_probe_rates(g);
		CHECK_EQ(again.vm_ps, rates.vm_ps);
		CHECK_EQ(again.copy_ps, rates.copy_ps);
		node_group_destroy(g);
	}
	node_fini();
}

UNIT_TEST(a_process_measures_reads_once)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), rates_of_groups, NULL);
}

/* ---- several at once --------------------------------------------------------------------- */

struct maker {
	struct ranks r;
	pthread_t thread;
	int delay_us;
};

static void *make(void *arg)
{
	struct maker *m = arg;

	usleep((useconds_t)m->delay_us);
	for (int i = 0; i < 3; i++) {
		struct node_group *g = create(&m->r);

		use(&m->r, g, i);
		node_group_destroy(g);
	}
	return NULL;
}

/* Three communicators with common members, created by threads in any order, before any exchange. */
static void groups_at_once(struct ranks *r)
{
	static const unsigned members[] = { 0, 7, 3, 6 };
	uint64_t random = *(uint64_t *)r->arg * 8 + (uint64_t)r->rank;
	struct maker makers[RANKS_CHANNELS];

	for (int k = 1; k < RANKS_CHANNELS; k++) {
		if (!(members[k] >> r->rank & 1))
			continue;
		ranks_channel(r, k, members[k], &makers[k].r);
		makers[k].delay_us = (int)ranks_below(&random, 400);
		CHECK_EQ(pthread_create(&makers[k].thread, NULL, make, &makers[k]), 0);
	}
	for (int k = 1; k < RANKS_CHANNELS; k++)
		if (members[k] >> r->rank & 1)
			pthread_join(makers[k].thread, NULL);
}

UNIT_TEST(groups_can_be_made_by_several_threads_at_once)
{
	const char *other = getenv("RANDOM_SEED");

	for (uint64_t seed = 0; seed < 12; seed++) {
		uint64_t all = seed + (other ? 1000 * strtoull(other, NULL, 0) : 0);

		ranks_run(3, OPTIONS("SLUICE_LOG=info"), groups_at_once, &all);
	}
}

/* ---- refusals ---------------------------------------------------------------------------- */

struct refusal {
	int rank;
	char *option;
}; /* the rank with the option, or -1: all ranks */

static void be_refused(struct ranks *r)
{
	const struct refusal *f = r->arg;

	if (f->rank < 0 || f->rank == r->rank)
		ranks_options(OPTIONS("SLUICE_LOG=info", f->option));
	CHECK(!create(r));
	ranks_barrier(r);
}

static void check_refused(int rank, char *option, const char *reason)
{
	struct refusal f = { rank, option };

	ranks_run(3, OPTIONS("SLUICE_LOG=info"), be_refused, &f);
	CHECK_HAS(ranks_text, "goes to the host MPI");
	CHECK_HAS(ranks_text, reason);
}

UNIT_TEST(group_is_refused_by_all_ranks_when_one_cannot)
{
	check_refused(-1, "SLUICE_TEST=fault=memfd:all", "memfd_create");
	check_refused(1, "SLUICE_TEST=fault=memfd:all", "a rank cannot share memory");
	check_refused(0, "SLUICE_TEST=fault=extent:all", "a rank cannot share memory");
	check_refused(-1, "SLUICE_TEST=fault=socket:all", "a rank cannot share memory");
	check_refused(2, "SLUICE_TEST=fault=socket:all", "a rank cannot share memory");
}

UNIT_TEST(group_is_refused_across_nodes_and_options)
{
	check_refused(1, "SLUICE_TEST=node_name=elsewhere", "several nodes");
	check_refused(2, "SLUICE_COLL_THRESHOLD=1M", "different SLUICE_ options");
}

/* ---- trial ------------------------------------------------------------------------------- */

static void check_map_limits(struct node_group *g, int rank)
{
	CHECK(node_map(g, rank, 0, 1));
	CHECK(!node_map(g, rank, UINT64_MAX, 2));
	CHECK(!node_map(g, rank, 0, UINT64_MAX));
	CHECK(!node_map(g, rank, base_opt.region_arena_bytes, 1));
	CHECK(!node_map(g, rank, base_opt.region_arena_bytes - 1, 2));
}

static void find_reach(struct ranks *r)
{
	const char *fault = r->arg;
	struct node_group *g;

	if (fault && r->rank == 1)
		ranks_options(OPTIONS((char *)fault));
	g = create(r);
	CHECK(g);
	for (int a = 0; a < r->size; a++)
		for (int b = 0; b < r->size; b++)
			if (a != b) {
				check_map_limits(g, a);
				CHECK_EQ(node_can_read(g, a, b),
					 !(fault && a == 1 && strstr(fault, "readv")));
				CHECK_EQ(node_can_write(g, a, b),
					 !(fault && a == 1 && strstr(fault, "writev")));
			}
	ranks_barrier(r);
	node_group_destroy(g);
}

UNIT_TEST(trial_finds_who_can_reach_whom_and_tells_all)
{
	ranks_run(3, OPTIONS("SLUICE_LOG=info"), find_reach, NULL);
	ranks_run(3, OPTIONS("SLUICE_LOG=info"), find_reach, "SLUICE_TEST=fault=vm_readv:all");
	ranks_run(3, OPTIONS("SLUICE_LOG=info"), find_reach,
		  "SLUICE_TEST=fault=vm_readv:all,vm_writev:all");
}

/* ---- SLUICE_WAIT ------------------------------------------------------------------------- */

static void wait_as_told(struct ranks *r)
{
	struct node_group *g = create(r);
	bool is_polite = base_opt.wait == BASE_WAIT_AUTO ? node_is_oversubscribed(g) :
							   base_opt.wait == BASE_WAIT_POLITE;

	CHECK_EQ(g->spin_ns == 0, is_polite);
	CHECK_EQ(g->yield_ns < 10000000, is_polite);
	ranks_barrier(r);
	node_group_destroy(g);
}

UNIT_TEST(groups_wait_as_the_user_says)
{
	for (int ranks = 1; ranks <= 3; ranks += 2) {
		ranks_run(ranks, OPTIONS("SLUICE_WAIT=auto"), wait_as_told, NULL);
		ranks_run(ranks, OPTIONS("SLUICE_WAIT=spin"), wait_as_told, NULL);
		ranks_run(ranks, OPTIONS("SLUICE_WAIT=polite"), wait_as_told, NULL);
	}
}

/* ---- calls ------------------------------------------------------------------------------- */

enum { CALLS = 200 };

/* Rank 1 is woken and counts its wake-ups in its area; one wake-up at a time, none is lost. */
static void call_and_answer(struct ranks *r)
{
	struct node_group *g = create(r), *other = create(r);
	_Atomic uint32_t *woken = node_area(g, 1);
	uint32_t seen = 0, last;

	for (uint32_t i = 1; r->rank == 1 && i <= CALLS; i++) {
		last = seen;
		CHECK_EQ(node_wait_process_wake(&seen, OS_FOR_EVER), 0);
		CHECK(seen != last);
		atomic_store(woken, i);
	}
	last = seen;
	if (r->rank == 1) /* nobody calls */
		CHECK_EQ(node_wait_process_wake(&seen, 1000000), 0);
	CHECK_EQ(seen, last);
	for (uint32_t i = 1; r->rank == 0 && i <= CALLS; i++) {
		uint64_t give_up = os_now_ns() + 10000000000u;

		if (i % 3 == 0)
			usleep(200); /* it sleeps by now */
		node_wake_process(i % 2 ? g : other, 1); /* one wake word for all groups */
		while (atomic_load(woken) != i && os_now_ns() < give_up)
			sched_yield();
		CHECK_EQ(atomic_load(woken), i);
	}
	if (r->rank == 2) {
		node_wake_process(g, 0);
		node_wake_process(g, 2); /* waking itself does nothing */
	}
	ranks_barrier(r);
	node_group_destroy(other);
	node_group_destroy(g);
}

static void call_nobody(struct ranks *r)
{
	uint32_t seen = 0;

	(void)r;
	CHECK_EQ(node_wait_process_wake(&seen, OS_FOR_EVER), -ENOENT);
}

UNIT_TEST(process_that_computes_can_be_called)
{
	ranks_run(1, OPTIONS("SLUICE_LOG=info"), call_nobody, NULL);
	ranks_run(3, OPTIONS("SLUICE_LOG=info"), call_and_answer, NULL);
}

enum { STUCK = 8 };

static void get_stuck(struct ranks *r)
{
	struct node_group *g = create(r);
	uint64_t begin = os_now_ns(), stuck = 0;
	struct node_wait w = { 0 };

	while (stuck < STUCK && os_now_ns() - begin < 20000000000u) {
		stuck += node_wait_is_stuck(&w);
		node_wait(g, &w);
	}
	CHECK_EQ(stuck, STUCK);
	CHECK(os_now_ns() - begin >= STUCK * 1000000u);
	node_wait_progress(g, &w);
	CHECK(!node_wait_is_stuck(&w));
	node_wait_end(g, &w);
	ranks_barrier(r);
	node_group_destroy(g);
}

UNIT_TEST(yields_in_vain_are_given_up_until_one_reaches_somebody)
{
	int n = 0;

	CHECK(node_yields_reach());
	for (; node_yields_reach() && n < 1000; n++)
		yield_count(false);
	CHECK(n > 4 && n < 1000);
	yield_count(true);
	CHECK(node_yields_reach());
	for (n = 0; node_yields_reach() && n < 1000; n++)
		yield_count(false);
	CHECK(n > 1 && n < 10);
	for (int i = 0; i < 100; i++) { /* every fourth wait runs somebody */
		yield_count(i % 4 == 0);
		CHECK(node_yields_reach());
	}
}

UNIT_TEST(wait_is_stuck_once_a_millisecond)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), get_stuck, NULL);
}

/* ---- life -------------------------------------------------------------------------------- */

UNIT_TEST(a_process_that_nobody_has_reaped_has_exited)
{
	pid_t pid = fork();
	siginfo_t info;

	if (!pid)
		_exit(0);
	CHECK(!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
	CHECK(node_process_has_exited(pid) && !node_process_has_exited(getpid()));
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	CHECK(node_process_has_exited(pid));
}

static void watch_death(struct ranks *r)
{
	struct node_group *g = create(r);
	uint64_t give_up;
	uint64_t value = 7;

	CHECK(g);
	for (int q = 0; q < r->size; q++)
		CHECK(!node_is_dead(g, q));
	ranks_barrier(r);
	if (r->rank == 1)
		kill(getpid(), SIGKILL);
	/* the test that forked it has not reaped it: it stays a zombie */
	for (give_up = os_now_ns() + 20000000000u; !node_is_dead(g, 1) && os_now_ns() < give_up;)
		usleep(1000);
	CHECK(node_is_dead(g, 1));
	CHECK(!node_is_dead(g, r->rank));
	CHECK_EQ(node_vm_read(g, 1, &value, (uintptr_t)&value, sizeof value), -EOWNERDEAD);
	CHECK_EQ(node_poisoned(g) < 0 || node_poisoned(g) == 1, 1);
	node_poison(g, 1);
	node_poison(g, 0);
	CHECK_EQ(node_poisoned(g), 1);
	node_group_destroy(g);
}

UNIT_TEST(peer_that_was_killed_is_found_dead)
{
	int status[RANKS_MAX];

	ranks_run_any(3, OPTIONS("SLUICE_LOG=info"), watch_death, NULL, status);
	CHECK_EQ(status[0], 0);
	CHECK_EQ(status[1], 128 + SIGKILL);
	CHECK_EQ(status[2], 0);
}
