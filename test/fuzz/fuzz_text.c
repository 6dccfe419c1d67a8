/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer: any bytes as a text. A text that text_parse() accepts passes goal_verify(); its
 * canonical form is accepted, compiles to the same blocks, and is its own canonical form.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "goal/text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct string {
	char *text;
	size_t used, cap;
};

struct run {
	const char *text;
	size_t left, piece;
	struct string printed, blocks; /* of the accepted ranks */
	uint32_t ranks, problems;
};

static void fail(const char *why)
{
	fprintf(stderr, "%s\n", why);
	abort();
}

static int append(void *ctx, const char *text, size_t bytes)
{
	struct string *s = ctx;

	if (s->used + bytes + 1 > s->cap) {
		s->cap = (s->used + bytes + 1) * 2;
		s->text = realloc(s->text, s->cap);
		if (!s->text)
			fail("out of memory");
	}
	memcpy(s->text + s->used, text, bytes);
	s->used += bytes;
	s->text[s->used] = '\0';
	return 0;
}

static int64_t read_piece(void *ctx, char *buf, size_t cap)
{
	struct run *r = ctx;
	size_t n = r->left < r->piece ? r->left : r->piece;

	if (n > cap)
		n = cap;
	memcpy(buf, r->text, n);
	r->text += n;
	r->left -= n;
	return (int64_t)n;
}

static int begin(void *ctx, uint32_t ranks)
{
	struct run *r = ctx;

	r->ranks = ranks;
	return text_print_head(ranks, append, &r->printed);
}

static void verify(const struct goal_block *b, uint32_t ranks)
{
	uint64_t mem_bytes[GOAL_SPACES_MAX];
	const struct goal_limits limits = { ranks, GOAL_SPACES_MAX, mem_bytes, true };
	uint32_t *work = malloc(b->bytes / sizeof(struct goal_op) * sizeof *work + 1);

	memset(mem_bytes, 0xff, sizeof mem_bytes);
	if (!work || goal_verify(b, b->bytes, &limits, work))
		fail("a block that does not pass verification");
	free(work);
}

static int rank(void *ctx, const struct text_rank *rank)
{
	struct run *r = ctx;
	char what[40];

	verify(rank->block, r->ranks);
	for (uint32_t i = 0; i < rank->block->op_count; i++) {
		if (rank->places[i].label != TEXT_NO_LABEL &&
		    rank->places[i].label >= rank->labels_bytes)
			fail("a label outside of the labels");
		text_print_op(rank->block, i, what, sizeof what);
	}
	append(&r->blocks, (const char *)rank->block, rank->block->bytes);
	return text_print(rank->rank, rank->block, append, &r->printed);
}

static void problem(void *ctx, const struct text_problem *p)
{
	struct run *r = ctx;

	if (++r->problems > TEXT_PROBLEMS_MAX)
		fail("too many problems");
	if (p->text && p->column &&
	    (p->column - 1 > p->text_bytes || p->bytes > p->text_bytes - (p->column - 1)))
		fail("a problem outside of its line");
	if (strlen(p->message) > 1000)
		fail("a message without end");
}

static int parse(struct run *r, const char *text, size_t bytes, size_t piece)
{
	static const struct text_calls calls = { read_piece, begin, rank, problem };
	int ret;

	*r = (struct run){ .text = text, .left = bytes, .piece = piece };
	ret = text_parse(&calls, r);
	if (ret != 0 && ret != -EINVAL)
		fail("an error that is none of the text's");
	if ((ret == 0) != (r->problems == 0))
		fail("a refusal without a problem");
	return ret;
}

static void release(struct run *r)
{
	free(r->printed.text);
	free(r->blocks.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run first, second;

	if (!size)
		return 0;
	if (!parse(&first, (const char *)data + 1, size - 1, 1 + data[0])) {
		if (parse(&second, first.printed.text, first.printed.used, SIZE_MAX))
			fail("the canonical form is refused");
		if (second.blocks.used != first.blocks.used ||
		    memcmp(second.blocks.text, first.blocks.text, first.blocks.used))
			fail("the canonical form means something else");
		if (second.printed.used != first.printed.used ||
		    memcmp(second.printed.text, first.printed.text, first.printed.used))
			fail("the canonical form has another one");
		release(&second);
	}
	release(&first);
	return 0;
}
