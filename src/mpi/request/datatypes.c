/* SPDX-License-Identifier: BSD-3-Clause */
/* Datatypes of a request's buffers, which the program may free before the request completes. */
#include <errno.h>
#include <stdlib.h>

#include "mpi/request/request.h"

/* Duplicates the datatypes that a buffer is packed with. */
static int hold_side(struct request *r, struct bufref *s, const struct coll_side *side)
{
	int n = s->packs.of ? s->packs.n : 1, ret = 0;
	struct pack *packs = s->packs.of ? s->packs.of : &s->pack;
	MPI_Datatype *more;

	if (!side->buf.pack)
		return 0;
	more = realloc(r->types, (size_t)(r->type_count + n) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	r->types = more;
	bypass++;
	for (int i = 0; i < n && !ret; i++) {
		MPI_Datatype *own = &r->types[r->type_count];

		if (!side->parts[i].bytes || types_bound(packs[i].datatype))
			continue;
		*own = NULL;
		ret = host.Type_dup(packs[i].datatype, own) ? -EIO : 0;
		if (!ret)
			packs[i].datatype = r->types[r->type_count++];
	}
	bypass--;
	return ret;
}

int request_hold_types(struct request *r)
{
	int ret = hold_side(r, &r->op.send, &r->op.call.send);

	return ret ? ret : hold_side(r, &r->op.recv, &r->op.call.recv);
}

void request_release_types(struct request *r)
{
	bypass++;
	while (r->type_count)
		host.Type_free(&r->types[--r->type_count]);
	bypass--;
	free(r->types);
	r->types = NULL;
}
