/* SPDX-License-Identifier: BSD-3-Clause */
/* The ABI of the MPI 5 standard: handles are pointers. */
#include "mpi/abi/abi.h"

#define SLUICE_ABI_TYPES_GIVEN
#define ABI_TABLE const
#define ABI_HANDLE(handle) handle
#include "mpi/abi/std.h"
#include "mpi/abi/driver.h"

int abi_std(struct abi *out, const struct host_library *library)
{
	driver_fill(out, sizeof(void *));
	return 0;
}
