/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of the host MPI and the facts of its ABI. */
#include <dlfcn.h>

#include "mpi/abi/abi.h"

struct abi abi;
struct host_functions host;
__thread int bypass __attribute__((tls_model("initial-exec")));

/* A host MPI that contains its Fortran bindings calls wrappers from inside on behalf of the
 * program. */
static bool has_fortran(const struct host_library *library)
{
	uintptr_t bcast = (uintptr_t)dlsym(library->handle, "mpi_bcast_");

	return bcast >= library->lo && bcast < library->hi;
}

int abi_attach(abi_driver *driver, const struct host_library *library)
{
	static const size_t offsets[FRONT_REAL_COUNT] = {
#define X(name, other, required) offsetof(struct host_functions, name) / sizeof(void *),
		FRONT_REAL(X)
#undef X
	};
	void **functions = (void **)&host;
	int err;

	_Static_assert(sizeof(host) == FRONT_REAL_COUNT * sizeof(void *), "only pointers");
	err = driver(&abi, library);
	if (err)
		return err;
	for (size_t i = 0; i < FRONT_REAL_COUNT; i++)
		functions[offsets[i]] = library->functions[i];
	if (!has_fortran(library))
		abi.caller = (struct abi_range){ library->lo, library->hi - library->lo };
	return 0;
}
