/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_find: the MPI libraries of this machine, found by looking at files: no MPI is started. Only a
 * library's version text is asked of the library itself, in a child process (mpi_find_version).
 */
#ifndef SLUICE_TOOL_MPI_FIND_H
#define SLUICE_TOOL_MPI_FIND_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MPI_FIND_MAX 64

enum mpi_find_abi { MPI_FIND_MPICH, MPI_FIND_OPENMPI, MPI_FIND_STANDARD };

struct mpi_found {
	char path[PATH_MAX];
	char how[PATH_MAX];  /* what led to it: "mpiexec in PATH", "LD_LIBRARY_PATH" ... */
	char version[128];   /* "" when the library would not say */
	const char *refusal; /* why Sluice cannot serve it, or NULL */
	enum mpi_find_abi abi;
	dev_t dev; /* with ino: the same file under another name is one library */
	ino_t ino;
};

struct mpi_list {
	struct mpi_found *found; /* Owner: the caller, free() */
	size_t count;
};

const char *mpi_find_abi_name(enum mpi_find_abi abi);

/* Look in PATH (beside mpiexec, mpicc, python3), LD_LIBRARY_PATH, the user's Python packages and
 * the linker's cache, in this order. Versions are not filled. 0 or -ENOMEM. */
int mpi_find_all(struct mpi_list *out);

/* Ask the library for its version, in a child that is given two seconds. */
void mpi_find_version(struct mpi_found *m);

/*
 * The folder to put first in LD_LIBRARY_PATH for `path`: a libmpi, or an installation that has one.
 * Returns 0; -ENOENT: nothing there; -EINVAL: no MPI library (exports no PMPI_Bcast); -ENOEXEC:
 * one, but not for this kind of machine.
 */
int mpi_find_folder(const char *path, char *out, size_t cap);

#endif
