/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sizes: the sizes of predefined datatypes whose handles do not carry them, as the host MPI
 * reports them once.
 *
 * Threads: any; lock-free. The table never drops an entry: of two datatypes with one place Sluice
 * asks the host MPI for the second each time.
 */
#ifndef SLUICE_MPI_SIZES_H
#define SLUICE_MPI_SIZES_H

#include <stdatomic.h>
#include <stdint.h>

enum { SIZES = 64 };

struct sizes {
	struct sizes_entry {
		_Atomic uintptr_t handle; /* 0: free; SIZES_BUSY: being written */
		uint64_t bytes;
	} entries[SIZES];
};
#define SIZES_BUSY 1

static inline uint32_t sizes_place(uintptr_t handle)
{
	return (uint32_t)((uint64_t)handle * 0x9e3779b97f4a7c15u >> 58);
}

/* Returns: the size; 0: unknown. */
static inline uint64_t sizes_find(const struct sizes *s, uintptr_t handle)
{
	const struct sizes_entry *e = &s->entries[sizes_place(handle)];

	/* partner: sizes_learn */
	return atomic_load_explicit(&e->handle, memory_order_acquire) == handle ? e->bytes : 0;
}

static inline void sizes_learn(struct sizes *s, uintptr_t handle, uint64_t bytes)
{
	struct sizes_entry *e = &s->entries[sizes_place(handle)];
	uintptr_t is_free = 0;

	if (!atomic_compare_exchange_strong_explicit(&e->handle, &is_free, SIZES_BUSY,
						     memory_order_relaxed, memory_order_relaxed))
		return;
	e->bytes = bytes;
	atomic_store_explicit(&e->handle, handle, memory_order_release); /* partner: sizes_find */
}

#endif
