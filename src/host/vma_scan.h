/* SPDX-License-Identifier: BSD-3-Clause */
/* The text form of /proc/self/maps, for kernels that cannot be asked. Private to host/. */
#ifndef SLUICE_HOST_VMA_SCAN_H
#define SLUICE_HOST_VMA_SCAN_H

#include "host/host.h"

/* As host_vma_query and host_vma_query_next. They open a descriptor while they run. */
int host_vma_scan(uint64_t addr, struct host_vma *out);
int host_vma_scan_next(uint64_t addr, struct host_vma *out);
/* As host_vma_each. */
int host_vma_scan_each(host_vma_visit *visit, void *arg);
/* Sets is_stack and is_special by the kernel's name of a mapping without inode. */
void host_vma_classify(struct host_vma *v, const char *name);
/* A new close-on-exec descriptor (at least 3) of this process's maps or smaps, or -errno. */
int host_vma_open(const char *name);

#endif
