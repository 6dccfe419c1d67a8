/* SPDX-License-Identifier: BSD-3-Clause */
/* text: tables and JSON. */
#ifndef SLUICE_TOOL_TEXT_H
#define SLUICE_TOOL_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_COLUMNS 6

/* A table, printed with each column as wide as its widest cell; the last cell of a row is not
 * padded. Copies the cells. Owner: the caller, until text_table_free(). */
struct text_table {
	char *(*rows)[TEXT_COLUMNS];
	size_t count, cap;
};
/* Adds a row of up to TEXT_COLUMNS cells, terminated by NULL. */
void text_table_row(struct text_table *t, const char *first, ...) __attribute__((sentinel));
void text_table_print(const struct text_table *t, const char *indent, FILE *out);
void text_table_free(struct text_table *t);

/* A JSON writer. key NULL: an element of an array, or the outermost value. Escapes strings; bytes
 * that are not UTF-8 become '?'; text NULL becomes null. */
struct text_json {
	FILE *out;
	unsigned depth;
	bool has_member; /* the next member needs a comma */
};
void text_json_open(struct text_json *j, const char *key, char bracket); /* '{' or '[' */
void text_json_close(struct text_json *j, char bracket);                 /* '}' or ']' */
void text_json_string(struct text_json *j, const char *key, const char *text);
void text_json_uint(struct text_json *j, const char *key, uint64_t n);
void text_json_int(struct text_json *j, const char *key, int64_t n);
void text_json_quote(FILE *out, const char *text); /* one quoted string */
void text_json_bool(struct text_json *j, const char *key, bool b);

#endif
