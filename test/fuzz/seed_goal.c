/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes valid blocks, or a program of them, as a corpus for the fuzzer: seed_goal [--program]
 * DIRECTORY */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "goal/program.h"

enum { BLOCKS = 5, ROOM = 4096 };

static _Alignas(64) char blocks[BLOCKS][ROOM];
static struct goal_op ops[16];
static struct goal_edge edges[16];
static struct goal_segment segments[8];

static struct goal_build begin(void)
{
	struct goal_build b;

	goal_build_init(&b, ops, 16, edges, 16);
	b.segments = segments;
	b.segment_cap = 8;
	b.scratch_bytes = 100;
	return b;
}

static int build_relay(struct goal_block *out)
{
	struct goal_build b = begin();

	goal_recv(&b, 1, 1, GOAL_SCRATCH, 0, 10);
	goal_copy(&b, GOAL_USER, 0, GOAL_SCRATCH, 0, 10);
	goal_send(&b, 2, 1, 0, GOAL_USER, 0, 10);
	goal_requires(&b, 1, 0);
	goal_requires(&b, 2, 1);
	return goal_compile(&b, out, ROOM);
}

static int build_lists(struct goal_block *out)
{
	struct goal_build b = begin();

	goal_recv(&b, GOAL_ANY, GOAL_ANY, 0, 0, 0);
	goal_segment(&b, 0, GOAL_USER, 5, 10);
	goal_segment(&b, 0, GOAL_SCRATCH, 0, 7);
	goal_send(&b, 2, 1, 0, 0, 0, 0);
	goal_segment(&b, 1, GOAL_USER + 1, 9, 1);
	goal_segment(&b, 1, GOAL_USER, 0, 100);
	goal_irequires(&b, 1, 0);
	return goal_compile(&b, out, ROOM);
}

static int build_arithmetic(struct goal_block *out)
{
	struct goal_build b = begin();

	for (uint8_t type = GOAL_ADD; type <= GOAL_XOR; type++) {
		goal_add(&b, &(struct goal_op){ .type = type,
						.dtype = type % 8,
						.mem = GOAL_USER,
						.off = type,
						.src_mem = GOAL_USER,
						.src_off = type,
						.src2_mem = GOAL_USER + 1,
						.src2_off = 3,
						.bytes = 48 });
		if (type > GOAL_ADD)
			goal_requires(&b, (uint32_t)(type - GOAL_ADD), 0);
	}
	goal_add(&b, &(struct goal_op){ .type = GOAL_MAX, .dtype = GOAL_F16, .mem = GOAL_SCRATCH,
					.src_mem = GOAL_USER, .src2_mem = GOAL_USER, .bytes = 2 });
	return goal_compile(&b, out, ROOM);
}

static int build_others(struct goal_block *out)
{
	struct goal_build b = begin();

	goal_add(&b, &(struct goal_op){ .type = GOAL_CALC, .bytes = 1000, .cpu = 1 });
	goal_add(&b,
		 &(struct goal_op){ .type = GOAL_STAMP, .mem = GOAL_USER, .off = 8, .bytes = 8 });
	goal_add(&b, &(struct goal_op){ .type = GOAL_NOP });
	goal_send(&b, 3, 1, 0, GOAL_NOWHERE, 0, 1000);
	goal_irequires(&b, 1, 0);
	goal_requires(&b, 2, 1);
	goal_requires(&b, 2, 0);
	return goal_compile(&b, out, ROOM);
}

static int build_one_sided(struct goal_block *out)
{
	static const struct goal_op all[] = {
		{ .type = GOAL_PUT, .one_sided = { 1, 7 }, .bytes = 64, .counter = 1 },
		{ .type = GOAL_GET, .one_sided = { 2, 7 }, .bytes = 64, .counter = 2 },
		{ .type = GOAL_APPEND,
		  .one_sided = { GOAL_ANY, GOAL_ANY },
		  .bytes = 64,
		  .counter = 3,
		  .options = GOAL_ONCE | GOAL_OVERFLOW,
		  .handlers = { 1, 2, GOAL_HANDLERS_MAX } },
		{ .type = GOAL_TPUT, .one_sided = { 0, 1 }, .bytes = 8, .off = 1, .when = 3 },
		{ .type = GOAL_TGET,
		  .one_sided = { 0, 1 },
		  .bytes = 8,
		  .off = UINT64_MAX,
		  .when = 1,
		  .counter = 1 },
		{ .type = GOAL_TAPPEND,
		  .one_sided = { 3, 1 },
		  .bytes = 8,
		  .off = 1,
		  .when = 1,
		  .counter = 4 },
		{ .type = GOAL_TEST, .off = 1, .when = 1 },
	};
	struct goal_build b = begin();

	for (uint32_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct goal_op op = all[i];

		op.mem = GOAL_NOWHERE;
		goal_add(&b, &op);
	}
	goal_requires(&b, 6, 0);
	goal_irequires(&b, 6, 2);
	return goal_compile(&b, out, ROOM);
}

static int save(const char *dir, int number, const void *bytes, size_t count)
{
	char path[512];
	FILE *f;
	int ret;

	snprintf(path, sizeof path, "%s/seed-%d", dir, number);
	f = fopen(path, "wb");
	if (!f)
		return 1;
	ret = fwrite(bytes, 1, count, f) != count;
	return fclose(f) || ret;
}

/* All blocks, one for each rank. */
static int save_program(const char *dir)
{
	static _Alignas(64) char room[BLOCKS * ROOM];
	struct goal_program *p = (struct goal_program *)room;
	uint64_t at = sizeof *p, offsets[BLOCKS];
	uint32_t numbers[BLOCKS];

	*p = (struct goal_program){ .magic = GOAL_PROGRAM_MAGIC,
				    .version = GOAL_PROGRAM_VERSION,
				    .ranks = BLOCKS,
				    .block_count = BLOCKS,
				    .most_ops = 16 };
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const struct goal_block *b = (const struct goal_block *)blocks[i];

		memcpy(room + at, b, b->bytes);
		offsets[i] = at;
		numbers[i] = i;
		at = goal_program_align(at + b->bytes);
	}
	p->offsets_off = at;
	memcpy(room + at, offsets, sizeof offsets);
	memcpy(room + at + sizeof offsets, numbers, sizeof numbers);
	p->bytes = at + goal_program_tables_bytes(BLOCKS, BLOCKS);
	return save(dir, 1, p, p->bytes);
}

int main(int argc, char **argv)
{
	static int (*const build[BLOCKS])(struct goal_block *) = { build_relay, build_lists,
								   build_arithmetic, build_others,
								   build_one_sided };
	bool program = argc == 3 && !strcmp(argv[1], "--program");
	int ret = 0;

	if (argc != 2 + program)
		return 2;
	for (int i = 0; i < BLOCKS; i++) {
		const struct goal_block *b = (const struct goal_block *)blocks[i];

		ret |= build[i]((struct goal_block *)blocks[i]);
		if (!program && !ret)
			ret = save(argv[1], i, b, b->bytes);
	}
	if (program && !ret)
		ret = save_program(argv[2]);
	return !!ret;
}
