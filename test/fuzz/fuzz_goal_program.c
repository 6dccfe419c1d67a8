/* SPDX-License-Identifier: BSD-3-Clause */
/* libFuzzer: any bytes as a program. The block of each rank of an accepted program can be run, and
 * printed as text. */
#include <stdint.h>
#include <stdio.h>

#include "goal/program.h"
#include "goal_text.h"
#include "goal_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_not(const char *wrong)
{
	if (!wrong)
		return;
	fprintf(stderr, "accepted: %s\n", wrong);
	abort();
}

static void check_rank(const struct goal_program *p, size_t size, uint32_t rank)
{
	static const uint64_t mem_bytes[GOAL_SPACES_MAX] = { [0 ... GOAL_SPACES_MAX - 1] =
								     UINT64_MAX };
	const struct goal_limits limits = { p->ranks, GOAL_SPACES_MAX, mem_bytes, true };
	const struct goal_block *b = goal_program_block(p, rank);

	must_not(goal_walk(b, size - (size_t)((const char *)b - (const char *)p), &limits));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct goal_program *p = malloc(size ? size : 1);
	uint32_t *work, at;

	if (!p)
		abort();
	memcpy(p, data, size);
	if (!goal_program_verify_header(p, size)) {
		work = malloc((size_t)p->most_ops * sizeof *work + 1);
		if (!work)
			abort();
		if (!goal_program_verify(p, size, work, &at)) {
			for (uint32_t r = 0; r < p->ranks; r++)
				check_rank(p, size, r);
			if (p->ranks <= 16) /* each has a text of its own, many may share a block */
				must_not(goal_text(p));
		}
		free(work);
	}
	free(p);
	return 0;
}
