/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions from the symbol tables of 64-bit ELF files, for builds without elfutils. No lines. */
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "trace_data.h"

struct image {
	const char *base;
	uint64_t bytes;
};

static const void *at(const struct image *im, uint64_t off, uint64_t bytes)
{
	return off <= im->bytes && bytes <= im->bytes - off ? im->base + off : NULL;
}

static void find_in(const struct image *im, const Elf64_Shdr *table, const Elf64_Shdr *strings,
		    uint64_t address, struct trace_symbol *out)
{
	const Elf64_Sym *syms = at(im, table->sh_offset, table->sh_size);
	const char *names = at(im, strings->sh_offset, strings->sh_size);

	for (uint64_t i = 0; syms && names && i < table->sh_size / sizeof *syms; i++)
		if (ELF64_ST_TYPE(syms[i].st_info) == STT_FUNC && address >= syms[i].st_value &&
		    address - syms[i].st_value < syms[i].st_size &&
		    syms[i].st_name < strings->sh_size) {
			char *name = strndup(names + syms[i].st_name,
					     strings->sh_size - syms[i].st_name);

			if (name)
				trace_symbol_name(out, name);
			free(name);
		}
}

static void find_by_sections(const struct image *im, uint64_t address, struct trace_symbol *out)
{
	const Elf64_Ehdr *head = at(im, 0, sizeof *head);
	const Elf64_Shdr *sections;

	if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) ||
	    head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_shentsize != sizeof *sections)
		return;
	sections = at(im, head->e_shoff, head->e_shnum * sizeof *sections);
	for (int i = 0; sections && i < head->e_shnum; i++)
		if ((sections[i].sh_type == SHT_SYMTAB || sections[i].sh_type == SHT_DYNSYM) &&
		    sections[i].sh_link < head->e_shnum && !out->function[0])
			find_in(im, &sections[i], &sections[sections[i].sh_link], address, out);
}

void trace_symbol_find(const char *module, uint64_t offset, struct trace_symbol *out)
{
	struct image im = { 0 };
	struct stat st;
	void *base;
	int fd;

	*out = (struct trace_symbol){ 0 };
	fd = module[0] ? open(module, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	if (!fstat(fd, &st) && st.st_size > 0) {
		base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		im = (struct image){ base, (uint64_t)st.st_size };
		if (base != MAP_FAILED) {
			find_by_sections(&im, offset - 1, out);
			munmap(base, im.bytes);
		}
	}
	close(fd);
}
