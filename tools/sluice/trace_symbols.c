/* SPDX-License-Identifier: BSD-3-Clause */
/* Names for places: function and line if known, else module+offset. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "trace_data.h"

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
