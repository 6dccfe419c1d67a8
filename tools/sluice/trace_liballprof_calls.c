/* SPDX-License-Identifier: BSD-3-Clause */
/* A call that liballprof wrote -> records. Field 1 is its begin; the arguments begin at field 2. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "trace_liballprof.h"

enum { REQUESTS_MAX = 1 << 24 };

/* ---- fields ------------------------------------------------------------------------------ */

static uint64_t product(struct lap_line *l, int64_t count, uint32_t type)
{
	int64_t size = lap_int(l, type, 1), bytes;

	if (count < 0 || size < 0 || __builtin_mul_overflow(count, size, &bytes)) {
		l->is_bad = true;
		return 0;
	}
	return (uint64_t)bytes;
}

static int32_t int_at(struct lap_line *l, uint32_t field)
{
	int64_t n = lap_int(l, field, 0);

	l->is_bad |= n < INT32_MIN || n > INT32_MAX;
	return l->is_bad ? 0 : (int32_t)n;
}

static void lost(struct lap *l)
{
	lap_put(l, (struct messages_record){ .type = MESSAGES_LOST, .bytes = 1 }, NULL);
}

/* ---- requests ---------------------------------------------------------------------------- */

static struct lap_request *request_at(struct lap *l, uint64_t address)
{
	uint32_t number = messages_number_of(&l->now.addresses, address, 0);

	if (number > l->now.requests_count)
		TRACE_ADD(&l->now, requests);
	return &l->now.requests[number - 1];
}

static void complete(struct lap *l, struct lap_request *q)
{
	if (!q->id)
		return;
	if (q->done.type == MESSAGES_CANCELLED && !q->is_cancelled)
		lost(l);
	q->done.id = q->id;
	lap_put(l, q->done, NULL);
	q->id = 0;
	q->is_cancelled = false;
}

/* Returns: how far one request stands from the next. */
static uint64_t request_bytes(const struct lap *l)
{
	return l->now.is_mpich || !l->now.has_pointers ? sizeof(int32_t) : sizeof(void *);
}

/* Calls one() for each request of an array: its length and its address in the fields 2 and 3. */
static void each_request(struct lap *l, void (*one)(struct lap *, struct lap_request *))
{
	int64_t count = lap_int(&l->now.line, 2, 0);
	uint64_t address = (uint64_t)lap_int(&l->now.line, 3, 0);

	l->now.line.is_bad |= count < 0 || count > REQUESTS_MAX;
	for (int64_t i = 0; i < count && !l->now.line.is_bad; i++) {
		uint32_t number = messages_number_known(
			&l->now.addresses, address + (uint64_t)i * request_bytes(l), 0);

		if (number) /* else MPI_REQUEST_NULL */
			one(l, &l->now.requests[number - 1]);
	}
}

/* ---- messages ---------------------------------------------------------------------------- */

/* Returns: whether there is a message; peer: a rank of c, or a number of the MPI's own. */
static bool name_peer(struct lap *l, const struct lap_comm *c, bool is_recv, int32_t peer,
		      struct messages_record *r)
{
	if (peer == (l->now.is_mpich ? -2 : -1) && is_recv) {
		r->peer = MESSAGES_ANY;
		return true;
	}
	if (peer < 0) /* MPI_PROC_NULL */
		return false;
	l->now.line.is_bad |= (uint32_t)peer >= c->group.size;
	if (!l->now.line.is_bad)
		r->peer = c->group.world[peer];
	return !l->now.line.is_bad;
}

static bool is_recv(const struct messages_record *r)
{
	return r->type == MESSAGES_RECV || r->type == MESSAGES_IRECV;
}

/* Matches a message. Returns: whether it exists. */
static bool match(struct lap *l, const struct lap_comm *c, struct messages_record *r)
{
	if (r->peer == -1)
		return false;
	if (is_recv(r))
		return l->pass != LAP_RECORDS || lap_match(l, c, r);
	if (r->tag < 0)
		l->now.line.is_bad = true;
	else if (l->pass == LAP_SENDS)
		lap_send(l, c, r);
	return true;
}

static const struct lap_comm *comm_numbered(const struct lap *l, uint32_t number)
{
	for (size_t i = 0;; i++)
		if (l->now.comms[i].group.world && l->now.comms[i].number == number)
			return &l->now.comms[i];
}

