/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether Sluice runs in this process: options, policy tables, start and end. */
#include "rt/rt.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda/cuda.h"
#include "message/message.h"
#include "os/endpoint.h"
#include "rt/private.h"
#include "rt/requests.h"
#include "rt/trials.h"
#include "sluice/sluice.h"
#include "tune/tune.h"
#include "wait/wait.h"
#include "worker/worker.h"

bool rt_on;
struct coll_gate rt_gates[COLL_FORMS][COLL_COUNT] = {
	[0 ... COLL_FORMS - 1] = { [0 ... COLL_COUNT - 1] = COLL_GATE_CLOSED },
};
struct policy_options rt_options;

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;
static struct policy_figures figures[COLL_COUNT]; /* of the host MPI */
static char problems[2048 + PATH_MAX];
static char host_mpi[TUNE_MPI_BYTES]; /* "MPICH 5.0.2" */

/* SLUICE_DECIDE: table, measure, measure:FILE or FILE. */
#define MEASURE "measure"

static bool decides_by_trials(void)
{
	size_t n = strlen(MEASURE);

	return !strncmp(base_opt.decide, MEASURE, n) &&
	       (!base_opt.decide[n] || base_opt.decide[n] == ':');
}

void rt_crowded(enum coll kind, int ranks, uint64_t *out_again, uint64_t *out_always)
{
	policy_crowded(&rt_options, &figures[kind], kind, ranks, out_again, out_always);
}

static void switch_on(void)
{
	rt_options = (struct policy_options){
		.threshold_bytes = base_opt.coll_threshold_bytes,
		.hier = base_opt.hier,
		.measures = decides_by_trials(),
		.switches = base_opt.endpoints_switch == BASE_SWITCH_USER,
	};
	memcpy(rt_options.modes, base_opt.coll_modes, sizeof rt_options.modes);
	policy_gates(rt_gates, &rt_options, figures, trace_is_on());
	rt_on = message_begin();
	for (int kind = 0; kind < COLL_COUNT; kind++)
		rt_on |= !coll_gate_is_closed(&rt_gates[COLL_BLOCKING][kind]) ||
			 !coll_gate_is_closed(&rt_gates[COLL_NONBLOCKING][kind]);
}

