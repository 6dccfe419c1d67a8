/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GOAL groups from MPI communicators. All of it is in this header, compiled with the program's own
 * mpi.h: one libsluice-goal.so serves every MPI.
 */
#ifndef SLUICE_GOAL_MPI_H
#define SLUICE_GOAL_MPI_H

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <sluice/goal.h>

static inline int sluice_goal_mpi_allgather(void *ctx, const void *in, uint64_t bytes, void *out)
{
	if (bytes > INT_MAX)
		return -E2BIG;
	return MPI_Allgather((void *)in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE,
			     *(MPI_Comm *)ctx)
		       ? -EIO
		       : 0;
}

static inline int sluice_goal_mpi_min(void *ctx, int64_t in, int64_t *out)
{
	long long mine = in, least = in;
	int ret = MPI_Allreduce(&mine, &least, 1, MPI_LONG_LONG, MPI_MIN, *(MPI_Comm *)ctx);

	*out = least;
	return ret ? -EIO : 0;
}

/*
 * Collective over comm, whose ranks the group's are; comm is needed during the call only. Returns
 * what sluice_goal_group_create() does. Destroy the group before MPI_Finalize.
 */
static inline int sluice_goal_group_mpi(MPI_Comm comm, struct sluice_goal_group **out)
{
	struct sluice_goal_oob oob = { &comm, 0, 0, sluice_goal_mpi_allgather,
				       sluice_goal_mpi_min };

	if (MPI_Comm_rank(comm, &oob.rank) || MPI_Comm_size(comm, &oob.size))
		return -EIO;
	return sluice_goal_group_create(&oob, out);
}

#endif
