/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model of Intel DSA: a thread of this process executes the descriptors that are written to a
 * pipe, which stands at descriptor 900 for a shared work queue of 64 entries. So a full queue
 * accepts fewer descriptors, as the kernel's does. Pages that are not in this process's page tables
 * end a copy early. Wrong descriptors abort the process. close() waits as the kernel's does.
 *
 * Preloaded into programs (DSA_MODEL=settings; DSA_MODEL_FOLLOWS=1: in forked children, too), or
 * linked into a unit test.
 */
#ifndef SLUICE_TEST_DSA_MODEL_H
#define SLUICE_TEST_DSA_MODEL_H

#include <stdint.h>

enum { DSA_MODEL_FD = 900 };

/*
 * Settings: "fault=n" every n-th copy meets a missing page, "status=n" the n-th copy fails,
 * "hang=n" the n-th and all later never end, "rate=n" MB/s, "others=n" for each descriptor of this
 * process other processes submit up to n to the same queue. Counts from now on.
 */
void dsa_model_set(const char *settings);
/* follow: a forked child has a model of its own. */
void dsa_model_start(int follow);
uint64_t dsa_model_descriptors(void); /* executed since dsa_model_set() */
uint64_t dsa_model_bytes(void);       /* copied since then */
uint64_t dsa_model_of_others(void);   /* descriptors of other processes since then */

#endif
