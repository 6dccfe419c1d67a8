/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of base/ only. */
#ifndef SLUICE_BASE_INTERNAL_H
#define SLUICE_BASE_INTERNAL_H

#include "base/base.h"

/*
 * Reads SLUICE_FAULT and restarts the count of calls.
 * Returns: 0, or -EINVAL when spec is no list of name:n and name:all; then no call fails.
 */
int base_fault_load(const char *spec);

/* Parses a whole decimal number. Returns: 0, or -EINVAL for any other text. */
int base_parse_int(const char *text, int64_t *out);

/* ---- option_table.c ---------------------------------------------------------------------- */

#define OPTION_PREFIX "SLUICE_"
/* A name of earlier versions, without the prefix. now: name of the present row; NULL: none. */
struct option_old_name { const char *name, *now; };
extern const struct option_old_name option_old_names[];
extern const size_t option_old_name_count;
/* Returns: the present name of a value of earlier versions; NULL: it has no other. */
const char *option_new_value(const struct base_option *o, const char *text);

/* ---- option_values.c --------------------------------------------------------------------- */

/* Sets the value of one option that is no list. Returns: 0, -EINVAL (not of this type), -ERANGE or
 * -ENAMETOOLONG; errors leave the value unchanged. */
int option_set(const struct base_option *o, const char *text);
/* Forgets the texts of all values. */
void option_strings_reset(void);

/* ---- option_names.c ---------------------------------------------------------------------- */

/* Returns: the row of this variable or member, or NULL. */
struct base_option *option_find(const char *name, size_t length);
const struct option_old_name *option_find_old(const char *name, size_t length);
bool option_is_member(const struct base_option *list, const struct base_option *o);
const char *option_nearest_member(const struct base_option *list, const char *name, size_t length);
/* Writes a value as the user would: "SLUICE_COLL=bcast:on". */
void option_spelling(const struct base_option *o, const char *text, char *out, size_t cap);

#endif
