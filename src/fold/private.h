/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of fold/ only. */
#ifndef SLUICE_FOLD_PRIVATE_H
#define SLUICE_FOLD_PRIVATE_H

#include "fold/fold.h"

/* combine.c: elements [first, first + n) of all inputs, into all results. 0 or -errno of the program's operation. */
int fold_combine(struct fold_view *v, uint64_t first, uint64_t n);

#endif
