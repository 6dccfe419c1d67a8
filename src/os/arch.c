/* SPDX-License-Identifier: BSD-3-Clause */
/* x86-64: the time-stamp counter, rep movsb, CPU features, a system call without the C library. */
#include <cpuid.h>
#include <x86intrin.h>
#include <sys/syscall.h>

#include "os/private.h"

uint64_t os_ticks(void) { return __rdtsc(); }

bool os_arch_has_steady_ticks(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8)); /* invariant TSC */
}

void os_signal_mask(int how, const uint64_t *mask, uint64_t *old)
{
	register uint64_t bytes __asm__("r10") = sizeof *mask;
	long ret;

	/* it fails for bad addresses only */
	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(SYS_rt_sigprocmask), "D"(how), "S"(mask), "d"(old), "r"(bytes)
			 : "rcx", "r11", "memory");
}

enum { CPU_KNOWN = 1, CPU_MOVSB = 2, CPU_ZEN5 = 4, CPU_AMD = 8 };

/* Without enhanced rep movsb the instruction moves a few bytes per cycle. */
static bool cpu_has_erms(void)
{
	unsigned a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 9));
}

static bool cpu_is_amd(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx;
}

static bool cpu_is_zen5_or_later(void)
{
	unsigned a, b, c, d, family;

	if (!cpu_is_amd() || !__get_cpuid(1, &a, &b, &c, &d))
		return false;
	family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
	return family >= 0x1a;
}

/* Cached: every fragment asks, but cpuid traps in a virtual machine and takes microseconds. */
static int cpu_flags(void)
{
	static _Atomic int memo;
	int flags = atomic_load_explicit(&memo, memory_order_relaxed);

	if (flags)
		return flags;
	flags = CPU_KNOWN | (cpu_has_erms() ? CPU_MOVSB : 0) |
		(cpu_is_zen5_or_later() ? CPU_ZEN5 : 0) | (cpu_is_amd() ? CPU_AMD : 0);
	atomic_store_explicit(&memo, flags, memory_order_relaxed);
	return flags;
}

bool os_arch_has_movsb(void) { return cpu_flags() & CPU_MOVSB; }

bool os_arch_prefers_movsb(void) { return cpu_flags() & CPU_MOVSB && cpu_flags() & CPU_ZEN5; }

bool os_arch_prefers_interleaved(void)
{
	return os_arch_has_interleaved() && !(cpu_flags() & CPU_AMD);
}

bool os_arch_movsb_aliases(void)
{
	return (cpu_flags() & (CPU_MOVSB | CPU_AMD | CPU_ZEN5)) == (CPU_MOVSB | CPU_AMD);
}

void os_arch_copy_movsb(void *dst, const void *src, size_t bytes)
{
	__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes) : : "memory");
}

/* Bits of MXCSR: rounding, flush to zero, subnormal operands are zero. */
#define FLOAT_MODES 0xe040u

uint32_t os_float_modes(void) { return _mm_getcsr() & FLOAT_MODES; }

uint32_t os_float_modes_set(uint32_t modes)
{
	uint32_t now = _mm_getcsr(), next = (now & ~FLOAT_MODES) | (modes & FLOAT_MODES);

	if (next != now)
		_mm_setcsr(next);
	return now & FLOAT_MODES;
}

/* 64-byte vectors only on CPUs that keep their clock rate with them (Ice Lake, Zen 4 and later). */
enum os_simd os_simd(void)
{
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512vbmi2"))
		return OS_SIMD_AVX512;
	return __builtin_cpu_supports("avx2") ? OS_SIMD_AVX2 : OS_SIMD_BASE;
}
