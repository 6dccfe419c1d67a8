/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "goal/file/pack.h"

enum { WORDS = PACK_LINE / sizeof(uint32_t) };

size_t pack_line(const void *line, void *out)
{
	const unsigned char *from = line;
	unsigned char *to = (unsigned char *)out + sizeof(uint16_t);
	uint32_t mask = 0, word;

	for (int i = 0; i < WORDS; i++, from += sizeof word) {
		memcpy(&word, from, sizeof word);
		if (!word)
			continue;
		mask |= 1u << i;
		memcpy(to, &word, sizeof word);
		to += sizeof word;
	}
	((unsigned char *)out)[0] = (unsigned char)mask;
	((unsigned char *)out)[1] = (unsigned char)(mask >> 8);
	return (size_t)(to - (unsigned char *)out);
}

int pack_open(const void *packed, uint64_t bytes, void *out, uint64_t out_bytes)
{
	const unsigned char *from = packed, *end = from + bytes;
	unsigned char line[PACK_LINE], *to = out;

	while (out_bytes) {
		uint64_t n = out_bytes < sizeof line ? out_bytes : sizeof line;
		uint32_t mask;

		if (end - from < 2)
			return -EINVAL;
		mask = from[0] | (uint32_t)from[1] << 8;
		from += 2;
		if (end - from < 4 * __builtin_popcount(mask))
			return -EINVAL;
		memset(line, 0, sizeof line);
		for (; mask; mask &= mask - 1, from += 4)
			memcpy(line + 4 * __builtin_ctz(mask), from, 4);
		memcpy(to, line, n);
		to += n;
		out_bytes -= n;
	}
	return from == end ? 0 : -EINVAL;
}
