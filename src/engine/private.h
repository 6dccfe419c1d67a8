/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the back ends. */
#ifndef SLUICE_ENGINE_PRIVATE_H
#define SLUICE_ENGINE_PRIVATE_H

#include "engine/engine.h"

extern const struct engine_ops engine_dsa, engine_kmod, engine_sw, engine_fault;

/* Creates and joins a thread. Returns: 0, or -errno with the reason. */
int engine_thread_probe(char *reason, size_t cap);

/* Returns: the number of worker threads of this process, by SLUICE_WORKERS or engine_set_cpus(). */
int engine_workers(void);
/* CPUs of the worker threads near `node` (-1: all). Returns: false when there is none. */
bool engine_worker_cpus(int node, struct os_cpumask *out);

/* engine_unused_cpus() without system calls. launcher: CPUs of the launcher; may be empty. */
int engine_unused_of(const struct os_cpumask *launcher, const struct os_cpumask *used, int ranks,
		    struct os_cpumask *out);

#endif
