/* SPDX-License-Identifier: BSD-3-Clause */
/* The buffers of the host MPI's persistent requests, by canonical handle. Context: any thread. A
 * request without an entry (out of memory, or not recorded) may name any memory. */
#ifndef SLUICE_MPI_REQUEST_PERSISTENT_BUFS_H
#define SLUICE_MPI_REQUEST_PERSISTENT_BUFS_H

#include <stdbool.h>
#include <stdint.h>

/* sent: bytes of the message that each start sends from the buffer; 0: it sends none, or copies it
 * first. */
void persistent_buf_set(uintptr_t request, uintptr_t start, uint64_t bytes, uint64_t sent);
void persistent_buf_drop(uintptr_t request);
bool persistent_buf_get(uintptr_t request, uintptr_t *start, uint64_t *bytes, uint64_t *sent);

#endif
