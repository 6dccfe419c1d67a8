/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a block: what goal_verify() accepts can be run. For libFuzzer. */
#include <stdint.h>
#include <stdio.h>

#include "goal_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t mem_bytes[] = { 1000, 5000, 1ull << 40 };
	static const struct goal_limits limits = { 4, 3, mem_bytes, true };
	struct goal_block *b = malloc(size ? size : 1); /* exact: reading on is found */
	uint32_t *work = malloc(size / sizeof(struct goal_op) * sizeof *work + 1);
	const char *wrong;

	if (!b || !work)
		abort();
	memcpy(b, data, size);
	if (!goal_verify(b, size, &limits, work)) {
		wrong = goal_walk(b, size, &limits);
		if (wrong) {
			fprintf(stderr, "accepted: %s\n", wrong);
			abort();
		}
	}
	free(work);
	free(b);
	return 0;
}
