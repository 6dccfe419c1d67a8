/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Persistent and partitioned requests: what each start puts.
 *
 * A partitioned message is one message. It is sent when its last partition is ready, as MPI does
 * not tell how a library divides it, and sender and receiver may have different partitions.
 * Partitioned messages match in the order of their initialisation, which channels express.
 */
#include <stdlib.h>

#include "mpi/record/record.h"

/* How many partitioned messages one side has initialised. */
struct channel {
	struct channel *next;
	uint32_t comm, count;
	int32_t peer, tag;
	bool is_send;
};
static struct channel *channels;

/* type: of the record that each start of the request puts. Context: locked. */
static struct record_request *init(uint8_t type, uint64_t bytes, int peer, int tag, MPI_Comm comm,
				   const void *request)
{
	struct messages_record r;
	struct record_request *q = NULL;

	if (record_message_init(&r, type, comm, peer, tag, bytes))
		q = record_request_add(request, type == MESSAGES_ISEND ? RECORD_SEND : RECORD_RECV);
	if (q) {
		q->is_persistent = true;
		q->comm = comm;
		q->start = r;
	}
	return q;
}

void record_init(uint8_t type, MPI_Count count, MPI_Datatype datatype, int peer, int tag,
		 MPI_Comm comm, const void *request)
{
	record_lock();
	init(type, record_bytes(count, datatype), peer, tag, comm, request);
	record_unlock();
}

/* ---- partitioned messages ---------------------------------------------------------------- */

/* Context: locked. Returns: the number of the next partitioned message; 0: no memory. */
static uint32_t channel_next(const struct messages_record *r)
{
	bool is_send = r->type == MESSAGES_ISEND;
	struct channel *c = channels;

	while (c && (c->comm != r->comm || c->peer != r->peer || c->tag != r->tag ||
		     c->is_send != is_send))
		c = c->next;
	if (!c) {
		c = calloc(1, sizeof *c);
		if (!c)
			return 0;
		*c = (struct channel){ .next = channels, .comm = r->comm, .peer = r->peer,
				       .tag = r->tag, .is_send = is_send };
		channels = c;
	}
	return ++c->count;
}

void record_partitioned_init(uint8_t type, int partitions, MPI_Count count, MPI_Datatype datatype,
			     int peer, int tag, MPI_Comm comm, const void *request)
{
	struct record_request *q;

	record_lock();
	q = init(type, (uint64_t)partitions * record_bytes(count, datatype), peer, tag, comm,
		 request);
	if (q) {
		q->kind = type == MESSAGES_ISEND ? RECORD_SEND : RECORD_OTHER; /* no wildcards */
		q->partitions = type == MESSAGES_ISEND ? partitions : 0;
		q->start.count = MESSAGES_PARTITIONED + channel_next(&q->start);
	}
	record_unlock();
}

/* Context: locked. */
static void put_start(const struct record_request *q)
{
	struct messages_record r = q->start;

	r.id = q->id;
	record_put(&r, q->parts, q->parts ? r.count * sizeof *q->parts : 0);
}

void record_ready(int partitions, MPI_Request request)
{
	struct record_request *q;
	struct messages_record r = { .type = MESSAGES_READY, .peer = -1 };

	record_lock();
	q = *record_request_find(CANONICAL_OF(request));
	if (q && q->id && q->missing > 0) {
		q->missing -= partitions;
		r.id = q->id;
		record_put(&r, NULL, 0);
		if (q->missing <= 0)
			put_start(q);
	}
	record_unlock();
}

/* ---- starts ------------------------------------------------------------------------------ */

void record_started(int count, const void *requests)
{
	record_lock();
	for (int i = 0; requests && i < count; i++) {
		struct record_request *q = *record_request_find(abi_handle_get(requests, i));

		if (!q || !q->is_persistent)
			continue;
		q->id = record_next_id();
		q->missing = q->partitions;
		if (!q->missing)
			put_start(q);
	}
	record_unlock();
}
