/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPICH ABI: handles are integers. */
#include "mpi/abi/abi.h"

#define SLUICE_ABI_TYPES_GIVEN
#include "mpi/abi/mpich.h"
#include "mpi/abi/driver.h"
#include "rt/collective.h"

static const struct abi_known numbers[] = {
#define X(name, handle, type) { handle, type },
	ABI_NUMBERS(X)
#undef X
};

static const struct abi_known ops[] = {
#define X(name, handle, op) { handle, op },
	ABI_OPS(X)
#undef X
};

int abi_mpich(struct abi *out, const struct host_library *library)
{
	driver_fill(out, sizeof(int));
	out->numbers = numbers;
	out->number_count = BASE_ARRAY_LEN(numbers);
	out->ops = ops;
	out->op_count = BASE_ARRAY_LEN(ops);
	return 0;
}
