/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether Sluice runs in this process: options, policy tables, start and end. */
#include "rt/rt.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rt/private.h"
#include "rt/requests.h"
#include "sluice/sluice.h"
#include "tune/tune.h"
#include "worker/worker.h"

bool rt_on;
uint64_t rt_threshold_bytes[COLL_COUNT] = { [0 ... COLL_COUNT - 1] = UINT64_MAX };
struct rt_window rt_request_window[COLL_COUNT] = { [0 ... COLL_COUNT - 1] = { UINT64_MAX, 0 } };
struct rt_window rt_request_always[COLL_COUNT] = { [0 ... COLL_COUNT - 1] = { UINT64_MAX, 0 } };
struct rt_window rt_request_gate[COLL_COUNT] = { [0 ... COLL_COUNT - 1] = { UINT64_MAX, 0 } };
uint64_t rt_request_again_bytes[COLL_COUNT] = { [0 ... COLL_COUNT - 1] = UINT64_MAX };
uint64_t rt_gate_bytes[COLL_COUNT] = { [0 ... COLL_COUNT - 1] = UINT64_MAX };
uint64_t rt_always_bytes[COLL_COUNT] = { [0 ... COLL_COUNT - 1] = UINT64_MAX };

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;
enum policy_host rt_host;
static char problems[2048 + PATH_MAX];

/* What is traced has to be looked at, however small; blocking barriers are the library's unless
 * asked for. */
static void set_gates(void)
{
	for (int kind = 0; kind < COLL_COUNT; kind++) {
		rt_gate_bytes[kind] =
			trace_is_on() && kind != COLL_BARRIER ? 0 : rt_threshold_bytes[kind];
		rt_request_gate[kind] =
			trace_is_on() ? (struct rt_window){ 0 } : rt_request_window[kind];
	}
}

/* What may be taken, in buffers that are used again or in all. */
static struct rt_window any_of(const struct policy_window *w)
{
	struct rt_window out = { w->from, w->to, .holes = { { w->not_from, w->not_to } } };

	if (w->again == UINT64_MAX)
		return out;
	out.to = UINT64_MAX;
	if (w->from == UINT64_MAX)
		out.from = w->again;
	else
		out.holes[1] = (struct rt_hole){ w->to + 1, w->again };
	return out;
}

static void switch_on(void)
{
	struct policy_window window;

	for (int kind = 0; kind < COLL_COUNT; kind++) {
		rt_threshold_bytes[kind] = policy_threshold_bytes(kind);
		rt_always_bytes[kind] = policy_always_bytes(kind, rt_host);
		window = policy_request_window(kind, rt_host);
		rt_request_always[kind] =
			(struct rt_window){ window.from, window.to,
					    .holes = { { window.not_from, window.not_to } } };
		rt_request_window[kind] = any_of(&window);
		rt_request_again_bytes[kind] = window.again;
		rt_on |= rt_threshold_bytes[kind] != UINT64_MAX ||
			 rt_request_window[kind].from != UINT64_MAX;
	}
	set_gates();
}

static void switch_off(void)
{
	for (int kind = 0; kind < COLL_COUNT; kind++)
		rt_threshold_bytes[kind] = rt_request_window[kind].from = UINT64_MAX;
	rt_on = false;
	set_gates();
}

/* A child has none of its parent's peers. */
static void after_fork_child(void)
{
	switch_off();
	worker_after_fork_child();
}

static void report_problems(const char *text, int world_rank)
{
	if (world_rank > 0 || (world_rank < 0 && base_job_rank() > 0))
		return; /* one line a problem, not one a rank */
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return;
}

/*
 * Loads values that sluice tune measured here. Values that all ranks must agree on are left out
 * where ranks on other machines, which have other files, cannot be told apart before the first
 * collective (node/discovery.c).
 */
static void load_tuned(bool prefer_pmix, const char *library_version)
{
	struct tune_result tuned;
	char mpi[TUNE_MPI_BYTES];
	int rank;

	tune_mpi_name(library_version, mpi, sizeof mpi);
	tune_load(mpi, &tuned);
	if (!base_job_identity(prefer_pmix, &rank))
		base_options_untune(true);
	if (tuned.state == TUNE_REFUSED)
		snprintf(problems, sizeof problems,
			 "sluice: tune: %s is not used: %s; run sluice tune again\n", tuned.path,
			 tuned.reason);
}

/* Under the lock. The options are read once; what is wrong with them is told when the rank is
 * known. */
static void load_options(bool prefer_pmix, const char *library_version)
{
	static bool loaded;

	if (!loaded && !base_options_load(NULL, problems, sizeof problems))
		load_tuned(prefer_pmix, library_version);
	loaded = true;
}

void rt_announce(bool prefer_pmix, const char *library_version)
{
	pthread_mutex_lock(&start_lock);
	rt_host = policy_host_of(library_version);
	load_options(prefer_pmix, library_version);
	pthread_mutex_unlock(&start_lock);
	if (base_opt.enabled && base_opt.usable)
		node_announce(prefer_pmix);
}

bool rt_are_all_present(const int *world_ranks, int n)
{
	int absent = node_first_absent(world_ranks, n);

	if (absent < 0)
		return true;
	base_count(BASE_CTR_GROUPS_REFUSED, 1);
	base_log(BASE_LOG_INFO, "rt",
		 "communicator of %d ranks is left to the MPI: its rank %d is on another node, "
		 "runs without "
		 "Sluice, or with other options",
		 n, absent);
	return false;
}

void rt_identity(struct rt_identity *out)
{
	uint64_t agreed = base_options_hash();

	for (const char *c = SLUICE_VERSION; *c; c++)
		agreed = agreed * 31 + (unsigned char)*c;
	*out = (struct rt_identity){ os_node_id() * 31 + geteuid(), rt_is_on() ? agreed | 1 : 0 };
}

bool rt_start(int world_rank)
{
	pthread_mutex_lock(&start_lock);
	if (world_rank >= 0)
		base_log_set_rank(world_rank);
	if (!started) {
		started = true;
		load_options(false, "");
		report_problems(problems, world_rank);
		if (base_opt.enabled && base_opt.usable) {
			trace_start(world_rank);
			pthread_atfork(NULL, NULL, after_fork_child);
			switch_on();
		}
	}
	pthread_mutex_unlock(&start_lock);
	return rt_is_on();
}

void rt_stop(void)
{
	if (!rt_is_on()) {
		trace_stop();
		return;
	}
	rt_complete_all();
	switch_off();
	request_memory_fini();
	guard_fini();
	worker_setup_count();
	worker_detach();
	base_counters_report();
	region_fini();
	node_withdraw();
	node_fini();
	trace_stop();
	set_gates();
}

void rt_memory_keep_out(const void *addr, uint64_t bytes)
{
	if (bytes)
		region_exclude(base_round_down((uintptr_t)addr, OS_PAGE),
				base_round_up((uintptr_t)addr + bytes, OS_PAGE));
}
