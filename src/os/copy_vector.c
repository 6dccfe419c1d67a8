/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Vector copies that walk several pages at a time. A core prefetches one stream of loads per page,
 * a limited distance ahead; when it reads another core's cache or memory, more streams keep more
 * cache lines in flight. Measured in doc/adr/0005-copy-kernels.md.
 */
#include <immintrin.h>
#include <string.h>

#include "os/private.h"

enum {
	LINE = 64,
	PAGE = 4096,
	NT_PAGES = 4, /* at a time; more do not help, as write-combining buffers are few */
	CACHED_PAGES = 8,
};

/* 64-byte vectors, on CPUs that keep their clock rate with them (Ice Lake, Zen 4 and later). */
bool os_arch_has_interleaved(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vbmi2");
}

/* ---- one block: `pages` pages from src to dst, two lines of each in turn ---- */

__attribute__((target("avx512f")))
static void block_cached_avx512(char *dst, const char *src)
{
	for (size_t at = 0; at < PAGE; at += 2 * LINE) {
		__m512i v[CACHED_PAGES][2];

		for (int p = 0; p < CACHED_PAGES; p++) {
			v[p][0] = _mm512_loadu_si512(src + p * PAGE + at);
			v[p][1] = _mm512_loadu_si512(src + p * PAGE + at + LINE);
		}
		for (int p = 0; p < CACHED_PAGES; p++) {
			_mm512_storeu_si512(dst + p * PAGE + at, v[p][0]);
			_mm512_storeu_si512(dst + p * PAGE + at + LINE, v[p][1]);
		}
	}
}

__attribute__((target("avx512f")))
static void block_stream_avx512(char *dst, const char *src, size_t pages, size_t page_bytes)
{
	for (size_t at = 0; at < page_bytes; at += 2 * LINE) {
		for (size_t p = 0; p < pages; p++) {
			const char *from = src + p * page_bytes + at;
			char *to = dst + p * page_bytes + at;
			__m512i a = _mm512_loadu_si512(from);
			__m512i b = _mm512_loadu_si512(from + LINE);

			_mm512_stream_si512((void *)to, a);
			_mm512_stream_si512((void *)(to + LINE), b);
		}
	}
}

__attribute__((target("avx2")))
static void block_stream_avx2(char *dst, const char *src, size_t pages, size_t page_bytes)
{
	for (size_t at = 0; at < page_bytes; at += 2 * LINE) {
		for (size_t p = 0; p < pages; p++) {
			const char *from = src + p * page_bytes + at;
			char *to = dst + p * page_bytes + at;
			__m256i v[4];

			for (int i = 0; i < 4; i++)
				v[i] = _mm256_loadu_si256((const __m256i *)(from + 32 * i));
			for (int i = 0; i < 4; i++)
				_mm256_stream_si256((__m256i *)(to + 32 * i), v[i]);
		}
	}
}

static void block_stream_sse2(char *dst, const char *src, size_t pages, size_t page_bytes)
{
	for (size_t at = 0; at < page_bytes; at += 2 * LINE) {
		for (size_t p = 0; p < pages; p++) {
			const char *from = src + p * page_bytes + at;
			char *to = dst + p * page_bytes + at;
			__m128i v[8];

			for (int i = 0; i < 8; i++)
				v[i] = _mm_loadu_si128((const __m128i *)(from + 16 * i));
			for (int i = 0; i < 8; i++)
				_mm_stream_si128((__m128i *)(to + 16 * i), v[i]);
		}
	}
}

typedef void stream_block(char *dst, const char *src, size_t pages, size_t page_bytes);

static stream_block *stream_pick(void)
{
	if (__builtin_cpu_supports("avx512f"))
		return block_stream_avx512;
	return __builtin_cpu_supports("avx2") ? block_stream_avx2 : block_stream_sse2;
}

/* ---- whole copies ---- */

/* Returns: bytes until dst is aligned to a cache line, at most `bytes`. */
static size_t head_bytes(const void *dst, size_t bytes)
{
	return base_min_u64(-(uintptr_t)dst & (LINE - 1), bytes);
}

__attribute__((target("avx2")))
static void copy_cached_avx2(char *to, const char *from, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += 2 * LINE) {
		__m256i v[4];

		for (int i = 0; i < 4; i++)
			v[i] = _mm256_loadu_si256((const __m256i *)(from + at + 32 * i));
		for (int i = 0; i < 4; i++)
			_mm256_storeu_si256((__m256i *)(to + at + 32 * i), v[i]);
	}
}

void os_copy_vector(void *dst, const void *src, size_t bytes)
{
	size_t head = head_bytes(dst, bytes), whole = base_round_down(bytes - head, 2 * LINE);
	char *to = (char *)dst + head;
	const char *from = (const char *)src + head;

	if (!__builtin_cpu_supports("avx2")) {
		memcpy(dst, src, bytes);
		return;
	}
	memcpy(dst, src, head);
	copy_cached_avx2(to, from, whole);
	memcpy(to + whole, from + whole, bytes - head - whole);
}

void os_arch_copy_interleaved(void *dst, const void *src, size_t bytes)
{
	size_t head = head_bytes(dst, bytes);
	char *to = dst;
	const char *from = src;

	memcpy(to, from, head);
	for (to += head, from += head, bytes -= head; bytes >= CACHED_PAGES * PAGE;
	     to += CACHED_PAGES * PAGE, from += CACHED_PAGES * PAGE, bytes -= CACHED_PAGES * PAGE)
		block_cached_avx512(to, from);
	memcpy(to, from, bytes);
}

static void copy_stream(stream_block *stream, char *to, const char *from, size_t bytes)
{
	size_t head = head_bytes(to, bytes), rest;

	memcpy(to, from, head);
	for (to += head, from += head, bytes -= head; bytes >= NT_PAGES * PAGE;
	     to += NT_PAGES * PAGE, from += NT_PAGES * PAGE, bytes -= NT_PAGES * PAGE)
		stream(to, from, NT_PAGES, PAGE);
	rest = base_round_down(bytes, 2 * LINE);
	stream(to, from, 1, rest);
	memcpy(to + rest, from + rest, bytes - rest);
}

/* Streaming stores are not ordered with later stores, not even with a releasing one. */
void os_arch_copy_nontemporal(void *dst, const void *src, size_t bytes)
{
	copy_stream(stream_pick(), dst, src, bytes);
	_mm_sfence();
}

void os_arch_copy_rows_nontemporal(char *dst, int64_t dst_stride, const char *src,
				   int64_t src_stride, size_t bytes, uint64_t rows)
{
	stream_block *stream = stream_pick();

	for (; rows; rows--, dst += dst_stride, src += src_stride)
		copy_stream(stream, dst, src, bytes);
	_mm_sfence();
}
