/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A barrier over several nodes: what is the last message of other collectives is all of it.
 *
 *   the rank that acts gives the others of its node a byte, and knows then that all are there
 *   those that act tell each other
 *   a second byte says that all others are there, too
 */
#include "base/base.h"
#include "hier/hier.h"

void hier_barrier(struct flow *f)
{
	struct coll_part part = { 0, 1 };
	struct coll_call call = {
		.kind = COLL_BCAST,
		.root = f->l->place[f->acting],
		.send = { .buf = { .addr = f->s->spare, .bytes = 1 }, .parts = &part, .count = 1 },
		.bytes = 1,
		.name = f->t->call.name,
		.site = f->t->call.site,
	};
	int err = f->s->local && !f->err ? rt_pieces_begin(f->s->local, &call, 1, &f->inside) : 0;

	if (err)
		flow_fail(f, err);
	flow_run(f, f->inside, 0, 0, 1);
	if (f->acts)
		flow_meet(f);
	flow_run(f, f->inside, 0, 0, 1);
	rt_pieces_end(f->inside);
}
