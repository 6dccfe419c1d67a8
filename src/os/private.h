/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of os/ only. */
#ifndef SLUICE_OS_PRIVATE_H
#define SLUICE_OS_PRIVATE_H

#include "os/os.h"

/* ---- arch.c, copy_vector.c: what cpuid reports, and copy kernels ------------------------- */

/* Returns: true when the time-stamp counter runs at one rate on all CPUs, also while they sleep. */
bool os_arch_has_steady_ticks(void);

/* Return: true when the CPU runs this kernel. */
bool os_arch_has_movsb(void);
bool os_arch_has_interleaved(void);
/* Returns: true when rep movsb is this CPU's fastest copy from 256 KiB on, at any distance of the
 * cores. */
bool os_arch_prefers_movsb(void);
/* Returns: true when walking several pages at a time is this CPU's fastest copy between two L2
 * caches (Intel; on AMD Zen 4 it takes twice as long as memcpy). */
bool os_arch_prefers_interleaved(void);
/*
 * Copy `bytes` bytes of any alignment; the buffers must not overlap. Call one only where its has_
 * function returns true. The non-temporal kernel fences its stores before it returns.
 */
/*
 * Returns: true when rep movsb, and so memcpy from 2 KiB on, copies at a twentieth of the usual
 * rate where the destination lies less than a cache line behind the source, modulo the page size
 * (AMD Zen 3 and 4).
 */
bool os_arch_movsb_aliases(void);
void os_arch_copy_movsb(void *dst, const void *src, size_t bytes);
void os_arch_copy_nontemporal(void *dst, const void *src, size_t bytes);
void os_arch_copy_interleaved(void *dst, const void *src, size_t bytes);
/* Rows that are longer than a few cache lines. Fences its stores once. */
void os_arch_copy_rows_nontemporal(char *dst, int64_t dst_stride, const char *src,
				   int64_t src_stride, size_t bytes, uint64_t rows);

/* ---- vma_scan.c: /proc/self/maps as text, for kernels without the ioctl ------------------ */

/* As os_vma_query() or, with or_next, as os_vma_query_next(). Opens a descriptor while it runs. */
int os_vma_scan(uint64_t addr, bool or_next, struct os_vma *out);
/* As os_vma_each(), from addr on. */
int os_vma_scan_each(uint64_t addr, os_vma_visit *visit, void *arg);
/* Sets is_stack and is_special by the kernel's name of a mapping without an inode. */
void os_vma_classify(struct os_vma *v, const char *name);
/* Returns: a new close-on-exec descriptor (at least 3) of this process's maps or smaps, or
 * -errno. */
int os_vma_open(const char *name);

#endif
