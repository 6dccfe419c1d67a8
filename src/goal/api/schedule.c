/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled schedules: verified when they are made, and constant. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "goal/api/api.h"

static int verify(const struct goal_block *block, uint64_t bytes, uint32_t ranks)
{
	uint32_t *work = malloc(bytes / sizeof(struct goal_op) * sizeof *work + 1);
	uint64_t mem_bytes[GOAL_SPACES_MAX];
	const struct goal_limits limits = { ranks, GOAL_SPACES_MAX, mem_bytes, false };
	int ret;

	if (!work)
		return -ENOMEM;
	for (uint32_t i = 0; i < GOAL_SPACES_MAX; i++)
		mem_bytes[i] = UINT64_MAX;
	ret = goal_verify(block, bytes, &limits, work);
	free(work);
	return ret;
}

int api_schedule(struct goal_block *block, uint64_t bytes, uint32_t ranks,
		 struct sluice_goal_schedule **out)
{
	struct sluice_goal_schedule *s;
	int ret = ranks && ranks <= GOAL_RANKS_MAX ? verify(block, bytes, ranks) : -EINVAL;

	if (ret)
		return ret;
	s = malloc(sizeof *s);
	if (!s)
		return -ENOMEM;
	s->block = block;
	s->ranks = ranks;
	goal_extents(block, s->extents);
	*out = s;
	return 0;
}

API_EXPORT int sluice_goal_load(const void *data, uint64_t bytes, uint32_t ranks,
				struct sluice_goal_schedule **out)
{
	struct goal_block *block = malloc(bytes ? bytes : 1);
	int ret;

	if (!block)
		return -ENOMEM;
	if (bytes)
		memcpy(block, data, bytes);
	ret = api_schedule(block, bytes, ranks, out);
	if (ret)
		free(block);
	return ret;
}

API_EXPORT const void *sluice_goal_data(const struct sluice_goal_schedule *s, uint64_t *out_bytes)
{
	*out_bytes = s->block->bytes;
	return s->block;
}

API_EXPORT uint64_t sluice_goal_user_bytes(const struct sluice_goal_schedule *s, uint32_t buffer)
{
	return buffer < GOAL_USERS_MAX ? s->extents[GOAL_USER + buffer] : 0;
}

API_EXPORT void sluice_goal_schedule_destroy(struct sluice_goal_schedule *s)
{
	if (!s)
		return;
	free(s->block);
	free(s);
}
