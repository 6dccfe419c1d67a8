/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda: memory of GPUs that other processes of the node access (SLUICE_COLL=device:on; ADR 43).
 *
 *   owner                                      copier
 *   cuda_begin                                 cuda_begin
 *   cuda_describe  -- struct cuda_memory -->   cuda_open         opened once, then kept
 *                                              cuda_copy ... cuda_wait
 *   the program's call returns   <--  told --  cuda_put
 *
 * The other process copies from it and to it, on a stream of its own. Only rt/ knows which ranks
 * are told what.
 *
 * libcuda is used where the program has loaded it, in the context that is current at the first
 * call. In another context, or in a thread without one, cuda_begin() fails: a process may open a
 * peer's memory in one context of a device only.
 *
 * Threads: any number at once. Context: inside MPI calls of the program; never in signal handlers
 * or forked children, nor with a lock that a memory hook takes. Driver calls may sleep.
 */
#ifndef SLUICE_CUDA_H
#define SLUICE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#define CUDA_HANDLE_BYTES 64 /* of a CUipcMemHandle */

/* A buffer, for readers in other processes. Fixed width: it lies in shared memory. */
struct cuda_memory {
	char handle[CUDA_HANDLE_BYTES];
	uint64_t base, bytes; /* of the allocation, in its owner's address space */
	uint64_t id;          /* of the allocation; never used again, by no process */
	uint64_t at;          /* the buffer begins here in the allocation */
};

/* A GPU, or an instance of one (MIG): its UUID, equal in all processes. */
struct cuda_gpu {
	uint64_t id[2];
};

struct cuda_peer; /* an allocation of another process that is open here */

/*
 * Must precede the other calls in each MPI call. Waits for the work in the default stream of the
 * context, as a synchronous copy would. out: the GPU of the context.
 * Returns: 0, or -errno: this thread cannot use the GPU now.
 */
int cuda_begin(struct cuda_gpu *out);
/*
 * Checks that [addr, addr + bytes) is memory of the current context's GPU, and describes it for
 * others. Returns: 0; -ENOTSUP: others cannot open it, as it has no handle (memory pools,
 * cuMemCreate); or another -errno: it is other memory.
 */
int cuda_describe(const void *addr, uint64_t bytes, struct cuda_memory *out);
/*
 * Opens the allocation, of the process `pid`. Returns: 0 or -errno; after a failure of the driver
 * the allocation is not tried again. Owner: the caller, until cuda_put().
 */
int cuda_open(int pid, const struct cuda_memory *m, struct cuda_peer **out);
void *cuda_address(const struct cuda_peer *p, const struct cuda_memory *m);
void cuda_put(struct cuda_peer *p); /* stays open while there is room; NULL: nothing */
/* Begins a copy. cuda_wait() must follow in any case. Returns: 0 or -errno. */
int cuda_copy(void *dst, const void *src, uint64_t bytes);
/* Waits for the copies. Returns: 0, or -errno: one of them has failed, here or in cuda_copy(), and
 * this process copies no more. No copy is running in either case. */
int cuda_wait(void);
/* Closes what is open, where the context is current. Context: MPI_Finalize. */
void cuda_fini(void);

#endif
