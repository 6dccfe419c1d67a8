/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions and lines by elfutils, from DWARF, also in separate debug files. */
#include <elfutils/libdwfl.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "trace_data.h"

/* One open file at a time, as a program has few modules. */
static struct {
	Dwfl *dwfl;
	Dwfl_Module *module;
	char path[4096];
} open_file;

static bool open_module(const char *path)
{
	static char *debug_path;
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_build_id_find_elf,
		.find_debuginfo = dwfl_standard_find_debuginfo,
		.section_address = dwfl_offline_section_address,
		.debuginfo_path = &debug_path,
	};

	if (!strcmp(open_file.path, path))
		return open_file.module;
	if (open_file.dwfl)
		dwfl_end(open_file.dwfl);
	snprintf(open_file.path, sizeof open_file.path, "%s", path);
	open_file.module = NULL;
	open_file.dwfl = dwfl_begin(&callbacks);
	if (!open_file.dwfl)
		return false;
	dwfl_report_begin(open_file.dwfl);
	open_file.module = dwfl_report_elf(open_file.dwfl, path, path, -1, 0, true);
	dwfl_report_end(open_file.dwfl, NULL, NULL);
	return open_file.module;
}

void trace_symbol_find(const char *module, uint64_t offset, struct trace_symbol *out)
{
	const char *name, *file;
	uint64_t address = offset - 1; /* inside the call instruction */
	GElf_Off in_symbol;
	Dwfl_Line *line;
	GElf_Sym sym;
	int number;

	*out = (struct trace_symbol){ 0 };
	if (!module[0] || !open_module(module))
		return;
	name = dwfl_module_addrinfo(open_file.module, address, &in_symbol, &sym, NULL, NULL, NULL);
	if (name)
		trace_symbol_name(out, name);
	line = dwfl_module_getsrc(open_file.module, address);
	file = line ? dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
	if (file)
		snprintf(out->where, sizeof out->where, "%s:%d", base_file_name(file), number);
}
