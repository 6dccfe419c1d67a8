/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits inside an MPI library call sched_poll():
 *
 *   Open MPI          calls functions of others while it waits
 *   MPICH from 4.3    the same; sluice/goal_mpi.h asks it
 *   others            call ucp_worker_progress() of UCX in each turn of a wait, or sched_yield():
 *                     the entries in the MPI library's own procedure linkage table are replaced,
 *                     and no other library's. MPICH before 4.3, its standard ABI, and Intel MPI
 *                     where it is told to yield
 */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

#include "goal/api/api.h"
#include "goal/sched/sched.h"
#include "os/os.h"

static int poll_for_open_mpi(void) { return sched_poll() > 0; }

typedef unsigned ucx_function(void *);
typedef int yield_function(void);
static ucx_function poll_in_ucx;
static yield_function poll_in_yield;
static struct os_import imports[] = {
	{ "ucp_worker_progress", (void *)poll_in_ucx, NULL },
	{ "sched_yield", (void *)poll_in_yield, NULL },
};

static unsigned poll_in_ucx(void *worker)
{
	unsigned events = ((ucx_function *)imports[0].next)(worker);

	if (!events)
		sched_poll();
	return events;
}

/* After a poll that did something the next one follows at once. libsluice.so's sched_yield() would
 * not see that an MPI library calls it. */
static int poll_in_yield(void)
{
	if (sched_poll() > 0 || (sluice_wait_round && sluice_wait_round()))
		return 0;
	return ((yield_function *)imports[1].next)();
}

enum { LIBRARIES = 8 };
struct libraries {
	size_t count;
	struct {
		uintptr_t base;
		const void *dynamic;
	} of[LIBRARIES];
};

static int find_mpi(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	struct libraries *all = arg;

	if (!slash || strncmp(slash + 1, "libmpi", 6))
		return 0;
	for (int i = 0; i < info->dlpi_phnum && all->count < LIBRARIES; i++) {
		if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
			continue;
		all->of[all->count].base = info->dlpi_addr;
		all->of[all->count++].dynamic =
			(const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	}
	return 0;
}

static void replace_imports(void)
{
	struct libraries all = { 0 };

	os_objects_visit(find_mpi, &all);
	for (size_t k = 0; k < BASE_ARRAY_LEN(imports); k++) {
		imports[k].next = dlsym(RTLD_DEFAULT, imports[k].name);
		for (size_t i = 0; i < all.count; i++)
			if (os_replace_import(&imports[k], all.of[i].base, all.of[i].dynamic))
				break;
	}
}

void api_poll_in_mpi(void)
{
	static _Atomic bool is_done;
	int (*is_initialized)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "MPI_Initialized");
	int (*poll_also)(int (*)(void)) =
		(int (*)(int (*)(void)))dlsym(RTLD_DEFAULT, "opal_progress_register");
	int yes = 0;

	if (!is_initialized || is_initialized(&yes) || !yes || atomic_exchange(&is_done, true))
		return;
	if (poll_also)
		poll_also(poll_for_open_mpi);
	else if (!dlsym(RTLD_DEFAULT, "MPIX_Async_start")) /* whose poll must be told -1 */
		replace_imports();
}
