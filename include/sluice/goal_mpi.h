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
#include <stddef.h>

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
 * MPICH from 4.3 on calls functions of others while it waits. MPI_Finalize waits until all of them
 * have ended. (The library itself does what other MPIs need.)
 */
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40300300
/* weak: a program runs with an older library, too */
extern __typeof__(MPIX_Async_start) MPIX_Async_start __attribute__((weak));

static inline int sluice_goal_mpi_poll(MPIX_Async_thing thing)
{
	(void)thing;
	return sluice_goal_progress() < 0 ? MPIX_ASYNC_DONE : MPIX_ASYNC_NOPROGRESS;
}

static inline int sluice_goal_mpi_ask(void)
{
	int level = MPI_THREAD_SINGLE, is_main = 0, has_ended = 1;

	if (!MPIX_Async_start || MPI_Finalized(&has_ended) || has_ended ||
	    MPI_Query_thread(&level) || MPI_Is_thread_main(&is_main) ||
	    (level == MPI_THREAD_MULTIPLE ? 0 : level == MPI_THREAD_SERIALIZED || !is_main) ||
	    MPIX_Async_start(sluice_goal_mpi_poll, NULL, MPIX_STREAM_NULL))
		return -1;
	return 0;
}
#endif

/*
 * Collective over comm, whose ranks the group's are; comm is needed during the call only. Returns
 * what sluice_goal_group_create() does, or -EIO: MPI has failed. Destroy the group before
 * MPI_Finalize, or MPICH's takes 20 ms more.
 */
static inline int sluice_goal_group_mpi(MPI_Comm comm, struct sluice_goal_group **out)
{
	struct sluice_goal_oob oob = { &comm, 0, 0, sluice_goal_mpi_allgather,
				       sluice_goal_mpi_min };
	int ret;

	if (MPI_Comm_rank(comm, &oob.rank) || MPI_Comm_size(comm, &oob.size))
		return -EIO;
	ret = sluice_goal_group_create(&oob, out);
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40300300
	if (!ret)
		sluice_goal_ask(sluice_goal_mpi_ask);
#endif
	return ret;
}

#endif
