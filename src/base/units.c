/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsing and printing of byte counts and lists of CPUs. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/base.h"

static const char unit_letters[] = "KMGT";

/* Returns: the shift of "", "K", "KB", "KiB" (any case) ... or -1. */
static int unit_shift(const char *text)
{
	int shift = 0;

	if (*text && strchr("kmgtKMGT", *text)) {
		char upper = (char)(*text & ~0x20);
		shift = 10 * (int)(strchr(unit_letters, upper) - unit_letters + 1);
		text++;
		if (*text == 'i')
			text++;
	}
	if (*text == 'B' || *text == 'b')
		text++;
	return *text ? -1 : shift;
}

/* Computes numerator * 2^shift / denominator where the result is a whole number that fits. */
static int scale_exact(uint64_t numerator, uint64_t denominator, int shift, uint64_t *out)
{
	unsigned __int128 scaled = (unsigned __int128)numerator << shift;

	if (scaled % denominator || scaled / denominator > UINT64_MAX)
		return -EINVAL;
	*out = (uint64_t)(scaled / denominator);
	return 0;
}

int base_parse_bytes(const char *text, uint64_t *out_bytes)
{
	uint64_t numerator = 0, denominator = 1;
	bool point = false, digits = false;
	int shift;

	for (; (*text >= '0' && *text <= '9') || (*text == '.' && !point); text++) {
		if (*text == '.') {
			point = true;
			continue;
		}
		if (__builtin_mul_overflow(numerator, 10, &numerator) ||
		    __builtin_add_overflow(numerator, (uint64_t)(*text - '0'), &numerator) ||
		    __builtin_mul_overflow(denominator, point ? 10 : 1, &denominator))
			return -EINVAL;
		digits = true;
	}
	shift = unit_shift(text);
	if (!digits || shift < 0)
		return -EINVAL;
	return scale_exact(numerator, denominator, shift, out_bytes);
}

/* Tries the largest unit first and takes the first that needs at most two decimals. */
int base_format_bytes(uint64_t bytes, char *buf, size_t cap)
{
	for (int unit = 4; unit > 0; unit--) {
		uint64_t size = (uint64_t)1 << (10 * unit), hundredths;

		if (bytes < size)
			continue;
		if (scale_exact(bytes % size * 100, size, 0, &hundredths))
			continue;
		if (!hundredths)
			return snprintf(buf, cap, "%" PRIu64 "%c", bytes / size,
					unit_letters[unit - 1]);
		if (hundredths % 10)
			return snprintf(buf, cap, "%" PRIu64 ".%02" PRIu64 "%c", bytes / size,
					hundredths, unit_letters[unit - 1]);
		return snprintf(buf, cap, "%" PRIu64 ".%" PRIu64 "%c", bytes / size,
				hundredths / 10, unit_letters[unit - 1]);
	}
	return snprintf(buf, cap, "%" PRIu64, bytes);
}

/* Parses a number and moves *text past it. Returns: false for none, or above the largest CPU. */
static bool parse_cpu(const char **text, unsigned *out)
{
	const char *start = *text;
	unsigned value = 0;

	for (; **text >= '0' && **text <= '9' && value <= BASE_CPU_MAX; (*text)++)
		value = value * 10 + (unsigned)(**text - '0');
	*out = value;
	return *text != start && value <= BASE_CPU_MAX;
}

int base_parse_cpus(const char *text, uint64_t *bits, size_t words)
{
	if (words)
		memset(bits, 0, words * sizeof(*bits));
	if (!*text)
		return 0;
	for (;; text++) {
		unsigned first, last;

		if (!parse_cpu(&text, &first))
			return -EINVAL;
		last = first;
		if (*text == '-') {
			text++;
			if (!parse_cpu(&text, &last) || last < first)
				return -EINVAL;
		}
		if (words && last >= 64 * words)
			return -EINVAL;
		for (unsigned cpu = first; words && cpu <= last; cpu++)
			bits[cpu / 64] |= (uint64_t)1 << (cpu % 64);
		if (!*text)
			return 0;
		if (*text != ',')
			return -EINVAL;
	}
}
