/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of accelerators, and memory of this process that GPUs access.
 *
 * A program may hand its MPI an address that only a device can read. Such addresses exist only
 * where a device's runtime is loaded, and show as mappings that the CPU may not read, or as no
 * mapping.
 *
 * Memory that a program registered with CUDA looks like any other: only the CUDA driver knows it.
 * The driver is asked where the program has loaded it, and never loaded or initialised here.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "os/os.h"

static int first_counts(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1; /* the count is the same for all objects */
}

enum { HAS_CUDA = 1, HAS_AMD = 2, HAS_OTHER = 4, RUNTIME_BITS = 3 };

/* Plugins of hwloc link the loader library of Level Zero on any machine. It loads a driver where
 * there is a device. */
static int find_runtimes(struct dl_phdr_info *info, size_t size, void *arg)
{
	static const struct {
		const char *name;
		unsigned is;
	} runtimes[] = {
		{ "/libcuda.so", HAS_CUDA },
		{ "/libamdhip64.so", HAS_AMD },
		{ "/libhsa-runtime64.so", HAS_AMD },
		{ "/libze_intel_", HAS_OTHER },
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(runtimes); i++)
		if (strstr(info->dlpi_name, runtimes[i].name))
			*(unsigned *)arg |= runtimes[i].is;
	return 0;
}

/*
 * The loader's locks fail a signal handler that enters the loader again: between a lock's taking
 * and the note of its owner the thread would wait for itself. So a memory hook in a handler, which
 * may have interrupted such a call, makes none.
 */
static _Thread_local bool is_in_loader __attribute__((tls_model("initial-exec")));

static bool loader_begin(void)
{
	if (is_in_loader)
		return false;
	is_in_loader = true;
	atomic_signal_fence(memory_order_seq_cst);
	return true;
}

static void loader_end(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	is_in_loader = false;
}

int os_objects_visit(int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg)
{
	int ret;

	if (!loader_begin())
		return -EBUSY;
	ret = dl_iterate_phdr(visit, arg);
	loader_end();
	return ret;
}

/* UCX links AMD's runtime on any machine. All that it allocates needs a device of the kernel, or of
 * WSL. */
static bool has_amd_device(void)
{
	int saved = errno;
	struct stat st;
	bool has = !stat("/dev/kfd", &st) || !stat("/dev/dxg", &st);

	errno = saved;
	return has;
}

/* Runs at each large call: walks the loaded objects only after new ones were loaded. Inside a
 * handler that interrupted a call of the loader the answer is the last one. */
static unsigned device_runtimes(void)
{
	static _Atomic unsigned long long known; /* adds << RUNTIME_BITS | found */
	unsigned long long adds = 0, last = atomic_load_explicit(&known, memory_order_relaxed);
	unsigned found = 0;

	if (os_objects_visit(first_counts, &adds) < 0 || last >> RUNTIME_BITS == adds)
		return last & ((1u << RUNTIME_BITS) - 1);
	os_objects_visit(find_runtimes, &found);
	if (found & HAS_AMD && !has_amd_device())
		found &= ~HAS_AMD;
	atomic_store_explicit(&known, adds << RUNTIME_BITS | found, memory_order_relaxed);
	return found;
}

bool os_is_device_memory(const void *addr, uint64_t bytes)
{
	uintptr_t at = (uintptr_t)addr, end = at + bytes;
	struct os_vma v;

	if (base_likely(!device_runtimes()))
		return false;
	for (; at < end; at = v.end)
		if (os_vma_query((void *)at, &v) || !v.read)
			return true;
	return false;
}

/* ---- CUDA -------------------------------------------------------------------------------- */

/* Names and numbers of the CUDA driver API. */
enum {
	CUDA_OK,
	CUDA_INVALID_VALUE, /* not an address that the driver knows */
	CUDA_NOT_INITIALIZED = 3,
	CUDA_DEINITIALIZED = 4,
	ATTRIBUTE_MEMORY_TYPE = 2,            /* of an address */
	ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88, /* of a device */
	DEVICES_MAX = 64,
};

struct cuda {
	int (*pointer_attributes)(unsigned count, int *attributes, void **values, uint64_t address);
	int (*device_count)(int *out);
	int (*device_attribute)(int *out, int attribute, int device);
};

static const char *const cuda_names[] = { "cuPointerGetAttributes", "cuDeviceGetCount",
					  "cuDeviceGetAttribute" };
enum { CUDA_FUNCTIONS = BASE_ARRAY_LEN(cuda_names) };
_Static_assert(sizeof(struct cuda) == CUDA_FUNCTIONS * sizeof(void *), "in the order of the names");

bool os_gpu_find(const char *const *names, int count, void **out)
{
	bool found = true;
	void *driver;

	if (!(device_runtimes() & HAS_CUDA) || !loader_begin())
		return false;
	driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	for (int i = 0; i < count; i++) {
		out[i] = driver ? dlsym(driver, names[i]) : NULL;
		found = found && out[i];
	}
	loader_end();
	return found;
}

/* Returns: false where the program has not loaded the driver. Runs at each large call. */
static bool cuda_driver(struct cuda *out)
{
	static _Atomic(void *) known[CUDA_FUNCTIONS]; /* the last one is stored last */
	void *functions[CUDA_FUNCTIONS];
	int last = CUDA_FUNCTIONS - 1;

	functions[last] = atomic_load_explicit(&known[last], memory_order_acquire);
	for (int i = 0; i < last; i++)
		functions[i] = atomic_load_explicit(&known[i], memory_order_relaxed);
	if (base_likely(!functions[last])) {
		if (base_likely(!os_gpu_find(cuda_names, CUDA_FUNCTIONS, functions)))
			return false;
		for (int i = 0; i <= last; i++)
			atomic_store_explicit(&known[i], functions[i], memory_order_release);
	}
	memcpy(out, functions, sizeof(*out));
	return true;
}

bool os_gpu_is_loaded(void)
{
	struct cuda cuda;

	return cuda_driver(&cuda);
}

/* An answer that is not understood counts as registered. */
static bool cuda_is_registered(const struct cuda *cuda, uintptr_t at)
{
	int attribute = ATTRIBUTE_MEMORY_TYPE, type = 0, rc;
	void *value = &type;

	rc = cuda->pointer_attributes(1, &attribute, &value, at);
	if (rc == CUDA_OK)
		return type;
	return rc != CUDA_INVALID_VALUE && rc != CUDA_NOT_INITIALIZED && rc != CUDA_DEINITIALIZED;
}

bool os_gpu_is_registered(uintptr_t start, uintptr_t end)
{
	struct cuda cuda;

	if (base_likely(!cuda_driver(&cuda)))
		return false;
	for (uintptr_t at = start; at < end; at = base_round_down(at, OS_PAGE) + OS_PAGE)
		if (cuda_is_registered(&cuda, at))
			return true;
	return start < end && cuda_is_registered(&cuda, end - 1);
}

bool os_gpu_reads_pageable(void)
{
	struct cuda cuda;
	int count = 0, reads = 0;

	if (base_likely(!cuda_driver(&cuda)) || cuda.device_count(&count) != CUDA_OK)
		return false;
	for (int i = 0; i < count && i < DEVICES_MAX && !reads; i++)
		if (cuda.device_attribute(&reads, ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, i) != CUDA_OK)
			return true;
	return reads;
}
