/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of options: lookup, and the nearest name to a wrong one. */
#include <string.h>

#include "base/internal.h"

enum { NAME_BYTES = 64 }; /* longest name to compare with the table */

unsigned base_edit_distance(const char *a, const char *b)
{
	unsigned rows[3][NAME_BYTES + 1];
	size_t a_len = strnlen(a, NAME_BYTES), b_len = strnlen(b, NAME_BYTES);
	unsigned *before = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= b_len; j++)
		above[j] = (unsigned)j;
	for (size_t i = 1; i <= a_len; i++) {
		unsigned *unused = before;

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_len; j++) {
			unsigned best = above[j - 1] + (a[i - 1] != b[j - 1]);

			best = (unsigned)base_min_u64(best, base_min_u64(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = (unsigned)base_min_u64(best, before[j - 2] + 1);
			row[j] = best;
		}
		before = above;
		above = row;
		row = unused;
	}
	return above[b_len];
}

/* Users forget the folder: SLUICE_THRESHOLD counts as one edit from SLUICE_COLL_THRESHOLD. */
static unsigned name_distance(const char *name, const char *option)
{
	unsigned distance = base_edit_distance(name, option);
	const char *tail = strchr(name, '_');
	const char *folder = strchr(option, '_');
	const char *option_tail = folder ? strchr(folder + 1, '_') : NULL;

	if (tail && option_tail)
		distance = (unsigned)base_min_u64(distance,
						  1 + base_edit_distance(tail, option_tail));
	return distance;
}

/* Searches the variables, or the members of a list. */
static bool is_candidate(const struct base_option *list, const struct base_option *o)
{
	return list ? option_is_member(list, o) : o->group <= BASE_GROUP_GOAL;
}

static const char *nearest(const struct base_option *list, const char *name, unsigned *out_distance)
{
	const char *found = NULL;

	*out_distance = UINT32_MAX;
	for (size_t i = 0; i < base_option_count; i++) {
		const struct base_option *o = &base_option_table[i];
		unsigned distance = is_candidate(list, o) ? name_distance(name, o->name)
							  : UINT32_MAX;

		if (distance >= *out_distance)
			continue;
		*out_distance = distance;
		found = o->name;
	}
	return found;
}

const char *base_option_nearest(const char *name)
{
	const char *tail = strchr(name, '_'), *found;
	size_t tail_len = strlen(tail ? tail : name);
	unsigned distance;

	if (strlen(name) > NAME_BYTES)
		return NULL;
	found = nearest(NULL, name, &distance);
	return distance <= base_max_u64(2, tail_len / 3) ? found : NULL;
}

const char *option_nearest_member(const struct base_option *list, const char *name, size_t length)
{
	char text[NAME_BYTES + 1];
	unsigned distance;

	snprintf(text, sizeof text, "%.*s", (int)base_min_u64(length, NAME_BYTES), name);
	return nearest(list, text, &distance);
}

struct base_option *option_find(const char *name, size_t length)
{
	for (size_t i = 0; i < base_option_count; i++) {
		const char *candidate = base_option_table[i].name;

		if (!strncmp(candidate, name, length) && !candidate[length])
			return &base_option_table[i];
	}
	return NULL;
}

bool option_is_member(const struct base_option *list, const struct base_option *o)
{
	/* tests set tuning values and parts of other options, too */
	return o->group == list->members ||
	       (list->members == BASE_GROUP_TEST &&
		(o->group == BASE_GROUP_TUNE || o->group == BASE_GROUP_WORKERS));
}

const struct option_old_name *option_find_old(const char *name, size_t length)
{
	const size_t prefix = strlen(OPTION_PREFIX);

	if (length <= prefix || strncmp(name, OPTION_PREFIX, prefix))
		return NULL;
	for (size_t i = 0; i < option_old_name_count; i++) {
		const char *old = option_old_names[i].name;

		if (!strncmp(old, name + prefix, length - prefix) && !old[length - prefix])
			return &option_old_names[i];
	}
	return NULL;
}

void option_spelling(const struct base_option *o, const char *text, char *out, size_t cap)
{
	switch (o->group) {
	case BASE_GROUP_COLL:
		snprintf(out, cap, "SLUICE_COLL=%s:%.60s", o->name, text);
		return;
	case BASE_GROUP_WORKERS:
		snprintf(out, cap, "SLUICE_WORKERS=%s%.60s",
			 o->type == BASE_OPT_STRING ? "@" : "", text);
		return;
	case BASE_GROUP_TUNE:
		snprintf(out, cap, "\"%s = %.60s\" in a tune file (SLUICE_TUNE=FILE)", o->name,
			 text);
		return;
	case BASE_GROUP_TEST:
		snprintf(out, cap, "SLUICE_TEST=%s=%.60s", o->name, text);
		return;
	default:
		snprintf(out, cap, "%s=%.60s", o->name, text);
		return;
	}
}
