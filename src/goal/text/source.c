/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "private.h"

#define PIECE (256u << 10) /* fits the cache between reading and lexing */

void text_source_init(struct text_source *s, int64_t (*read)(void *, char *, size_t), void *ctx)
{
	*s = (struct text_source){ .read = read, .ctx = ctx };
}

void text_source_fini(struct text_source *s)
{
	free(s->buf);
	s->buf = NULL;
}

/* Makes room for PIECE more bytes behind the rest of the text in the buffer. */
static int make_room(struct text_source *s)
{
	size_t remaining = s->end - s->begin, capacity;
	char *buf;

	if (remaining >= TEXT_LINE_MAX)
		return -EFBIG;
	if (s->begin) {
		memmove(s->buf, s->buf + s->begin, remaining);
		s->begin = 0;
		s->end = remaining;
	}
	if (s->cap - s->end >= PIECE)
		return 0;
	capacity = base_max_u64(remaining * 2, remaining + PIECE);
	buf = realloc(s->buf, capacity);
	if (!buf)
		return -ENOMEM;
	s->buf = buf;
	s->cap = capacity;
	return 0;
}

/* Returns: 1: more bytes came; 0: end of the text. */
static int more(struct text_source *s)
{
	int64_t n;
	int ret;

	if (s->ended)
		return 0;
	ret = make_room(s);
	if (ret)
		return ret;
	n = s->read(s->ctx, s->buf + s->end, s->cap - s->end);
	if (n < 0)
		return (int)n;
	s->ended = n == 0;
	s->end += (size_t)n;
	return n != 0;
}

int text_source_next(struct text_source *s)
{
	size_t searched = 0;

	for (;;) {
		const char *from = s->buf ? s->buf + s->begin : NULL, *newline = NULL;
		size_t remaining = s->end - s->begin;
		int ret;

		if (remaining > searched)
			newline = memchr(from + searched, '\n', remaining - searched);
		if (newline || (s->ended && remaining)) {
			s->line = from;
			s->line_end = newline ? newline : from + remaining;
			s->begin += (size_t)(s->line_end - from) + (newline != NULL);
			s->line_number++;
			return 1;
		}
		searched = remaining;
		ret = more(s);
		if (ret < 0 || (!ret && s->begin == s->end))
			return ret;
	}
}
