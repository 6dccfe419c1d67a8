/* SPDX-License-Identifier: BSD-3-Clause */
/* The text of a value: parsing, printing, describing. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/internal.h"

enum { STRING_BYTES = 4096 }; /* all string values together, with terminating zeros */

/* Values outlive the environment, which programs overwrite (setproctitle) or free. */
static char string_pool[STRING_BYTES];
static size_t string_used;

void option_strings_reset(void) { string_used = 0; }

bool base_alike(const char *a, const char *b, size_t bytes)
{
	for (; bytes && base_lower(*a) == base_lower(*b); a++, b++, bytes--)
		if (!*a)
			return true;
	return !bytes;
}

static int parse_bool(const char *text, bool *out)
{
	static const char *const words[][2] = {
		{ "off", "on" }, { "0", "1" }, { "no", "yes" }, { "false", "true" },
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(words); i++) {
		for (int value = 0; value < 2; value++) {
			if (!base_is_word(text, words[i][value]))
				continue;
			*out = value;
			return 0;
		}
	}
	return -EINVAL;
}

int base_parse_int(const char *text, int64_t *out)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	/* strtoll() would skip white space */
	if (errno || end == text || *end || !strchr("-0123456789", *text))
		return -EINVAL;
	*out = value;
	return 0;
}

/* A number whose default is a word: the word stands for 0, which lies below the range. */
static bool has_word(const struct base_option *o) { return o->dflt[0] > '9'; }

static int parse_enum(const struct base_option *o, const char *text, int64_t *out)
{
	for (int64_t i = 0; o->choices[i]; i++) {
		if (!base_is_word(text, o->choices[i]))
			continue;
		*out = i;
		return 0;
	}
	return -EINVAL;
}

static int store_string(const struct base_option *o, const char *text)
{
	size_t bytes = strlen(text) + 1;
	int64_t choice;

	if (bytes > sizeof(string_pool) - string_used)
		return -ENAMETOOLONG;
	if (o->value == &base_opt.fault && base_fault_load(text))
		return -EINVAL;
	if (o->choices && parse_enum(o, text, &choice))
		return -EINVAL;
	if (o->value == &base_opt.engine_cpus && base_parse_cpus(text, NULL, 0))
		return -EINVAL;
	memcpy(string_pool + string_used, text, bytes);
	*(const char **)o->value = string_pool + string_used;
	string_used += bytes;
	return 0;
}

int option_set(const struct base_option *o, const char *text)
{
	uint64_t bytes = 0;
	int64_t number = 0;
	int rc;

	switch (o->type) {
	case BASE_OPT_BOOL:
		return parse_bool(text, o->value);
	case BASE_OPT_ENUM:
		return parse_enum(o, text, o->value);
	case BASE_OPT_STRING:
		return store_string(o, text);
	case BASE_OPT_LIST:
		return -EINVAL; /* the caller sets the members one by one */
	case BASE_OPT_BYTES:
		rc = base_parse_bytes(text, &bytes);
		if (rc)
			return rc;
		if (bytes < (uint64_t)o->min || bytes > (uint64_t)o->max)
			return -ERANGE;
		*(uint64_t *)o->value = bytes;
		return 0;
	case BASE_OPT_INT:
		if (has_word(o) && base_is_word(text, o->dflt)) {
			*(int64_t *)o->value = 0;
			return 0;
		}
		for (int64_t i = 0; o->choices && o->choices[i]; i++)
			if (base_is_word(text, o->choices[i])) {
				*(int64_t *)o->value = -1 - i;
				return 0;
			}
		rc = base_parse_int(text, &number);
		if (rc)
			return rc;
		if (number < o->min || number > o->max)
			return -ERANGE;
		*(int64_t *)o->value = number;
		return 0;
	}
	return -EINVAL;
}

static const char *describe_text(const struct base_option *o)
{
	if (o->members == BASE_GROUP_COLL)
		return "a list like bcast:on,gather:off,scan:auto, or all:off";
	if (o->members == BASE_GROUP_WORKERS)
		return "auto or a number, and @ with a list of CPUs, like 2@1,4-7";
	if (o->members == BASE_GROUP_TEST)
		return "a list like region_max=4,fault=memfd:1";
	if (o->value == &base_opt.fault)
		return "a list like name:1,name:all";
	if (o->value == &base_opt.engine_cpus)
		return "a list of CPUs like 1,4-7";
	return "a short text";
}

