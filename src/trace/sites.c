/* SPDX-License-Identifier: BSD-3-Clause */
/* The place of a call in the program and the loaded file that contains it, as the trace must
 * identify them when the process is gone. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "trace/private.h"

/* Returns: 1 + the index of the module loaded at `base`, or 0 when the table is full. */
static uint16_t module_index(const char *path, uint64_t base)
{
	struct trace_module *all = file_modules();
	uint32_t count = atomic_load_explicit(&file_header()->module_count, memory_order_acquire),
		 i;

	for (i = 0; i < base_min_u64(count, TRACE_MODULES); i++)
		if (all[i].base == base && all[i].path[0])
			return (uint16_t)(i + 1);
	/* two threads may enter one module twice, without harm */
	i = atomic_fetch_add_explicit(&file_header()->module_count, 1, memory_order_acq_rel);
	if (i >= TRACE_MODULES)
		return 0;
	all[i].base = base;
	memcpy(all[i].path, path, base_min_u64(strlen(path), sizeof all[i].path - 1));
	return (uint16_t)(i + 1);
}

static uint16_t module_of(uint64_t address)
{
	char self[sizeof file_modules()->path];
	const char *path;
	struct link_map *map;
	Dl_info info;
	ssize_t n;

	if (address & TRACE_SOURCE_BASE)
		return module_index(python_last_path(), address & ~(uint64_t)TRACE_SOURCE_LINES);
	if (!address ||
	    !dladdr1((void *)(uintptr_t)address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
		return 0;
	path = map->l_name;
	if (!path || !path[0]) { /* the program itself */
		n = readlink("/proc/self/exe", self, sizeof self - 1);
		self[n > 0 ? n : 0] = 0;
		path = n > 0 ? self : info.dli_fname;
	}
	return module_index(path, map->l_addr);
}

static void fill(struct trace_site *s, const char *name, uint64_t address)
{
	s->address = address;
	s->name = text_index(name);
	atomic_store_explicit(&s->module, module_of(address),
			      memory_order_release); /* partner: the file's reader */
}

uint16_t site_index(const char *name, const void *address)
{
	struct trace_site *all = file_sites();
	bool is_new;
	uint16_t k = key_find(all, sizeof *all, TRACE_SITES, site_key(name, address), &is_new);

	if (is_new)
		fill(&all[k], name, (uintptr_t)address);
	return k;
}
