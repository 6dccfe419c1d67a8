/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_find: finds the MPI libraries of this machine by files, without starting MPI. Only
 * mpi_find_version() loads a library, in a child process. */
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
	char how[PATH_MAX];  /* how it was found: "mpiexec in PATH", "LD_LIBRARY_PATH" ... */
	char version[128];   /* "": unknown */
	const char *refusal; /* why Sluice cannot serve it, or NULL */
	enum mpi_find_abi abi;
	dev_t dev; /* device and inode identify a library that has several names */
	ino_t ino;
};

struct mpi_list {
	struct mpi_found *found; /* Owner: the caller, who calls free() */
	size_t count;
};

const char *mpi_find_abi_name(enum mpi_find_abi abi);

/* Searches PATH (beside mpiexec, mpicc, python3), LD_LIBRARY_PATH, the user's Python packages and
 * the linker's cache, in this order. Does not fill versions. Returns: 0 or -ENOMEM. */
int mpi_find_all(struct mpi_list *out);

/* Examines the shared library at an absolute path; fills *out except `how` and version. Returns:
 * true for an MPI library, also one that Sluice cannot serve. */
bool mpi_find_examine(const char *path, struct mpi_found *out);

/* Asks the library for its version, in a child, for at most two seconds. */
void mpi_find_version(struct mpi_found *m);

/*
 * Finds the folder to put first in LD_LIBRARY_PATH for `path`: a libmpi, or an installation that
 * has one. Returns: 0; -ENOENT: not found; -EINVAL: no MPI library (no PMPI_Bcast); -ENOEXEC: built
 * for another kind of machine.
 */
int mpi_find_folder(const char *path, char *out, size_t cap);

#endif
