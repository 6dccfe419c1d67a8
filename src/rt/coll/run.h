/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * run: one run of a collective, from open buffers to its end. Shared by the files of rt/ only.
 *
 *   call_enter -> requests_enter_blocking -> buffer_open -> (run_parts | run_reduce) ...
 *              -> buffer_close -> requests_exit_blocking -> call_exit
 *
 * A nonblocking run (request/large.c) describes its exec_call by the same functions, and begins
 * without waiting.
 */
#ifndef SLUICE_RT_RUN_H
#define SLUICE_RT_RUN_H

#include "rt/buffer.h"
#include "rt/private.h"

/* Enclose a call that Sluice executes. call_enter() also completes pending operations on the
 * buffers of the call. */
void call_enter(const struct coll_call *call);
static inline void call_exit(void) { host_call_end(); }
/* Enclose runs that no buffer of the program's call belongs to, or whose buffers are open. */
static inline void runs_enter(struct rt_comm *c)
{
	host_call_begin();
	requests_enter_blocking(c);
}
static inline void runs_exit(struct rt_comm *c)
{
	requests_exit_blocking(c);
	host_call_end();
}

/* ---- describing a run -------------------------------------------------------------------- */

/* Without shape and reduction. */
struct exec_call run_describe(const struct rt_comm *c, const struct coll_call *call,
			      const struct buffer *send, const struct buffer *recv);
/* The parts are the call's; a run on copies replaces them. */
struct exec_shape run_shape(const struct coll_call *call);
/* `bytes` bytes of each rank's vector, at send_at and recv_at of its buffers. */
struct exec_reduce run_reduction(const struct coll_call *call, const struct buffers *b,
				 uint64_t send_at, uint64_t recv_at, uint64_t bytes);
/* Stores in starts[ranks + 1] the first element of each rank's result, in a run of bytes
 * [at, at + bytes) of the vector of a reduce-scatter. */
void run_starts(const struct coll_call *call, uint64_t at, uint64_t bytes, uint64_t *starts);
/* Does the part that a rank sends to itself fit? Both ends check parts of peers. */
bool run_own_part_fits(const struct coll_call *call, int rank);

/* ---- running it -------------------------------------------------------------------------- */

/* Publishes a blocking run. Waits where EXEC_SLOTS runs are active, until the oldest has ended. */
int run_begin(struct rt_comm *c, const struct exec_call *call, struct exec_run **out);
/* Publishes the parts of the shape, and detaches or waits. d NULL: waits. */
int run_parts(struct rt_comm *c, const struct exec_shape *shape, const struct coll_call *call,
	      struct buffer *send, struct buffer *recv, struct detach *d);
/* Packs, reduces and unpacks the bytes of run_reduction(). d NULL: waits. recv_at of a
 * reduce-scatter follows from send_at. */
int run_reduce(struct rt_comm *c, const struct coll_call *call, struct buffers *b, uint64_t send_at,
	       uint64_t recv_at, uint64_t bytes, struct detach *d);

/* ---- coll/reduce.c ----------------------------------------------------------------------- */

/* The part of rt_collective() that depends on the kind. */
int reduce_collective(struct rt_comm *c, const struct coll_call *call);

#endif
