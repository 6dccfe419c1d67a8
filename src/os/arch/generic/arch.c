/* SPDX-License-Identifier: BSD-3-Clause */
/* Processors without kernels of their own: memcpy, and the compiler's idea of a pause. */
#include <string.h>

#include "os/arch/arch.h"
#include "os/os.h"

void os_cpu_relax(void)
{
#if defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#else
	atomic_signal_fence(memory_order_seq_cst);
#endif
}

uint64_t os_arch_ticks(void)
{
#if defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return os_now_ns();
#endif
}

bool os_arch_has_steady_ticks(void)
{
	return true;
}

bool os_arch_has_movsb(void)
{
	return false;
}

bool os_arch_has_nontemporal(void)
{
	return false;
}

bool os_arch_has_interleaved(void)
{
	return false;
}

bool os_arch_prefers_movsb(void)
{
	return false;
}

void os_arch_copy_movsb(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}

void os_arch_copy_nontemporal(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}

void os_arch_copy_interleaved(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}

enum os_simd os_simd(void)
{
	return OS_SIMD_BASE;
}
