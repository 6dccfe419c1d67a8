/* SPDX-License-Identifier: BSD-3-Clause */
/* What is remembered of the library that is served. */
#include <dlfcn.h>
#include <errno.h>

#include "base/base.h"
#include "mpi/abi/abi.h"
#include "mpi/front/front.h"

#if defined(SLUICE_ABI_OMPI)
struct abi_ompi_symbols abi_ompi_symbols;
#endif

struct host_functions real;
struct abi_library abi_library;

#if defined(SLUICE_ABI_OMPI)
static int find_symbols(const struct front_host *host)
{
	static const struct {
		void **field;
		const char *symbol;
	} symbols[] = {
#define X(field, symbol) { &abi_ompi_symbols.field, symbol },
		ABI_SYMBOLS(X)
#undef X
	};

	abi_ompi_symbols.lo = host->lo;
	abi_ompi_symbols.hi = host->hi;
	abi_ompi_symbols.program_lo = host->program_lo;
	abi_ompi_symbols.program_hi = host->program_hi;
	for (size_t i = 0; i < BASE_ARRAY_LEN(symbols); i++) {
		/* a program that is not position-independent may hold the objects itself */
		*symbols[i].field = dlsym(RTLD_DEFAULT, symbols[i].symbol);
		if (!*symbols[i].field)
			*symbols[i].field = dlsym(host->handle, symbols[i].symbol);
		if (!*symbols[i].field)
			return -ENOSYS;
	}
	return 0;
}
#endif

/* A library that contains its Fortran bindings calls us from inside on behalf of the program. */
static bool is_fortran_inside(const struct front_host *host)
{
	uintptr_t bcast = (uintptr_t)dlsym(host->handle, "mpi_bcast_");

	return bcast >= host->lo && bcast < host->hi;
}

int abi_attach(const struct front_host *host)
{
	static const size_t offsets[FRONT_REAL_COUNT] = {
#define X(name, other, required) offsetof(struct host_functions, name) / sizeof(void *),
		FRONT_REAL(X)
#undef X
	};
	void **functions = (void **)&real;

	_Static_assert(sizeof(real) == FRONT_REAL_COUNT * sizeof(void *), "only pointers");
	for (size_t i = 0; i < FRONT_REAL_COUNT; i++)
		functions[offsets[i]] = host->functions[i];
	if (!is_fortran_inside(host)) {
		abi_library.lo = host->lo;
		abi_library.hi = host->hi;
	}
#if defined(SLUICE_ABI_OMPI)
	return find_symbols(host);
#else
	return 0;
#endif
}
