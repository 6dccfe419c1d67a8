/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Idle rounds of the host MPI's blocking calls.
 *
 *   calls sched_yield() in each: MPICH 5, Intel MPI; preload/yield.c
 *   does so if asked: Open MPI, by a variable of the environment
 *   never: MPICH 4.0 built for one lock. Its device UCX is polled in each round by a function of
 *   another library, whose entry in the host MPI's procedure linkage table idle.c replaces
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

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
static progress_function *next_progress;

/* A round that has found something is no idle round, and the next one is a long time later. */
static unsigned poll_device(void *worker)
{
	unsigned events = next_progress(worker);

	if (!events)
		wait_round();
	return events;
}

static uintptr_t dynamic_value(const ElfW(Dyn) *d, ElfW(Sxword) tag)
{
	for (; d->d_tag != DT_NULL; d++)
		if (d->d_tag == tag)
			return d->d_un.d_ptr;
	return 0;
}

/* Writes one entry of a table that the loader may have made read-only. */
static void write_entry(void **entry, void *value, bool is_read_only)
{
	uintptr_t page = (uintptr_t)entry & ~(OS_PAGE - 1);

	if (is_read_only && front_protect((void *)page, OS_PAGE, PROT_READ | PROT_WRITE))
		return;
	__atomic_store_n(entry, value, __ATOMIC_RELEASE);
	if (is_read_only)
		front_protect((void *)page, OS_PAGE, PROT_READ);
}

void *idle_replace_import(void *handle, const char *name, void *by)
{
	struct link_map *map;
	const ElfW(Rela) *rela, *end;
	const ElfW(Sym) *symbols;
	const char *names;
	bool is_bound;

	if (dlinfo(handle, RTLD_DI_LINKMAP, &map) || !map->l_ld)
		return NULL;
	rela = (const void *)dynamic_value(map->l_ld, DT_JMPREL);
	end = (const void *)((const char *)rela + dynamic_value(map->l_ld, DT_PLTRELSZ));
	symbols = (const void *)dynamic_value(map->l_ld, DT_SYMTAB);
	names = (const char *)dynamic_value(map->l_ld, DT_STRTAB);
	is_bound = dynamic_value(map->l_ld, DT_BIND_NOW) ||
		   dynamic_value(map->l_ld, DT_FLAGS) & DF_BIND_NOW ||
		   dynamic_value(map->l_ld, DT_FLAGS_1) & DF_1_NOW;
	for (; rela && rela < end; rela++) {
		const char *symbol = names + symbols[ELF64_R_SYM(rela->r_info)].st_name;
		void *before = strcmp(symbol, name) ? NULL : dlsym(handle, name);

		if (!before)
			continue;
		write_entry((void **)(map->l_addr + rela->r_offset), by, is_bound);
		return before;
	}
	return NULL;
}

static void replace_progress(void)
{
	void *handle = front_library_handle();

	if (!handle || next_progress)
		return;
	next_progress = (progress_function *)dlsym(handle, "ucp_worker_progress");
	if (next_progress && !idle_replace_import(handle, "ucp_worker_progress",
						  (void *)poll_device))
		next_progress = NULL;
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
