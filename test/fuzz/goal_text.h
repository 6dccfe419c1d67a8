/* SPDX-License-Identifier: BSD-3-Clause */
/* Every verified program can be printed, and the text can be parsed. */
#ifndef SLUICE_TEST_GOAL_TEXT_H
#define SLUICE_TEST_GOAL_TEXT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "goal/program.h"
#include "goal/text/text.h"

struct goal_text {
	char *text;
	size_t used, cap, read;
	const char *wrong;
};

static inline int goal_text_add(void *ctx, const char *text, size_t bytes)
{
	struct goal_text *t = ctx;

	if (t->used + bytes > t->cap) {
		t->cap = (t->used + bytes) * 2;
		t->text = realloc(t->text, t->cap);
		if (!t->text)
			abort();
	}
	memcpy(t->text + t->used, text, bytes);
	t->used += bytes;
	return 0;
}

static inline int64_t goal_text_read(void *ctx, char *buf, size_t cap)
{
	struct goal_text *t = ctx;
	size_t n = t->used - t->read < cap ? t->used - t->read : cap;

	memcpy(buf, t->text + t->read, n);
	t->read += n;
	return (int64_t)n;
}

static inline void goal_text_problem(void *ctx, const struct text_problem *p)
{
	struct goal_text *t = ctx;

	fprintf(stderr, "%.*s\n%s\n", (int)p->text_bytes, p->text ? p->text : "", p->message);
	t->wrong = "a program whose text is refused";
}

/* Returns: NULL, or the mistake. */
static inline const char *goal_text(const struct goal_program *p)
{
	static const struct text_calls calls = { .read = goal_text_read,
						 .problem = goal_text_problem };
	struct goal_text t = { 0 };

	text_print_head(p->ranks, goal_text_add, &t);
	for (uint32_t r = 0; r < p->ranks; r++)
		text_print(r, goal_program_block(p, r), goal_text_add, &t);
	text_parse(&calls, &t);
	free(t.text);
	return t.wrong;
}

#endif
