/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of base/ only. */
#ifndef SLUICE_BASE_INTERNAL_H
#define SLUICE_BASE_INTERNAL_H

#include "base/base.h"

/*
 * Take over SLUICE_FAULT. Returns 0, or -EINVAL when it is not a list of name:n and name:all, upon
 * which nothing is injected. Restarts the count of calls.
 */
int base_fault_load(const char *spec);

/* A whole decimal number and nothing else. 0 or -EINVAL. */
int base_parse_int(const char *text, int64_t *out);

/* ---- option_table.c ---------------------------------------------------------------------- */

#define OPTION_PREFIX "SLUICE_"
/* A name of earlier versions, without the prefix. now: the name of the row that has its value;
 * NULL: no row. */
struct option_old_name { const char *name, *now; };
extern const struct option_old_name option_old_names[];
extern const size_t option_old_name_count;

/* ---- option_values.c --------------------------------------------------------------------- */

/* The value of one option that is no list. Returns: 0, -EINVAL (not of this type), -ERANGE or
 * -ENAMETOOLONG; writes the value only on 0. */
int option_set(const struct base_option *o, const char *text);
/* Forgets the texts of all values. */
void option_strings_reset(void);

/* ---- option_names.c ---------------------------------------------------------------------- */

/* The row of this name, a variable or a member. Returns: NULL, there is none. */
struct base_option *option_find(const char *name, size_t length);
const struct option_old_name *option_find_old(const char *name, size_t length);
bool option_is_member(const struct base_option *list, const struct base_option *o);
const char *option_nearest_member(const struct base_option *list, const char *name, size_t length);
/* How a user writes this value: "SLUICE_COLL=bcast:on". */
void option_spelling(const struct base_option *o, const char *text, char *out, size_t cap);

#endif
