/* SPDX-License-Identifier: BSD-3-Clause */
/* What the buffers of persistent requests are, by canonical handle. Any thread. A request that is
 * not known (no memory, or nobody recorded it) may name anything. */
#ifndef SLUICE_MPI_REQUEST_PERSISTENT_BUFS_H
#define SLUICE_MPI_REQUEST_PERSISTENT_BUFS_H

#include <stdbool.h>
#include <stdint.h>

void persistent_buf_set(uintptr_t request, uintptr_t start, uint64_t bytes);
void persistent_buf_drop(uintptr_t request);
bool persistent_buf_get(uintptr_t request, uintptr_t *start, uint64_t *bytes);

#endif
