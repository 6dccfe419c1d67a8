/* SPDX-License-Identifier: BSD-3-Clause */
/* x86-64: pause, rep movsb, non-temporal stores. */
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#include "host/arch/arch.h"
#include "host/host.h"

enum { LINE = 64, STEP = 4 * LINE };

void host_cpu_relax(void)
{
	_mm_pause();
}

/* Enhanced rep movsb; without it the instruction moves a few bytes a cycle. */
bool host_arch_has_movsb(void)
{
	unsigned a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 9));
}

bool host_arch_has_nontemporal(void)
{
	return true; /* SSE2 at least */
}

void host_arch_copy_movsb(void *dst, const void *src, size_t bytes)
{
	__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes) : : "memory");
}

/* Each body copies `steps` times STEP bytes to a line-aligned dst. */
__attribute__((target("avx512f")))
static void stream_avx512(char *dst, const char *src, size_t steps)
{
	for (; steps; steps--, dst += STEP, src += STEP) {
		__m512i a = _mm512_loadu_si512(src);
		__m512i b = _mm512_loadu_si512(src + LINE);
		__m512i c = _mm512_loadu_si512(src + 2 * LINE);
		__m512i d = _mm512_loadu_si512(src + 3 * LINE);

		_mm512_stream_si512((void *)dst, a);
		_mm512_stream_si512((void *)(dst + LINE), b);
		_mm512_stream_si512((void *)(dst + 2 * LINE), c);
		_mm512_stream_si512((void *)(dst + 3 * LINE), d);
	}
}

__attribute__((target("avx2")))
static void stream_avx2(char *dst, const char *src, size_t steps)
{
	for (; steps; steps--, dst += STEP, src += STEP) {
		__m256i v[8];

		for (int i = 0; i < 8; i++)
			v[i] = _mm256_loadu_si256((const __m256i *)(src + 32 * i));
		for (int i = 0; i < 8; i++)
			_mm256_stream_si256((__m256i *)(dst + 32 * i), v[i]);
	}
}

static void stream_sse2(char *dst, const char *src, size_t steps)
{
	for (; steps; steps--, dst += STEP, src += STEP) {
		for (int half = 0; half < STEP; half += 128) {
			__m128i v[8];

			for (int i = 0; i < 8; i++)
				v[i] = _mm_loadu_si128((const __m128i *)(src + half + 16 * i));
			for (int i = 0; i < 8; i++)
				_mm_stream_si128((__m128i *)(dst + half + 16 * i), v[i]);
		}
	}
}

void host_arch_copy_nontemporal(void *dst, const void *src, size_t bytes)
{
	size_t head = (size_t)(-(uintptr_t)dst & (LINE - 1));
	size_t steps;
	char *to = dst;
	const char *from = src;

	if (bytes < head + STEP) {
		memcpy(dst, src, bytes);
		return;
	}
	memcpy(to, from, head);
	to += head;
	from += head;
	steps = (bytes - head) / STEP;
	if (__builtin_cpu_supports("avx512f"))
		stream_avx512(to, from, steps);
	else if (__builtin_cpu_supports("avx2"))
		stream_avx2(to, from, steps);
	else
		stream_sse2(to, from, steps);
	memcpy(to + steps * STEP, from + steps * STEP, (bytes - head) % STEP);
	/* Streaming stores are ordered with no later store, not even a releasing one. */
	_mm_sfence();
}
