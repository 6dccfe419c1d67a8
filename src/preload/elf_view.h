/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * elf_view: an ELF file's interpreter, dynamic section and symbols, read through a mapping. Every
 * offset is checked against the file's size. Context: as preload.h.
 */
#ifndef SLUICE_PRELOAD_ELF_VIEW_H
#define SLUICE_PRELOAD_ELF_VIEW_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_view {
	const unsigned char *base; /* whole file */
	size_t size_bytes;
	const Elf64_Phdr *phdr;
	size_t phdr_count;
	const char *interp;   /* program interpreter, or NULL */
	const Elf64_Dyn *dyn; /* or NULL: no dynamic section */
	size_t dyn_count;
	const char *str; /* dynamic strings; its last byte is checked to be zero */
	size_t str_bytes;
	const Elf64_Sym *sym;
	size_t sym_count;
};

/* Does the file begin with ELF's magic number? */
bool elf_view_is_elf(const void *base, size_t size_bytes);
/* Fills `out` from the file mapped at base. Returns: 0; -ENOEXEC for another machine or class;
 * -EINVAL for a malformed file. A missing dynamic section is no error. */
__attribute__((cold))
int elf_view_open(const void *base, size_t size_bytes, struct elf_view *out);
/* The dynamic string at `offset`, or "" when it lies outside. */
const char *elf_view_string(const struct elf_view *v, uint64_t offset);

#endif
