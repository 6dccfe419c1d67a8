/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of accelerators. A program may hand its MPI an address that only a device can read. Such
 * addresses exist only where a device's runtime is loaded, and show as mappings that the CPU may
 * not read, or as no mapping.
 */
#include <link.h>
#include <stdatomic.h>
#include <string.h>

#include "os/os.h"

static int first_counts(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1; /* the count is the same for all objects */
}

static int find_runtime(struct dl_phdr_info *info, size_t size, void *arg)
{
	static const char *const names[] = { "/libcuda.so", "/libamdhip64.so",
					     "/libhsa-runtime64.so", "/libze_loader.so" };

	for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
		if (strstr(info->dlpi_name, names[i]))
			return 1;
	return 0;
}

/* Runs at each large call: walks the loaded objects only after new ones were loaded. */
static bool has_device_runtime(void)
{
	static _Atomic unsigned long long known; /* adds << 1 | found */
	unsigned long long adds = 0, last = atomic_load_explicit(&known, memory_order_relaxed);
	bool found;

	dl_iterate_phdr(first_counts, &adds);
	if (last >> 1 == adds)
		return last & 1;
	found = dl_iterate_phdr(find_runtime, NULL);
	atomic_store_explicit(&known, adds << 1 | found, memory_order_relaxed);
	return found;
}

bool os_is_device_memory(const void *addr, uint64_t bytes)
{
	uintptr_t at = (uintptr_t)addr, end = at + bytes;
	struct os_vma v;

	if (base_likely(!has_device_runtime()))
		return false;
	for (; at < end; at = v.end)
		if (os_vma_query((void *)at, &v) || !v.read)
			return true;
	return false;
}
