/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Idle rounds of the host MPI's blocking calls.
 *
 *   calls sched_yield() in each: MPICH 5, Intel MPI; preload/yield.c
 *   does so if asked: Open MPI, by a variable of the environment
 *   never: MPICH 4.0 built for one lock. Its device UCX is polled in each round by a function of
 *   another library, which the host MPI calls through its procedure linkage table
 */
#include <dlfcn.h>
#include <link.h>

#include "base/base.h"
#include "mpi/front/front.h"
#include "os/endpoint.h"
#include "wait/wait.h"

static const struct preset {
	const char *name, *value;
	bool of_switches; /* for ranks that give each other the processor only */
} presets[] = {
	{ "OMPI_MCA_mpi_yield_when_idle", "1", false },
	/* MPICH's collectives in shared memory wait for flags without yielding */
	{ "MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD", "2147483647", true },
};
static bool is_preset[BASE_ARRAY_LEN(presets)];

/* ---- hosts that do not yield --------------------------------------------------------------- */

typedef unsigned progress_function(void *);
static progress_function poll_device;
static struct os_import progress = { .name = "ucp_worker_progress", .by = (void *)poll_device };

/* A round that has found something is no idle round, and the next one is a long time later. */
static unsigned poll_device(void *worker)
{
	unsigned events = ((progress_function *)progress.next)(worker);

	if (!events)
		wait_round();
	return events;
}

static void replace_progress(void)
{
	void *handle = front_library_handle();
	struct link_map *map;

	if (!handle || progress.next || dlinfo(handle, RTLD_DI_LINKMAP, &map) || !map->l_ld)
		return;
	progress.next = dlsym(handle, progress.name);
	if (!os_replace_import(&progress, map->l_addr, map->l_ld))
		progress.next = NULL;
}

/* ---- start --------------------------------------------------------------------------------- */

void idle_prepare(void)
{
	if (!base_opt.enabled || !base_opt.usable || wait_start() == WAIT_SPIN)
		return;
	for (size_t i = 0; i < BASE_ARRAY_LEN(presets); i++)
		is_preset[i] = (!presets[i].of_switches || endpoint_self) &&
			       base_job_preset(presets[i].name, presets[i].value);
	replace_progress();
}

void idle_start(void)
{
	for (size_t i = 0; i < BASE_ARRAY_LEN(presets); i++)
		if (is_preset[i])
			base_job_unset(presets[i].name);
	if (wait_mode() == WAIT_POLITE) {
		int rank = -1, size = 0;

		host.Comm_rank(abi.comm_world, &rank);
		host.Comm_size(abi.comm_world, &size);
		wait_connect(rank, size);
		rt_intercept_ref();
	}
}
