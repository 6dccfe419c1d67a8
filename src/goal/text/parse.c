/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses programs, ranks, and statements other than operations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "private.h"

/* ---- recovery --------------------------------------------------------------------------- */

static bool has_stopped(const struct text_parser *p)
{
	return p->error || p->lexer.error || p->problem_count >= TEXT_PROBLEMS_MAX;
}

/* Recovery from a problem: skips to the end of the statement. */
static void skip_statement(struct text_parser *p)
{
	while (!text_at_end(&p->lexer))
		text_next(&p->lexer);
}

/* A binary file has these bytes, a text has none of them. */
static bool is_binary(const struct text_lexer *l)
{
	unsigned char c = l->token.kind == TEXT_INVALID ? (unsigned char)*l->token.start : ' ';

	return c < ' ' || c == 0x7f;
}

static void refuse_binary(struct text_parser *p)
{
	text_wrong_at(p, p->lexer.source.line_number, 0,
		      "this is not text: it contains byte 0x%02x",
		      (unsigned char)*p->lexer.token.start);
	p->problem_count = TEXT_PROBLEMS_MAX;
}

/* ---- statements of a rank --------------------------------------------------------------- */

static uint32_t column_of(const struct text_lexer *l, const struct text_token *t)
{
	return (uint32_t)(t->start - l->source.line) + 1;
}

static uint32_t label_of(struct text_parser *p, const struct text_token *t)
{
	uint32_t label = text_label(&p->making.labels, t->start, t->bytes,
				    p->lexer.source.line_number, column_of(&p->lexer, t));

	if (label == GOAL_NONE)
		p->error = -ENOMEM;
	return label;
}

/* "l2 requires l1, l0", at the second word */
static bool requirement(struct text_parser *p, const struct text_token *first)
{
	bool immediate = text_is_word(&p->lexer.token, "irequires");
	uint32_t after = label_of(p, first), before;

	do {
		text_next(&p->lexer); /* the verb or ',' */
		if (p->lexer.token.kind != TEXT_WORD)
			return text_expected(p, "the label of an operation");
		before = label_of(p, &p->lexer.token);
		if (after == GOAL_NONE || before == GOAL_NONE)
			return false;
		if (after == before)
			return text_wrong(p, &p->lexer.token, "'%.40s' would wait for itself",
					  text_label_name(&p->making.labels, after));
		if (text_making_edge(&p->making, after, before, immediate))
			return p->error = -ENOMEM, false;
		text_next(&p->lexer);
	} while (text_is_mark(&p->lexer, ','));
	return text_at_end(&p->lexer) || text_expected(p, "the end of the line");
}

static bool scratch(struct text_parser *p, const struct text_token *first)
{
	if (p->making.has_scratch)
		return text_wrong(p, first, "a second 'scratch' in rank %u", p->making.rank);
	if (!text_expect_bytes(p, &p->making.scratch_bytes))
		return false;
	p->making.has_scratch = true;
	return text_at_end(&p->lexer) || text_expected(p, "the end of the line");
}

/* "l1: send ...", at the colon */
static bool labelled(struct text_parser *p, const struct text_token *first)
{
	struct text_label *l;
	struct text_token word;
	uint32_t label = label_of(p, first);

	if (label == GOAL_NONE)
		return false;
	l = &p->making.labels.all[label];
	if (l->op != GOAL_NONE)
		return text_wrong(p, first, "a second operation '%.40s'; the first is in line %llu",
				  text_label_name(&p->making.labels, label),
				  (unsigned long long)l->defined);
	l->defined = p->lexer.source.line_number;
	l->op = TEXT_BROKEN; /* defined from here on, though its operation is not parsed yet */
	text_next(&p->lexer);
	word = p->lexer.token;
	if (word.kind != TEXT_WORD)
		return text_expected(p, "an operation after the label");
	text_next(&p->lexer);
	return text_operation(p, &word, label);
}

/* ---- ranks and programs ----------------------------------------------------------------- */

static void mark_rank_read(struct text_parser *p, const struct text_token *t, uint32_t rank)
{
	size_t word = rank / 64;

	if (word >= p->ranks_read_words) {
		size_t words = base_max_u64(word + 1, base_max_u64(p->ranks_read_words * 2, 1024));
		uint64_t *ranks_read =
			calloc(words, sizeof *ranks_read); /* untouched pages cost nothing */

		if (!ranks_read) {
			p->error = -ENOMEM;
			return;
		}
		if (p->ranks_read)
			memcpy(ranks_read, p->ranks_read, p->ranks_read_words * sizeof *ranks_read);
		free(p->ranks_read);
		p->ranks_read = ranks_read;
		p->ranks_read_words = words;
	}
	if (p->ranks_read[word] >> rank % 64 & 1) {
		text_wrong(p, t, "a second block of rank %u", rank);
		return;
	}
	p->ranks_read[word] |= 1ull << rank % 64;
	p->read_count++;
}

/* "3 {" after "rank": begins that rank. Problems inside a wrong rank are reported too. */
static bool rank_head(struct text_parser *p, const struct text_token *word)
{
	struct text_lexer *l = &p->lexer;
	struct text_token number = l->token;
	uint64_t n = 0;

	p->rank_line = l->source.line_number;
	if (!p->has_ranks) {
		text_wrong(p, word, "'num_ranks N' must come before the first rank");
		p->has_ranks = true;
		p->ranks = GOAL_RANKS_MAX;
	}
	if (!text_expect_number(p, "the number of a rank", GOAL_RANKS_MAX, &n))
		return false;
	if (n >= p->ranks)
		text_wrong(p, &number, "there is no rank %llu: num_ranks is %u",
			   (unsigned long long)n, p->ranks);
	else
		mark_rank_read(p, &number, (uint32_t)n);
	while (l->token.kind == TEXT_END && !l->token.bytes)
		text_next(l);
	if (!text_is_mark(l, '{'))
		return text_expected(p, "'{'");
	text_next(l);
	if (!p->error)
		p->error = text_making_begin(&p->making, (uint32_t)n);
	p->problems_before = p->problem_count;
	return true;
}

