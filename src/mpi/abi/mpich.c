/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPICH ABI: handles are integers. */
#include "mpi/abi/abi.h"

#define SLUICE_ABI_TYPES_GIVEN
#define ABI_TABLE const
#define ABI_HANDLE(handle) handle
#include "mpi/abi/mpich.h"
#include "mpi/abi/driver.h"

int abi_mpich(struct abi *out, const struct host_library *library)
{
	driver_fill(out, sizeof(int));
	return 0;
}