static void start(struct lap *l, struct lap_request *q, struct messages_record r)
{
	bool exists = match(l, comm_numbered(l, r.comm), &r);

	if (l->now.line.is_bad)
		return;
	complete(l, q); /* it was, or its place would not be used again */
	r.id = q->id = ++l->now.last_id;
	q->done = (struct messages_record){ .type = MESSAGES_DONE, .comm = r.comm, .peer = -1 };
	if (!is_recv(&r)) {
		if (exists)
			lap_put(l, r, NULL);
		else
			q->id = 0;
		return;
	}
	if (exists) {
		q->done = r;
		q->done.type = MESSAGES_DONE;
	} else if (r.peer != -1) {
		q->done.type = MESSAGES_CANCELLED;
	}
	if (!exists)
		r.peer = r.tag = -1;
	lap_put(l, r, NULL);
}

static void start_persistent(struct lap *l, struct lap_request *q)
{
	if (q->is_persistent)
		start(l, q, q->start);
}

static void blocking(struct lap *l, const struct lap_comm *c, struct messages_record *r)
{
	if (match(l, c, r) && !l->now.line.is_bad)
		lap_put(l, *r, NULL);
	else if (r->peer != -1 && !l->now.line.is_bad)
		lost(l);
}

/* Reads one direction of a call. Returns: whether its communicator is known. */
static const struct lap_comm *read_message(struct lap *l, uint8_t type, uint32_t count,
					   uint32_t peer, uint32_t comm, struct messages_record *r)
{
	struct lap_line *line = &l->now.line;
	const struct lap_comm *c = lap_comm_of(l, comm);

	*r = (struct messages_record){ .type = type,
				       .comm = c ? c->number : 0,
				       .peer = -1,
				       .bytes = product(line, int_at(line, count), count + 1),
				       .tag = int_at(line, peer + 1) };
	if (c && !line->is_bad)
		name_peer(l, c, is_recv(r), int_at(line, peer), r);
	return c;
}

static const struct {
	const char *name;
	uint8_t type;
	bool is_persistent;
} messages[] = {
	{ "Send", MESSAGES_SEND, false },       { "Ssend", MESSAGES_SEND, false },
	{ "Rsend", MESSAGES_SEND, false },      { "Bsend", MESSAGES_SEND, false },
	{ "Isend", MESSAGES_ISEND, false },     { "Issend", MESSAGES_ISEND, false },
	{ "Irsend", MESSAGES_ISEND, false },    { "Ibsend", MESSAGES_ISEND, false },
	{ "Recv", MESSAGES_RECV, false },       { "Irecv", MESSAGES_IRECV, false },
	{ "Send_init", MESSAGES_ISEND, true },  { "Ssend_init", MESSAGES_ISEND, true },
	{ "Rsend_init", MESSAGES_ISEND, true }, { "Bsend_init", MESSAGES_ISEND, true },
	{ "Recv_init", MESSAGES_IRECV, true },
};

/* buf, count, datatype, peer, tag, communicator, request */
static bool put_message(struct lap *l, const char *name)
{
	struct messages_record r;
	struct lap_request *q;
	const struct lap_comm *c;
	size_t i = 0;

	while (i < BASE_ARRAY_LEN(messages) && strcmp(messages[i].name, name))
		i++;
	if (i == BASE_ARRAY_LEN(messages))
		return false;
	c = read_message(l, messages[i].type, 3, 5, 7, &r);
	if (l->now.line.is_bad)
		return true;
	if (!c) {
		lost(l);
	} else if (r.type == MESSAGES_SEND || r.type == MESSAGES_RECV) {
		blocking(l, c, &r);
	} else {
		q = request_at(l, (uint64_t)lap_int(&l->now.line, 8, 0));
		q->is_persistent = messages[i].is_persistent;
		q->start = r;
		if (!q->is_persistent)
			start(l, q, r);
	}
	return true;
}

static void put_sendrecv(struct lap *l, bool is_replace)
{
	uint32_t comm = is_replace ? 9 : 12;
	struct messages_record out, in;
	const struct lap_comm *c = read_message(l, MESSAGES_ISEND, 3, 5, comm, &out);
	struct lap_request halves[2] = { { 0 }, { 0 } };

	read_message(l, MESSAGES_IRECV, is_replace ? 3 : 8, is_replace ? 7 : 10, comm, &in);
	if (l->now.line.is_bad)
		return;
	if (!c) {
		lost(l);
		return;
	}
	start(l, &halves[0], out);
	start(l, &halves[1], in);
	complete(l, &halves[0]);
	complete(l, &halves[1]);
}

