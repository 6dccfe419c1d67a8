/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "base/base.h"
#include "unit.h"

static int load(const char *fault)
{
	char entry[256], problems[512];
	char *environ_block[] = { entry, NULL };

	snprintf(entry, sizeof(entry), "SLUICE_TEST=fault=%s", fault);
	return base_options_load(environ_block, problems, sizeof(problems));
}

UNIT_TEST(fault_strikes_the_nth_call_and_no_other)
{
	CHECK_EQ(load("memfd:3"), 0);
	for (int call = 1; call <= 6; call++)
		CHECK_EQ(base_fault("memfd"), call == 3);
	CHECK_EQ(load(""), 0);
}

UNIT_TEST(fault_all_strikes_every_call)
{
	CHECK_EQ(load("cma:all,memfd:1"), 0);
	CHECK(base_fault("cma"));
	CHECK(base_fault("cma"));
	CHECK(base_fault("memfd"));
	CHECK(!base_fault("memfd"));
	CHECK(!base_fault("cm"));
	CHECK(!base_fault("cma2"));
	CHECK_EQ(load(""), 0);
}

UNIT_TEST(fault_is_silent_when_unset)
{
	CHECK_EQ(load("memfd:all"), 0);
	CHECK_EQ(load(""), 0);
	CHECK(!base_fault("memfd"));
}

UNIT_TEST(fault_refuses_what_is_no_list)
{
	static const char *const wrong[] = {
		"memfd",      "memfd:",      ":1",
		"memfd:0",    "memfd:x",     "memfd:-1",
		"memfd:1:2",  "memfd:1,cma", "memfd:99999999999999999999",
		"memfd:alll",
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(wrong); i++) {
		if (load(wrong[i]) != -EINVAL)
			unit_fail(__FILE__, __LINE__, "\"%s\" was taken", wrong[i]);
		CHECK(!base_fault("memfd"));
		CHECK_STR(base_opt.fault, "");
	}
	CHECK_EQ(load(""), 0);
}
