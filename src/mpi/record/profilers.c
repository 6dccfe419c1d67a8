/* SPDX-License-Identifier: BSD-3-Clause */
/* The exported functions of libsluice-profile.so, made from functions.table. */
#include <dlfcn.h>

#include "mpi/front/front.h"
#include "mpi/record/profile.h"

/* libsluice.so has all of them. */
static void *record_next(_Atomic(void *) *known, const char *name)
{
	void *next = atomic_load_explicit(known, memory_order_acquire);

	if (next)
		return next;
	next = dlsym(RTLD_NEXT, name);
	atomic_store_explicit(known, next, memory_order_release);
	return next;
}

#include "profilers.h"
