/* SPDX-License-Identifier: BSD-3-Clause */
/* /proc/self/maps as text, for kernels without the ioctl. Private to os/. */
#ifndef SLUICE_HOST_VMA_SCAN_H
#define SLUICE_HOST_VMA_SCAN_H

#include "os/os.h"

/* As os_vma_query() and os_vma_query_next(). They open a descriptor while they run. */
int os_vma_scan(uint64_t addr, struct os_vma *out);
int os_vma_scan_next(uint64_t addr, struct os_vma *out);
/* As os_vma_each(). */
int os_vma_scan_each(os_vma_visit *visit, void *arg);
/* Sets is_stack and is_special by the kernel's name of a mapping without an inode. */
void os_vma_classify(struct os_vma *v, const char *name);
/* Returns: a new close-on-exec descriptor (at least 3) of this process's maps or smaps, or
 * -errno. */
int os_vma_open(const char *name);

#endif