void base_option_describe(const struct base_option *o, char *buf, size_t cap)
{
	char min[32], max[32];
	size_t used = 0;

	switch (o->type) {
	case BASE_OPT_BOOL:
		snprintf(buf, cap, "on or off");
		return;
	case BASE_OPT_LIST:
	case BASE_OPT_STRING:
		if (!o->choices) {
			snprintf(buf, cap, "%s", describe_text(o));
			return;
		}
		/* fall through */
	case BASE_OPT_ENUM:
		for (int64_t i = 0; o->choices[i] && used < cap; i++)
			used += (size_t)snprintf(buf + used, cap - used, "%s%s",
						 !i ? "" : o->choices[i + 1] ? ", " : " or ",
						 o->choices[i]);
		return;
	case BASE_OPT_BYTES:
		base_format_bytes((uint64_t)o->min, min, sizeof(min));
		base_format_bytes((uint64_t)o->max, max, sizeof(max));
		if (o->max == INT64_MAX)
			snprintf(buf, cap, "a number of bytes like 64K, at least %s", min);
		else
			snprintf(buf, cap, "a number of bytes like 64K, from %s to %s", min, max);
		return;
	case BASE_OPT_INT:
		if (has_word(o))
			used = (size_t)snprintf(buf, cap, "%s, ", o->dflt);
		for (int64_t i = 0; o->choices && o->choices[i]; i++)
			used += (size_t)snprintf(buf + used, cap - used, "%s, ", o->choices[i]);
		if (used)
			used += (size_t)snprintf(buf + used, cap - used, "or ");
		snprintf(buf + used, cap - used,
			 "a whole number from %" PRId64 " to %" PRId64 "%s%s", o->min, o->max,
			 o->unit[0] ? " " : "", o->unit);
		return;
	}
}

/* ---- lists --------------------------------------------------------------------------------- */

static int print_workers(char *buf, size_t cap)
{
	const char *at = base_opt.engine_cpus[0] ? "@" : "";

	if (base_opt.engine_workers < 0)
		return snprintf(buf, cap, "auto%s%s", at, base_opt.engine_cpus);
	return snprintf(buf, cap, "%" PRId64 "%s%s", base_opt.engine_workers, at,
			base_opt.engine_cpus);
}

/* The members that differ from their defaults. */
static int print_list(const struct base_option *o, char *buf, size_t cap)
{
	char separator = o->members == BASE_GROUP_COLL ? ':' : '=', value[256];
	size_t used = 0;

	if (o->members == BASE_GROUP_WORKERS)
		return print_workers(buf, cap);
	for (size_t i = 0; i < base_option_count && used < cap; i++) {
		const struct base_option *m = &base_option_table[i];

		if (!option_is_member(o, m) ||
		    (o->members == BASE_GROUP_TEST && m->source != BASE_SRC_ENV))
			continue;
		base_option_print(m, value, sizeof value);
		if (!strcmp(value, m->dflt))
			continue;
		used += (size_t)snprintf(buf + used, cap - used, "%s%s%c%s", used ? "," : "",
					 m->name, separator, value);
	}
	return used ? (int)used : snprintf(buf, cap, "%s", o->dflt);
}

int base_option_print(const struct base_option *o, char *buf, size_t cap)
{
	switch (o->type) {
	case BASE_OPT_BOOL:
		return snprintf(buf, cap, "%s", *(const bool *)o->value ? "on" : "off");
	case BASE_OPT_BYTES:
		return base_format_bytes(*(const uint64_t *)o->value, buf, cap);
	case BASE_OPT_INT:
		if (has_word(o) && !*(const int64_t *)o->value)
			return snprintf(buf, cap, "%s", o->dflt);
		if (o->choices && *(const int64_t *)o->value < 0)
			return snprintf(buf, cap, "%s",
					o->choices[-1 - *(const int64_t *)o->value]);
		return snprintf(buf, cap, "%" PRId64, *(const int64_t *)o->value);
	case BASE_OPT_ENUM:
		return snprintf(buf, cap, "%s", o->choices[*(const int64_t *)o->value]);
	case BASE_OPT_STRING:
		return snprintf(buf, cap, "%s", *(const char *const *)o->value);
	case BASE_OPT_LIST:
		return print_list(o, buf, cap);
	}
	return 0;
}