/* ---- collectives ------------------------------------------------------------------------- */

/* Fields of one side: a count, or a list of counts; the datatype. 0: none. */
struct side {
	uint8_t count, list, type;
};

static const struct coll {
	const char *name;
	uint8_t collective, comm, root;
	struct side send, recv;
} colls[] = {
	{ "Barrier", MESSAGES_BARRIER, 2, 0, { 0 }, { 0 } },
	{ "Bcast", MESSAGES_BCAST, 6, 5, { 3, 0, 4 }, { 0 } },
	{ "Reduce", MESSAGES_REDUCE, 8, 7, { 4, 0, 5 }, { 0 } },
	{ "Allreduce", MESSAGES_ALLREDUCE, 7, 0, { 4, 0, 5 }, { 0 } },
	{ "Scan", MESSAGES_SCAN, 7, 0, { 4, 0, 5 }, { 0 } },
	{ "Exscan", MESSAGES_EXSCAN, 7, 0, { 4, 0, 5 }, { 0 } },
	{ "Gather", MESSAGES_GATHER, 9, 8, { 3, 0, 4 }, { 6, 0, 7 } },
	{ "Scatter", MESSAGES_SCATTER, 9, 8, { 3, 0, 4 }, { 6, 0, 7 } },
	{ "Allgather", MESSAGES_ALLGATHER, 8, 0, { 0 }, { 6, 0, 7 } },
	{ "Alltoall", MESSAGES_ALLTOALL, 8, 0, { 0 }, { 6, 0, 7 } },
	{ "Reduce_scatter_block", MESSAGES_REDUCE_SCATTER, 7, 0, { 0 }, { 4, 0, 5 } },
	{ "Gatherv", MESSAGES_EXCHANGE, 12, 11, { 3, 0, 4 }, { 0, 7, 10 } },
	{ "Scatterv", MESSAGES_EXCHANGE, 12, 11, { 0, 4, 7 }, { 9, 0, 10 } },
	{ "Allgatherv", MESSAGES_EXCHANGE, 11, 0, { 0 }, { 0, 7, 10 } },
	{ "Alltoallv", MESSAGES_EXCHANGE, 14, 0, { 0, 4, 7 }, { 0, 10, 13 } },
	{ "Reduce_scatter", MESSAGES_EXCHANGE, 8, 0, { 0, 5, 6 }, { 0, 5, 6 } },
};

/* Returns: the bytes of a side, with or for rank i. */
static uint64_t side_bytes(struct lap_line *l, const struct side *s, uint32_t i)
{
	return product(l, s->list ? lap_int(l, s->list, i) : int_at(l, s->count), s->type);
}

static void add_part(struct messages_part *parts, struct messages_record *r, int32_t peer,
		     bool is_recv, uint64_t bytes)
{
	if (bytes)
		parts[r->count++] = (struct messages_part){ peer, is_recv, bytes };
}

/* A message for each pair of ranks that has one, as the lists of counts say. */
static void put_exchange(struct lap *l, const struct coll *k, const struct lap_comm *c,
			 struct messages_record *r)
{
	struct lap_line *line = &l->now.line;
	uint32_t me = c->group.rank, root = (uint32_t)r->peer;
	struct messages_part *parts = trace_alloc(2 * c->group.size * sizeof *parts);
	bool is_rooted = k->root, is_allgather = !k->send.type;
	bool is_reduce = k->send.list == k->recv.list;

	for (uint32_t i = 0; i < c->group.size; i++) {
		int32_t peer = c->group.world[i];
		bool sends = !is_rooted || (k->send.list ? me == root : i == root);
		bool receives = !is_rooted || (k->recv.list ? me == root : i == root);

		if (i == me)
			continue;
		if (sends)
			add_part(parts, r, peer, false,
				 side_bytes(line, is_allgather ? &k->recv : &k->send,
					    is_allgather ? me : i));
		if (receives)
			add_part(parts, r, peer, true,
				 side_bytes(line, &k->recv, is_reduce ? me : i));
	}
	lap_put(l, *r, parts);
}

