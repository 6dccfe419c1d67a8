/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * anympi: the part of MPI that the measuring programs use, of whichever MPI library they are told
 * to load, so that they can be installed without one. This folder comes before an MPI's own in the
 * include path; a program is compiled once per ABI, with one of SLUICE_ABI_MPICH, SLUICE_ABI_OMPI,
 * SLUICE_ABI_STD defined, and becomes NAME-mpich, NAME-ompi and NAME-std.
 *
 *   MPI_Init   takes the arguments libmpi=PATH and cpus=LIST (bench_use_cpus()) out of the command
 * line, loads PATH for the whole process and looks up the rest where a linked program would find
 * it: in a preloaded library first. So a call arrives as it does from an ordinary program, call
 * site and all.
 *
 * Values: headers of src/mpi/abi, and a few more here; test/mpi/test_abi.py compares them with each
 * mpi.h.
 */
#ifndef SLUICE_BENCH_ANYMPI_H
#define SLUICE_BENCH_ANYMPI_H

#if defined(SLUICE_ABI_MPICH)
#include "mpi/abi/mpich.h"
#define ANYMPI_INT    ((MPI_Datatype)0x4c000405)
#define ANYMPI_DOUBLE ((MPI_Datatype)0x4c00080b)
#define ANYMPI_UINT32 ((MPI_Datatype)0x4c00043d)
#define ANYMPI_SUM    ((MPI_Op)0x58000003)
#elif defined(SLUICE_ABI_OMPI)
#include "mpi/abi/ompi.h"
#define ANYMPI_INT    ((MPI_Datatype)anympi_int)
#define ANYMPI_DOUBLE ((MPI_Datatype)anympi_double)
#define ANYMPI_UINT32 ((MPI_Datatype)anympi_uint32)
#define ANYMPI_SUM    ((MPI_Op)anympi_sum)
/* X(variable, symbol): addresses of objects of the library, filled by MPI_Init. */
#define ANYMPI_SYMBOLS(X)                    \
	X(anympi_int, "ompi_mpi_int")        \
	X(anympi_double, "ompi_mpi_double")  \
	X(anympi_uint32, "ompi_mpi_uint32_t") \
	X(anympi_sum, "ompi_mpi_op_sum")
extern void *anympi_int, *anympi_double, *anympi_uint32, *anympi_sum;
#else
#include "mpi/abi/std.h"
#define ANYMPI_INT    ((MPI_Datatype)0x209)
#define ANYMPI_DOUBLE ((MPI_Datatype)0x214)
#define ANYMPI_UINT32 ((MPI_Datatype)0x251)
#define ANYMPI_SUM    ((MPI_Op)0x21)
#endif

#ifndef SLUICE_ABI_TYPES_GIVEN

#define MPI_COMM_WORLD    ABI_COMM_WORLD
#define MPI_BYTE          ABI_BYTE
#define MPI_INT           ANYMPI_INT
#define MPI_DOUBLE        ANYMPI_DOUBLE
#define MPI_UINT32_T      ANYMPI_UINT32
#define MPI_SUM           ANYMPI_SUM
#define MPI_STATUS_IGNORE ABI_STATUS_IGNORE

#define MPI_MAX_LIBRARY_VERSION_STRING 8192 /* of every MPI */

/* X(name, parameters) */
#define ANYMPI_CALLS(X)                                                                            \
	X(Finalize, (void))                                                                        \
	X(Abort, (MPI_Comm, int))                                                                  \
	X(Comm_rank, (MPI_Comm, int *))                                                            \
	X(Comm_size, (MPI_Comm, int *))                                                            \
	X(Get_library_version, (char *, int *))                                                    \
	X(Barrier, (MPI_Comm))                                                                     \
	X(Bcast, (void *, int, MPI_Datatype, int, MPI_Comm))                                       \
	X(Gather, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm))     \
	X(Scatter, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm))    \
	X(Allgather, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm))       \
	X(Alltoall, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm))        \
	X(Allreduce, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm))                  \
	X(Ibcast, (void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *))                       \
	X(Igather, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm,     \
		    MPI_Request *))                                                                \
	X(Ialltoall,                                                                               \
	  (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Request *))   \
	X(Iallreduce, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *))  \
	X(Wait, (MPI_Request *, MPI_Status *))                                                     \
	X(Send, (const void *, int, MPI_Datatype, int, int, MPI_Comm))                             \
	X(Recv, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *))

struct anympi {
#define X(name, parameters) int(*name) parameters;
	ANYMPI_CALLS(X)
#undef X
};
extern struct anympi anympi;

#define MPI_Finalize            anympi.Finalize
#define MPI_Abort               anympi.Abort
#define MPI_Comm_rank           anympi.Comm_rank
#define MPI_Comm_size           anympi.Comm_size
#define MPI_Get_library_version anympi.Get_library_version
#define MPI_Barrier             anympi.Barrier
#define MPI_Bcast               anympi.Bcast
#define MPI_Gather              anympi.Gather
#define MPI_Scatter             anympi.Scatter
#define MPI_Allgather           anympi.Allgather
#define MPI_Alltoall            anympi.Alltoall
#define MPI_Allreduce           anympi.Allreduce
#define MPI_Ibcast              anympi.Ibcast
#define MPI_Igather             anympi.Igather
#define MPI_Ialltoall           anympi.Ialltoall
#define MPI_Iallreduce          anympi.Iallreduce
#define MPI_Wait                anympi.Wait
#define MPI_Send                anympi.Send
#define MPI_Recv                anympi.Recv

/* Ends the process with a line on stderr when the library cannot be used. Returns what the
 * library's MPI_Init returns. */
#define MPI_Init anympi_init
int anympi_init(int *argc, char ***argv);

#endif
#endif
