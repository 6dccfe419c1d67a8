/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A barrier over several nodes. It consists of the status messages of other collectives.
 *
 *   the acting rank broadcasts a byte in its node, and so knows that the node's ranks have arrived
 *   the acting ranks exchange their status
 *   the acting rank broadcasts a second byte: all ranks of the job have arrived
 */
#include "base/base.h"
#include "hier/hier.h"

void hier_barrier(struct flow *f)
{
	struct coll_part part = { 0, 1 };
	struct coll_call call = {
		.kind = COLL_BCAST,
		.root = f->l->place[f->acting],
		.send = { .buf = { .addr = f->s->dummy, .bytes = 1 }, .parts = &part, .count = 1 },
		.bytes = 1,
		.name = f->t->call.name,
		.site = f->t->call.site,
	};
	int err = f->s->local && !f->err ? rt_pieces_begin(f->s->local, &call, 1, &f->inside) : 0;

	if (err)
		flow_fail(f, err);
	flow_run(f, f->inside, 0, 0, 1);
	if (f->acts)
		flow_agree(f);
	flow_run(f, f->inside, 0, 0, 1);
	rt_pieces_end(f->inside);
}
