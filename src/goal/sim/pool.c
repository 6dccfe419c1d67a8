/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "private.h"

void sim_pool_init(struct sim_pool *p, size_t element_bytes)
{
	*p = (struct sim_pool){ .element_bytes = element_bytes, .used = 1 };
}

void sim_pool_fini(struct sim_pool *p)
{
	free(p->at);
	sim_pool_init(p, p->element_bytes);
}

uint32_t sim_pool_get(struct sim_pool *p)
{
	uint32_t index = p->free;

	if (index) {
		p->free = *(uint32_t *)sim_pool_at(p, index);
		return index;
	}
	if (p->used >= p->cap &&
	    goal_grow(&p->at, &p->cap, p->used + 1ull, p->element_bytes))
		return SIM_NONE;
	return p->used++;
}

void sim_pool_put(struct sim_pool *p, uint32_t index)
{
	*(uint32_t *)sim_pool_at(p, index) = p->free;
	p->free = index;
}
