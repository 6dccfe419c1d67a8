/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tune: reads the tune file, with the values that `sluice tune` has measured on this machine with
 * one host MPI.
 *
 *   environment  >  tune file  >  default
 *
 * Each host MPI has a file. tune_load() searches the folders of tune_folder() in order for these
 * names, and reads the first file that exists:
 *
 *   HOST.MPI.tune         this machine; machines may share a home directory
 *   like-KIND.MPI.tune    any machine of this kind: nodes of a cluster, containers
 *
 *   # comment                          until the end of the line
 *   sluice-tune 1                      the format, before anything else
 *   version 0.1.0                      of the Sluice that measured
 *   host node17                        or *
 *   machine GenuineIntel 6 207 ...     os_machine_text()
 *   mpi MPICH 5.0.2                    tune_mpi_name()
 *   xfer_fragment = 256K               values: tuning values, and options by their variables
 *   SLUICE_EARLY_MIN = 1M
 *
 * tune_load() refuses, as a whole and with one reason, a file with a mistake or for another
 * machine, version or MPI; the program then runs with the defaults. Where ranks read different
 * files, values that ranks must agree on differ, and node/ notices as with the environment.
 *
 * Context: tune_load() once, after base_options_load() and before threads use options; no malloc.
 * Other functions: any thread.
 */
#ifndef SLUICE_TUNE_H
#define SLUICE_TUNE_H

#include <limits.h>

#include "base/base.h"
#include "os/os.h"

#define TUNE_FORMAT    1
#define TUNE_MPI_BYTES 128

enum tune_state {
	TUNE_ABSENT,  /* there is no file for this MPI */
	TUNE_OFF,     /* SLUICE_TUNE=none, or no MPI is known */
	TUNE_IN_FORCE,
	TUNE_REFUSED,
};

struct tune_result {
	enum tune_state state;
	char path[PATH_MAX]; /* of the file; "" with TUNE_ABSENT and TUNE_OFF */
	char reason[256];    /* of TUNE_REFUSED and TUNE_OFF: part of a sentence */
	int values;          /* number in the file, with those that the environment overrides */
};

/*
 * Finds the file for this MPI and puts its values in force. mpi: text of tune_mpi_name(); "": only
 * SLUICE_TUNE names a file.
 */
void tune_load(const char *mpi, struct tune_result *out);
/*
 * Reads figures of host MPIs: path; NULL: those that the package ships (policy/host-mpi.tune). A
 * file of this syntax with a section for each kind of MPI. A section begins with "mpi PATTERN"; the
 * first whose pattern matches the whole text of MPI_Get_library_version is in force. set() gets
 * each line of that section; tune_load_figures() refuses the file when set() does not return 0.
 */
void tune_load_figures(const char *path, const char *library_version,
		       int (*set)(void *arg, const char *name, const char *value), void *arg,
		       struct tune_result *out);
/* Writes the path of the shipped file, beside libsluice or the calling program. */
void tune_shipped_path(char *out, size_t cap);
/* Writes a file name like "vm.mpich-5.0.2.tune", for this machine or for all of its kind. */
void tune_file_name(const char *mpi, bool for_alike, char *out, size_t cap);
/* Writes folder `number` of the search: the user's, /etc/sluice, the installation's.
 * Returns: 0, -ENOENT (the folder is not to be searched) or -ERANGE (no such number). */
int tune_folder(int number, char *out, size_t cap);
/* Shortens the text of MPI_Get_library_version: "MPICH 5.0.2", "Open MPI v5.0.11". */
void tune_mpi_name(const char *library_version, char *out, size_t cap);

#endif
