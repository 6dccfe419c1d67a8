/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends, receives and requests. A host MPI may give several complete requests one handle, so the
 * table holds several entries of a handle, oldest first. */
#include <stdlib.h>
#include <string.h>

#include "mpi/record/record.h"

enum { BUCKETS = 4096 };

enum request_kind { REQUEST_SEND, REQUEST_RECV, REQUEST_COLL };

struct request {
	struct request *next;
	const void *handle;
	uint32_t id;        /* 0: a persistent request that is not started */
	bool is_persistent;
	enum request_kind kind;
	MPI_Comm comm;
	struct messages_record start; /* of a persistent request */
};

struct message {
	struct message *next;
	const void *handle;
	MPI_Comm comm;
};

static struct request *requests[BUCKETS];
static struct message *messages;
static uint32_t last_id;

/* ---- the table --------------------------------------------------------------------------- */

static struct request **bucket_of(const void *handle)
{
	return &requests[((uintptr_t)handle * 0x9e3779b97f4a7c15u) >> 52];
}

static struct request *request_add(const void *request, enum request_kind kind)
{
	struct request *q = calloc(1, sizeof *q), **at;

	if (!q)
		return NULL;
	q->handle = abi_handle_get(request, 0);
	q->kind = kind;
	q->comm = abi.comm_null;
	for (at = bucket_of(q->handle); *at; at = &(*at)->next)
		;
	*at = q;
	return q;
}

static struct request **request_find(const void *handle)
{
	struct request **at = bucket_of(handle);

	while (*at && (*at)->handle != handle)
		at = &(*at)->next;
	return at;
}

static void request_remove(struct request **at)
{
	struct request *q = *at;

	*at = q->next;
	free(q);
}

uint32_t record_request_add(const void *request)
{
	struct request *q = request_add(request, REQUEST_COLL);

	if (!q)
		return 0;
	q->id = ++last_id;
	return q->id;
}

void **record_handles(int count, const void *requests)
{
	void **handles = count > 0 && requests ? malloc((size_t)count * sizeof *handles) : NULL;

	for (int i = 0; handles && i < count; i++)
		handles[i] = abi_handle_get(requests, i);
	return handles;
}

/* ---- statuses ---------------------------------------------------------------------------- */

static size_t status_bytes(void) { return (size_t)abi.status_ints * sizeof(int); }

MPI_Status *record_status(MPI_Status *status, void *room)
{
	return abi_are_statuses(status) ? status : memset(room, 0, RECORD_STATUS_BYTES);
}

MPI_Status *record_statuses(MPI_Status *statuses, int count)
{
	MPI_Status *own;

	if (abi_are_statuses(statuses) || count <= 0)
		return statuses;
	own = calloc((size_t)count, status_bytes());
	return own ? own : statuses;
}

void record_statuses_free(MPI_Status *used, MPI_Status *statuses)
{
	if (used != statuses)
		free(used);
}

/* Returns: the bytes of a received message. */
static uint64_t bytes_of(const MPI_Status *status)
{
	static int (*elements)(const MPI_Status *, MPI_Datatype, MPI_Count *);
	MPI_Count bytes = 0;

	if (!elements)
		elements = record_host_function("PMPI_Get_elements_x");
	if (!elements) /* a host MPI without deprecated functions */
		elements = record_host_function("PMPI_Get_elements_c");
	return elements && !elements(status, abi.byte, &bytes) && bytes > 0 ? (uint64_t)bytes : 0;
}

static bool is_cancelled(const MPI_Status *status)
{
	static int (*test)(const MPI_Status *, int *);
	int flag = 0;

	if (!test)
		test = record_host_function("PMPI_Test_cancelled");
	return test && !test(status, &flag) && flag;
}

static uint64_t size_of(MPI_Count count, MPI_Datatype type)
{
	MPI_Count size = 0;

	return count <= 0 || host.Type_size_x(CANONICAL_OF(type), &size) || size < 0 ?
		       0 :
		       (uint64_t)count * (uint64_t)size;
}

/* ---- records ----------------------------------------------------------------------------- */

/* Describes a message in world ranks. Returns: false for MPI_PROC_NULL, or when it is lost. */
static bool message_init(struct messages_record *r, uint8_t type, MPI_Comm comm, int peer, int tag,
			 uint64_t bytes)
{
	const struct record_comm *c;

	*r = (struct messages_record){ .type = type, .peer = -1, .tag = tag, .bytes = bytes };
	if (peer < 0 && !(type == MESSAGES_IRECV && peer == abi.any_source))
		return false;
	c = record_comm_of(CANONICAL_OF(comm));
	if (c && peer >= 0)
		r->peer = record_world_rank(c, peer);
	if (!c || (peer >= 0 && r->peer < 0)) {
		record_lost();
		return false;
	}
	if (tag == abi.any_tag)
		r->tag = -1;
	r->comm = c->number;
	return true;
}

static void put(struct messages_record *r) { record_put(r, NULL, 0); }

static void put_received(uint8_t type, uint32_t id, const MPI_Status *status, MPI_Comm comm)
{
	struct messages_record r;

	if (!message_init(&r, type, comm, ((const int *)status)[abi.status_source],
			  ((const int *)status)[abi.status_tag], bytes_of(status))) {
		if (!id)
			return;
		r.type = MESSAGES_CANCELLED;
	}
	r.id = id;
	put(&r);
}

void record_send(MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
		 const void *request)
{
	struct messages_record r;
	struct request *q;

	record_lock();
	if (message_init(&r, request ? MESSAGES_ISEND : MESSAGES_SEND, comm, dest, tag,
			 size_of(count, type))) {
		q = request ? request_add(request, REQUEST_SEND) : NULL;
		if (q)
			r.id = q->id = ++last_id;
		put(&r);
	}
	record_unlock();
}