static void switch_off(void)
{
	policy_gates_close(rt_gates, trace_is_on());
	rt_on = false;
	message_end();
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
static void load_tuned(bool prefer_pmix)
{
	struct tune_result tuned;
	int rank;

	tune_load(host_mpi, &tuned);
	if (!base_job_identity(prefer_pmix, &rank))
		base_options_untune(true);
	if (tuned.state == TUNE_REFUSED)
		snprintf(problems + strlen(problems), sizeof problems - strlen(problems),
			 "sluice: tune: %s is not used: %s; run sluice tune again\n", tuned.path,
			 tuned.reason);
}

static int set_figure(void *arg, const char *name, const char *value)
{
	return policy_figures_set(arg, name, value);
}

/* Returns: the file of the run's results; NULL: none. */
static const char *learned_path(void)
{
	const char *colon = decides_by_trials() ? strchr(base_opt.decide, ':') : NULL;

	return colon && colon[1] ? colon + 1 : NULL;
}

/* The file that the user names. Returns: whether it is in force. */
__attribute__((cold)) static bool load_chosen_figures(const char *library_version)
{
	struct tune_result found;

	if (decides_by_trials() || !strcmp(base_opt.decide, "table"))
		return false;
	policy_figures_begin(figures);
	tune_load_figures(base_opt.decide, library_version, set_figure, figures, &found);
	if (found.state == TUNE_IN_FORCE && !found.values) {
		found.state = TUNE_REFUSED;
		snprintf(found.reason, sizeof found.reason, "it has no figures for this MPI");
	}
	if (found.state != TUNE_IN_FORCE)
		snprintf(problems + strlen(problems), sizeof problems - strlen(problems),
			 "sluice: SLUICE_DECIDE: %s is not used: %s; a run with "
			 "SLUICE_DECIDE=measure:FILE writes such a file\n",
			 base_opt.decide, found.reason);
	return found.state == TUNE_IN_FORCE;
}

/* The figures of this host MPI, which all ranks must have alike. */
__attribute__((cold)) static void load_figures(const char *library_version)
{
	struct tune_result found = { .state = TUNE_IN_FORCE };

	if (!load_chosen_figures(library_version)) {
		policy_figures_begin(figures);
		tune_load_figures(NULL, library_version, set_figure, figures, &found);
	}
	if (found.state != TUNE_IN_FORCE) {
		policy_figures_init(figures);
		base_log(BASE_LOG_WARN, "rt", "%s: %s; only large calls are admitted", found.path,
			 found.reason);
	}
	base_options_agree(policy_figures_hash(figures));
}

/*
 * At exit: MPICH and its derivatives end the program in MPI_Init where Open MPI has launched it.
 * The first rank that ends has the launcher kill the others, so these wait until rank 0 has told.
 */
static void explain_end(void)
{
	const struct timespec second = { .tv_sec = 1 };
	const char *name;
	char line[256];

	if (started || base_job_size(&name) < 2 || strcmp(name, "OMPI_COMM_WORLD_SIZE") != 0 ||
	    !strncmp(host_mpi, "Open MPI", 8))
		return;
	if (base_job_rank() > 0) {
		nanosleep(&second, NULL);
		return;
	}
	snprintf(line, sizeof line,
		 "sluice: MPI_Init has ended the program: "
		 "it uses %s, and mpiexec belongs to Open MPI\n",
		 *host_mpi ? host_mpi : "another MPI");
	report_problems(line, -1);
}

/* Under the lock. Options are loaded once; problems are reported when the rank is known. */
__attribute__((cold)) static void load_options(bool prefer_pmix, const char *library_version)
{
	static bool loaded;

	if (!loaded) {
		tune_mpi_name(library_version, host_mpi, sizeof host_mpi);
		atexit(explain_end);
	}
	if (!loaded && !base_options_load(NULL, problems, sizeof problems)) {
		load_tuned(prefer_pmix);
		load_figures(library_version);
	}
	loaded = true;
}

void rt_announce(bool prefer_pmix, const char *library_version)
{
	pthread_mutex_lock(&start_lock);
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
		 "communicator of %d ranks goes to the host MPI: rank %d is on another node, "
		 "runs without Sluice, or has other options",
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

/* Reports once in a job that its programs are alone: their MPI does not know the launcher. */
__attribute__((cold)) static void check_launcher(int world_size)
{
	const char *name;
	int programs = base_job_size(&name);
	char line[512];

	if (world_size != 1 || programs < 2 || base_job_rank() != 0)
		return;
	snprintf(line, sizeof line,
		 "sluice: these are %d programs of one rank each: mpiexec belongs to another MPI "
		 "than the program, which uses %s (%s=%d, but MPI_COMM_WORLD has one rank)\n",
		 programs, *host_mpi ? host_mpi : "an unknown MPI", name, programs);
	report_problems(line, -1);
}

/* Reports once in a job why its ranks stay processes. The log says it of each rank. */
__attribute__((cold)) static void check_endpoints(int world_rank)
{
	char line[PATH_MAX + 256];

	if (!base_opt.endpoints || !endpoint_refusal)
		return;
	snprintf(line, sizeof line, "sluice: SLUICE_ENDPOINTS: rank 0 stays a process: %s\n",
		 endpoint_refusal);
	report_problems(line, world_rank);
}

__attribute__((cold)) bool rt_start(int world_rank, int world_size)
{
	pthread_mutex_lock(&start_lock);
	if (world_rank >= 0)
		base_log_set_rank(world_rank);
	if (!started) {
		started = true;
		load_options(false, "");
		if (endpoint_self)
			base_opt.early = BASE_EARLY_OFF; /* its worker runs other ranks instead */
		report_problems(problems, world_rank);
		if (base_opt.enabled)
			check_launcher(world_size);
		if (base_opt.enabled && base_opt.usable) {
			check_endpoints(world_rank);
			trace_start(world_rank);
			pthread_atfork(NULL, NULL, after_fork_child);
			switch_on();
		}
	}
	pthread_mutex_unlock(&start_lock);
	return rt_is_on() || trace_is_on();
}

__attribute__((cold)) void rt_stop(void)
{
	if (message_end())
		rt_intercept_unref();
	if (!rt_is_on()) {
		trace_stop();
		return;
	}
	rt_complete_all();
	if (learned_path() && !base_log_rank())
		learned_write(learned_path(), host_mpi, figures);
	switch_off();
	buffer_pool_fini();
	cuda_fini();
	guard_fini();
	offload_count();
	worker_detach();
	base_counters[BASE_CTR_SWITCHES] = endpoint_self ? endpoint_self->switches : 0;
	base_counters[BASE_CTR_TRIPS] = endpoint_self ? endpoint_self->trips : 0;
	base_counters_report();
	wait_disconnect();
	region_fini();
	node_withdraw();
	node_fini();
	trace_stop();
	policy_gates_close(rt_gates, false);
}

void rt_memory_keep_out(const void *addr, uint64_t bytes)
{
	if (bytes)
		region_exclude(base_round_down((uintptr_t)addr, OS_PAGE),
				base_round_up((uintptr_t)addr + bytes, OS_PAGE));
}
