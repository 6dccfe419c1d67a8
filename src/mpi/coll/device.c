/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives on memory of GPUs: where the buffers of a call lie. rt/ does the rest. */
#include "mpi/coll/coll_op.h"
#include "os/os.h"

/* Describes a buffer without gaps in `out`. The first element tells where one with gaps lies. A
 * side that does not fit the message (a wrong program) is the host MPI's to report. */
static enum rt_memory classify(const struct bufref *s, uint64_t message, struct coll_side *out)
{
	const struct types_shape *shape = &s->shape;
	int n = s->given->form == ARG_EACH ? s->n : 1;
	MPI_Count count = s->given->count * n;
	bool has_gaps = !shape->in_order || (count != 1 && shape->extent != shape->size);

	*out = (struct coll_side){
		.buf = { .addr = (char *)s->given->at + shape->true_lb,
			 .bytes = (uint64_t)count * (uint64_t)shape->size },
		.count = 1,
	};
	if (!os_is_device_memory(out->buf.addr, has_gaps ? 1 : out->buf.bytes))
		return RT_MEMORY_HOST;
	return has_gaps || out->buf.bytes != message * (uint64_t)n ? RT_MEMORY_OTHER
								   : RT_MEMORY_DEVICE;
}

int coll_on_device(struct coll_op *t)
{
	enum rt_memory memory = RT_MEMORY_HOST, recv;

	t->call = (struct coll_call){
		.kind = t->args.kind,
		.root = t->args.root,
		.in_place = t->in_place,
		.bytes = t->bytes,
		.name = t->args.name,
		.site = t->args.caller,
	};
	if (t->send.is_used)
		memory = classify(&t->send, t->bytes, &t->call.send);
	if (t->recv.is_used) {
		recv = classify(&t->recv, t->bytes, &t->call.recv);
		memory = !t->send.is_used || memory == recv ? recv : RT_MEMORY_OTHER;
	}
	/* an exchange in place overwrites what others have not read yet */
	if (memory == RT_MEMORY_DEVICE &&
	    (t->has_root_mismatch || (t->in_place && t->args.kind == COLL_ALLTOALL)))
		memory = RT_MEMORY_OTHER;
	return rt_device_collective(t->cs->rt, &t->call, memory);
}
