/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <stddef.h>

#include "mpi/record/profile.h"

static struct {
	_Atomic(__typeof__(&sluice_profile_begin)) begin;
	_Atomic(__typeof__(&sluice_profile_end)) end;
} next;

__attribute__((constructor)) static void resolve(void)
{
	__typeof__(&sluice_profile_begin) begin =
		(__typeof__(begin))dlsym(RTLD_NEXT, "sluice_profile_begin");
	__typeof__(&sluice_profile_end) end =
		(__typeof__(end))dlsym(RTLD_NEXT, "sluice_profile_end");

	atomic_store_explicit(&next.end, end, memory_order_relaxed);
	/* release: the end; partner: profile_begin */
	atomic_store_explicit(&next.begin, end ? begin : NULL, memory_order_release);
}

uint64_t profile_begin(const char *name, const void *site, const void *frame, MPI_Count count,
		       MPI_Datatype type)
{
	__typeof__(&sluice_profile_begin) begin =
		atomic_load_explicit(&next.begin, memory_order_acquire);

	return begin ? begin(name, site, frame, count, type) : 0;
}

void profile_end(uint64_t since)
{
	atomic_load_explicit(&next.end, memory_order_relaxed)(since);
}
