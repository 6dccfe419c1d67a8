/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal.h"

#define WINDOW 100 /* columns shown of a long line */

void goal_problem_add(struct goal_problems *list, uint64_t line, const char *fmt, ...)
{
	struct goal_problem *all = list->all;
	va_list args;
	char *message;
	int n;

	va_start(args, fmt);
	n = vasprintf(&message, fmt, args);
	va_end(args);
	if (list->count == list->cap) {
		list->cap = list->cap ? list->cap * 2 : 16;
		all = realloc(all, list->cap * sizeof *all);
	}
	if (n < 0 || !all) {
		tool_say("out of memory");
		exit(TOOL_FAILED);
	}
	list->all = all;
	all[list->count++] = (struct goal_problem){ .line = line, .message = message };
}

/* Text of unknown origin: control characters would act on the terminal. */
static void put_safely(const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)text[i];

		fputc(c < ' ' || c == 0x7f ? (c == '\t' ? ' ' : '?') : c, stderr);
	}
}

static bool continues(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80; /* of a character in UTF-8 */
}

static void put_line(const struct goal_problem *p)
{
	size_t bytes = strlen(p->text), at = base_min_u64(p->column ? p->column - 1 : 0, bytes),
	       from = 0, end;
	size_t marks = base_max_u64(1, base_min_u64(p->bytes, WINDOW / 2));

	if (at > WINDOW * 2 / 3)
		from = at - WINDOW / 2;
	while (from && from < bytes && continues(p->text[from]))
		from--;
	end = base_min_u64(bytes, from + WINDOW);
	while (end < bytes && continues(p->text[end]))
		end++;
	fputs(from ? "  ..." : "  ", stderr);
	put_safely(p->text + from, end - from);
	fputs(end < bytes ? "...\n" : "\n", stderr);
	if (!p->column)
		return;
	fputs("  ", stderr);
	for (size_t i = from ? from - 3 : 0; i < at; i++)
		if (i < from || !continues(p->text[i]))
			fputc(' ', stderr);
	fputc('^', stderr);
	for (size_t i = 1; i < marks && at + i < end; i++)
		if (!continues(p->text[at + i]))
			fputc('~', stderr);
	fputc('\n', stderr);
}

static void put_notes(const char *notes)
{
	for (size_t n; notes && *notes; notes += n + (notes[n] == '\n')) {
		n = strcspn(notes, "\n");
		fputs("  ", stderr);
		put_safely(notes, n);
		fputc('\n', stderr);
	}
}

void goal_problems_print(const struct goal_problems *list, const char *name)
{
	for (size_t i = 0; i < list->count; i++) {
		const struct goal_problem *p = &list->all[i];

		fprintf(stderr, "%s:", name);
		if (p->line)
			fprintf(stderr, "%" PRIu64 ":", p->line);
		if (p->line && p->column)
			fprintf(stderr, "%" PRIu32 ":", p->column);
		fputc(' ', stderr);
		put_safely(p->message, strlen(p->message));
		fputc('\n', stderr);
		if (p->text)
			put_line(p);
		put_notes(p->notes);
	}
	if (list->more)
		fprintf(stderr, "%s: stopped here: there may be more\n", name);
}

void goal_problems_free(struct goal_problems *list)
{
	for (size_t i = 0; i < list->count; i++) {
		free(list->all[i].message);
		free(list->all[i].text);
		free(list->all[i].notes);
	}
	free(list->all);
	*list = (struct goal_problems){ 0 };
}
