/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions of MPI 4 are exported only where the host MPI has them: programs ask by weak symbols,
 * or by name, which functions exist (doc/adr/0029-persistent-collectives.md).
 *
 *   a library is loaded already   its missing functions vanish from our symbol table while this
 *                                 library is relocated
 *   no library is loaded yet      our symbols become functions that the loader calls at look-up
 *                                 (STT_GNU_IFUNC); by then the library, or its dependant, is loaded
 *
 * The file itself has ordinary symbols: the loader would tell an object relocated before this
 * library that IFUNC symbols are not ready. Such an object gets the trampolines, which report a
 * missing function when called.
 *
 * Context: decide() runs while the loader relocates this library, before any constructor. It
 * calls no function outside this library: another object may define that function (a sanitizer has
 * its own dl_iterate_phdr()) and may not be relocated yet. It therefore reads the loader's list of
 * loaded objects as debuggers do. Not instrumented (meson.build).
 */
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/base.h"
#include "mpi/front/front.h"

enum {
	LIBRARIES_MAX = 8,
	PAGE = 4096 /* with larger pages nothing is rewritten, and Sluice stays out */
};

/* The dynamic symbols of a loaded object. */
struct image {
	uintptr_t base;
	const ElfW(Sym) *symbols;
	const char *strings;
	const uint32_t *gnu, *sysv; /* hash tables; at least one exists */
};

extern const ElfW(Ehdr) __ehdr_start
	__attribute__((visibility("hidden"))); /* of this library; the linker defines it */

struct loaded {
	struct image self, libraries[LIBRARIES_MAX];
	int n;
};

static bool is_same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

/* ---- symbol tables ----------------------------------------------------------------------- */

/* The loaders of some systems relocate the addresses of the dynamic section, others do not. */
static const void *address(const struct image *m, ElfW(Addr) value)
{
	return (const void *)(value < m->base ? m->base + value : value);
}

static bool read_image(const struct link_map *map, struct image *out)
{
	*out = (struct image){ .base = map->l_addr };
	for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_SYMTAB)
			out->symbols = address(out, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB)
			out->strings = address(out, d->d_un.d_ptr);
		else if (d->d_tag == DT_GNU_HASH)
			out->gnu = address(out, d->d_un.d_ptr);
		else if (d->d_tag == DT_HASH)
			out->sysv = address(out, d->d_un.d_ptr);
	}
	return out->symbols && out->strings && (out->gnu || out->sysv);
}

static bool is_defined(const struct image *m, uint32_t i, const char *name)
{
	return m->symbols[i].st_shndx != SHN_UNDEF &&
	       is_same(m->strings + m->symbols[i].st_name, name);
}

static const ElfW(Sym) *find_gnu(const struct image *m, const char *name)
{
	uint32_t buckets = m->gnu[0], first = m->gnu[1], bloom_words = m->gnu[2], hash = 5381, i;
	const uint32_t *bucket = m->gnu + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	const uint32_t *chain = bucket + buckets;

	for (const char *c = name; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	i = buckets ? bucket[hash % buckets] : 0;
	if (i < first || !i)
		return NULL;
	do {
		if ((chain[i - first] | 1) == (hash | 1) && is_defined(m, i, name))
			return &m->symbols[i];
	} while (!(chain[i++ - first] & 1));
	return NULL;
}

static const ElfW(Sym) *find_sysv(const struct image *m, const char *name)
{
	uint32_t buckets = m->sysv[0], hash = 0;
	const uint32_t *bucket = m->sysv + 2, *chain = bucket + buckets;

	for (const char *c = name; *c; c++) {
		hash = (hash << 4) + (unsigned char)*c;
		hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
	}
	for (uint32_t i = buckets ? bucket[hash % buckets] : 0; i; i = chain[i])
		if (is_defined(m, i, name))
			return &m->symbols[i];
	return NULL;
}

static const ElfW(Sym) *find(const struct image *m, const char *name)
{
	return m->gnu ? find_gnu(m, name) : find_sysv(m, name);
}

/* ---- loaded objects ----------------------------------------------------------------------- */

/* As in loader.c: by the name of the file. */
static bool is_library_name(const char *path)
{
	const char *name = path, *mpi = "libmpi";

	for (; *path; path++)
		if (*path == '/')
			name = path + 1;
	while (*mpi && *mpi == *name) {
		mpi++;
		name++;
	}
	return !*mpi;
}

static void collect(struct loaded *l)
{
	*l = (struct loaded){ .n = 0 };
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		struct image m;

		if (map->l_ld == _DYNAMIC)
			read_image(map, &l->self);
		else if (l->n < LIBRARIES_MAX && is_library_name(map->l_name) &&
			 read_image(map, &m) && find(&m, "PMPI_Bcast"))
			l->libraries[l->n++] = m;
	}
}

