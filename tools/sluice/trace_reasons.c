/* SPDX-License-Identifier: BSD-3-Clause */
/* Why the host MPI executed a call, in words that name the option to set. */
#include <string.h>
#include <strings.h>

#include "base/base.h"
#include "trace_data.h"

const char *trace_family(const char *function)
{
	const char *name = strncmp(function, "MPI_", 4) ? function : function + 4, *found = "";

	name += !strncasecmp(name, "ex", 2) ? 2 : 0; /* exscan */
	name += name[0] == 'I' && name[1] >= 'a' ? 1 : 0;
	for (size_t i = 0; i < base_option_count; i++) {
		const struct base_option *o = &base_option_table[i];
		size_t n = strlen(o->name);

		if (o->group == BASE_GROUP_COLL && n > strlen(found) &&
		    !strncasecmp(name, o->name, n))
			found = o->name;
	}
	return found;
}

void trace_reason(const char *why, const char *function, char *out, size_t cap)
{
	const char *kind = strstr(why, "KIND");

	if (!*why)
		why = "unknown reason";
	if (kind)
		snprintf(out, cap, "%.*s%s%s", (int)(kind - why), why, trace_family(function),
			 kind + strlen("KIND"));
	else
		snprintf(out, cap, "%s", why);
}
