/* SPDX-License-Identifier: BSD-3-Clause */
/* Entries of other libraries' procedure linkage tables. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"

static uintptr_t dynamic_value(const ElfW(Dyn) * d, ElfW(Sxword) tag)
{
	for (; d->d_tag != DT_NULL; d++)
		if (d->d_tag == tag)
			return d->d_un.d_ptr;
	return 0;
}

/* Writes one entry of a table that the loader may have made read-only. No hook sees the calls. */
static bool write_entry(void **entry, void *value, bool is_read_only)
{
	uintptr_t page = (uintptr_t)entry & ~(OS_PAGE - 1);

	if (is_read_only && syscall(SYS_mprotect, page, OS_PAGE, PROT_READ | PROT_WRITE))
		return false;
	__atomic_store_n(entry, value, __ATOMIC_RELEASE);
	if (is_read_only)
		syscall(SYS_mprotect, page, OS_PAGE, PROT_READ);
	return true;
}

/* Returns: the function that the entry leads to; NULL: it leads back to the loader. */
static void *bound_to(void *function, uintptr_t base)
{
	Dl_info info;

	return dladdr(function, &info) && (uintptr_t)info.dli_fbase != base ? function : NULL;
}

/* Returns: the entry of a function in a library's table; NULL: the library does not call it so. */
static void **find_entry(const char *name, uintptr_t base, const void *dynamic)
{
	const ElfW(Rela) *rela = (const void *)dynamic_value(dynamic, DT_JMPREL);
	const ElfW(Rela) *end =
		(const void *)((const char *)rela + dynamic_value(dynamic, DT_PLTRELSZ));
	const ElfW(Sym) *symbols = (const void *)dynamic_value(dynamic, DT_SYMTAB);
	const char *names = (const char *)dynamic_value(dynamic, DT_STRTAB);

	for (; rela && rela < end; rela++)
		if (!strcmp(names + symbols[ELF64_R_SYM(rela->r_info)].st_name, name))
			return (void **)(base + rela->r_offset);
	return NULL;
}

bool os_has_import(const char *name, uintptr_t base, const void *dynamic)
{
	return find_entry(name, base, dynamic);
}

bool os_replace_import(struct os_import *import, uintptr_t base, const void *dynamic)
{
	void **entry = find_entry(import->name, base, dynamic), *before;
	bool is_read_only = dynamic_value(dynamic, DT_BIND_NOW) ||
			    dynamic_value(dynamic, DT_FLAGS) & DF_BIND_NOW ||
			    dynamic_value(dynamic, DT_FLAGS_1) & DF_1_NOW;

	if (!entry)
		return false;
	before = bound_to(*entry, base);
	if (before)
		import->next = before;
	return import->next && before != import->by &&
	       write_entry(entry, import->by, is_read_only);
}
