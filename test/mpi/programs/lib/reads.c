/* SPDX-License-Identifier: BSD-3-Clause */
/* A library with the name of an MPI's, which reads other processes as an MPI library does. */
#define _GNU_SOURCE
#include <sys/uio.h>

ssize_t library_reads(pid_t pid, const struct iovec *l, unsigned long ls, const struct iovec *r,
		      unsigned long rs);
ssize_t library_reads(pid_t pid, const struct iovec *l, unsigned long ls, const struct iovec *r,
		      unsigned long rs)
{
	volatile ssize_t n = process_vm_readv(pid, l, ls, r, rs, 0);

	return n; /* not a tail call: the caller is this library */
}
