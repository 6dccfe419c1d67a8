/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "base/base.h"
#include "unit.h"

static uint64_t parsed(const char *text)
{
	uint64_t bytes = UINT64_MAX;

	CHECK_EQ(base_parse_bytes(text, &bytes), 0);
	return bytes;
}

UNIT_TEST(bytes_take_units_of_any_spelling)
{
	CHECK_EQ(parsed("0"), 0);
	CHECK_EQ(parsed("123"), 123);
	CHECK_EQ(parsed("123B"), 123);
	CHECK_EQ(parsed("64K"), 65536);
	CHECK_EQ(parsed("64k"), 65536);
	CHECK_EQ(parsed("64KB"), 65536);
	CHECK_EQ(parsed("64KiB"), 65536);
	CHECK_EQ(parsed("64kib"), 65536);
	CHECK_EQ(parsed("3M"), 3 << 20);
	CHECK_EQ(parsed("2GiB"), (int64_t)2 << 30);
	CHECK_EQ(parsed("4T"), (int64_t)4 << 40);
}

UNIT_TEST(bytes_take_decimals_that_are_whole_bytes)
{
	CHECK_EQ(parsed("1.5M"), 3 << 19);
	CHECK_EQ(parsed("0.25K"), 256);
	CHECK_EQ(parsed(".5K"), 512);
	CHECK_EQ(parsed("2.0"), 2);
	CHECK_EQ(parsed("1.5000000K"), 1536);
}

UNIT_TEST(bytes_refuse_what_is_no_number_of_bytes)
{
	static const char *const wrong[] = {
		"", "K", ".", "-1", "+1", " 1", "1 ", "1 K", "0.3K", "1.5", "1..5K", "64Q", "64KK",
		"64iB",
		"0x10", "1e3", "64Kib/s", "99999999999999999999", "17179869184G", "16777216T",
	};
	uint64_t bytes = 77;

	for (size_t i = 0; i < BASE_ARRAY_LEN(wrong); i++) {
		if (base_parse_bytes(wrong[i], &bytes) != -EINVAL)
			unit_fail(__FILE__, __LINE__, "\"%s\" was taken", wrong[i]);
	}
	CHECK_EQ(bytes, 77); /* outputs are written on success only */
}

static void check_format(uint64_t bytes, const char *want)
{
	char text[32];

	CHECK_EQ(base_format_bytes(bytes, text, sizeof(text)), strlen(want));
	CHECK_STR(text, want);
	CHECK_EQ(parsed(text), bytes);
}

UNIT_TEST(bytes_print_in_the_shortest_exact_form)
{
	check_format(0, "0");
	check_format(100, "100");
	check_format(1023, "1023");
	check_format(1024, "1K");
	check_format(1025, "1025");
	check_format(1536, "1.5K");
	check_format(1280, "1.25K");
	check_format(65536, "64K");
	check_format(3 << 19, "1.5M");
	check_format((1 << 20) + 1024, "1025K");
	check_format((uint64_t)64 << 30, "64G");
	check_format((uint64_t)4 << 40, "4T");
	check_format(UINT64_MAX, "18446744073709551615");
}
