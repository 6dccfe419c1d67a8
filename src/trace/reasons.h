/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reasons why the host MPI executes a call, in records. Reports recognise those of this list by
 * their text. A report replaces KIND by the name of the collective's family in SLUICE_COLL.
 * A text has at most TRACE_TEXT_BYTES - 13 bytes.
 */
#ifndef SLUICE_TRACE_REASONS_H
#define SLUICE_TRACE_REASONS_H

#define TRACE_WHY_SMALL "the message is smaller than SLUICE_COLL_THRESHOLD"
/* the figures of the host MPI */
#define TRACE_WHY_SIZE "the host MPI is faster at this size; SLUICE_COLL=KIND:on changes that"
#define TRACE_WHY_KIND "the host MPI is faster at every size; SLUICE_COLL=KIND:on changes that"
#define TRACE_WHY_OFF "SLUICE_COLL has KIND:off"
#define TRACE_WHY_REQUEST_SIZE                                                                     \
	"the host MPI is faster at this size; SLUICE_COLL=nonblocking:on changes that"
#define TRACE_WHY_REQUEST_KIND                                                                     \
	"the host MPI is faster when nonblocking; SLUICE_COLL=nonblocking:on changes that"
#define TRACE_WHY_REQUEST_OFF "SLUICE_COLL has nonblocking:off"
#define TRACE_WHY_VECTOR                                                                           \
	"ranks do not know each other's sizes: Sluice executes it with SLUICE_COLL=vector:on"
#define TRACE_WHY_BARRIER "inside a node the host MPI's barrier is as fast"
#define TRACE_WHY_NEW                                                                              \
	"faster only in buffers that are used again, and some rank has not used its own again"
#define TRACE_WHY_FIXED                                                                            \
	"bits depend on who computes, and Sluice is not always faster: SLUICE_SUMS=any changes that"
#define TRACE_WHY_HOST "SLUICE_SUMS=host: the bits of the result depend on who computes it"
#define TRACE_WHY_FIRST "one of the first calls on this communicator: the program may stop here"
#define TRACE_WHY_UNPAID                                                                           \
	"the calls so far were too few or too short to pay for setting up shared memory: "         \
	"see SLUICE_DECIDE"
#define TRACE_WHY_EXCHANGE                                                                         \
	"ranks do not know each other's sizes, and no trial (SLUICE_DECIDE) was for Sluice"
#define TRACE_WHY_TIMED "a trial: its time is compared with that of Sluice's calls (SLUICE_DECIDE)"
#define TRACE_WHY_SLOWER "the host MPI was faster in the last trial (SLUICE_DECIDE)"
#define TRACE_WHY_NOT_SERVED                                                                       \
	"Sluice does not serve this communicator: SLUICE_LOG=info prints the reason"
#define TRACE_WHY_DEVICE "on memory of GPUs that some rank cannot copy (SLUICE_COLL=device:on)"
#define TRACE_WHY_INTER "this is an intercommunicator"
#define TRACE_WHY_ALONE "this communicator has one rank"

/* An activity of which reports sum the bytes and the time. */
#define TRACE_ADOPTION "memory is adopted"

#endif
