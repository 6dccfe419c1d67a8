/* SPDX-License-Identifier: BSD-3-Clause */
/* Names for places: function and line if known, else module+offset. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "trace_data.h"

/* A C++ name as in the source, to be freed; NULL for other names, or without libstdc++. */
static char *demangled(const char *name)
{
	static char *(*demangle)(const char *name, char *out, size_t *bytes, int *status);
	static bool is_sought;
	int status;

	if (strncmp(name, "_Z", 2))
		return NULL;
	if (!is_sought) {
		void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);

		*(void **)&demangle = library ? dlsym(library, "__cxa_demangle") : NULL;
		is_sought = true;
	}
	return demangle ? demangle(name, NULL, NULL, &status) : NULL;
}

/* Cuts the parameters and what follows: they can fill lines, and the place says which it is. */
static void cut_parameters(char *name)
{
	char *p = strrchr(name, ')');
	int depth = 0;

	for (; p && p > name; p--) {
		depth += (*p == ')') - (*p == '(');
		if (!depth) {
			*p = 0;
			return;
		}
	}
}

void trace_symbol_name(struct trace_symbol *out, const char *name)
{
	char *plain = demangled(name);

	if (plain)
		cut_parameters(plain);
	snprintf(out->function, sizeof out->function, "%s", plain ? plain : name);
	free(plain);
}

static void name_places(struct trace_place *all, size_t count)
{
	for (struct trace_place *p = all; p < all + count; p++) {
		const char *slash = strrchr(p->module, '/');
		struct trace_symbol s;
		char where[600];

		if (p->is_source)
			s = (struct trace_symbol){ 0 };
		else
			trace_symbol_find(p->module, p->offset, &s);
		if (p->is_source)
			snprintf(where, sizeof where, "%s:%" PRIu64,
				 slash ? slash + 1 : p->module, p->offset);
		else if (s.where[0])
			snprintf(where, sizeof where, "%s", s.where);
		else if (p->module[0])
			snprintf(where, sizeof where, "%s+0x%" PRIx64,
				 slash ? slash + 1 : p->module, p->offset);
		else
			snprintf(where, sizeof where, "?");
		p->function = strdup(s.function);
		p->where = strdup(where);
	}
}

void trace_symbols(struct trace_data *d)
{
	name_places(d->places, d->places_count);
	name_places(d->messages, d->messages_count);
}

void trace_caller(const struct trace_place *p, char *out, size_t cap)
{
	if (*p->function)
		snprintf(out, cap, "by %s (%s)", p->function, p->where);
	else
		snprintf(out, cap, "at %s", p->where);
}
