/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi4py calls MPI for Python programs: see python.c. Fortran programs call MPI_Bcast through
 * functions of the MPI library, each of which serves all places of the program. The user wants the
 * place that called them:
 *
 *   program ---> mpi_bcast_f08_ (libmpi_usempif08) ---> mpi_bcast_ (libmpi_mpifh) ---> MPI_Bcast
 *   stack slot with the return address: 2                 1                              0
 *
 * The stack is unwound once for each return address. Later calls read the slots only: the distance
 * from one slot to the next depends only on the address in it, as a function's frame always has the
 * same size.
 */
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <unwind.h>

#include "trace/private.h"

enum { HOPS = 1024, MOST_FRAMES = 8, WAYS = 2 };

/* A return address. Written once, by the thread that enters it. */
struct hop {
	_Atomic uint64_t key;
	/* bytes to the slot of its caller; IS_PROGRAM: the program itself; IS_PYTHON: mpi4py, for
	 * the Python program; 0: unknown */
	_Atomic uint32_t way;
	/* for a return address of Sluice's functions: its slot, relative to `frame`; 0: none */
	_Atomic uint32_t at[WAYS];
};
#define IS_PROGRAM 1u
#define IS_PYTHON 2u
static struct hop hops[HOPS];

/* Returns: NULL when the table is full. */
static struct hop *hop_of(uint64_t address)
{
	bool is_new;
	uint16_t k = key_find(hops, sizeof *hops, HOPS, address, &is_new);

	return k ? &hops[k] : NULL;
}

static struct hop *hop_find(uint64_t address)
{
	uint16_t k = address ? key_find(hops, sizeof *hops, HOPS, address, NULL) : 0;

	return k ? &hops[k] : NULL;
}

static uint32_t way_of(const struct hop *h)
{
	return h ? atomic_load_explicit(&h->way, memory_order_acquire) : 0;
}

static void set_way(uint64_t address, uint32_t way)
{
	struct hop *h = hop_of(address);

	if (h)
		atomic_store_explicit(&h->way, way, memory_order_release); /* partner: way_of() */
}

/* Returns: the path of the file that is loaded at the address; "": unknown, or the program. */
static const char *path_of(uint64_t address)
{
	struct link_map *map;
	Dl_info info;

	if (!dladdr1((void *)(uintptr_t)address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
		return "";
	return map->l_name ? map->l_name : "";
}

/* Returns: true for an address in the MPI library or in Sluice. */
static bool is_of_mpi(uint64_t address)
{
	const char *name = base_file_name(path_of(address));

	return !strncmp(name, "libmpi", 6) || !strncmp(name, "libpmpi", 7) ||
	       !strncmp(name, "libsluice", 9);
}

/* ---- unwinding --------------------------------------------------------------------------- */

/* libgcc_s, which glibc's backtrace() uses too; loaded at run time, as most programs do not need
 * it. */
struct unwinder {
	_Unwind_Reason_Code (*backtrace)(_Unwind_Trace_Fn, void *);
	_Unwind_Word (*ip)(struct _Unwind_Context *);
	_Unwind_Word (*cfa)(struct _Unwind_Context *);
};

struct walk {
	struct unwinder unwinder;
	/* slot of the last address; the bytes from it up to `to` belong to the next frame */
	uint64_t site, from, to;
	uint64_t last;           /* the last address seen; 0 before the call site */
	uint64_t at_site;        /* slot 0 */
	uint64_t program;        /* the result */
	int frames;
};

/* Reads frames of functions that have not returned, which hold no variables of this function. */
#define READS_STACK __attribute__((no_sanitize("address")))

/* Finds the slot that holds the address. A return address lies at the upper end of a frame.
 * Returns: 0 when there is none. */
READS_STACK static uint64_t find_slot(uint64_t from, uint64_t to, uint64_t address)
{
	for (uint64_t at = to & ~(uint64_t)7; at >= from + 8; at -= 8)
		if (*(uint64_t *)(uintptr_t)(at - 8) == address)
			return at - 8;
	return 0;
}

static bool find_function(void *library, const char *name, void *out)
{
	void *function = library ? dlsym(library, name) : NULL;

	memcpy(out, &function, sizeof function);
	return function;
}

static bool find_unwinder(struct unwinder *u)
{
	static _Atomic(void *) known;
	void *library = atomic_load_explicit(&known, memory_order_relaxed);

	if (!library)
		library = dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_LOCAL);
	atomic_store_explicit(&known, library, memory_order_relaxed);
	return find_function(library, "_Unwind_Backtrace", &u->backtrace) &&
	       find_function(library, "_Unwind_GetIP", &u->ip) &&
	       find_function(library, "_Unwind_GetCFA", &u->cfa);
}

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *arg)
{
	struct walk *w = arg;
	uint64_t address = w->unwinder.ip(context), slot;

	if (!w->last && address != w->site)
		return _URC_NO_REASON;
	slot = find_slot(w->from, w->unwinder.cfa(context), address);
	if (!slot || ++w->frames > MOST_FRAMES)
		return _URC_END_OF_STACK;
	if (w->last)
		set_way(w->last, (uint32_t)(slot - w->from + 8));
	else
		w->at_site = slot;
	w->last = address;
	w->from = slot + 8;
	if (is_of_mpi(address))
		return _URC_NO_REASON;
	caller_is_program((const void *)(uintptr_t)address); /* notes it */
	w->program = address;
	return _URC_END_OF_STACK;
}

