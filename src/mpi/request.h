/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * request: collectives of ours that the program waits for later, as requests of the library's.
 *
 *   MPI_Ibcast --request_begin()-->  a generalized request, completed when ours is over
 *
 * So the library knows every request of the program's, tells what is complete and what is not, and frees it, in
 * whatever call and language; nothing has to be hidden from it. What the calls on requests add while some of
 * ours are in flight (request_wait.c): they let ours progress, and complete the library's for those that are over.
 * While none are the trampolines lead around all of this.
 */
#ifndef SLUICE_MPI_REQUEST_H
#define SLUICE_MPI_REQUEST_H

#include <stdatomic.h>

#include "mpi/take.h"
#include "rt/requests.h"

#define request_begin    ABI_NAME(request_begin)
#define request_is_there ABI_NAME(request_is_there)
#define request_progress ABI_NAME(request_progress)
#define request_flying   ABI_NAME(request_flying)
#define request_failed   ABI_NAME(request_failed)
#define request_take_error ABI_NAME(request_take_error)
#define request_asked_on ABI_NAME(request_asked_on)

/* The whole of a nonblocking call: as take_call(), and take_passed(). */
bool request_begin(struct take *take, MPI_Request *request, int *rc);

/* ---- for request_wait.c ------------------------------------------------------------------------ */

extern _Atomic uint32_t request_flying; /* ours that are in flight */
extern _Atomic uint32_t request_failed; /* that have ended in errors nobody has been told of */

/* Is it ours and in flight? */
bool request_is_there(MPI_Request request);
/* For the trace: the program is in a call that waits for these, or tests them, from now on; or not any more. */
void request_asked_on(int count, const MPI_Request requests[], bool asks);
/* One pass; what is over is completed. True: something has moved. */
bool request_progress(void);
/* What the program is to hear of a request that has been completed; 0: nothing. Once. */
int request_take_error(MPI_Request request);

#endif
