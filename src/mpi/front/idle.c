/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Idle rounds of the host MPI's blocking calls.
 *
 *   calls sched_yield() in each: MPICH 5; preload/yield.c
 *   does so if asked: Open MPI, Intel MPI, by a variable of the environment
 *   never: MPICH 3.4 and 4.0 to 4.3, Intel MPI 2019. In each round it polls its device by a
 *   function of another library: of UCX or libc (ch3:nemesis over TCP), through its own procedure
 *   linkage table, or of libfabric, through a completion queue
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <poll.h>
#include <string.h>

#include "base/base.h"
#include "mpi/front/front.h"
#include "os/endpoint.h"
#include "wait/wait.h"

static const struct preset {
	const char *name, *value;
	bool of_switches; /* for ranks that give each other the processor only */
} presets[] = {
	{ "OMPI_MCA_mpi_yield_when_idle", "1", false },
	/* without it Intel MPI only spins: up to 2021.8, or where it sees a CPU for each rank */
	{ "I_MPI_WAIT_MODE", "1", false },
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

/* A process without connections asks for them once in so many polls of its queues. */
#define POLLS_OF_SOCKETS 512

typedef int poll_function(struct pollfd *, nfds_t, int ms);
static poll_function poll_sockets;
static struct os_import sockets = { .name = "poll", .by = (void *)poll_sockets };

static int poll_sockets(struct pollfd *fds, nfds_t n, int ms)
{
	int events = ((poll_function *)sockets.next)(fds, n, ms);

	if (!events && !ms)
		wait_round_after(POLLS_OF_SOCKETS);
	return events;
}

/*
 * libfabric's functions are called through the tables of its objects (struct fid_fabric, fid_domain
 * and fid_cq with struct fi_ops_*), whose order is part of its ABI. An object whose host MPI polls
 * it gets a copy of its table, in which one function is ours: of the fabric the one that opens a
 * device (a domain in libfabric's words), of the device the one that opens a completion queue, of
 * the queue the one that reads it.
 */
struct fi_table {
	size_t bytes;
	void *functions[31];
};
struct fi_object {
	size_t class;
	void *context, *common;
	struct fi_table *table;
};
typedef int fi_open_fabric(void *attr, struct fi_object **out, void *context);
typedef int fi_open(struct fi_object *, void *attr, struct fi_object **out, void *context);
typedef ssize_t fi_read(struct fi_object *, void *out, size_t count);
static fi_open_fabric open_fabric;
static fi_open open_device, open_queue;
static fi_read read_queue;

struct fi_hook {
	unsigned function; /* of the table */
	void *by;
	void *next;
	struct fi_table *host, ours;
};
static struct fi_hook of_fabric = { .function = 0, .by = (void *)open_device };
static struct fi_hook of_device = { .function = 1, .by = (void *)open_queue };
static struct fi_hook of_queue = { .function = 0, .by = (void *)read_queue };
static struct os_import fabric = { .name = "fi_fabric", .by = (void *)open_fabric };

/* Objects of a second provider keep their tables. */
__attribute__((cold)) static int hook(int ret, struct fi_object *const *out, struct fi_hook *h)
{
	struct fi_table *host = ret ? NULL : (*out)->table;

	if (!h->host && host && host->bytes <= sizeof h->ours) {
		h->host = host;
		h->next = host->functions[h->function];
		memcpy(&h->ours, host, host->bytes);
		h->ours.functions[h->function] = h->by;
	}
	if (host && host == h->host)
		(*out)->table = &h->ours;
	return ret;
}

__attribute__((cold))
static int open_fabric(void *attr, struct fi_object **out, void *context)
{
	return hook(((fi_open_fabric *)fabric.next)(attr, out, context), out, &of_fabric);
}

__attribute__((cold))
static int open_device(struct fi_object *o, void *attr, struct fi_object **out, void *context)
{
	return hook(((fi_open *)of_fabric.next)(o, attr, out, context), out, &of_device);
}

__attribute__((cold))
static int open_queue(struct fi_object *o, void *attr, struct fi_object **out, void *context)
{
	return hook(((fi_open *)of_device.next)(o, attr, out, context), out, &of_queue);
}

static ssize_t read_queue(struct fi_object *queue, void *out, size_t count)
{
	ssize_t events = ((fi_read *)of_queue.next)(queue, out, count);

	if (events == -EAGAIN)
		wait_round();
	return events;
}

static bool is_yielding(const char *library_version, const struct link_map *map)
{
	/* this one does so in MPI_Probe only */
	return !strstr(library_version, "Intel(R) MPI Library 2019") &&
	       os_has_import("sched_yield", map->l_addr, map->l_ld);
}

static void replace_progress(const char *library_version)
{
	void *handle = front_library_handle();
	struct link_map *map;

	if (!handle || progress.next || dlinfo(handle, RTLD_DI_LINKMAP, &map) || !map->l_ld)
		return;
	progress.next = dlsym(handle, progress.name);
	if (!os_replace_import(&progress, map->l_addr, map->l_ld))
		progress.next = NULL;
	/* Open MPI's libmpi.so calls the latter, which yields */
	if (!is_yielding(library_version, map) &&
	    !os_has_import("opal_progress", map->l_addr, map->l_ld)) {
		fabric.next = dlvsym(handle, fabric.name, "FABRIC_1.1");
		os_replace_import(&fabric, map->l_addr, map->l_ld);
		sockets.next = dlsym(RTLD_DEFAULT, sockets.name);
		os_replace_import(&sockets, map->l_addr, map->l_ld);
	}
}

/* ---- start --------------------------------------------------------------------------------- */

void idle_prepare(const char *library_version)
{
	if (!base_opt.enabled || !base_opt.usable || wait_start() == WAIT_SPIN)
		return;
	for (size_t i = 0; i < BASE_ARRAY_LEN(presets); i++)
		is_preset[i] = (!presets[i].of_switches || endpoint_self) &&
			       base_job_preset(presets[i].name, presets[i].value);
	replace_progress(library_version);
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
