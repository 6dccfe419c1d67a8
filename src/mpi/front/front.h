/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi/front: the exported MPI functions. They stand between a program and its host MPI, for the
 * functions that Sluice may execute and for all that could observe a pending operation.
 *
 *   program -> MPI_Bcast (ours) -> [another tool's MPI_Bcast] -> PMPI_Bcast (ours) -> wrapper
 *                                                                      |          \
 *                                                              rt: executed     host MPI
 *   program -> MPI_Send (ours) -- nothing pending --> host MPI
 *                             \-- observe.c: completes overlapping operations --> host MPI
 *
 *   functions.table  the functions, once; table.py reads it, generate.py makes from it
 *                    trampolines.S (trampolines.py), functions.h and the other generated headers
 *   exports.c        exports functions of MPI 4 only if the host MPI has them
 *   optional.c       lists these functions
 *   resolve.c        decides at the first call of a trampoline where it leads
 *   loader.c         finds the MPI library that the process has loaded, early or late
 *   narrow.c         MPI_X_c where the host MPI has only MPI_X
 *   wrappers.c       wrappers of collectives, of MPI_Init, of windows
 *   large.h          what wrappers of collectives do above their gate
 *   gate.h           the wrappers' first check, compiled once per ABI (gate_*.c)
 *   idle.c           prepares the host MPI for polite waits
 *   observe.c        wrappers of functions that could observe a pending operation
 *   profile.c        counts calls of messages for the libraries of mpi/record
 *
 * MPI_X and PMPI_X are both exported. PMPI_X is the wrapper, so other PMPI tools work in any
 * order, and the Fortran bindings, which call one of the two after converting their sentinels,
 * work as well. Sluice finds the host MPI's own functions by name in the host MPI itself.
 *
 * A wrapper passes a call on (same arguments, the host MPI's own function) unless everything that
 * the host MPI would check is in order, so the host MPI reports all errors. Facts that all ranks
 * share decide whether Sluice admits a call: byte count, communicator, options. Sluice stays out
 * of a process with several MPI libraries or an unknown ABI: every call goes where it would go
 * without Sluice. (If the second library starts later, Sluice still serves the first one.)
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
#include "wait/wait.h"

#define FRONT_EXPORTED_COUNT (FRONT_WRAPPED_COUNT + FRONT_OBSERVED_COUNT)

/* Targets of an exported function in a process whose host MPI Sluice serves. */
struct front_way {
	void *plain;   /* target while nothing is pending; NULL: the host MPI */
	void *pending; /* target while an operation is pending */
};

/* Defined by wrappers.c and observe.c. */
extern const struct front_way front_wrapped[FRONT_WRAPPED_COUNT];
extern const struct front_way observe_ways[FRONT_OBSERVED_COUNT];
/* Stands for a function that the host MPI lacks. Returns: an error on MPI_COMM_WORLD, as the host
 * MPI would report it. */
int front_lacking(void);

/* The parts of Sluice that serve one ABI. */
struct front_abi {
	abi_driver *driver;
	void *const *gates; /* in the order of FRONT_COLLECTIVES */
};
extern void *const gates_mpich[], *const gates_ompi[], *const gates_std[]; /* gate_*.c */

enum front_found { FRONT_NONE, FRONT_ONE, FRONT_SEVERAL };

/* Searches the loaded objects. FRONT_ONE: *library (all but functions) and *abi are set; *abi is
 * NULL when the library's ABI is unknown. Context: any thread; takes the dynamic loader's locks. */
enum front_found loader_find(struct host_library *library, const struct front_abi **out_abi);
/* Fills library->functions. Returns: 0, or -ENOSYS when the library lacks a function: it is
 * older than MPI 3. */
int loader_fill(struct host_library *library);
/* Returns: start of the image that holds addr; 0: none. */
uintptr_t loader_image_of(const void *addr);
/* Returns: where a call of `name` from `caller` (NULL: from anywhere) would lead without Sluice;
 * NULL: nowhere. */
void *loader_next(const char *name, const void *caller);

/* A call of the host MPI as wait/ sees it: it may block; test; end a wait of a rank of comm; of any
 * rank. Ranks of other communicators than MPI_COMM_WORLD are not translated. */
#define WAIT_CALL(call)            (wait_call_begin(), wait_call_end(call))
#define WAIT_TEST(call, found)     (wait_test_begin(), wait_test_end(call, found))
#define WAIT_SEND(call, comm, to)  (wait_call_begin(), \
				    wait_call_end_for(call, WAIT_RANK(comm, to, WAIT_ALL)))
#define WAIT_RECV(call, comm, from) (wait_call_begin(), \
				     wait_call_end_for(call, WAIT_RANK(comm, from, -1)))
#define WAIT_COMMON(call)          (wait_common_begin(), wait_call_end_for(call, WAIT_ALL))
#define WAIT_RANK(comm, r, other)  (CANONICAL_OF(comm) == abi.comm_world ? (r) : (other))

/* Before and after the host MPI's MPI_Init, when the options are loaded: makes its blocking calls
 * report idle rounds to wait/. library_version: text of MPI_Get_library_version, "" for none. */
void idle_prepare(const char *library_version);
void idle_start(void);

/* Returns: a function of the host MPI by its name; NULL while no host MPI is attached. For
 * narrow.c, as are the next two. */
void *front_library_function(const char *name);
void *front_library_handle(void); /* likewise; for idle.c */
int front_count(uintptr_t comm, enum members which);
bool front_is_root(uintptr_t comm, int root);

/* Returns: the jump target of a trampoline. Context: trampolines call it with all argument
 * registers saved. */
void *front_resolve(uint64_t slot, const void *caller)
	__attribute__((cold, visibility("hidden")));

/* The system call mprotect, in trampolines.S. Returns: 0 or -errno. */
long front_protect(void *start, size_t bytes, int protection) __attribute__((visibility("hidden")));
/* Returns: trampoline of an MPI_X that not every host MPI has; NULL: this one lacks it. Context:
 * the loader calls it through choose_MPI_X (trampolines.py) when an object looks the symbol up. */
void *front_choose(void *trampoline, const char *name) __attribute__((visibility("hidden")));
/* The functions that exports.c exports only where the host MPI has them, up to a NULL. In
 * optional.c of each library with such functions. */
#define FRONT_OPTIONAL_MAX 256
struct front_optional {
	const char *name;
	char *choose; /* calls front_choose() */
};
extern const struct front_optional front_optional[] __attribute__((visibility("hidden")));

#endif
