/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tune: what `sluice tune` has measured on this machine with one MPI, in a file that programs find
 * by themselves.
 *
 *   environment  >  tune file  >  default
 *
 * One file an MPI. In each of the folders of tune_folder(), in this order, these names are looked
 * for, and the first file that exists is the one: HOST.MPI.tune         this machine; so that
 * machines with a common home directory do not meet like-KIND.MPI.tune    any machine of this kind:
 * one file for the alike nodes of a cluster, or for containers, whose names change
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
 * A file that is not for this machine, version and MPI, or has a mistake, is refused as a whole,
 * with one reason; the program then runs with the defaults. Ranks find the same file, as they are
 * asked by the same names; where they do not, values that they must agree on differ and node/
 * notices, as with the environment.
 *
 * Context: tune_load() once, after base_options_load(), before threads use options. No malloc. The
 * rest: any thread.
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
	int values;          /* that the file has; those in the environment count more */
};

/*
 * Find the file for this MPI (tune_mpi_name()'s words; "": only SLUICE_TUNE is looked at) and
 * let its values be in force.
 */
void tune_load(const char *mpi, struct tune_result *out);
/*
 * Read the figures of host MPIs that the package ships (policy/host-mpi.tune), a file of the same
 * syntax with a section for each kind: the section begins with "mpi PATTERN", and the first one
 * whose pattern matches `mpi` is in force. set() gets each of its lines; not 0: the file is refused.
 */
void tune_load_shipped(const char *mpi, int (*set)(void *arg, const char *name, const char *value),
		       void *arg, struct tune_result *out);
/* Where this file is: beside the library or the program that asks. */
void tune_shipped_path(char *out, size_t cap);
/* "vm.mpich-5.0.2.tune", for this machine, or for all of its kind. */
void tune_file_name(const char *mpi, bool for_alike, char *out, size_t cap);
/* The folders that are looked through, in this order: the user's, /etc/sluice, the installation's.
 * 0, or -ENOENT: this one is not there to be looked at; -ERANGE: there is no such number. */
int tune_folder(int number, char *out, size_t cap);
/* What MPI_Get_library_version says, shortened: "MPICH 5.0.2", "Open MPI v5.0.11". */
void tune_mpi_name(const char *library_version, char *out, size_t cap);

#endif
