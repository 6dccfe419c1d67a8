/* SPDX-License-Identifier: BSD-3-Clause */
/* Choosing and running a copy kernel. doc/adr/0005-copy-kernels.md has the measurements. */
#include <string.h>

#include "os/private.h"

#if defined(__SANITIZE_THREAD__)
_Atomic uint32_t os_peer_memory_order;
#endif

enum {
	MOVSB_FROM = 256 << 10,         /* total bytes; below, it is no faster than memcpy */
	INTERLEAVE_FROM = 512 << 10,    /* total bytes */
	INTERLEAVE_FRAGMENT = 32 << 10, /* one block of pages */
	LLC_UNKNOWN = 32 << 20,
	STRING_FROM = 2 << 10,          /* bytes; libc's memcpy uses string instructions then */
	ALIAS_BYTES = 64,
	/* bytes of a row */
	ROW_NONTEMPORAL_FROM = 512,     /* shorter rows have too many half cache lines */
	ROW_MOVSB_FROM = 4 << 10,       /* the start of a string instruction costs 30 cycles */
};

bool os_copy_has(enum base_copy_kernel kernel)
{
	switch (kernel) {
	case BASE_COPY_MOVSB:
		return os_arch_has_movsb();
	case BASE_COPY_INTERLEAVED:
		return os_arch_has_interleaved();
	case BASE_COPY_AUTO:
	case BASE_COPY_PLAIN:
	case BASE_COPY_NONTEMPORAL: /* SSE2 at least */
		return true;
	case BASE_COPY_KERNELS:
		break;
	}
	return false;
}

/* Total bytes from which copies bypass the caches: sources and destinations would fill so much of
 * the last-level cache that the reader misses anyway. */
static uint64_t nontemporal_from(void)
{
	uint64_t llc = os_llc_bytes();

	return (llc ? llc : LLC_UNKNOWN) / 16 * 3;
}

bool os_copy_is_past_cache(uint64_t total_bytes)
{
	uint64_t given = base_opt.xfer_past_cache_bytes;

	return total_bytes >= (given ? given : nontemporal_from());
}

static enum base_copy_kernel pick_auto(uint64_t fragment_bytes, uint64_t total_bytes)
{
	uint64_t from_option = base_opt.xfer_past_cache_bytes;

	if (from_option && total_bytes >= from_option)
		return BASE_COPY_NONTEMPORAL;
	if (os_arch_prefers_movsb())
		return total_bytes >= MOVSB_FROM ? BASE_COPY_MOVSB : BASE_COPY_PLAIN;
	if (!from_option && total_bytes >= nontemporal_from())
		return BASE_COPY_NONTEMPORAL;
	/* Interleaving pays between the second-level caches of two cores, hence while the data fits
	 * there. A copy in one fragment is a process's own, inside the cache of one core. */
	if (total_bytes >= INTERLEAVE_FROM && total_bytes < os_l2_bytes() &&
	    fragment_bytes >= INTERLEAVE_FRAGMENT && fragment_bytes < total_bytes &&
	    os_arch_prefers_interleaved())
		return BASE_COPY_INTERLEAVED;
	return BASE_COPY_PLAIN;
}

enum base_copy_kernel os_copy_pick(uint64_t fragment_bytes, uint64_t total_bytes)
{
	enum base_copy_kernel wanted = (enum base_copy_kernel)base_opt.xfer_copy;

	if (wanted == BASE_COPY_AUTO)
		return pick_auto(fragment_bytes, total_bytes);
	return os_copy_has(wanted) ? wanted : BASE_COPY_PLAIN;
}

/* Are string instructions slow at this distance of the addresses? */
static bool is_aliased(const void *dst, const void *src, size_t bytes)
{
	uintptr_t behind = ((uintptr_t)dst - (uintptr_t)src) % OS_PAGE;

	return bytes >= STRING_FROM && behind && behind < ALIAS_BYTES && os_arch_movsb_aliases();
}

void os_copy(void *dst, const void *src, size_t bytes, enum base_copy_kernel kernel)
{
	if (kernel == BASE_COPY_AUTO)
		kernel = os_copy_pick(bytes, bytes);
	switch (kernel) {
	case BASE_COPY_MOVSB:
		if (is_aliased(dst, src, bytes))
			os_copy_vector(dst, src, bytes);
		else
			os_arch_copy_movsb(dst, src, bytes);
		return;
	case BASE_COPY_NONTEMPORAL:
		os_arch_copy_nontemporal(dst, src, bytes);
		return;
	case BASE_COPY_INTERLEAVED:
		os_arch_copy_interleaved(dst, src, bytes);
		return;
	case BASE_COPY_AUTO:
	case BASE_COPY_PLAIN:
	case BASE_COPY_KERNELS:
		if (is_aliased(dst, src, bytes))
			os_copy_vector(dst, src, bytes);
		else
			memcpy(dst, src, bytes);
		return;
	}
}

