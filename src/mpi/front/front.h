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
#include "mpi/abi/abi.h"

#define FRONT_EXPORTED_COUNT (FRONT_WRAPPED_COUNT + FRONT_LOOK_COUNT)

/* Where an exported function leads in a process whose library is served. */
struct front_way {
	void *plain;   /* while nothing is pending; NULL: straight to the library */
	void *pending; /* while something is */
};

/* By wrappers.c, and by observe.c. */
extern const struct front_way front_wrapped[FRONT_WRAPPED_COUNT];
extern const struct front_way observe_ways[FRONT_LOOK_COUNT];
/* Stands for a function that the host MPI lacks. Returns: an error on MPI_COMM_WORLD, as the host
 * MPI would report it. */
int front_lacking(void);

/* What serves one ABI. */
struct front_abi {
	abi_driver *driver;
	void *const *gates; /* in the order of FRONT_TAKEN */
};
extern void *const gates_mpich[], *const gates_ompi[], *const gates_std[]; /* gate_*.c */

enum front_found { FRONT_NONE, FRONT_ONE, FRONT_SEVERAL };

/* Look at what is loaded now. FRONT_ONE: *library (all but functions) and *abi are set; *abi is
 * NULL when the library's ABI is not known. Context: any thread; takes the dynamic loader's locks.
 */
enum front_found loader_find(struct host_library *library, const struct front_abi **out_abi);
/* Fill library->functions. 0, or -ENOSYS when the library lacks something: it is older than MPI 3.
 */
int loader_fill(struct host_library *library);
/* Start of the image that holds addr, 0 when there is none. */
uintptr_t loader_image_of(const void *addr);
/* Where a call of `name` from `caller` (NULL: from anywhere) would lead without us, NULL when
 * nowhere. */
void *loader_next(const char *name, const void *caller);

/* For narrow.c, about the library that is served: a function by its name, NULL while there is no
 * such library; members_count() and members_is_root(). */
void *front_library_function(const char *name);
int front_count(uintptr_t comm, enum members which);
bool front_is_root(uintptr_t comm, int root);

/* Called by the trampolines with all argument registers saved: where to jump. */
void *front_resolve(uint64_t slot, const void *caller) __attribute__((visibility("hidden")));

/* In trampolines.S: the system call mprotect, 0 or -errno. */
long front_protect(void *start, size_t bytes, int protection) __attribute__((visibility("hidden")));
/* Called by the loader, by way of choose_MPI_X (trampolines.py), when somebody asks for an MPI_X
 * that not every library has: its trampoline, or NULL, there is none. */
void *front_choose(void *trampoline, const char *name) __attribute__((visibility("hidden")));

#endif
