/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the functions of the CUDA driver, for programs that are compiled without CUDA. */
#ifndef SLUICE_BENCH_CUDA_H
#define SLUICE_BENCH_CUDA_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t device_ptr;

/* Stores the functions of these names, n pointers, at `out`. Returns: NULL, or why it cannot. */
static inline const char *cuda_load(const char *const *names, size_t n, void *out)
{
	static char why[256];
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), **functions = out;

	if (!driver) {
		snprintf(why, sizeof why, "no CUDA driver: %s", dlerror());
		return why;
	}
	for (size_t i = 0; i < n; i++) {
		functions[i] = dlsym(driver, names[i]);
		if (!functions[i]) {
			snprintf(why, sizeof why, "this CUDA driver lacks %s", names[i]);
			return why;
		}
	}
	return NULL;
}

#endif
