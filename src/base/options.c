/* SPDX-License-Identifier: BSD-3-Clause */
/* The values in force, from the environment and a tune file. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/internal.h"

enum { LIST_BYTES = 2048 }; /* longest value of a list */

/* Lines for the user, truncated at a line. */
struct problems {
	char *text;
	size_t cap, used;
	unsigned errors; /* the other lines are notices */
};

__attribute__((format(printf, 2, 3)))
static void line_add(struct problems *p, const char *fmt, ...)
{
	size_t room = p->cap - p->used;
	va_list args;
	int n;

	if (!room)
		return;
	va_start(args, fmt);
	n = vsnprintf(p->text + p->used, room, fmt, args);
	va_end(args);
	if (n < 0 || (size_t)n + 1 >= room) {
		p->text[p->used] = 0;
		p->cap = p->used; /* no line after the first truncated line */
		return;
	}
	p->used += (size_t)n;
	p->text[p->used++] = '\n';
	p->text[p->used] = 0;
}

/* p: NULL where the caller reports the problem. Returns: -EINVAL. */
#define FAIL(p, ...) ((p) ? ((p)->errors++, line_add(p, __VA_ARGS__), -EINVAL) : -EINVAL)

/* ---- one option ---------------------------------------------------------------------------- */

static int set_wrong(const struct base_option *o, const char *text, struct problems *p)
{
	char wanted[256];

	base_option_describe(o, wanted, sizeof(wanted));
	return FAIL(p, "%s=%.80s is wrong: it takes %s", o->name, text, wanted);
}

/* The environment counts more than a tune file. */
static int set_one(struct base_option *o, const char *text, enum base_option_source source,
		   struct problems *p)
{
	const char *now = option_new_value(o, text);
	int ret;

	if (source == BASE_SRC_TUNED && !o->is_tunable)
		return -EPERM;
	if (source == BASE_SRC_TUNED && o->source == BASE_SRC_ENV)
		return 0;
	ret = option_set(o, now ? now : text);
	if (!ret && now && p)
		line_add(p, "sluice: %s=%s is an old value; the next version takes %s=%s only",
			 o->name, text, o->name, now);
	if (ret)
		return p ? set_wrong(o, text, p) : ret;
	o->source = source;
	return 0;
}

static struct base_option *find_member(const struct base_option *list, const char *name,
				       size_t length)
{
	struct base_option *m = option_find(name, length);

	return m && option_is_member(list, m) ? m : NULL;
}

/* Returns: the comma that ends the value of m. Texts contain commas: the next name ends a text. */
static char *value_end(const struct base_option *list, const struct base_option *m, char *value)
{
	char *comma = strchr(value, ',');

	while (comma && m->type == BASE_OPT_STRING &&
	       !find_member(list, comma + 1, strcspn(comma + 1, "=,")))
		comma = strchr(comma + 1, ',');
	return comma;
}

/* "all:off": sets every member of SLUICE_COLL but `device`, which is not a kind of collectives. */
static int set_all(const struct base_option *list, const char *text,
		   enum base_option_source source, struct problems *p)
{
	int ret = 0;

	for (size_t i = 0; i < base_option_count && !ret; i++)
		if (option_is_member(list, &base_option_table[i]) &&
		    base_option_table[i].type == BASE_OPT_ENUM)
			ret = set_one(&base_option_table[i], text, source, p);
	return ret;
}

static int set_members(struct base_option *o, char *text, enum base_option_source source,
		       struct problems *p)
{
	char separator = o->members == BASE_GROUP_COLL ? ':' : '=', *at, *end;
	struct base_option *m;

	for (; text; text = end) {
		at = strchr(text, separator);
		if (o->members == BASE_GROUP_COLL && base_alike(text, "all:", 4)) {
			end = strchr(text, ',');
			if (end)
				*end++ = '\0';
			if (set_all(o, text + 4, source, p))
				return -EINVAL;
			continue;
		}
		m = at ? find_member(o, text, (size_t)(at - text)) : NULL;
		if (!m && p && at)
			return FAIL(p, "%s: %.*s is not one of its names; the nearest is %s",
				    o->name, (int)(at - text), text,
				    option_nearest_member(o, text, (size_t)(at - text)));
		if (!m)
			return set_wrong(o, text, p);
		end = value_end(o, m, at + 1);
		if (end)
			*end++ = '\0';
		if (set_one(m, at + 1, source, p))
			return -EINVAL;
	}
	return 0;
}

/* "2", "auto", "2@1,4-7", "@1,4-7" */
static int set_workers(struct base_option *o, char *text, enum base_option_source source,
		       struct problems *p)
{
	char *cpus = strchr(text, '@');
	int ret = 0;

	if (cpus)
		*cpus++ = '\0';
	if (*text)
		ret = set_one(option_find("workers", 7), base_is_word(text, "auto") ? "-1" : text,
			      source, NULL);
	if (!ret && cpus)
		ret = set_one(option_find("worker_cpus", 11), cpus, source, NULL);
	if (!ret || !p)
		return ret;
	if (cpus)
		cpus[-1] = '@';
	return set_wrong(o, text, p);
}

