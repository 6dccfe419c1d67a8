/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a binary file of LogGOPSim: each rank that is read is a block that verifies. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "goal/file/goalfile.h"

enum { RANKS_MOST = 100 };

static int begin(void *ctx, uint32_t ranks)
{
	*(uint32_t *)ctx = ranks;
	return ranks > RANKS_MOST ? -E2BIG : 0;
}

static int add(void *ctx, uint32_t rank, const struct goal_block *block)
{
	static uint64_t anything[GOAL_SPACES_MAX];
	const struct goal_limits limits = { *(uint32_t *)ctx, GOAL_SPACES_MAX, anything, true };
	uint32_t *work = malloc(block->bytes / sizeof(struct goal_op) * sizeof *work + 1);

	memset(anything, 0xff, sizeof anything);
	if (!work || rank >= limits.ranks || goal_verify(block, block->bytes, &limits, work))
		abort();
	free(work);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const struct goalfile_calls calls = { begin, add };
	const uint64_t cookie = GOALFILE_LOGGOPSIM;
	/* of its length: ASan sees what is read beyond */
	char *file = malloc(sizeof cookie + bytes);
	uint32_t ranks, rank;
	int ret;

	memcpy(file, &cookie, sizeof cookie);
	if (bytes)
		memcpy(file + sizeof cookie, data, bytes);
	ret = goalfile_loggopsim_read(file, sizeof cookie + bytes, &calls, &ranks, &rank);
	if (ret && ret != -EINVAL && ret != -ELOOP && ret != -E2BIG)
		abort();
	free(file);
	return 0;
}
