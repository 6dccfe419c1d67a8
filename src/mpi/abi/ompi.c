/* SPDX-License-Identifier: BSD-3-Clause */
/* The Open MPI ABI: handles are pointers; predefined handles are addresses of objects of the
 * host MPI. */
#include <dlfcn.h>
#include <errno.h>

#include "message/message.h"
#include "mpi/abi/abi.h"

#define SLUICE_ABI_TYPES_GIVEN
#define ABI_TABLE /* find_known() writes the handles */
#define ABI_HANDLE(symbol) 0
#include "mpi/abi/ompi.h"
#include "mpi/abi/driver.h"

struct abi_ompi_symbols abi_ompi_symbols;

static const char *const number_symbols[] = {
#define X(name, symbol, type) "ompi_mpi_" symbol,
	ABI_NUMBERS(X)
#undef X
};

static const char *const op_symbols[] = {
#define X(name, symbol, op) "ompi_mpi_" symbol,
	ABI_OPS(X)
#undef X
};

/* A program that is not position-independent may contain the objects itself. */
static void *find(const struct host_library *library, const char *symbol)
{
	void *object = dlsym(RTLD_DEFAULT, symbol);

	return object ? object : dlsym(library->handle, symbol);
}

/* A host MPI may lack Fortran's datatypes: their handle is then NULL, which no datatype has. */
static void find_known(const struct host_library *library, const char *const *symbols,
		       struct abi_known *known, size_t n)
{
	for (size_t i = 0; i < n; i++)
		known[i].handle = (uintptr_t)find(library, symbols[i]);
}

static int find_symbols(const struct host_library *library)
{
	static const struct {
		void **field;
		const char *symbol;
	} symbols[] = {
#define X(field, symbol) { &abi_ompi_symbols.field, symbol },
		ABI_SYMBOLS(X)
#undef X
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(symbols); i++) {
		*symbols[i].field = find(library, symbols[i].symbol);
		if (!*symbols[i].field)
			return -ENOSYS;
	}
	return 0;
}

int abi_ompi(struct abi *out, const struct host_library *library)
{
	const struct abi_range images[2] = {
		{ library->lo, library->hi - library->lo },
		{ library->program_lo, library->program_hi - library->program_lo },
	};
	int err = find_symbols(library);

	if (err)
		return err;
	find_known(library, number_symbols, numbers, BASE_ARRAY_LEN(numbers));
	find_known(library, op_symbols, ops, BASE_ARRAY_LEN(ops));
	driver_fill(out, sizeof(void *));
	for (int i = 0; i < 2; i++)
		out->predefined.types[i] = out->predefined.ops[i] = images[i];
	out->is_started_by_pmix = true;
	out->packs_gaps = true; /* ob1 and UCX do */
	message_min_bytes = 4096; /* ob1's limit is that, less a header */
	return 0;
}
