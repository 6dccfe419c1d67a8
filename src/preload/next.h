/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The real function behind an interposed one: the next definition in symbol order, so that the
 * hooks of other tools and other allocators keep working. Private to preload/.
 *
 * Each file declares the functions that it interposes in a struct `next`, whose members have the
 * functions' names, and calls NEXT(name)(arguments).
 */
#ifndef SLUICE_PRELOAD_NEXT_H
#define SLUICE_PRELOAD_NEXT_H

#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "base/base.h"

#define EXPORT __attribute__((visibility("default")))

#ifndef SYS_process_madvise /* Linux 5.10 */
#define SYS_process_madvise 440
#endif
ssize_t process_madvise(int process, const struct iovec *of, size_t n, int advice, unsigned flags);

/* Returns: the next definition of `name`, NULL when there is none; remembered in *slot. Threads may
 * resolve one name at the same time, to the same address. Context: the first call of a name takes
 * the loader's lock, later calls are async-signal-safe. */
static inline void *preload_next(void **slot, const char *name)
{
	void *f = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (base_unlikely(!f)) {
		f = dlsym(RTLD_NEXT, name);
		__atomic_store_n(slot, f, __ATOMIC_RELAXED);
	}
	return f;
}

#define NEXT(name) ((__typeof__(next.name))preload_next((void **)&next.name, #name))

#endif