static int collect_locked(struct dl_phdr_info *info, size_t size, void *l)
{
	collect(l);
	return 1;
}

static bool has(const struct loaded *l, const char *name)
{
	for (int i = 0; i < l->n; i++)
		if (find(&l->libraries[i], name))
			return true;
	return false;
}

static bool is_started;

__attribute__((constructor)) static void note_start(void)
{
	is_started = true;
}

/* The program has one thread while it is being loaded; afterwards another thread may load or
 * unload objects. */
void *front_choose(void *trampoline, const char *name)
{
	struct loaded l;

	if (is_started)
		dl_iterate_phdr(collect_locked, &l);
	else
		collect(&l);
	return has(&l, name) ? trampoline : NULL;
}

/* ---- before the first look-up --------------------------------------------------------------- */

static int protection_of(uintptr_t at)
{
	uintptr_t start = (uintptr_t)&__ehdr_start;
	const ElfW(Phdr) *headers = (const void *)(start + __ehdr_start.e_phoff);

	for (size_t i = 0; i < __ehdr_start.e_phnum; i++) {
		const ElfW(Phdr) *p = &headers[i];

		if (p->p_type == PT_LOAD && at - (start + p->p_vaddr) < p->p_memsz)
			return (p->p_flags & PF_R ? PROT_READ : 0) |
			       (p->p_flags & PF_W ? PROT_WRITE : 0) |
			       (p->p_flags & PF_X ? PROT_EXEC : 0);
	}
	return PROT_READ;
}

static void rewrite(const struct loaded *l, ElfW(Sym) *const *symbols)
{
	for (size_t i = 0; front_optional[i].name; i++) {
		ElfW(Sym) *s = symbols[i];

		if (!l->n) {
			s->st_info = ELF64_ST_INFO(ELF64_ST_BIND(s->st_info), STT_GNU_IFUNC);
			s->st_value = (uintptr_t)front_optional[i].choose - l->self.base;
		} else if (!has(l, front_optional[i].name)) {
			s->st_value = 0; /* the loader goes on to the next library */
		}
	}
}

typedef void function(void);

static void nothing(void) { }

__attribute__((used)) /* by the ifunc */
static function *decide(void)
{
	ElfW(Sym) *symbols[FRONT_OPTIONAL_MAX];
	uintptr_t lo = UINTPTR_MAX, hi = 0;
	struct loaded l;
	int protection;

	collect(&l);
	for (size_t i = 0; front_optional[i].name; i++) {
		symbols[i] = l.self.symbols ?
				     (ElfW(Sym) *)find(&l.self, front_optional[i].name) : NULL;
		if (!symbols[i])
			return nothing;
		lo = base_min_u64(lo, (uintptr_t)symbols[i]);
		hi = base_max_u64(hi, (uintptr_t)(symbols[i] + 1));
	}
	protection = protection_of(lo);
	lo = base_round_down(lo, PAGE);
	hi = base_round_up(hi, PAGE);
	if (!front_protect((void *)lo, hi - lo,
			   protection | PROT_WRITE)) { /* a page that is executable stays so */
		rewrite(&l, symbols);
		front_protect((void *)lo, hi - lo, protection);
	}
	return nothing;
}

static void decided(void) __attribute__((ifunc("decide")));
/* The relocation of its address makes the loader call decide(). */
void (*const front_exports_decided)(void) __attribute__((used, visibility("hidden"))) = decided;