static int set_list(struct base_option *o, const char *text, enum base_option_source source,
		    struct problems *p)
{
	char copy[LIST_BYTES];
	int ret = 0;

	if (source == BASE_SRC_TUNED && !o->is_tunable)
		return -EPERM;
	if (strlen(text) >= sizeof copy)
		return set_wrong(o, text, p);
	strcpy(copy, text);
	if (o->members == BASE_GROUP_WORKERS)
		ret = set_workers(o, copy, source, p);
	else if (*text && !base_is_word(text, o->dflt))
		ret = set_members(o, copy, source, p);
	if (!ret)
		o->source = source;
	return ret;
}

static int set(struct base_option *o, const char *text, enum base_option_source source,
	       struct problems *p)
{
	return (o->type == BASE_OPT_LIST ? set_list : set_one)(o, text, source, p);
}

/* ---- the environment --------------------------------------------------------------------- */

static void load_unknown(const char *entry, size_t length, struct problems *p)
{
	char name[256];
	const char *nearest;

	snprintf(name, sizeof(name), "%.*s", (int)length, entry);
	nearest = base_option_nearest(name);
	p->errors++;
	if (nearest)
		line_add(p, "%s is not an option; the nearest is %s", name, nearest);
	else
		line_add(p, "%s is not an option, and no option has a similar name", name);
}

/* Names of earlier versions set the value, and one line tells the new name. */
static void load_old(const struct option_old_name *old, const char *text, struct problems *p)
{
	struct base_option *o = old->now ? option_find(old->now, strlen(old->now)) : NULL;
	char now[256];

	if (!o) {
		line_add(p, "sluice: " OPTION_PREFIX "%s has no effect any more", old->name);
		return;
	}
	if (set(o, text, BASE_SRC_ENV, p))
		return;
	option_spelling(o, text, now, sizeof now);
	line_add(p, "sluice: " OPTION_PREFIX "%s is an old name; the next version takes %s only",
		 old->name, now);
}

static void load_entry(const char *entry, struct problems *p)
{
	size_t length = strcspn(entry, "=");
	const struct option_old_name *old;
	struct base_option *o;

	if (strncmp(entry, "SLUICE", 6) || (length > 6 && entry[6] != '_') || !entry[length])
		return;
	o = option_find(entry, length);
	old = option_find_old(entry, length);
	if (o)
		set(o, entry + length + 1, BASE_SRC_ENV, p);
	else if (old)
		load_old(old, entry + length + 1, p);
	else
		load_unknown(entry, length, p);
}

int base_options_load(char *const *environ_block, char *problems, size_t cap)
{
	struct problems found = { .text = problems, .cap = cap };

	option_strings_reset();
	if (cap)
		problems[0] = 0;
	for (size_t i = 0; i < base_option_count; i++) {
		option_set(&base_option_table[i], base_option_table[i].dflt);
		base_option_table[i].source = BASE_SRC_DEFAULT;
	}
	if (!environ_block)
		environ_block = environ;
	for (; environ_block && *environ_block; environ_block++)
		load_entry(*environ_block, &found);
	base_opt.usable = !found.errors;
	return found.errors ? -EINVAL : 0;
}

/* ---- the tune file ------------------------------------------------------------------------- */

int base_option_tune(const char *name, const char *text)
{
	const struct option_old_name *old = option_find_old(name, strlen(name));
	struct base_option *o;

	if (old)
		name = old->now ? old->now : "";
	o = option_find(name, strlen(name));
	return o ? set(o, text, BASE_SRC_TUNED, NULL) : -ENOENT;
}

void base_options_untune(bool only_shared)
{
	for (size_t i = 0; i < base_option_count; i++) {
		struct base_option *o = &base_option_table[i];

		if (o->source != BASE_SRC_TUNED || (only_shared && !o->shared))
			continue;
		option_set(o, o->dflt);
		o->source = BASE_SRC_DEFAULT;
	}
}

const char *base_option_source_name(enum base_option_source source)
{
	static const char *const names[] = {
		[BASE_SRC_DEFAULT] = "default",
		[BASE_SRC_TUNED] = "tune file",
		[BASE_SRC_ENV] = "environment",
	};

	return names[source];
}

/* ---- what ranks agree on ------------------------------------------------------------------- */

static uint64_t agreed_elsewhere;

void base_options_agree(uint64_t hash) { agreed_elsewhere = hash; }

uint64_t base_options_hash(void)
{
	uint64_t hash = BASE_HASH_START ^ agreed_elsewhere;
	char text[128];

	for (size_t i = 0; i < base_option_count; i++) {
		if (!base_option_table[i].shared)
			continue;
		base_option_print(&base_option_table[i], text, sizeof(text));
		hash = base_hash(hash, text, strlen(text) + 1);
	}
	return hash;
}
