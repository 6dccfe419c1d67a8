/* SPDX-License-Identifier: BSD-3-Clause */
/* The exported functions, made from functions.table. */
#include "mpi/front/front.h"
#include "mpi/record/profile.h"
#include "mpi/record/record.h"

/* The loader calls it for a function that not every host MPI has. */
#define RECORD_CHOICE(name, inner)                                                                 \
	__attribute__((visibility("hidden"))) void *choose_##name(void);                           \
	void *choose_##name(void) { return front_choose((void *)(uintptr_t)inner, #name); }

#include "recorders.h"
