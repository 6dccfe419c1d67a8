/* SPDX-License-Identifier: BSD-3-Clause */
/* Closes the files of the trace, as a program that closes every descriptor does, and has files of
 * its own under their numbers. Prints how many, and fails when one of them is written to. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FDS = 1024, CALLS = 1500, BYTES = 64 << 10 };

static int is_of_trace(int fd)
{
	char link[64], path[4096];
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 1);
	path[n > 0 ? n : 0] = 0;
	return strstr(path, ".sluice") || strstr(path, ".messages");
}

int main(int argc, char **argv)
{
	int rank, own[FDS], count = 0;
	char *data = calloc(1, BYTES + CALLS * 64), name[4096];
	struct stat st;

	(void)argc;
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int fd = 3; fd < FDS; fd++) {
		if (!is_of_trace(fd))
			continue;
		snprintf(name, sizeof name, "%s/own.%d.%d", argv[1], rank, fd);
		close(fd);
		own[count] = open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
		if (dup2(own[count], fd) != fd || write(fd, "mine", 4) != 4)
			return 1;
		count++;
	}
	for (int i = 0; i < CALLS; i++) {
		MPI_Bcast(data, BYTES + 64 * i, MPI_BYTE, 0, MPI_COMM_WORLD);
		MPI_Sendrecv_replace(data, 8, MPI_BYTE, rank ^ 1, 0, rank ^ 1, 0, MPI_COMM_WORLD,
				     MPI_STATUS_IGNORE);
	}
	MPI_Finalize();
	for (int i = 0; i < count; i++)
		if (fstat(own[i], &st) || st.st_size != 4) {
			fprintf(stderr, "a file of 4 bytes has %ld\n", (long)st.st_size);
			return 1;
		}
	printf("rank %d: %d files\n", rank, count);
	free(data);
	return 0;
}
