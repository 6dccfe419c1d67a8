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
	struct coll_call call = flow_call(f, COLL_BCAST);
	struct coll_part part;
	int err = 0;

	call.send = flow_side(f->s->dummy, 1, &part);
	call.bytes = 1;
	if (f->s->local && !f->err)
		err = rt_pieces_begin(f->s->local, &call, 1, &f->inside);
	flow_note_error(f, err);
	flow_run(f, f->inside, 0, 0, 1);
	if (f->acts)
		flow_agree(f);
	flow_run(f, f->inside, 0, 0, 1);
	flow_close(f); /* before `call` ends */
}
