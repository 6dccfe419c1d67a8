/* SPDX-License-Identifier: BSD-3-Clause */
/* Brackets around calls of the host MPI that are made while operations may be pending. */
#include "mpi/abi/abi.h"

/* Frames of this thread's calls of the host MPI, the innermost last; calls beyond the last entry
 * are only counted. On another stack (coroutines) an active call may count as ended: then Sluice
 * checks the host MPI's system calls, which costs time only. */
static __thread struct {
	int n;
	const void *frames[4];
} hosted __attribute__((tls_model("initial-exec")));

void host_bracket_unwind(const void *frame)
{
	while (hosted.n && hosted.n <= (int)BASE_ARRAY_LEN(hosted.frames) &&
	       hosted.frames[hosted.n - 1] <= frame) {
		hosted.n--;
		rt_host_end();
	}
}

void host_bracket_begin(const void *frame)
{
	host_bracket_unwind(frame);
	if (hosted.n < (int)BASE_ARRAY_LEN(hosted.frames))
		hosted.frames[hosted.n] = frame;
	hosted.n++;
	rt_host_begin();
}

int host_bracket_end(int rc)
{
	if (hosted.n) {
		hosted.n--;
		rt_host_end();
	}
	return rc;
}