/* ---- rows -------------------------------------------------------------------------------- */

/* The compiler makes moves of registers out of a copy of constant length. */
#define COPY_ROWS_OF(length)                                                                       \
	for (; rows; rows--, dst += dst_stride, src += src_stride)                                 \
		__builtin_memcpy(dst, src, length)

static void copy_short_rows(char *dst, int64_t dst_stride, const char *src, int64_t src_stride,
			    size_t bytes, uint64_t rows)
{
	switch (bytes) {
	case 1: COPY_ROWS_OF(1); break;
	case 2: COPY_ROWS_OF(2); break;
	case 4: COPY_ROWS_OF(4); break;
	case 8: COPY_ROWS_OF(8); break;
	case 16: COPY_ROWS_OF(16); break;
	case 24: COPY_ROWS_OF(24); break;
	case 32: COPY_ROWS_OF(32); break;
	case 64: COPY_ROWS_OF(64); break;
	default: COPY_ROWS_OF(bytes);
	}
}

void os_copy_rows(void *dst, int64_t dst_stride, const void *src, int64_t src_stride, size_t bytes,
		  uint64_t rows, enum base_copy_kernel kernel)
{
	char *to = dst;
	const char *from = src;

	if (rows == 1 && bytes >= ROW_MOVSB_FROM) {
		os_copy(to, from, bytes, kernel);
	} else if (kernel == BASE_COPY_NONTEMPORAL && bytes >= ROW_NONTEMPORAL_FROM) {
		os_arch_copy_rows_nontemporal(to, dst_stride, from, src_stride, bytes, rows);
	} else if (kernel == BASE_COPY_MOVSB && bytes >= ROW_MOVSB_FROM) {
		for (; rows; rows--, to += dst_stride, from += src_stride)
			os_arch_copy_movsb(to, from, bytes);
	} else {
		copy_short_rows(to, dst_stride, from, src_stride, bytes, rows);
	}
}

/* ---- transposition ----------------------------------------------------------------------- */

enum { TILE_BYTES = 64, TILE_SIDE_MAX = 16 }; /* a cache line of each row and of each column */

/* Inlined with a constant `bytes`, so that a copy of an element is a move. */
#define WITH_CONSTANT_BYTES static inline __attribute__((always_inline))

WITH_CONSTANT_BYTES
void copy_elements(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, size_t bytes,
		   int64_t rows, int64_t columns)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < columns; c++)
			__builtin_memcpy(dst + c * dst_stride + r * (int64_t)bytes,
					 src + r * src_stride + c * (int64_t)bytes, bytes);
}

/* Reads and writes each cache line once. */
WITH_CONSTANT_BYTES
void copy_tile(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, size_t bytes)
{
	char tile[TILE_SIDE_MAX][TILE_BYTES];
	int64_t side = TILE_BYTES / (int64_t)bytes;

	copy_elements(tile[0], TILE_BYTES, src, src_stride, bytes, side, side);
	for (int64_t c = 0; c < side; c++)
		__builtin_memcpy(dst + c * dst_stride, tile[c], TILE_BYTES);
}

WITH_CONSTANT_BYTES
void transpose(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, size_t bytes,
	       int64_t rows, int64_t columns)
{
	int64_t side = TILE_BYTES / (int64_t)bytes, n = (int64_t)bytes;
	int64_t tall = rows / side * side, wide = columns / side * side;

	for (int64_t c = 0; c < wide; c += side)
		for (int64_t r = 0; r < tall; r += side)
			copy_tile(dst + c * dst_stride + r * n, dst_stride,
				  src + r * src_stride + c * n, src_stride, bytes);
	copy_elements(dst + wide * dst_stride, dst_stride, src + wide * n, src_stride, bytes, tall,
		      columns - wide);
	copy_elements(dst + tall * n, dst_stride, src + tall * src_stride, src_stride, bytes,
		      rows - tall, columns);
}

void os_copy_transposed(void *dst, int64_t dst_stride, const void *src, int64_t src_stride,
			size_t bytes, uint64_t rows, uint64_t columns)
{
	int64_t tall = (int64_t)rows, wide = (int64_t)columns;

	if (bytes == 4)
		transpose(dst, dst_stride, src, src_stride, 4, tall, wide);
	else if (bytes == 8)
		transpose(dst, dst_stride, src, src_stride, 8, tall, wide);
	else
		transpose(dst, dst_stride, src, src_stride, 16, tall, wide);
}

void os_copy_prepare(void)
{
	os_llc_bytes();
	os_l2_bytes();
	os_arch_prefers_movsb();
}
