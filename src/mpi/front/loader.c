/* SPDX-License-Identifier: BSD-3-Clause */
/* The search for the MPI library among the loaded objects of the process. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <string.h>

#include "base/base.h"
#include "mpi/front/front.h"

#define CANDIDATES_MAX 16

struct image {
	char path[PATH_MAX];
	uintptr_t lo, hi;
};

struct image_list {
	size_t count, objects;
	uintptr_t program_lo, program_hi;
	struct image images[CANDIDATES_MAX];
};

static void image_range(const struct dl_phdr_info *info, uintptr_t *lo, uintptr_t *hi)
{
	*lo = UINTPTR_MAX;
	*hi = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD)
			continue;
		if (info->dlpi_addr + p->p_vaddr < *lo)
			*lo = info->dlpi_addr + p->p_vaddr;
		if (info->dlpi_addr + p->p_vaddr + p->p_memsz > *hi)
			*hi = info->dlpi_addr + p->p_vaddr + p->p_memsz;
	}
}

/* Collects libmpi.so.12, libmpi.so.40, libmpich.so.12, libmpi_abi.so.1, libmpi_cray.so.12 ...,
 * and also libmpifort and others, which loader_find() excludes by the image of their PMPI_Bcast. */
static int collect(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct image_list *list = ctx;
	const char *name = base_file_name(info->dlpi_name);
	struct image *image;

	if (!list->objects++) /* the executable comes first */
		image_range(info, &list->program_lo, &list->program_hi);
	if (strncmp(name, "libmpi", 6) || !strstr(name, ".so") ||
	    strlen(info->dlpi_name) >= sizeof(image->path) || list->count == CANDIDATES_MAX)
		return 0;
	image = &list->images[list->count++];
	strcpy(image->path, info->dlpi_name);
	image_range(info, &image->lo, &image->hi);
	return 0;
}

static const struct front_abi mpich = { abi_mpich, gates_mpich }, ompi = { abi_ompi, gates_ompi },
			      standard = { abi_std, gates_std };

static const struct front_abi *abi_of(const struct image *image, void *handle)
{
	const char *name = base_file_name(image->path);

	if (!strncmp(name, "libmpi_abi.so", 13))
		return &standard;
	if (dlsym(handle, "ompi_mpi_comm_world"))
		return &ompi;
	/* The MPICH ABI is libmpi.so.12 by agreement; distributions and vendors rename the file. */
	if (strstr(name, ".so.12") || dlsym(handle, "MPIR_Err_return_comm"))
		return &mpich;
	return NULL;
}

enum front_found loader_find(struct host_library *library, const struct front_abi **out_abi)
{
	struct image_list list = { .count = 0 }; /* 64 KiB of stack, once */
	enum front_found found = FRONT_NONE;

	/* dlopen inside the walk would take the loader's locks in the wrong order */
	dl_iterate_phdr(collect, &list);
	for (size_t i = 0; i < list.count; i++) {
		const struct image *image = &list.images[i];
		void *handle = dlopen(image->path, RTLD_LAZY | RTLD_NOLOAD);
		uintptr_t bcast;

		if (!handle)
			continue;
		bcast = (uintptr_t)dlsym(handle, "PMPI_Bcast");
		if (bcast < image->lo || bcast >= image->hi) {
			dlclose(handle); /* this object only depends on the library */
			continue;
		}
		if (found != FRONT_NONE) {
			dlclose(handle);
			return FRONT_SEVERAL;
		}
		found = FRONT_ONE;
		library->handle = handle;
		library->lo = image->lo;
		library->hi = image->hi;
		library->program_lo = list.program_lo;
		library->program_hi = list.program_hi;
		*out_abi = abi_of(image, handle);
	}
	return found;
}

int loader_fill(struct host_library *library)
{
	static const struct {
		const char *name, *other;
		bool required;
	} functions[] = {
#define X(name, other, required) { "PMPI_" #name, "PMPI_" #other, required },
		FRONT_REAL(X)
#undef X
	};

	for (size_t i = 0; i < FRONT_REAL_COUNT; i++) {
		library->functions[i] = dlsym(library->handle, functions[i].name);
		if (!library->functions[i] && strcmp(functions[i].name, functions[i].other))
			library->functions[i] = dlsym(library->handle, functions[i].other);
		if (!library->functions[i] && functions[i].required)
			return -ENOSYS;
	}
	return 0;
}

uintptr_t loader_image_of(const void *addr)
{
	Dl_info info;

	return dladdr(addr, &info) ? (uintptr_t)info.dli_fbase : 0;
}

/* Searches the scope of the caller's own object: the library that the object was linked with. */
static void *in_scope_of(const void *caller, const char *name)
{
	struct link_map *map = NULL;
	Dl_info info;
	void *handle, *symbol;

	if (!dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) || !map || !map->l_name[0])
		return NULL; /* the executable, whose scope is the global one */
	handle = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
	if (!handle)
		return NULL;
	symbol = dlsym(handle, name);
	dlclose(handle);
	return symbol;
}

void *loader_next(const char *name, const void *caller)
{
	/* The caller's scope comes first: a library in that scope may since have made itself or
	 * another library global, as Open MPI does. */
	void *symbol = caller ? in_scope_of(caller, name) : NULL;

	return symbol ? symbol : dlsym(RTLD_NEXT, name);
}
