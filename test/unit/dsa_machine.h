/* SPDX-License-Identifier: BSD-3-Clause */
/* A machine with DSA: sysfs as files below a folder, and the model as its queue. */
#ifndef SLUICE_UNIT_DSA_MACHINE_H
#define SLUICE_UNIT_DSA_MACHINE_H

#include "../mpi/programs/lib/dsa_model.h"

/* Returns: the folder, for the option dsa_root. */
const char *dsa_machine(void);
/* Writes or (NULL) removes a file below the folder. */
void dsa_machine_set(const char *path, const char *text);
/* Makes everything as it was. */
void dsa_machine_reset(void);

#endif
