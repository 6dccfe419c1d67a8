/* SPDX-License-Identifier: BSD-3-Clause */
/* Tells calls by a library of an MPI from others. */
#include <errno.h>
#include <link.h>
#include <string.h>

#include "base/base.h"
#include "os/os.h"

enum { CALLERS = 16 }; /* call sites known; an MPI has two or three */

/* Addresses, with a bit above the address space for those of a host MPI. */
#define OF_HOST ((uintptr_t)1 << 63)
static _Atomic uintptr_t callers[CALLERS];
static _Atomic uint32_t next_place;

/* MPICH, Intel MPI, Open MPI, UCX, libfabric, PSM. */
static const char *const host_libraries[] = { "libmpi",    "libpmpi", "libopen-",
					      "mca_",	   "libuc",   "libfabric",
					      "libshm-fi", "libpsm",  "libfastsockets",
					      NULL };

struct named_query { uintptr_t addr; const char *const *names; };

static bool is_named(const char *path, const char *const *names)
{
	const char *file = base_file_name(path);

	for (; *names; names++)
		if (!strncmp(file, *names, strlen(*names)))
			return true;
	return false;
}

static int find_named(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct named_query *q = arg;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && q->addr - (info->dlpi_addr + p->p_vaddr) < p->p_memsz)
			return is_named(info->dlpi_name, q->names);
	}
	return 0;
}

int os_object_is_named(const void *addr, const char *const *names)
{
	struct named_query q = { (uintptr_t)addr, names };

	return os_objects_visit(find_named, &q);
}

int os_is_host_mpi(const void *caller, bool may_search)
{
	uintptr_t at = (uintptr_t)caller;
	uint32_t place;
	int is_host;

	for (int i = 0; i < CALLERS; i++) {
		uintptr_t known = atomic_load_explicit(&callers[i], memory_order_relaxed);

		if ((known & ~OF_HOST) == at)
			return (int)(known >> 63);
		if (!known)
			break;
	}
	if (!may_search)
		return -ENOENT;
	is_host = os_object_is_named(caller, host_libraries);
	if (is_host < 0)
		return is_host;
	/* threads may look one call site up at the same time, with the same result */
	place = atomic_fetch_add_explicit(&next_place, 1, memory_order_relaxed) % CALLERS;
	atomic_store_explicit(&callers[place], at | (is_host ? OF_HOST : 0), memory_order_relaxed);
	return is_host;
}
