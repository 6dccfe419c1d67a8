/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_X_c for libraries of a kind that we do not attach to and that have no such functions. Programs
 * that ask "is there an MPI_Bcast_c?" find ours; it must work wherever it leads.
 *
 * Handles are integers in some ABIs and pointers in others. Both arrive in the same place, and as
 * uintptr_t they are passed on as they came.
 */
#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "mpi/front.h"

enum { ERR_COUNT = 2 }; /* MPI_ERR_COUNT in all ABIs */

typedef int bcast_function(void *, int, uintptr_t, int, uintptr_t);
typedef int gather_function(const void *, int, uintptr_t, void *, int, uintptr_t, int, uintptr_t);
typedef int win_create_function(void *, intptr_t, int, uintptr_t, uintptr_t, void *);

#define CALLER() __builtin_return_address(0)

static int narrow_bcast(void *buffer, int64_t count, uintptr_t datatype, int root, uintptr_t comm)
{
	bcast_function *bcast = loader_next("PMPI_Bcast", CALLER());

	if (!bcast || count > INT_MAX)
		return ERR_COUNT;
	return bcast(buffer, count < 0 ? -1 : (int)count, datatype, root, comm);
}

static int narrow_gather(const void *sendbuf, int64_t sendcount, uintptr_t sendtype, void *recvbuf,
			 int64_t recvcount, uintptr_t recvtype, int root, uintptr_t comm)
{
	gather_function *gather = loader_next("PMPI_Gather", CALLER());

	if (!gather || sendcount > INT_MAX || recvcount > INT_MAX)
		return ERR_COUNT;
	return gather(sendbuf, sendcount < 0 ? -1 : (int)sendcount, sendtype, recvbuf,
		      recvcount < 0 ? -1 : (int)recvcount, recvtype, root, comm);
}

static int narrow_win_create(void *base, intptr_t size, intptr_t disp_unit, uintptr_t info,
			     uintptr_t comm, void *win)
{
	win_create_function *win_create = loader_next("PMPI_Win_create", CALLER());

	if (!win_create || disp_unit > INT_MAX)
		return ERR_COUNT;
	return win_create(base, size, (int)disp_unit, info, comm, win);
}

void *narrow_function(const char *name)
{
	static const struct {
		const char *name;
		void *function;
	} all[] = {
		{ "Bcast_c", (void *)narrow_bcast },
		{ "Gather_c", (void *)narrow_gather },
		{ "Win_create_c", (void *)narrow_win_create },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i].name, name))
			return all[i].function;
	return NULL;
}
