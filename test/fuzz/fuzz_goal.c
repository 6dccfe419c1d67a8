/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a block: what goal_verify() accepts can be printed and run. For libFuzzer. */
#include <stdint.h>
#include <stdio.h>

#include "goal_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t mem_bytes[GOAL_MEMS] = { 1000, 5000, 1ull << 40 };
	struct goal_block *b = malloc(size ? size : 1); /* exact: reading on is found */
	const char *wrong;
	char text[300];

	if (!b)
		return 0;
	memcpy(b, data, size);
	if (!goal_verify(b, size, 4, mem_bytes)) {
		wrong = goal_walk(b, size, 4, mem_bytes);
		if (wrong) {
			fprintf(stderr, "accepted: %s\n", wrong);
			abort();
		}
		goal_print(b, text, sizeof text);
	}
	free(b);
	return 0;
}
