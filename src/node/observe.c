/* SPDX-License-Identifier: BSD-3-Clause */
/* The view of a process that is no rank of a group but maps the arenas of its ranks. */
#include <errno.h>
#include <unistd.h>

#include "node/private.h"

static struct node_hello hello_of(const struct node_member *m)
{
	return (struct node_hello){ .pid = m->pid, .start = m->start, .arena_id = m->arena_id,
				    .arena_bytes = m->arena_bytes };
}

int node_self(struct node_member *out)
{
	int err = region_init();

	*out = (struct node_member){ .pid = getpid(),
				     .start = os_process_start(getpid()),
				     .arena_id = node_arena_id(),
				     .arena_bytes = region_arena_bytes() };
	return err;
}

void node_outline(const struct node_group *g, struct node_outline *out, struct node_member *members)
{
	*out = (struct node_outline){ .control_off = (uint64_t)(g->control - g->places[0].arena),
				      .area_bytes = g->area_bytes,
				      .size = (uint32_t)g->size,
				      .id = g->id };
	for (int r = 0; r < g->size; r++) {
		const struct node_peer *p = g->peers[r];

		if (r == g->rank)
			node_self(&members[r]);
		else
			members[r] = (struct node_member){ .pid = p->pid,
							   .start = p->start,
							   .arena_id = p->arena_id,
							   .arena_bytes = p->bytes };
	}
}

int node_observe_arena(const struct node_member *m, int fd)
{
	struct node_hello h = hello_of(m);
	int err = 0;

	return peer_add(&h, fd, &err) ? 0 : -err;
}

void node_forget_arena(const struct node_member *m)
{
	struct node_hello h = hello_of(m);
	struct node_peer *p = peer_find(&h);

	if (!p)
		return;
	peer_put(p);
	peer_put(p);
}

void node_observe_end(struct node_group *g) { group_drop(g); }

static int observe(struct node_group *g, const struct node_outline *o,
		   const struct node_member *members)
{
	for (int r = 0; r < g->size; r++) {
		struct node_hello h = hello_of(&members[r]);

		g->peers[r] = peer_find(&h);
		if (!g->peers[r])
			return -ENOENT;
		g->places[r] = (struct node_place){ .pid = members[r].pid,
						    .arena = g->peers[r]->base,
						    .arena_bytes = g->peers[r]->bytes };
	}
	group_layout(g, o->area_bytes);
	if (o->control_off > g->peers[0]->bytes ||
	    g->control_bytes > g->peers[0]->bytes - o->control_off)
		return -EPROTO;
	group_set_control(g, g->peers[0]->base + o->control_off);
	return 0;
}

int node_observe(const struct node_outline *o, const struct node_member *members,
		 struct node_group **out)
{
	struct node_group *g = group_alloc(-1, (int)o->size);
	int ret = g ? observe(g, o, members) : -ENOMEM;

	if (!ret) {
		g->id = o->id;
		*out = g;
	} else if (g) {
		group_drop(g);
	}
	return ret;
}
