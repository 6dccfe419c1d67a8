/* SPDX-License-Identifier: BSD-3-Clause */
/* x86-64 instructions behind os/: what cpuid reports, and copy kernels. Private to os/. */
#ifndef SLUICE_OS_ARCH_H
#define SLUICE_OS_ARCH_H

#include <stdbool.h>
#include <stddef.h>

/* Returns: true when the time-stamp counter runs at one rate on all CPUs, also while they sleep. */
bool os_arch_has_steady_ticks(void);

/* Return: true when the CPU runs this kernel. */
bool os_arch_has_movsb(void);
bool os_arch_has_interleaved(void);
/* Returns: true when rep movsb is this CPU's fastest copy from 256 KiB on, at any distance of the
 * cores. */
bool os_arch_prefers_movsb(void);
/*
 * Copy `bytes` bytes of any alignment; the buffers must not overlap. Call one only where its has_
 * function returns true. The non-temporal kernel fences its stores before it returns.
 */
void os_arch_copy_movsb(void *dst, const void *src, size_t bytes);
void os_arch_copy_nontemporal(void *dst, const void *src, size_t bytes);
void os_arch_copy_interleaved(void *dst, const void *src, size_t bytes);

#endif
