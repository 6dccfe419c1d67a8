/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/elf_view.h"

#include <errno.h>
#include <string.h>

#define SYM_GUESS_MAX ((size_t)1 << 16)

bool elf_view_is_elf(const void *base, size_t size_bytes)
{
	return size_bytes >= SELFMAG && memcmp(base, ELFMAG, SELFMAG) == 0;
}

/* [offset, offset + bytes) of the file, or NULL when it does not lie in it or is misaligned. */
static const void *file_range(const struct elf_view *v, uint64_t offset, uint64_t bytes)
{
	if (offset > v->size_bytes || bytes > v->size_bytes - offset || offset % 8)
		return NULL;
	return v->base + offset;
}

/* File offset of a virtual address and the bytes that the segment holds from there. */
static bool address_to_offset(const struct elf_view *v, uint64_t addr, uint64_t *offset,
			      uint64_t *bytes)
{
	for (size_t i = 0; i < v->phdr_count; i++) {
		const Elf64_Phdr *p = &v->phdr[i];

		if (p->p_type != PT_LOAD || addr < p->p_vaddr || addr - p->p_vaddr >= p->p_filesz)
			continue;
		*offset = p->p_offset + (addr - p->p_vaddr);
		*bytes = p->p_filesz - (addr - p->p_vaddr);
		return *offset <= v->size_bytes && *bytes <= v->size_bytes - *offset;
	}
	return false;
}

static uint64_t dyn_value(const struct elf_view *v, int64_t tag)
{
	for (size_t i = 0; i < v->dyn_count && v->dyn[i].d_tag != DT_NULL; i++)
		if (v->dyn[i].d_tag == tag)
			return v->dyn[i].d_un.d_val;
	return 0;
}

/* Nothing in the dynamic section counts the symbols. The section headers do; where they were
 * stripped, linkers have put the strings right after the symbols. */
static size_t count_symbols(const struct elf_view *v, uint64_t sym_addr, uint64_t str_addr,
			    uint64_t limit_bytes)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)v->base;
	const Elf64_Shdr *s = file_range(v, e->e_shoff, (uint64_t)e->e_shnum * sizeof(*s));
	uint64_t bytes = 0;

	if (s && e->e_shoff && e->e_shentsize == sizeof(*s))
		for (size_t i = 0; i < e->e_shnum; i++)
			if (s[i].sh_type == SHT_DYNSYM && s[i].sh_addr == sym_addr)
				bytes = s[i].sh_size;
	if (!bytes && str_addr > sym_addr)
		bytes = str_addr - sym_addr;
	if (bytes > limit_bytes)
		bytes = limit_bytes;
	if (bytes / sizeof(Elf64_Sym) > SYM_GUESS_MAX)
		return SYM_GUESS_MAX;
	return bytes / sizeof(Elf64_Sym);
}

static int open_dynamic(struct elf_view *v)
{
	uint64_t offset, bytes, sym_addr, str_addr;

	str_addr = dyn_value(v, DT_STRTAB);
	v->str_bytes = dyn_value(v, DT_STRSZ);
	if (!address_to_offset(v, str_addr, &offset, &bytes) || !v->str_bytes ||
	    v->str_bytes > bytes)
		return -EINVAL;
	v->str = (const char *)v->base + offset;
	if (v->str[v->str_bytes - 1])
		return -EINVAL;
	sym_addr = dyn_value(v, DT_SYMTAB);
	if (!address_to_offset(v, sym_addr, &offset, &bytes) || offset % 8)
		return -EINVAL;
	v->sym = (const Elf64_Sym *)(v->base + offset);
	v->sym_count = count_symbols(v, sym_addr, str_addr, bytes);
	return v->sym_count ? 0 : -EINVAL;
}

static int open_interp(struct elf_view *v, const Elf64_Phdr *p)
{
	if (p->p_offset > v->size_bytes || p->p_filesz > v->size_bytes - p->p_offset ||
	    !p->p_filesz || v->base[p->p_offset + p->p_filesz - 1])
		return -EINVAL;
	v->interp = (const char *)v->base + p->p_offset;
	return 0;
}

int elf_view_open(const void *base, size_t size_bytes, struct elf_view *out)
{
	struct elf_view v = { .base = base, .size_bytes = size_bytes };
	const Elf64_Ehdr *e = base;
	int rc;

	if (size_bytes < sizeof(*e) || !elf_view_is_elf(base, size_bytes))
		return -EINVAL;
	if (e->e_ident[EI_CLASS] != ELFCLASS64 || e->e_machine != EM_X86_64)
		return -ENOEXEC;
	v.phdr_count = e->e_phnum;
	v.phdr = file_range(&v, e->e_phoff, v.phdr_count * sizeof(*v.phdr));
	if (!v.phdr || e->e_phentsize != sizeof(*v.phdr))
		return -EINVAL;
	for (size_t i = 0; i < v.phdr_count; i++) {
		const Elf64_Phdr *p = &v.phdr[i];

		if (p->p_type == PT_INTERP && (rc = open_interp(&v, p)))
			return rc;
		if (p->p_type != PT_DYNAMIC)
			continue;
		v.dyn = file_range(&v, p->p_offset, p->p_filesz);
		v.dyn_count = p->p_filesz / sizeof(*v.dyn);
		if (!v.dyn)
			return -EINVAL;
	}
	if (v.dyn && (rc = open_dynamic(&v)))
		return rc;
	*out = v;
	return 0;
}

const char *elf_view_string(const struct elf_view *v, uint64_t offset)
{
	return offset < v->str_bytes ? v->str + offset : "";
}
