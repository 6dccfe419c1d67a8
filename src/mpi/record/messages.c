/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends, receives and requests. A host MPI may give several complete requests one handle, so the
 * table holds several entries of a handle, oldest first. */
#include <stdlib.h>
#include <string.h>

#include "mpi/record/record.h"

enum { BUCKETS = 4096 };

struct message {
	struct message *next;
	const void *handle;
	MPI_Comm comm;
};

static struct record_request *requests[BUCKETS];
static struct message *messages;
static uint32_t last_id;

/* ---- the table --------------------------------------------------------------------------- */

static struct record_request **bucket_of(const void *handle)
{
	return &requests[((uintptr_t)handle * 0x9e3779b97f4a7c15u) >> 52];
}

struct record_request *record_request_add(const void *request, enum record_kind kind)
{
	struct record_request *q = calloc(1, sizeof *q), **at;

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

struct record_request **record_request_find(const void *handle)
{
	struct record_request **at = bucket_of(handle);

	while (*at && (*at)->handle != handle)
		at = &(*at)->next;
	return at;
}

static void request_remove(struct record_request **at)
{
	struct record_request *q = *at;

	*at = q->next;
	free(q->parts);
	free(q);
}

uint32_t record_next_id(void) { return ++last_id; }

uint32_t record_request_id(const void *request, enum record_kind kind)
{
	struct record_request *q = record_request_add(request, kind);

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

void record_clear(MPI_Status *status) { ((int *)status)[abi.status_source] = -1; }

bool record_came(const MPI_Status *status)
{
	return ((const int *)status)[abi.status_source] >= 0;
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

uint64_t record_bytes(MPI_Count count, MPI_Datatype type)
{
	return types_bytes(CANONICAL_OF(type), count);
}

/* ---- records ----------------------------------------------------------------------------- */

bool record_message_init(struct messages_record *r, uint8_t type, MPI_Comm comm, int peer, int tag,
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

	if (!record_message_init(&r, type, comm, ((const int *)status)[abi.status_source],
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

	record_lock();
	if (record_message_init(&r, request ? MESSAGES_ISEND : MESSAGES_SEND, comm, dest, tag,
			 record_bytes(count, type))) {
		r.id = request ? record_request_id(request, RECORD_SEND) : 0;
		put(&r);
	}
	record_unlock();
}

void record_bsend(MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
	struct messages_record r;

	record_lock();
	if (record_message_init(&r, MESSAGES_ISEND, comm, dest, tag, record_bytes(count, type)))
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
	struct record_request *q;

	record_lock();
	if (record_message_init(&r, MESSAGES_IRECV, comm, source, tag, record_bytes(count, type))) {
		q = record_request_add(request, RECORD_RECV);
		if (q) {
			r.id = q->id = ++last_id;
			q->comm = comm;
			q->start = r;
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
	if (record_message_init(&r, MESSAGES_ISEND, comm, dest, tag, record_bytes(count, type))) {
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

/* Sends `n` bytes to itself. Returns: whether the status tells. */
static bool tells(void *exchange, MPI_Comm comm, int n)
{
	int (*isendrecv)(const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype, int,
			 int, MPI_Comm, MPI_Request *) = exchange;
	char data[2][4] = { "", "" }, room[RECORD_STATUS_BYTES] __attribute__((aligned(8))) = "";
	MPI_Request request = NULL;

	return !isendrecv(data[0], n, abi.byte, 0, n, data[1], 4, abi.byte, 0, n, comm, &request) &&
	       !host.Wait(&request, room) && ((int *)room)[abi.status_source] == 0 &&
	       ((int *)room)[abi.status_tag] == n && bytes_of(room) == (uint64_t)n;
}

/* The statuses of MPI_Isendrecv hold nothing with MPICH 5. Context: locked. */
static bool isendrecv_tells(void)
{
	static enum { UNKNOWN, YES, NO } known;
	int (*dup)(MPI_Comm, MPI_Comm *) = record_host_function("PMPI_Comm_dup");
	void *exchange = record_host_function("PMPI_Isendrecv");
	MPI_Comm comm = NULL;

	if (known == UNKNOWN) {
		known = NO;
		if (dup && exchange && !dup(abi.comm_self, &comm)) {
			known = tells(exchange, comm, 1) && tells(exchange, comm, 2) ? YES : NO;
			host.Comm_free(&comm);
		}
	}
	return known == YES;
}

void record_isendrecv(MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Count recv_count,
		      MPI_Datatype recv_type, int source, int recv_tag, MPI_Comm comm,
		      const void *request)
{
	struct messages_record send, recv;
	struct record_request *q = NULL;
	bool sends, receives;

	record_lock();
	sends = record_message_init(&send, MESSAGES_ISEND, comm, dest, tag,
				    record_bytes(count, type));
	receives = record_message_init(&recv, MESSAGES_IRECV, comm, source, recv_tag,
				       record_bytes(recv_count, recv_type));
	if (sends || receives)
		q = record_request_add(request, receives ? RECORD_RECV : RECORD_SEND);
	if (q && sends) {
		send.id = ++last_id;
		put(&send);
		*(receives ? &q->also : &q->id) = send.id;
	}
	if (q && receives) {
		recv.id = q->id = ++last_id;
		q->comm = comm;
		q->has_no_status = !isendrecv_tells();
		q->start = recv;
		put(&recv);
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

/* ---- completion -------------------------------------------------------------------------- */

/* An active receive goes on: it gets what it was posted for. */
void record_freed(void **handles)
{
	struct record_request **at, *q;
	struct messages_record r = { .type = MESSAGES_CANCELLED, .peer = -1 };

	if (!handles)
		return;
	record_lock();
	at = record_request_find(handles[0]);
	q = *at;
	if (q) {
		r.id = q->id;
		if (r.id && q->kind == RECORD_RECV && (q->start.peer < 0 || q->start.tag < 0)) {
			record_lost();
			put(&r);
		}
		request_remove(at);
	}
	record_unlock();
	free(handles);
}

/* A receive whose status tells nothing: what it was posted for. */
static void put_posted(const struct record_request *q)
{
	struct messages_record r = q->start;

	r.type = r.peer < 0 || r.tag < 0 ? MESSAGES_CANCELLED : MESSAGES_DONE;
	if (r.type == MESSAGES_CANCELLED)
		record_lost();
	put(&r);
}

/* Context: locked. status: NULL when there is none. */
static void complete(const void *handle, const MPI_Status *status)
{
	struct record_request **at = record_request_find(handle), *q = *at;
	struct messages_record r = { .type = MESSAGES_DONE, .peer = -1 };

	if (!q || !q->id)
		return;
	r.id = q->id;
	if (q->kind == RECORD_RECV && !q->has_no_status && (!status || is_cancelled(status)))
		r.type = MESSAGES_CANCELLED;
	if (q->has_no_status)
		put_posted(q);
	else if (q->kind == RECORD_RECV && r.type == MESSAGES_DONE)
		put_received(MESSAGES_DONE, q->id, status, q->comm);
	else
		put(&r);
	if (q->also) {
		r = (struct messages_record){ .type = MESSAGES_DONE, .id = q->also, .peer = -1 };
		put(&r);
	}
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

/* A failed receive got what it was posted for: the message was too long. */
void record_failed(void **handles, int count, const void *requests)
{
	if (!handles)
		return;
	record_lock();
	for (int i = 0; i < count; i++) {
		struct record_request *q = *record_request_find(handles[i]);

		if (!q || abi_handle_get(requests, i) == handles[i])
			continue;
		q->has_no_status = q->kind == RECORD_RECV;
		complete(handles[i], NULL);
	}
	record_unlock();
	free(handles);
}
