/* SPDX-License-Identifier: BSD-3-Clause */
/* The engines, and the choice of one. */
#include <string.h>

#include "engine/private.h"

/* Best first. base/option_table.c lists the same names for SLUICE_ENGINE. */
const struct engine_ops *const engine_registry[] = { &engine_dsa, &engine_kmod, &engine_sw,
						       &engine_fault, NULL };

const struct engine_ops *engine_of_test;

const struct engine_ops *engine_find(const char *name)
{
	for (const struct engine_ops *const *e = engine_registry; *e; e++)
		if (base_is_word((*e)->name, name))
			return *e;
	return engine_of_test && base_is_word(engine_of_test->name, name) ? engine_of_test : NULL;
}

/* Probes an engine; on failure appends "name: reason" to `reason`. */
static bool works(const struct engine_ops *e, char *reason, size_t cap)
{
	char why[256] = "it has no channel";
	size_t used = strlen(reason);

	if (!e->probe(why, sizeof(why)) && e->chan_count(-1) > 0)
		return true;
	snprintf(reason + used, cap - used, "%s%s: %s", used ? "; " : "", e->name, why);
	return false;
}

static const struct engine_ops *pick_best(char *reason, size_t cap)
{
	for (const struct engine_ops *const *e = engine_registry; *e; e++)
		if (!(*e)->is_by_name && works(*e, reason, cap))
			return *e;
	return NULL;
}

/* The device of a tune file may be gone; a user who names one wants no other. */
static bool is_from_tune_file(void)
{
	for (size_t i = 0; i < base_option_count; i++)
		if (base_option_table[i].value == &base_opt.engine)
			return base_option_table[i].source == BASE_SRC_TUNED;
	return false;
}

const struct engine_ops *engine_pick(char *reason, size_t cap)
{
	const struct engine_ops *e;

	reason[0] = 0;
	if (base_is_word(base_opt.engine, "none")) {
		snprintf(reason, cap, "SLUICE_ENGINE=none");
		return NULL;
	}
	if (!base_opt.engine[0] || base_is_word(base_opt.engine, "auto"))
		return pick_best(reason, cap);
	e = engine_find(base_opt.engine);
	if (e && works(e, reason, cap))
		return e;
	return is_from_tune_file() ? pick_best(reason, cap) : NULL;
}

void engine_after_fork_child(void)
{
	for (const struct engine_ops *const *e = engine_registry; *e; e++)
		if ((*e)->after_fork_child)
			(*e)->after_fork_child();
	if (engine_of_test)
		engine_of_test->after_fork_child();
}
