/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "private.h"

#define MESSAGE 400
#define SHOWN   40 /* bytes shown of a long word */

static bool report(struct text_parser *p, struct text_problem *problem, const char *fmt,
		   va_list args)
{
	char message[MESSAGE];

	/* a statement may have several */
	if (p->problem_count++ >= TEXT_PROBLEMS_MAX)
		return false;
	vsnprintf(message, sizeof message, fmt, args);
	problem->message = message;
	p->calls->problem(p->ctx, problem);
	return false;
}

bool text_wrong(struct text_parser *p, const struct text_token *at, const char *fmt, ...)
{
	const struct text_source *s = &p->lexer.source;
	struct text_problem problem = { .line = s->line_number };
	va_list args;

	/* at the end of the text, show the last line */
	if (s->line) {
		bool has_token = at->kind != TEXT_EOF;

		problem.text = s->line;
		problem.text_bytes = (size_t)(s->line_end - s->line);
		problem.column = (uint32_t)((has_token ? at->start : s->line_end) - s->line) + 1;
		problem.bytes = has_token ? at->bytes : 0;
	}
	va_start(args, fmt);
	report(p, &problem, fmt, args);
	va_end(args);
	return false;
}

bool text_wrong_at(struct text_parser *p, uint64_t line, uint32_t column, const char *fmt, ...)
{
	struct text_problem problem = { .line = line, .column = column };
	va_list args;

	va_start(args, fmt);
	report(p, &problem, fmt, args);
	va_end(args);
	return false;
}

/* "'tga'", "the end of the line" */
static const char *name_of(const struct text_token *t, char *buf, size_t cap)
{
	if (t->kind == TEXT_EOF)
		return "the end of the text";
	if (t->kind == TEXT_END)
		return t->bytes ? "';'" : "the end of the line";
	if (t->kind == TEXT_INVALID && (unsigned char)*t->start < ' ')
		snprintf(buf, cap, "byte 0x%02x", (unsigned char)*t->start);
	else
		snprintf(buf, cap, "'%.*s%s'", (int)base_min_u64(t->bytes, SHOWN), t->start,
			 t->bytes > SHOWN ? "..." : "");
	return buf;
}

bool text_expected(struct text_parser *p, const char *what)
{
	char name[SHOWN + 16];

	return text_wrong(p, &p->lexer.token, "expected %s, not %s", what,
			  name_of(&p->lexer.token, name, sizeof name));
}

static const char *nearest(const struct text_token *t, const char *const *words)
{
	char word[32];
	const char *best = NULL;
	unsigned best_edits = 3;

	if (t->kind != TEXT_WORD || t->bytes >= sizeof word)
		return NULL;
	memcpy(word, t->start, t->bytes);
	word[t->bytes] = '\0';
	for (; *words; words++) {
		unsigned edits = base_edit_distance(word, *words);

		/* a word that shares no letter is no suggestion */
		if (edits < best_edits && edits < strlen(*words)) {
			best_edits = edits;
			best = *words;
		}
	}
	return best;
}

bool text_expected_words(struct text_parser *p, const struct text_token *at,
			 const char *const *words, const char *other)
{
	const char *near = nearest(at, words);
	char list[MESSAGE / 2] = "", name[SHOWN + 16];
	size_t n = 0;

	for (size_t i = 0; words[i] && n < sizeof list; i++)
		n += (size_t)snprintf(list + n, sizeof list - n, "%s'%s'",
				      !i                      ? ""
				      : words[i + 1] || other ? ", "
							      : " or ",
				      words[i]);
	if (other && n < sizeof list)
		snprintf(list + n, sizeof list - n, "%s%s", n ? " or " : "", other);
	return text_wrong(p, at, "expected %s, not %s%s%s%s", list, name_of(at, name, sizeof name),
			  near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

bool text_unknown(struct text_parser *p, const struct text_token *at, const char *const *words)
{
	const char *near = nearest(at, words);
	char name[SHOWN + 16];

	return text_wrong(p, at, "there is no operation %s%s%s%s", name_of(at, name, sizeof name),
			  near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}
