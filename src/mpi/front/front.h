/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi: stands between a program and its MPI library, for the few functions that Sluice takes and
 * for all that could show an operation that is still pending.
 *
 *   program -> MPI_Bcast (ours) -> [another tool's MPI_Bcast] -> PMPI_Bcast (ours) -> wrapper
 *                                                                      |          \
 *                                                                rt: taken      the library
 *   program -> MPI_Send (ours) -- nothing pending --> the library
 *                             \-- observe.c: completes what overlaps --> the library
 *
 *   functions.table  the functions, once; generate.py makes from it (table.py reads it)
 *                    trampolines.S (trampolines.py), functions.h, real.h, look.h, narrow.h
 *   resolve.c        decides where a trampoline leads, at its first call
 *   loader.c         finds the MPI library that the process has loaded, early or late
 *   narrow.c         MPI_X_c where the library has only MPI_X
 *   kept.c           what persistent requests name
 *   abi_*.h          what a program sees of one MPI ABI: handle types and a few constants
 *   take.c           the wrappers of what is taken   }
 *   observe.c        those of what could observe     } compiled once per ABI; no mpi.h needed
 *   life.c           start, stop, communicators      }
 *   types.c pack.c   datatypes, packed byte ranges   }
 *
 * Exported are both MPI_X and PMPI_X. PMPI_X is the wrapper, so other PMPI tools work in any order
 * and the Fortran bindings, which call one of the two after converting their sentinels, come along.
 * The library's own functions are found by name in the library itself.
 *
 * A wrapper passes a call on (same arguments, the library's own function) unless everything that
 * the library would check is in order: so errors are the library's own. What decides whether a call
 * is taken is known to all ranks: byte count, communicator, options. A process with several MPI
 * libraries, or one of an unknown ABI, is left alone: every call goes where it would have gone. (If
 * the second library is started later, only the first one's calls are taken.)
 *
 * Never: raises the thread level, prints on stdout, calls MPI from a constructor.
 */
#ifndef SLUICE_MPI_FRONT_H
#define SLUICE_MPI_FRONT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "functions.h"

/* A loaded MPI library. `functions` are in the order of FRONT_REAL; optional functions may be NULL.
 */
struct front_host {
	void *handle;           /* for dlsym; never closed */
	uintptr_t lo, hi;       /* its mapped image */
	uintptr_t program_lo, program_hi; /* image of the executable */
	void *functions[FRONT_REAL_COUNT];
};

#define FRONT_EXPORTED_COUNT (FRONT_WRAPPED_COUNT + FRONT_LOOK_COUNT)

/* Where an exported function leads in a process whose library is served. */
struct front_way {
	void *plain;   /* while nothing is pending; NULL: straight to the library */
	void *pending; /* while something is */
};

/* Whom a communicator's collective exchanges data with. */
enum front_who {
	FRONT_PEERS,   /* its members; those of the other group where there is one */
	FRONT_LOCAL,   /* members of one's own group */
	FRONT_SOURCES, /* neighbours in a topology */
	FRONT_TARGETS,
};

/* What one ABI's files offer. Handles travel as uintptr_t. */
struct front_abi {
	/* Remember the library. Once per process, before any wrapper runs. 0 or -errno. */
	int (*attach)(const struct front_host *host);
	/* Start the runtime if it can be: a wrapped collective is about to run for the first time.
	 */
	void (*start)(void);
	/* How many; -1 when it cannot be known. */
	int (*count)(uintptr_t comm, enum front_who who);
	/* Do the root's arguments mean something on this rank? */
	bool (*is_root)(uintptr_t comm, int root);
	/* Stands for what the library lacks: an error on MPI_COMM_WORLD, as the library would
	 * report it. */
	int (*lacking)(void);
	struct front_way wrapped[FRONT_WRAPPED_COUNT]; /* take.c */
	const struct front_way *look;                  /* observe.c */
};

extern const struct front_abi front_abi_mpich, front_abi_ompi, front_abi_std;

enum front_found { FRONT_NONE, FRONT_ONE, FRONT_SEVERAL };

/* Look at what is loaded now. FRONT_ONE: *host (all but functions) and *abi are set; *abi is NULL
 * when the library's ABI is not known. Context: any thread; takes the dynamic loader's locks. */
enum front_found loader_find(struct front_host *host, const struct front_abi **abi);
/* Fill host->functions. 0, or -ENOSYS when the library lacks something: it is older than MPI 3. */
int loader_fill(struct front_host *host);
/* Start of the image that holds addr, 0 when there is none. */
uintptr_t loader_image_of(const void *addr);
/* Where a call of `name` from `caller` (NULL: from anywhere) would lead without us, NULL when
 * nowhere. */
void *loader_next(const char *name, const void *caller);

/* A stand-in for function X_c where the library has only X; NULL when there is none. */
void *narrow_function(const char *name);
/* For it, about the library that is served: a function by its name, NULL while there is no such
 * library; and the questions of struct front_abi. */
void *front_library_function(const char *name);
int front_count(uintptr_t comm, enum front_who who);
bool front_is_root(uintptr_t comm, int root);

/* What persistent requests name, by handle. Any thread. A request that is not known (there was no
 * memory, or nobody told) may name anything. */
void persistent_buf_set(uintptr_t request, uintptr_t start, uint64_t bytes);
void persistent_buf_drop(uintptr_t request);
bool persistent_buf_get(uintptr_t request, uintptr_t *start, uint64_t *bytes);

/* Called by the trampolines with all argument registers saved: where to jump. */
void *front_resolve(uint64_t slot, const void *caller) __attribute__((visibility("hidden")));

/* In trampolines.S: the system call mprotect, 0 or -errno. */
long front_protect(void *start, size_t bytes, int protection) __attribute__((visibility("hidden")));
/* Called by the loader, by way of choose_MPI_X (trampolines.py), when somebody asks for an MPI_X
 * that not every library has: its trampoline, or NULL, there is none. */
void *front_choose(void *trampoline, const char *name) __attribute__((visibility("hidden")));

#endif