void record_bsend(MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
		  const void *request)
{
	struct messages_record r;

	(void)request; /* complete at once */
	record_lock();
	if (message_init(&r, MESSAGES_ISEND, comm, dest, tag, size_of(count, type)))
		put(&r);
	record_unlock();
}

void record_recv(const MPI_Status *status, MPI_Comm comm)
{
	record_lock();
	put_received(MESSAGES_RECV, 0, status, comm);
	record_unlock();
}

void record_irecv(MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
		  const void *request)
{
	struct messages_record r;
	struct request *q;

	record_lock();
	if (message_init(&r, MESSAGES_IRECV, comm, source, tag, size_of(count, type))) {
		q = request_add(request, REQUEST_RECV);
		if (q) {
			r.id = q->id = ++last_id;
			q->comm = comm;
			put(&r);
		}
	}
	record_unlock();
}

void record_sendrecv(MPI_Count count, MPI_Datatype type, int dest, int tag,
		     const MPI_Status *status, MPI_Comm comm)
{
	struct messages_record r;
	uint32_t send = 0;
	int source = ((const int *)status)[abi.status_source];

	record_lock();
	if (message_init(&r, MESSAGES_ISEND, comm, dest, tag, size_of(count, type))) {
		r.id = send = ++last_id;
		put(&r);
	}
	if (source >= 0)
		put_received(MESSAGES_RECV, 0, status, comm);
	if (send) {
		r = (struct messages_record){ .type = MESSAGES_DONE, .id = send, .peer = -1 };
		put(&r);
	}
	record_unlock();
}

/* ---- matched messages -------------------------------------------------------------------- */

void record_probed(const void *message, MPI_Comm comm)
{
	struct message *m = message ? calloc(1, sizeof *m) : NULL;

	if (!m)
		return;
	m->handle = abi_handle_get(message, 0);
	m->comm = comm;
	record_lock();
	m->next = messages;
	messages = m;
	record_unlock();
}

/* Context: locked. */
static MPI_Comm message_claim(const void *handle)
{
	for (struct message **at = &messages, *m; (m = *at); at = &m->next)
		if (m->handle == handle) {
			MPI_Comm comm = m->comm;

			*at = m->next;
			free(m);
			return comm;
		}
	return abi.comm_null;
}

void record_mrecv(void *message, const MPI_Status *status)
{
	MPI_Comm comm;

	record_lock();
	comm = message_claim(message);
	if (comm != abi.comm_null)
		put_received(MESSAGES_RECV, 0, status, comm);
	record_unlock();
}

void record_imrecv(void *message, MPI_Count count, MPI_Datatype type, const void *request)
{
	MPI_Comm comm;

	record_lock();
	comm = message_claim(message);
	record_unlock();
	if (comm != abi.comm_null)
		record_irecv(count, type, abi.any_source, abi.any_tag, comm, request);
}

/* ---- persistent requests ----------------------------------------------------------------- */

/* type: of the record that each start of the request puts. */
static void init(uint8_t type, uint64_t bytes, int peer, int tag, MPI_Comm comm,
		 const void *request)
{
	struct messages_record r;
	struct request *q = NULL;

	record_lock();
	if (message_init(&r, type, comm, peer, tag, bytes))
		q = request_add(request, type == MESSAGES_ISEND ? REQUEST_SEND : REQUEST_RECV);
	if (q) {
		q->is_persistent = true;
		q->comm = comm;
		q->start = r;
	}
	record_unlock();
}

void record_send_init(MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
		      const void *request)
{
	init(MESSAGES_ISEND, size_of(count, type), dest, tag, comm, request);
}

void record_recv_init(MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
		      const void *request)
{
	init(MESSAGES_IRECV, size_of(count, type), source, tag, comm, request);
}

void record_started(int count, const void *requests)
{
	record_lock();
	for (int i = 0; requests && i < count; i++) {
		struct request *q = *request_find(abi_handle_get(requests, i));
		struct messages_record r;

		if (!q || !q->is_persistent)
			continue;
		r = q->start;
		r.id = q->id = ++last_id;
		put(&r);
	}
	record_unlock();
}

/* ---- completion -------------------------------------------------------------------------- */

void record_freed(void **handles)
{
	struct request **at;
	struct messages_record r = { .type = MESSAGES_CANCELLED, .peer = -1 };

	if (!handles)
		return;
	record_lock();
	at = request_find(handles[0]);
	if (*at) {
		r.id = (*at)->id;
		if (r.id && (*at)->kind == REQUEST_RECV)
			put(&r);
		request_remove(at);
	}
	record_unlock();
	free(handles);
}

/* Context: locked. status: NULL when there is none. */
static void complete(const void *handle, const MPI_Status *status)
{
	struct request **at = request_find(handle), *q = *at;
	struct messages_record r = { .type = MESSAGES_DONE, .peer = -1 };

	if (!q || !q->id)
		return;
	r.id = q->id;
	if (q->kind == REQUEST_RECV && (!status || is_cancelled(status)))
		r.type = MESSAGES_CANCELLED;
	if (q->kind == REQUEST_RECV && r.type == MESSAGES_DONE)
		put_received(MESSAGES_DONE, q->id, status, q->comm);
	else
		put(&r);
	q->id = 0;
	if (!q->is_persistent)
		request_remove(at);
}

void record_done(void **handles, int done, const int *indices, const MPI_Status *statuses)
{
	record_lock();
	for (int i = 0; handles && i < done; i++)
		complete(handles[indices ? indices[i] : i],
			 abi_are_statuses(statuses) ?
				 (const char *)statuses + (size_t)i * status_bytes() :
				 NULL);
	record_unlock();
	free(handles);
}
