/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The example of sluice-goal(5), byte for byte: goal_example PAGE, exit 0 when the page shows what
 * goal_compile() makes of it. Lines "0040  02 00 ..." of the page are its bytes. With --dump they
 * are written.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "goal/goal.h"

enum { BYTES_MAX = 512, LINE = 16 };

static _Alignas(8) unsigned char made[BYTES_MAX], shown[BYTES_MAX];

/* Receives two floats from rank 0 and adds them to the program's. */
static size_t make(void)
{
	static const uint64_t mem_bytes[] = { 8, 8 };
	static const struct goal_limits limits = { 2, 2, mem_bytes, false };
	struct goal_block *block = (struct goal_block *)made;
	uint32_t recv, add, work[BYTES_MAX / sizeof(struct goal_op)];
	struct goal_edge edge;
	struct goal_op ops[2];
	struct goal_build b;

	goal_build_init(&b, ops, 2, &edge, 1);
	b.scratch_bytes = 8;
	recv = goal_recv(&b, 0, 7, GOAL_SCRATCH, 0, 8);
	add = goal_add(&b, &(struct goal_op){ .type = GOAL_ADD,
					      .dtype = GOAL_F32,
					      .mem = GOAL_USER,
					      .src_mem = GOAL_USER,
					      .src2_mem = GOAL_SCRATCH,
					      .bytes = 8 });
	goal_requires(&b, add, recv);
	if (goal_compile(&b, block, sizeof made) || goal_verify(block, sizeof made, &limits, work))
		return 0;
	return block->bytes;
}

static void dump(size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		if (i % LINE == 0)
			printf("%04zx  ", i);
		printf("%02x%s", made[i], i % LINE == LINE - 1 || i + 1 == bytes ? "\n" : " ");
	}
}

/* Returns: the number of bytes that the page shows, or 0. */
static size_t read_page(const char *path)
{
	FILE *f = fopen(path, "r");
	char line[256];
	size_t count = 0;

	while (f && fgets(line, sizeof line, f)) {
		char *at = line, *end;
		unsigned long offset = strtoul(at, &end, 16);

		if (end != line + 4 || strncmp(end, "  ", 2) || offset != count)
			continue;
		for (at = end + 1; *at == ' ' && count < BYTES_MAX; at += 3)
			shown[count++] = (unsigned char)strtoul(at + 1, &end, 16);
	}
	if (f)
		fclose(f);
	return count;
}

int main(int argc, char **argv)
{
	size_t bytes = make();

	if (argc == 2 && !strcmp(argv[1], "--dump")) {
		dump(bytes);
		return !bytes;
	}
	if (argc != 2)
		return 2;
	if (bytes && read_page(argv[1]) == bytes && !memcmp(made, shown, bytes))
		return 0;
	fprintf(stderr, "%s shows other bytes than these:\n", argv[1]);
	dump(bytes);
	return 1;
}
