/* SPDX-License-Identifier: BSD-3-Clause */
#include "mpi/abi/abi.h"

#define SLUICE_ABI_TYPES_GIVEN
#include "mpi/abi/std.h"
#include "mpi/front/gate.h"

void *const gates_std[] = { FRONT_COLLECTIVES(GATES) };
