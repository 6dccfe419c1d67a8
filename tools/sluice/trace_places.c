/* SPDX-License-Identifier: BSD-3-Clause */
/* Sites of one process -> places of all. Nothing in the file is trusted. */
#include <string.h>

#include "trace_data.h"

static const struct trace_site *site_at(const struct trace_process *p, uint32_t i)
{
	return (const struct trace_site *)(p->base + TRACE_SITES_AT) + i;
}

static uint32_t place_find(const struct trace_place *all, size_t count, const char *name,
			   const char *module, uint64_t offset)
{
	uint32_t i = 0;

	while (i < count && (all[i].offset != offset || strcmp(all[i].name, name) != 0 ||
			     strcmp(all[i].module, module) != 0))
		i++;
	return i;
}

static uint32_t place_index(struct trace_data *d, bool is_message, const char *name,
			    const char *module, uint64_t offset)
{
	const struct trace_place *all = is_message ? d->messages : d->places;
	size_t count = is_message ? d->messages_count : d->places_count;
	uint32_t i = place_find(all, count, name, module, offset);
	struct trace_place *p;

	if (i < count)
		return i;
	p = is_message ? TRACE_ADD(d, messages) : TRACE_ADD(d, places);
	p->name = name;
	p->module = module;
	p->offset = offset;
	return i;
}

/* The file of a running program changes: what was read once counts. */
bool trace_is_of_messages(const struct trace_process *p, uint32_t site)
{
	return p->place_of_site[site] & TRACE_OF_MESSAGES;
}

struct trace_place *trace_place_of(struct trace_data *d, const struct trace_process *p,
				   uint32_t site)
{
	uint32_t i = p->place_of_site[site] & ~TRACE_OF_MESSAGES;

	return trace_is_of_messages(p, site) ? &d->messages[i] : &d->places[i];
}

uint32_t trace_place_of_record(const struct trace_process *p, uint16_t site)
{
	return site <= TRACE_SITES && !trace_is_of_messages(p, site) ? p->place_of_site[site] : 0;
}

static const char *module_path(const struct trace_process *p, uint16_t module, uint64_t *out_base)
{
	const struct trace_module *m =
		(const struct trace_module *)(p->base + TRACE_MODULES_AT) + module - 1;

	*out_base = 0;
	if (!module || module > TRACE_MODULES || m->path[sizeof m->path - 1])
		return "";
	*out_base = m->base;
	return m->path;
}

void trace_places_read(struct trace_data *d, struct trace_process *p)
{
	p->place_of_site = trace_alloc((TRACE_SITES + 1) * sizeof *p->place_of_site);
	for (uint32_t i = 0; i <= TRACE_SITES; i++) {
		const struct trace_site *s = site_at(p, i);
		const char *name = trace_text_of(p, s->name), *path;
		bool is_message;
		uint64_t base;

		path = module_path(p, s->module, &base);
		if (i && !s->key)
			continue;
		is_message = i && s->is_message;
		p->place_of_site[i] = place_index(d, is_message, i ? name : "?", path,
						  s->address - base) |
				      (is_message ? TRACE_OF_MESSAGES : 0);
		trace_place_of(d, p, i)->is_source |= base & TRACE_SOURCE_BASE;
	}
}
