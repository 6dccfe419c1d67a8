/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include "goal/grow/grow.h"

#define LEAST 64u /* elements of the first piece of memory */

int goal_grow_more(void *array, uint32_t *cap, uint64_t need, size_t element_bytes)
{
	uint64_t more = *cap ? 2 * (uint64_t)*cap : LEAST;
	void **at = array, *moved;

	if (need > UINT32_MAX)
		return -ENOMEM;
	while (more < need)
		more *= 2;
	more = more < UINT32_MAX ? more : UINT32_MAX;
	moved = realloc(*at, more * element_bytes);
	if (!moved)
		return -ENOMEM;
	*at = moved;
	*cap = (uint32_t)more;
	return 0;
}
