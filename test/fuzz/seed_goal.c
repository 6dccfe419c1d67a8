/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes valid blocks for the fuzzer to begin with: seed_goal DIRECTORY */
#include <stdio.h>
#include <stdlib.h>

#include "coll/coll.h"

static int save(const char *dir, int number, struct goal_build *b)
{
	static _Alignas(8) char block[4096];
	char path[512];
	FILE *f;
	int ret = goal_compile(b, (struct goal_block *)block, sizeof block);

	snprintf(path, sizeof path, "%s/seed-%d", dir, number);
	f = ret ? NULL : fopen(path, "wb");
	if (!f)
		return 1;
	ret = fwrite(block, 1, ((struct goal_block *)block)->bytes, f) !=
	      ((struct goal_block *)block)->bytes;
	return fclose(f) || ret;
}

int main(int argc, char **argv)
{
	static const struct coll_gather_shape shape = { 100, 0, 0, 100, 0 };
	struct goal_op ops[8];
	struct goal_edge edges[8];
	struct goal_build b;
	int ret = 0;

	if (argc != 2)
		return 2;
	goal_build_init(&b, ops, 8, edges, 8);
	coll_bcast(&b, 0, 4, 0, 0, 1000);
	ret |= save(argv[1], 1, &b);
	goal_build_init(&b, ops, 8, edges, 8);
	coll_gather(&b, 0, 4, 0, &shape);
	ret |= save(argv[1], 2, &b);
	goal_build_init(&b, ops, 8, edges, 8);
	goal_recv(&b, 1, 1, GOAL_SCRATCH, 0, 10);
	goal_copy(&b, GOAL_USER, 0, GOAL_SCRATCH, 0, 10);
	goal_send(&b, 2, 1, 0, GOAL_USER, 0, 10);
	goal_requires(&b, 1, 0);
	goal_requires(&b, 2, 1);
	b.scratch_bytes = 10;
	ret |= save(argv[1], 3, &b);
	return ret;
}