static void note_slot(uint64_t site, uint64_t at)
{
	struct hop *h = hop_of(site);
	uint32_t none;

	for (int i = 0; h && i < WAYS; i++) {
		none = 0;
		if (atomic_compare_exchange_strong_explicit(&h->at[i], &none, (uint32_t)at,
							    memory_order_relaxed,
							    memory_order_relaxed) ||
		    none == at)
			return;
	}
}

static uint64_t unwind(uint64_t site, uint64_t frame)
{
	struct walk w = { .site = site, .from = frame };

	if (!find_unwinder(&w.unwinder))
		return 0;
	w.unwinder.backtrace(step, &w);
	if (w.program)
		note_slot(site, w.at_site - frame);
	return w.program;
}

/* ---- reading ----------------------------------------------------------------------------- */

/* Follows the slots. Returns: the address in the program, or 0 when a hop is unknown. */
READS_STACK static uint64_t follow(uint64_t slot)
{
	for (int i = 0; i < MOST_FRAMES; i++) {
		uint64_t address = *(uint64_t *)(uintptr_t)slot;
		uint32_t way = way_of(hop_find(address));

		if (!way)
			return 0;
		if (way <= IS_PYTHON)
			return address;
		slot += way;
	}
	return 0;
}

READS_STACK static uint64_t read_slots(const struct hop *h, uint64_t site, uint64_t frame)
{
	uint64_t found = 0;

	for (int i = 0; i < WAYS && !found; i++) {
		uint64_t at = atomic_load_explicit(&h->at[i], memory_order_relaxed);

		if (at && *(uint64_t *)(uintptr_t)(frame + at) == site)
			found = follow(frame + at);
	}
	return found;
}

bool caller_is_program(const void *site)
{
	uint64_t address = (uintptr_t)site;
	uint32_t way = way_of(hop_find(address));

	if (way || !address)
		return way <= IS_PROGRAM;
	if (is_of_mpi(address))
		return false;
	way = strstr(path_of(address), "/mpi4py/") && python_find() ? IS_PYTHON : IS_PROGRAM;
	set_way(address, way);
	return way == IS_PROGRAM;
}

const void *caller_of(const void *site, const void *frame)
{
	struct hop *h = hop_find((uintptr_t)site);
	uint64_t found = (uintptr_t)site;
	const void *line;

	if (way_of(h) != IS_PYTHON) {
		found = h ? read_slots(h, (uintptr_t)site, (uintptr_t)frame) : 0;
		if (!found)
			found = unwind((uintptr_t)site, (uintptr_t)frame);
	}
	line = way_of(hop_find(found)) == IS_PYTHON ? python_caller() : NULL;
	if (!line && found)
		line = (const void *)(uintptr_t)found;
	return line ? line : site;
}
