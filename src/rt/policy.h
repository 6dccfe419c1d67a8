/* SPDX-License-Identifier: BSD-3-Clause */
/* policy: the decisions of the runtime as pure functions of plain facts, so that tables can test
 * them and messages can explain them. */
#ifndef SLUICE_RT_POLICY_H
#define SLUICE_RT_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/policy.h"
#include "rt/collective.h"

/* Smallest message of a kind that may be taken, by the options and by what was measured;
 * UINT64_MAX: none is. */
uint64_t policy_threshold_bytes(enum coll kind);
enum policy_host { HOST_OTHER, HOST_MPICH, HOST_OPEN_MPI };
/* By what the library says of itself; "": not known. */
enum policy_host policy_host_of(const char *library_version);
/* From here on it is taken whatever memory the buffers are; below, when the ranks use theirs again.
 * UINT64_MAX: never for its size alone. */
uint64_t policy_always_bytes(enum coll kind, enum policy_host host);
/*
 * Where ranks share CPUs calls of some kinds have to be larger: smaller ones are passed on, and
 * those below *out_always, too, unless the ranks use their buffers again. 0: no larger than
 * elsewhere.
 */
void policy_crowded_bytes(enum coll kind, enum policy_host host, int ranks, uint64_t *out_again,
			  uint64_t *out_always);

/* What is taken of nonblocking forms: between two sizes, from UINT64_MAX: none, but for those in
 * [not_from, not_to), and from a size on in buffers that are used again, UINT64_MAX: none. All
 * ranks of a job come to the same. */
struct policy_window { uint64_t from, to, again, not_from, not_to; };
struct policy_window policy_request_window(enum coll kind, enum policy_host host);
/* ... on a communicator of such ranks. */
bool policy_request_suits(const struct policy_group *g);

#endif
