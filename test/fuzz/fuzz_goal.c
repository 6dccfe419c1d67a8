/* SPDX-License-Identifier: BSD-3-Clause */
/* libFuzzer: any bytes as a block; a block that goal_verify() accepts can be run. */
#include <stdint.h>
#include <stdio.h>

#include "goal_run.h"
#include "goal_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *wrong)
{
	if (!wrong)
		return;
	fprintf(stderr, "accepted: %s\n", wrong);
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t small_bytes[GOAL_RUN_MEMS] = { 1000, 5000, 300 };
	static const uint64_t large_bytes[GOAL_RUN_MEMS] = { UINT64_MAX, UINT64_MAX, 1ull << 40 };
	static const struct goal_limits small = { 4, GOAL_RUN_MEMS, small_bytes, true };
	static const struct goal_limits large = { 4, GOAL_RUN_MEMS, large_bytes, false };
	struct goal_block *b = malloc(size ? size : 1); /* exact: reading on is found */
	uint32_t *work = malloc(size / sizeof(struct goal_op) * sizeof *work + 1);
	uint64_t extents[GOAL_SPACES_MAX];

	if (!b || !work)
		abort();
	memcpy(b, data, size);
	if (!goal_verify(b, size, &large, work)) {
		check(goal_walk(b, size, &large));
		goal_extents(b, extents);
	}
	if (!goal_verify(b, size, &small, work)) {
		check(goal_walk(b, size, &small));
		check(goal_run(b, small_bytes));
	}
	free(work);
	free(b);
	return 0;
}
