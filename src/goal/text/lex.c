/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "private.h"

enum { OTHER, BLANK, LETTER, DIGIT, MARK, SLASH, SEMICOLON };

/* The class of a token by its first byte. Classes are ASCII, independent of the locale. */
static const unsigned char class_of[256] = {
	[' '] = BLANK,         ['\t'] = BLANK,         ['\r'] = BLANK,         ['\v'] = BLANK,
	['\f'] = BLANK,        ['A' ... 'Z'] = LETTER, ['a' ... 'z'] = LETTER, ['_'] = LETTER,
	['0' ... '9'] = DIGIT, ['{'] = MARK,           ['}'] = MARK,           [':'] = MARK,
	[','] = MARK,          ['+'] = MARK,           ['-'] = MARK,           ['['] = MARK,
	[']'] = MARK,          ['/'] = SLASH,          [';'] = SEMICOLON,
};

static inline unsigned char class(char c)
{
	return class_of[(unsigned char)c];
}

/* Moves to the next line. Returns: false: there is none. */
static bool next_line(struct text_lexer *l)
{
	int ret = text_source_next(&l->source);

	if (ret <= 0) {
		l->error = ret;
		l->token.kind = TEXT_EOF;
		l->token.bytes = 0;
		l->at = NULL;
		return false;
	}
	l->at = l->source.line;
	/* byte order mark of UTF-8 */
	if (l->source.line_number == 1 && l->source.line_end - l->at >= 3 &&
	    !memcmp(l->at, "\xef\xbb\xbf", 3))
		l->at += 3;
	return true;
}

static void set(struct text_lexer *l, enum text_kind kind, const char *start, const char *end)
{
	l->token.kind = kind;
	l->token.start = start;
	l->token.bytes = (uint32_t)(end - start);
	l->at = end;
}

static void number(struct text_lexer *l)
{
	const char *start = l->at, *p = start, *end = l->source.line_end;
	uint64_t n = 0;
	bool overflow = false;

	for (; p < end && class(*p) == DIGIT; p++) {
		overflow |= __builtin_mul_overflow(n, 10, &n);
		overflow |= __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n);
	}
	set(l, TEXT_NUMBER, start, p);
	l->token.number = n;
	l->token.overflow = overflow;
}

static void word(struct text_lexer *l)
{
	const char *p = l->at, *end = l->source.line_end;

	while (p < end && (class(*p) == LETTER || class(*p) == DIGIT || *p == '.'))
		p++;
	set(l, TEXT_WORD, l->at, p);
}

/* Skips to the end of a comment, over lines. Returns: false: the text ends before. */
static bool skip_comment(struct text_lexer *l)
{
	const char *close;

	do {
		if (!next_line(l))
			return false;
		close = memmem(l->at, (size_t)(l->source.line_end - l->at), "*/", 2);
	} while (!close);
	l->comment_line = 0;
	l->at = close + 2;
	return true;
}

/* Returns: true: a token is set; false: a comment was skipped. */
static bool slash(struct text_lexer *l)
{
	const char *end = l->source.line_end, *close;

	if (end - l->at >= 2 && l->at[1] == '/') {
		l->at = end;
		return false;
	}
	if (end - l->at < 2 || l->at[1] != '*') {
		set(l, TEXT_INVALID, l->at, l->at + 1);
		return true;
	}
	close = memmem(l->at + 2, (size_t)(end - l->at - 2), "*/", 2);
	if (close) {
		l->at = close + 2;
		return false;
	}
	/* end of the statement: its tokens stay valid while their line is in memory */
	l->comment_line = l->source.line_number;
	set(l, TEXT_END, l->at, l->at);
	return true;
}

/* Length of one character in bytes, for messages. */
static void set_unknown(struct text_lexer *l)
{
	const char *p = l->at + 1;

	while ((unsigned char)*l->at >= 0xc0 && p < l->source.line_end &&
	       ((unsigned char)*p & 0xc0) == 0x80 && p - l->at < 4)
		p++;
	set(l, TEXT_INVALID, l->at, p);
}

void text_next(struct text_lexer *l)
{
	if (l->comment_line ? !skip_comment(l) : !l->at && !next_line(l))
		return;
	for (;;) {
		while (l->at < l->source.line_end && class(*l->at) == BLANK)
			l->at++;
		if (l->at == l->source.line_end) {
			set(l, TEXT_END, l->at, l->at);
			l->at = NULL; /* messages may show the line until the next token */
			return;
		}
		switch (class(*l->at)) {
		case LETTER:
			word(l);
			return;
		case DIGIT:
			number(l);
			return;
		case MARK:
			set(l, TEXT_MARK, l->at, l->at + 1);
			return;
		case SEMICOLON:
			set(l, TEXT_END, l->at, l->at + 1);
			return;
		case SLASH:
			if (slash(l))
				return;
			break;
		default:
			set_unknown(l);
			return;
		}
	}
}

bool text_is_word(const struct text_token *t, const char *word)
{
	size_t n = strlen(word);

	return t->kind == TEXT_WORD && t->bytes == n && !memcmp(t->start, word, n);
}
