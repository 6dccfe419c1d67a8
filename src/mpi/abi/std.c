/* SPDX-License-Identifier: BSD-3-Clause */
/* The ABI of the MPI 5 standard: handles are pointers. */
#include "mpi/abi/abi.h"

#define SLUICE_ABI_TYPES_GIVEN
#include "mpi/abi/std.h"
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

int abi_std(struct abi *out, const struct host_library *library)
{
	driver_fill(out, sizeof(void *));
	out->numbers = numbers;
	out->number_count = BASE_ARRAY_LEN(numbers);
	out->ops = ops;
	out->op_count = BASE_ARRAY_LEN(ops);
	return 0;
}