/* The name of a nonblocking call, "Iallreduce", is that of the other one in lower case. */
static const struct coll *coll_named(const char *name, bool *is_nonblocking)
{
	*is_nonblocking = name[0] == 'I' && islower((unsigned char)name[1]);
	for (size_t i = 0; i < BASE_ARRAY_LEN(colls); i++)
		if (*is_nonblocking ? !strcmp(name + 2, colls[i].name + 1) &&
					      toupper((unsigned char)name[1]) == colls[i].name[0]
				    : !strcmp(name, colls[i].name))
			return &colls[i];
	return NULL;
}

static void put_coll(struct lap *l, const struct coll *k, bool is_nonblocking)
{
	struct lap_line *line = &l->now.line;
	const struct lap_comm *c = lap_comm_of(l, k->comm);
	struct messages_record r = { .type = MESSAGES_COLL, .collective = k->collective };
	struct lap_request *q = NULL;
	const struct side *side = &k->send;
	bool is_root;

	if (!c) {
		lost(l);
		return;
	}
	r.comm = c->number;
	r.peer = k->root ? int_at(line, k->root) : 0;
	if (line->is_bad || r.peer < 0 || (uint32_t)r.peer >= c->group.size) {
		line->is_bad = true;
		return;
	}
	if (is_nonblocking) {
		q = request_at(l, (uint64_t)lap_int(line, k->comm + 1u, 0));
		complete(l, q);
		r.id = q->id = ++l->now.last_id;
		q->done = (struct messages_record){ .type = MESSAGES_DONE, .peer = -1 };
		q->is_persistent = false;
	}
	/* what MPI reads at the root, or what is there with MPI_IN_PLACE, too */
	is_root = (uint32_t)r.peer == c->group.rank;
	if (!side->type || (k->collective == MESSAGES_GATHER && is_root) ||
	    (k->collective == MESSAGES_SCATTER && !is_root))
		side = &k->recv;
	if (k->collective == MESSAGES_EXCHANGE) {
		put_exchange(l, k, c, &r);
	} else {
		r.bytes = side->type ? side_bytes(line, side, 0) : 0;
		lap_put(l, r, NULL);
	}
}

/* ---- calls ------------------------------------------------------------------------------- */

static struct lap_request *request_of_line(struct lap *l)
{
	return request_at(l, (uint64_t)lap_int(&l->now.line, 2, 0));
}

static void wait_one(struct lap *l) { complete(l, request_of_line(l)); }

static void wait_all(struct lap *l) { each_request(l, complete); }

static void wait_some(struct lap *l) { l->unknown++; }

static void start_one(struct lap *l) { start_persistent(l, request_of_line(l)); }

static void start_all(struct lap *l) { each_request(l, start_persistent); }

static void cancel(struct lap *l) { request_of_line(l)->is_cancelled = true; }

static void sendrecv(struct lap *l) { put_sendrecv(l, false); }

static void sendrecv_replace(struct lap *l) { put_sendrecv(l, true); }

static const struct {
	const char *name;
	void (*put)(struct lap *l);
} others[] = {
	{ "Wait", wait_one },
	{ "Waitall", wait_all },
	{ "Waitany", wait_some },
	{ "Waitsome", wait_some },
	{ "Test", wait_some },
	{ "Testall", wait_some },
	{ "Testany", wait_some },
	{ "Testsome", wait_some },
	{ "Start", start_one },
	{ "Startall", start_all },
	{ "Cancel", cancel },
	{ "Sendrecv", sendrecv },
	{ "Sendrecv_replace", sendrecv_replace },
	{ "Comm_split", lap_comm_split },
	{ "Comm_dup", lap_comm_dup },
	{ "Comm_free", lap_comm_free },
	{ "Alltoallw", lost },
};

void lap_call(struct lap *l)
{
	const char *name = l->now.line.text + strlen("MPI_");
	const struct coll *k;
	bool is_nonblocking;

	for (size_t i = 0; i < BASE_ARRAY_LEN(others); i++)
		if (!strcmp(others[i].name, name)) {
			others[i].put(l);
			return;
		}
	if (put_message(l, name))
		return;
	k = coll_named(name, &is_nonblocking);
	if (k)
		put_coll(l, k, is_nonblocking);
}
