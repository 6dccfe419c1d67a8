/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What each processor architecture gives to host/. One folder beside this file per architecture;
 * meson takes exactly one. Private to host/.
 */
#ifndef SLUICE_HOST_ARCH_H
#define SLUICE_HOST_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A counter of time that runs alike on all CPUs, at one rate, also while they sleep; whether it
 * does. */
uint64_t os_arch_ticks(void);
bool os_arch_has_steady_ticks(void);

/* Whether the kernel exists here and this CPU runs it. */
bool os_arch_has_movsb(void);
bool os_arch_has_nontemporal(void);
bool os_arch_has_interleaved(void);
/* Whether rep movsb is the best this CPU has for copies of 256 KiB and more, at any distance. */
bool os_arch_prefers_movsb(void);
/* Copies of any alignment and size, without overlap. Only where the kernel exists. The
 * non-temporal one orders its stores before it returns. */
void os_arch_copy_movsb(void *dst, const void *src, size_t bytes);
void os_arch_copy_nontemporal(void *dst, const void *src, size_t bytes);
void os_arch_copy_interleaved(void *dst, const void *src, size_t bytes);

#endif
