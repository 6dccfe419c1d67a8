/* SPDX-License-Identifier: BSD-3-Clause */
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "exec_case.h"

#define GUARD_BYTE ((char)0xa5)

struct exec_case exec_case;
static char *maps[CASE_RUNS][2];

void exec_case_begin(struct ranks *r, uint64_t seed)
{
	const struct node_oob oob = r->oob;

	exec_case = (struct exec_case){ .r = r, .own = seed + 1000 * (uint64_t)(r->rank + 1) };
	CHECK_EQ(node_group_create(&oob, exec_area_bytes(r->size, EXEC_SLOTS), &exec_case.g), 0);
	CHECK(exec_case.g);
	CHECK_EQ(exec_create(exec_case.g, EXEC_SLOTS, NULL, &exec_case.e), 0);
	for (int i = 0; i < CASE_RUNS * 2; i++) {
		char *p = mmap(NULL, CASE_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		CHECK(p != MAP_FAILED);
		maps[i / 2][i % 2] = p;
	}
}

void exec_case_end(void)
{
	ranks_barrier(exec_case.r);
	exec_destroy(exec_case.e);
	node_group_destroy(exec_case.g);
}

void exec_case_dawdle(void)
{
	if (ranks_below(&exec_case.own, 4) == 0)
		usleep((useconds_t)ranks_below(&exec_case.own, 1000));
}

/* ---- memory ------------------------------------------------------------------------------ */

void case_side_make(struct case_side *s, int run, int side, uint64_t bytes, char fill)
{
	/* a few places: they are used again */
	uint64_t choice = ranks_random(&exec_case.own),
		 skew = choice / 3 % 3 * 1368 + choice % 3 * 8;

	if (choice / 9 % 4 == 0)
		skew = 0;
	if (choice / 9 % 4 == 1)
		skew += choice / 36 % 8;
	*s = (struct case_side){ .addr = maps[run][side] + 2 * OS_PAGE + skew, .bytes = bytes };
	CHECK(2 * OS_PAGE + skew + bytes + CASE_GUARD <= CASE_BYTES);
	memset(s->addr - CASE_GUARD, GUARD_BYTE, CASE_GUARD + bytes + CASE_GUARD);
	memset(s->addr, fill, bytes);
}

void case_side_begin(struct case_side *s)
{
	s->used = s->addr;
	if (!s->bytes)
		return;
	region_describe(s->addr, s->bytes, REGION_FORCE, &s->desc);
	if (s->desc.flags & REGION_DESC_MAPPED)
		return;
	region_release(&s->desc);
	CHECK_EQ(region_extent_get(s->bytes, false, &s->packed), 0);
	s->used = (char *)region_arena_base() + s->packed.offset;
	memcpy(s->used, s->addr, s->bytes);
	region_describe_extent(&s->packed, s->bytes, &s->desc);
}

void case_side_end(struct case_side *s, const char *what)
{
	const char *end = s->addr + s->bytes;

	if (s->packed.bytes) {
		memcpy(s->addr, s->used, s->bytes);
		region_extent_put(&s->packed);
	} else if (s->bytes) {
		region_release(&s->desc);
	}
	for (int i = 1; i <= CASE_GUARD; i++)
		if (s->addr[-i] != GUARD_BYTE)
			unit_fail(__FILE__, __LINE__, "%s: a byte %d before the buffer is changed",
				  what, i);
	for (int i = 0; i < CASE_GUARD; i++)
		if (end[i] != GUARD_BYTE)
			unit_fail(__FILE__, __LINE__, "%s: a byte %d behind the buffer is changed",
				  what, i);
}

/* ---- running ----------------------------------------------------------------------------- */

static void leave(struct exec_run *run)
{
	enum exec_copy copy = (enum exec_copy)ranks_below(&exec_case.own, 3);
	int ret = exec_settle(run, copy, ranks_below(&exec_case.own, 2), 0);
	struct node_wait w = { 0 };

	CHECK(ret >= 0);
	if (ret != EXEC_MAY_DETACH) {
		CHECK_EQ(exec_wait(run), 0);
		return;
	}
	exec_detach(run);
	while (!exec_is_complete(run)) {
		ret = exec_advance(run);
		if (ret == 1)
			continue;
		CHECK_EQ(ret, 0);
		CHECK_EQ(exec_pause(run, &w), 0);
	}
	exec_resume(run, &w);
	CHECK(exec_is_claimed(run));
	CHECK(exec_is_matched(run));
	CHECK(exec_is_range_complete(run, 0, UINTPTR_MAX));
	exec_end(run);
}

static void step_all_of(struct exec_run **runs, int n)
{
	int left = n, idle = 0;

	while (left) {
		int i = (int)ranks_below(&exec_case.own, (uint64_t)n), ret;
		bool has_ended = false;

		if (!runs[i])
			continue;
		ret = exec_step(runs[i], EXEC_COPY_ALL, &has_ended);
		CHECK(ret >= 0);
		if (has_ended) {
			runs[i] = NULL;
			left--;
		} else if (!ret) {
			if (++idle % 1000 == 0)
				CHECK_EQ(exec_check(runs[i]), 0);
			sched_yield();
		}
	}
}

void exec_case_finish(struct exec_run **runs, int n, enum case_how how)
{
	if (n > 1 || how == CASE_STEP)
		step_all_of(runs, n);
	else if (how == CASE_LEAVE)
		leave(runs[0]);
	else
		CHECK_EQ(exec_wait(runs[0]), 0);
}

uint64_t exec_case_seed(uint64_t number)
{
	const char *text = getenv("RANDOM_SEED");

	return number * 1000 + (text ? strtoull(text, NULL, 0) : 0);
}
