/* SPDX-License-Identifier: BSD-3-Clause */
#include "text_case.h"

#include "base/base.h"

struct feed {
	struct text_case *c;
	const char *text;
	size_t left, piece;
};

static void *need(void *p)
{
	if (!p)
		abort();
	return p;
}

int text_case_append(void *string, const char *text, size_t bytes)
{
	char **s = string;
	size_t used = *s ? strlen(*s) : 0;

	*s = need(realloc(*s, used + bytes + 1));
	memcpy(*s + used, text, bytes);
	(*s)[used + bytes] = '\0';
	return 0;
}

static int64_t feed(void *ctx, char *buf, size_t cap)
{
	struct feed *f = ctx;
	size_t n = base_min_u64(base_min_u64(cap, f->piece), f->left);

	memcpy(buf, f->text, n);
	f->text += n;
	f->left -= n;
	return (int64_t)n;
}

static int begin(void *ctx, uint32_t ranks)
{
	struct feed *f = ctx;

	f->c->begun = ranks;
	return text_print_head(ranks, text_case_append, &f->c->printed);
}

static int rank(void *ctx, const struct text_rank *r)
{
	struct text_case *c = ((struct feed *)ctx)->c;
	uint32_t n = c->rank_count++, ops = r->block->op_count;

	c->blocks = need(realloc(c->blocks, c->rank_count * sizeof *c->blocks));
	c->ranks = need(realloc(c->ranks, c->rank_count * sizeof *c->ranks));
	c->blocks[n] = need(malloc(r->block->bytes));
	memcpy(c->blocks[n], r->block, r->block->bytes);
	c->ranks[n] = r->rank;
	c->lines = need(realloc(c->lines, (ops + 1) * sizeof *c->lines));
	for (uint32_t i = 0; i < ops; i++)
		c->lines[i] = r->places[i].line;
	c->label[0] = '\0';
	if (ops && r->places[ops - 1].label != TEXT_NO_LABEL)
		snprintf(c->label, sizeof c->label, "%s", r->labels + r->places[ops - 1].label);
	return text_print(r->rank, r->block, text_case_append, &c->printed);
}

static void problem(void *ctx, const struct text_problem *p)
{
	char line[600];
	int n = snprintf(line, sizeof line, "%llu:%u: %s\n", (unsigned long long)p->line, p->column,
			 p->message);

	text_case_append(&((struct feed *)ctx)->c->problems, line, (size_t)n);
	/* the columns lie inside the line that is shown */
	if (p->text && p->column && p->column - 1 + p->bytes > p->text_bytes)
		abort();
}

void text_case_parse_in(struct text_case *c, const char *text, size_t bytes, size_t piece)
{
	static const struct text_calls calls = { feed, begin, rank, problem };
	struct feed f = { c, text, bytes, piece };

	*c = (struct text_case){ 0 };
	c->ret = text_parse(&calls, &f);
	if ((c->ret == -22) != (c->problems != NULL))
		abort();
}

void text_case_parse(struct text_case *c, const char *text)
{
	text_case_parse_in(c, text, strlen(text), SIZE_MAX);
}

void text_case_free(struct text_case *c)
{
	for (uint32_t i = 0; i < c->rank_count; i++)
		free(c->blocks[i]);
	free(c->blocks);
	free(c->ranks);
	free(c->lines);
	free(c->printed);
	free(c->problems);
	*c = (struct text_case){ 0 };
}

const char *text_case_of(const char *text)
{
	static struct text_case c;

	text_case_free(&c);
	text_case_parse(&c, text);
	return c.problems ? c.problems : c.printed ? c.printed : "";
}