static bool statement(struct text_parser *p)
{
	struct text_lexer *l = &p->lexer;
	struct text_token first = l->token;

	if (first.kind != TEXT_WORD)
		return text_expected(p, "an operation, a label or '}'");
	text_next(l);
	if (text_is_mark(l, ':'))
		return labelled(p, &first);
	if (text_is_word(&l->token, "requires") || text_is_word(&l->token, "irequires"))
		return requirement(p, &first);
	if (text_is_word(&first, "scratch"))
		return scratch(p, &first);
	if (text_is_word(&first, "rank")) {
		text_wrong(p, &first, "expected '}': rank %u is not closed", p->making.rank);
		return rank_head(p, &first);
	}
	/* "l1 reqires l2" */
	if (l->token.kind == TEXT_WORD && !text_is_operation(&first))
		return text_expected_words(p, &l->token,
					   (const char *const[]){ "requires", "irequires", NULL },
					   "':' and an operation");
	return text_operation(p, &first, TEXT_NO_LABEL);
}

/* Parses statements after "{", up to and including "}". */
static void body(struct text_parser *p)
{
	struct text_lexer *l = &p->lexer;

	while (!has_stopped(p) && !text_is_mark(l, '}')) {
		if (l->token.kind == TEXT_EOF) {
			if (!l->comment_line)
				text_wrong_at(p, p->rank_line, 0,
					      "rank %u is not closed: there is no '}'",
					      p->making.rank);
			return;
		}
		if (l->token.kind == TEXT_END)
			text_next(l);
		else if (is_binary(l))
			refuse_binary(p);
		else if (!statement(p) && !has_stopped(p))
			skip_statement(p);
	}
	if (has_stopped(p))
		return;
	text_making_end(p);
	text_next(l);
}

static bool num_ranks(struct text_parser *p, const struct text_token *word)
{
	struct text_token number = p->lexer.token;
	uint64_t n = 0;

	if (p->has_ranks) {
		text_wrong(p, word, "a second 'num_ranks'");
		if (number.kind == TEXT_NUMBER)
			text_next(&p->lexer);
		return true;
	}
	if (!text_expect_number(p, "a number of ranks", GOAL_RANKS_MAX, &n))
		return false;
	if (!n)
		return text_wrong(p, &number, "a program has at least one rank");
	p->ranks = (uint32_t)n;
	p->has_ranks = true;
	if (!p->problem_count && p->calls->begin)
		p->error = p->calls->begin(p->ctx, p->ranks);
	return true;
}

static bool top(struct text_parser *p)
{
	static const char *const words[] = { "num_ranks", "rank", NULL };
	struct text_token first = p->lexer.token;

	if (text_is_mark(&p->lexer, '}')) {
		text_wrong(p, &first, "a '}' without '{'");
		text_next(&p->lexer);
		return true;
	}
	if (text_is_word(&first, "num_ranks")) {
		text_next(&p->lexer);
		return num_ranks(p, &first);
	}
	if (text_is_word(&first, "rank")) {
		text_next(&p->lexer);
		if (!rank_head(p, &first))
			return false;
		if (!has_stopped(p))
			body(p);
		return true;
	}
	return text_expected_words(p, &first, words, NULL);
}

static void missing(struct text_parser *p)
{
	uint32_t r = 0;

	if (!p->has_ranks) {
		text_wrong_at(p, 0, 0, "the text is empty: a program begins with 'num_ranks N'");
		return;
	}
	if (p->read_count == p->ranks)
		return;
	while (r / 64 < p->ranks_read_words && p->ranks_read[r / 64] >> r % 64 & 1)
		r++;
	text_wrong_at(p, 0, 0,
		      "rank %u has no block, as %u of %u; one with nothing to do is 'rank %u { }'",
		      r, p->ranks - p->read_count, p->ranks, r);
}

static void program(struct text_parser *p)
{
	struct text_lexer *l = &p->lexer;

	text_next(l);
	while (!has_stopped(p) && l->token.kind != TEXT_EOF) {
		if (l->token.kind == TEXT_END) {
			text_next(l);
		} else if (is_binary(l)) {
			refuse_binary(p);
		} else if (!top(p) && !has_stopped(p)) {
			text_next(l);
			skip_statement(p);
		}
	}
	if (l->comment_line && !p->error && !l->error)
		text_wrong_at(p, l->comment_line, 0, "a comment begins here and does not end");
	else if (!has_stopped(p) && !p->problem_count)
		missing(p);
}

int text_parse(const struct text_calls *calls, void *ctx)
{
	struct text_parser p = { .calls = calls, .ctx = ctx };
	int ret;

	text_source_init(&p.lexer.source, calls->read, ctx);
	program(&p);
	if (p.lexer.error == -EFBIG)
		text_wrong_at(&p, p.lexer.source.line_number + 1, 0, "a line of more than %u MiB",
			      TEXT_LINE_MAX >> 20);
	ret = p.error ? p.error : p.problem_count ? -EINVAL : p.lexer.error;
	text_source_fini(&p.lexer.source);
	text_making_fini(&p.making);
	free(p.ranks_read);
	return ret;
}
