/* SPDX-License-Identifier: BSD-3-Clause */
#include "text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tool.h"

/* ---- tables ------------------------------------------------------------------------- */

static void *need_memory(void *p)
{
	if (!p) {
		tool_say("out of memory");
		exit(TOOL_FAILED);
	}
	return p;
}

void text_table_row(struct text_table *t, const char *first, ...)
{
	const char *cell = first;
	va_list args;

	if (t->count == t->cap) {
		t->cap = t->cap ? t->cap * 2 : 16;
		t->rows = need_memory(realloc(t->rows, t->cap * sizeof(*t->rows)));
	}
	memset(t->rows[t->count], 0, sizeof(*t->rows));
	va_start(args, first);
	for (size_t c = 0; cell && c < TEXT_COLUMNS; c++, cell = va_arg(args, const char *))
		t->rows[t->count][c] = need_memory(strdup(cell));
	va_end(args);
	t->count++;
}

/* Returns: columns on a terminal; continuation bytes of UTF-8 take none. */
static size_t width_of(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

void text_table_print(const struct text_table *t, const char *indent, FILE *out)
{
	size_t width[TEXT_COLUMNS] = { 0 };

	for (size_t r = 0; r < t->count; r++)
		for (size_t c = 0; c + 1 < TEXT_COLUMNS && t->rows[r][c + 1]; c++)
			width[c] = base_max_u64(width[c], width_of(t->rows[r][c]));
	for (size_t r = 0; r < t->count; r++) {
		fputs(indent, out);
		for (size_t c = 0; c < TEXT_COLUMNS && t->rows[r][c]; c++) {
			bool is_last = c + 1 == TEXT_COLUMNS || !t->rows[r][c + 1];

			fputs(t->rows[r][c], out);
			if (!is_last)
				fprintf(out, "%*s", (int)(width[c] - width_of(t->rows[r][c]) + 2),
					"");
		}
		fputc('\n', out);
	}
}

void text_table_free(struct text_table *t)
{
	for (size_t r = 0; r < t->count; r++)
		for (size_t c = 0; c < TEXT_COLUMNS; c++)
			free(t->rows[r][c]);
	free(t->rows);
	*t = (struct text_table){ 0 };
}

/* ---- JSON --------------------------------------------------------------------------- */

/* Returns: the length of the UTF-8 sequence at s, or 0 for another byte. Long forms of short
 * characters, halves of a pair of UTF-16 and numbers past the last character are none. */
static size_t utf8_length(const unsigned char *s)
{
	size_t n = 0;

	if (s[0] < 0x80)
		n = 1;
	else if (s[0] >= 0xc2 && s[0] < 0xe0)
		n = 2;
	else if (s[0] >= 0xe0 && s[0] < 0xf0)
		n = 3;
	else if (s[0] >= 0xf0 && s[0] < 0xf5)
		n = 4;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

void text_json_quote(FILE *out, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	fputc('"', out);
	while (*s) {
		size_t n = utf8_length(s);

		if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if (*s < 0x20)
			fprintf(out, "\\u%04x", *s);
		else if (!n)
			fputc('?', out);
		else
			fwrite(s, 1, n, out);
		s += n ? n : 1;
	}
	fputc('"', out);
}

static void json_begin(struct text_json *j, const char *key)
{
	if (j->has_member)
		fputc(',', j->out);
	if (j->depth)
		fprintf(j->out, "\n%*s", (int)j->depth * 2, "");
	j->has_member = true;
	if (!key)
		return;
	text_json_quote(j->out, key);
	fputs(": ", j->out);
}

void text_json_open(struct text_json *j, const char *key, char bracket)
{
	json_begin(j, key);
	fputc(bracket, j->out);
	j->depth++;
	j->has_member = false;
}

void text_json_close(struct text_json *j, char bracket)
{
	j->depth--;
	if (j->has_member)
		fprintf(j->out, "\n%*s", (int)j->depth * 2, "");
	fputc(bracket, j->out);
	j->has_member = true;
	if (!j->depth)
		fputc('\n', j->out);
}

void text_json_string(struct text_json *j, const char *key, const char *text)
{
	json_begin(j, key);
	if (text)
		text_json_quote(j->out, text);
	else
		fputs("null", j->out);
}

void text_json_uint(struct text_json *j, const char *key, uint64_t n)
{
	json_begin(j, key);
	fprintf(j->out, "%" PRIu64, n);
}

void text_json_int(struct text_json *j, const char *key, int64_t n)
{
	json_begin(j, key);
	fprintf(j->out, "%" PRId64, n);
}

void text_json_bool(struct text_json *j, const char *key, bool b)
{
	json_begin(j, key);
	fputs(b ? "true" : "false", j->out);
}

/* ---- words -------------------------------------------------------------------------- */

const char *tool_nearest(const char *word, const char *const *words, size_t count)
{
	const char *nearest = NULL;
	size_t best = SIZE_MAX;

	for (size_t i = 0; i < count; i++) {
		size_t edits = base_edit_distance(word, words[i]);

		if (edits >= best)
			continue;
		best = edits;
		nearest = words[i];
	}
	return best <= base_max_u64(2, strlen(word) / 2) ? nearest : NULL;
}
