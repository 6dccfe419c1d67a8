/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrays that grow, for GOAL's tool chain. */
#ifndef SLUICE_GOAL_GROW_H
#define SLUICE_GOAL_GROW_H

#include <stddef.h>
#include <stdint.h>

int goal_grow_more(void *array, uint32_t *cap, uint64_t need, size_t element_bytes);

/* Makes room for `need` elements in the array at *(void **)array, which has room for *cap of them;
 * where it has not enough, its room at least doubles. Returns: 0 or -ENOMEM. */
static inline int goal_grow(void *array, uint32_t *cap, uint64_t need, size_t element_bytes)
{
	return need <= *cap ? 0 : goal_grow_more(array, cap, need, element_bytes);
}

#endif
