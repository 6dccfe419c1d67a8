/* SPDX-License-Identifier: BSD-3-Clause */
/* What back ends share. */
#ifndef SLUICE_ENGINE_PRIVATE_H
#define SLUICE_ENGINE_PRIVATE_H

#include "engine/engine.h"

extern const struct engine_ops engine_sw, engine_fault;

/* Tries one. 0, or -errno with the reason. */
int engine_thread_probe(char *reason, size_t cap);

/* How many workers this process may have: SLUICE_WORKERS, else by engine_set_cpus. */
int engine_workers(void);
/* Their CPUs near `node` (-1: all). False when there is none. */
bool engine_worker_cpus(int node, struct os_cpumask *out);

/* The pure part of engine_spare_cpus. launcher: what the job might have used; may be empty. */
int engine_spare_of(const struct os_cpumask *launcher, const struct os_cpumask *used, int ranks,
		    struct os_cpumask *out);

#endif
