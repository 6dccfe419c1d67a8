/* SPDX-License-Identifier: BSD-3-Clause */
/* The worker process of src/worker/, started by ranks only. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "worker/worker.h"

int main(int argc, char **argv)
{
	(void)argv; /* the pid of the rank that started it, for people who list processes */
	if (argc != 2 || fcntl(3, F_GETFD) < 0 || fcntl(4, F_GETFD) < 0) {
		fprintf(stderr, "sluice-worker: started by MPI processes that run under sluice, "
				"not by people\n");
		return 2;
	}
	return worker_main();
}
