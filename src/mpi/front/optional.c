/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that libsluice.so exports only where the host MPI has them. */
#include "base/base.h"
#include "mpi/front/front.h"

#define X(name) extern char choose_MPI_##name[], choose_PMPI_##name[];
FRONT_OPTIONAL(X)
#undef X

const struct front_optional front_optional[] = {
#define X(name) { "MPI_" #name, choose_MPI_##name }, { "PMPI_" #name, choose_PMPI_##name },
	FRONT_OPTIONAL(X)
#undef X
	{ NULL, NULL },
};
_Static_assert(BASE_ARRAY_LEN(front_optional) <= FRONT_OPTIONAL_MAX, "room in decide()");
