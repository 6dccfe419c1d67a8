/* SPDX-License-Identifier: BSD-3-Clause */
/* text: what `sluice info` prints: columns that line up, and JSON. */
#ifndef SLUICE_TOOL_TEXT_H
#define SLUICE_TOOL_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_COLUMNS 6

/*
 * Rows of cells, printed with each column as wide as its widest cell; the last cell of a row is not
 * padded. Owner: the caller frees with text_table_free(). Cells are copied.
 */
struct text_table {
	char *(*rows)[TEXT_COLUMNS];
	size_t count, cap;
};
/* Up to TEXT_COLUMNS cells, ended by NULL. */
void text_table_row(struct text_table *t, const char *first, ...) __attribute__((sentinel));
void text_table_print(const struct text_table *t, const char *indent, FILE *out);
void text_table_free(struct text_table *t);

/*
 * JSON, pretty-printed as it goes. key NULL: an element of an array (or the outermost value).
 * Strings are escaped; bytes that are not UTF-8 become '?'. text NULL is null.
 */
struct text_json {
	FILE *out;
	unsigned depth;
	bool has_member; /* something stands before the next member */
};
void text_json_open(struct text_json *j, const char *key, char bracket); /* '{' or '[' */
void text_json_close(struct text_json *j, char bracket);                 /* '}' or ']' */
void text_json_string(struct text_json *j, const char *key, const char *text);
void text_json_uint(struct text_json *j, const char *key, uint64_t n);
void text_json_int(struct text_json *j, const char *key, int64_t n);
void text_json_quote(FILE *out, const char *text); /* one string, in quotes */
void text_json_bool(struct text_json *j, const char *key, bool b);

#endif
