/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libmpi of the MPICH ABI for tests of `sluice bench`: ranks of one machine that share the file
 * BENCH_MPI_AREA and are numbered by BENCH_MPI_RANK and BENCH_MPI_SIZE, which bench_mpiexec.sh
 * sets. Every MPI_Init of rank 0 adds a line to BENCH_MPI_AREA.log. BENCH_MPI_TROUBLE is one of
 *
 *   init     MPI_Init ends the process with a word why
 *   alone    every rank believes to be the only one
 *   machines rank 1 gets another first byte of what names the machine
 *   wrong    rank 1 gets another first byte of every large broadcast
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT(name) __attribute__((alias("MPI_" #name))) int PMPI_##name()
#define ROOM (32ul << 20)
#define BOOT_BYTES 64 /* bench/job.c's word for the machine */
#define LARGE 1024

struct area {
	_Atomic unsigned arrived, generation;
	char room[ROOM];
};
static struct area *area;
static int rank, size = 1;
static const char *trouble = "";

static void barrier(void)
{
	unsigned gen = atomic_load(&area->generation);

	if (atomic_fetch_add(&area->arrived, 1) + 1 == (unsigned)size) {
		atomic_store(&area->arrived, 0);
		atomic_store(&area->generation, gen + 1);
		syscall(SYS_futex, &area->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		return;
	}
	while (atomic_load(&area->generation) == gen)
		syscall(SYS_futex, &area->generation, FUTEX_WAIT, gen, NULL, NULL, 0);
}

int MPI_Init(int *argc, char ***argv)
{
	const char *path = getenv("BENCH_MPI_AREA");
	char log[PATH_MAX];
	int fd;

	(void)argc;
	(void)argv;
	trouble = getenv("BENCH_MPI_TROUBLE") ? getenv("BENCH_MPI_TROUBLE") : "";
	if (!strcmp(trouble, "init")) {
		fprintf(stderr, "bench_mpi: the network is on fire\n");
		exit(3);
	}
	if (!path || !strcmp(trouble, "alone")) {
		area = mmap(NULL, sizeof *area, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			    -1, 0);
		return 0;
	}
	rank = atoi(getenv("BENCH_MPI_RANK"));
	size = atoi(getenv("BENCH_MPI_SIZE"));
	fd = open(path, O_RDWR);
	area = mmap(NULL, sizeof *area, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (area == MAP_FAILED)
		exit(4);
	snprintf(log, sizeof log, "%s.log", getenv("BENCH_MPI_LOG"));
	fd = rank ? -1 : open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd >= 0 && write(fd, "launch\n", 7) != 7)
		exit(4);
	return 0;
}

int MPI_Finalize(void)
{
	barrier();
	return 0;
}

int MPI_Abort(int comm, int code)
{
	(void)comm;
	kill(0, SIGTERM); /* mpiexec and all that it has started */
	_exit(code);
}

int MPI_Comm_rank(int comm, int *out)
{
	(void)comm;
	*out = rank;
	return 0;
}

int MPI_Comm_size(int comm, int *out)
{
	(void)comm;
	*out = size;
	return 0;
}

int MPI_Get_library_version(char *text, int *length)
{
	*length = sprintf(text, "MPICH Version:\t9.8.7");
	return 0;
}

int MPI_Barrier(int comm)
{
	(void)comm;
	barrier();
	return 0;
}

/* The last byte of a datatype's handle but one is its size. */
static size_t bytes_of(int count, int type)
{
	return (size_t)count * ((type >> 8) & 0xff);
}

int MPI_Bcast(void *buf, int count, int type, int root, int comm)
{
	size_t bytes = bytes_of(count, type);

	(void)comm;
	if (rank == root)
		memcpy(area->room, buf, bytes);
	barrier();
	if (rank != root)
		memcpy(buf, area->room, bytes);
	if (rank == 1 && ((!strcmp(trouble, "machines") && bytes == BOOT_BYTES) ||
			  (!strcmp(trouble, "wrong") && bytes >= LARGE)))
		*(char *)buf ^= 1;
	barrier();
	return 0;
}

int MPI_Gather(const void *send, int count, int type, void *recv, int recv_count, int recv_type,
	       int root, int comm)
{
	size_t bytes = bytes_of(count, type);

	(void)recv_count;
	(void)recv_type;
	(void)comm;
	memcpy(area->room + bytes * rank, send, bytes);
	barrier();
	if (rank == root)
		memcpy(recv, area->room, bytes * size);
	barrier();
	return 0;
}

int MPI_Allreduce(const void *send, void *recv, int count, int type, int op, int comm)
{
	(void)op;
	(void)comm;
	memcpy(recv, send, bytes_of(count, type));
	barrier();
	return 0;
}

int MPI_Send(const void *buf, int count, int type, int to, int tag, int comm)
{
	(void)buf;
	(void)count;
	(void)type;
	(void)to;
	(void)tag;
	(void)comm;
	return 1; /* nobody sends here */
}

int MPI_Recv(void *buf, int count, int type, int from, int tag, int comm, void *status)
{
	(void)status;
	return MPI_Send(buf, count, type, from, tag, comm);
}

EXPORT(Init);
EXPORT(Finalize);
EXPORT(Abort);
EXPORT(Comm_rank);
EXPORT(Comm_size);
EXPORT(Get_library_version);
EXPORT(Barrier);
EXPORT(Bcast);
EXPORT(Gather);
EXPORT(Allreduce);
EXPORT(Send);
EXPORT(Recv);
