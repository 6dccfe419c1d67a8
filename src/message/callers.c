/* SPDX-License-Identifier: BSD-3-Clause */
/* Tells calls of process_vm_readv() by a library of an MPI from others. */
#include "message/private.h"
#include "os/os.h"

enum {
	CALLERS = 8, /* call sites known of each kind; an MPI has one or two */
	EARLY = 8,   /* a caller is looked up at each so many calls of unknown ones */
};

static _Atomic(const void *) known[2][CALLERS]; /* of others, of hosts */
static _Atomic uint32_t next_place[2];

/* The libraries of MPICH, Open MPI (also its components), UCX and libfabric that copy messages. */
static const char *const host_libraries[] = { "libmpi", "libpmpi", "libopen-pal", "mca_",
					      "libuct", "libfabric", "libshm-fi", NULL };

static bool is_known(const void *caller, bool is_host)
{
	for (int i = 0; i < CALLERS; i++) {
		const void *at = atomic_load_explicit(&known[is_host][i], memory_order_relaxed);

		if (at == caller)
			return true;
		if (!at)
			return false;
	}
	return false;
}

/* To know a caller takes as long as to read some 64 KB: its first calls are the kernel's. */
static bool is_too_early(void)
{
	static _Atomic uint32_t calls;

	return message_is_by_cost() &&
	       atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) % EARLY != EARLY - 1;
}

bool message_is_served(const void *caller)
{
	uint32_t at;
	int is_host;

	if (!atomic_load_explicit(&message_is_on, memory_order_relaxed))
		return false;
	if (base_likely(is_known(caller, true)))
		return true;
	if (is_known(caller, false) || is_too_early())
		return false;
	is_host = os_object_is_named(caller, host_libraries);
	if (is_host < 0)
		return false; /* in a handler that interrupted the loader: asked again */
	at = atomic_fetch_add_explicit(&next_place[is_host], 1, memory_order_relaxed);
	atomic_store_explicit(&known[is_host][at % CALLERS], caller, memory_order_relaxed);
	return is_host;
}
