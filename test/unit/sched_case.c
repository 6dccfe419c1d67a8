/* SPDX-License-Identifier: BSD-3-Clause */
#include "sched_case.h"

void plan_init(struct plan *p)
{
	memset(p, 0, sizeof *p);
	goal_build_init(&p->build, p->ops, CASE_OPS, p->edges, 2 * CASE_OPS);
	p->build.segments = p->segments;
	p->build.segment_cap = CASE_OPS;
}

struct sched_inst *plan_open(struct plan *p, struct sched_group *g)
{
	uint64_t cap =
		goal_block_bytes(p->build.op_count, p->build.edge_count, p->build.segment_count);
	struct goal_block *b = malloc(cap);
	struct sched_inst *s = NULL;
	struct sched_open o = { .block = b,
				.block_bytes = cap,
				.buffers = p->buffers,
				.buffer_bytes = p->bytes,
				.buffer_count = p->count,
				.channel = p->channel,
				.flags = p->flags,
				.name = "test" };

	CHECK_EQ(goal_compile(&p->build, b, cap), 0);
	CHECK_EQ(sched_open(g, &o, &s), 0);
	free(b);
	return s;
}

struct sched_inst *plan_open_stamp(struct plan *p, struct sched_group *g, _Atomic uint64_t *stamp)
{
	plan_init(p);
	if (sched_rank(g)) {
		goal_send(&p->build, 0, 0, 0, GOAL_USER, 8, 8);
	} else {
		goal_recv(&p->build, 1, 0, GOAL_USER, 8, 8);
		goal_add(&p->build,
			 &(struct goal_op){ .type = GOAL_STAMP, .mem = GOAL_USER, .bytes = 8 });
		goal_requires(&p->build, 1, 0);
	}
	p->buffers[0] = (void *)stamp;
	p->bytes[0] = 16;
	p->count = 1;
	return plan_open(p, g);
}

struct sched_group *case_group(struct ranks *r)
{
	struct node_oob oob = r->oob;
	struct sched_group *g = NULL;

	CHECK_EQ(sched_group_create(&oob, &g), 0);
	CHECK(g != NULL);
	return g;
}

void case_fill(void *buf, uint64_t bytes, uint64_t number)
{
	unsigned char *p = buf;

	for (uint64_t i = 0; i < bytes; i++)
		p[i] = case_byte(number, i);
}

int64_t case_wrong(const void *buf, uint64_t bytes, uint64_t number)
{
	const unsigned char *p = buf;

	for (uint64_t i = 0; i < bytes; i++)
		if (p[i] != case_byte(number, i))
			return (int64_t)i;
	return -1;
}

void case_compute(uint64_t ns)
{
	uint64_t until = os_now_ns() + ns;

	while (os_now_ns() < until)
		;
}
