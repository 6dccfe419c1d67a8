/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small requests: each rank posts its message in the mailbox of the communicator when it starts the
 * request, and computes its own result from the posted messages when it progresses. All ranks agree
 * on which requests are small.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "goal/local.h"
#include "rt/coll/run.h"
#include "rt/request/request.h"

/* Returns: bytes of the longest message that a rank posts. */
static uint64_t message_bytes(const struct coll_call *call, int ranks)
{
	uint64_t longest = 0;

	switch (call->kind) {
	case COLL_SCATTER:
	case COLL_ALLTOALL:
	case COLL_REDUCE_SCATTER_BLOCK:
		return call->bytes > MAILBOX_BYTES ? call->bytes : call->bytes * (uint64_t)ranks;
	case COLL_REDUCE_SCATTER:
		return side_bytes(&call->send);
	case COLL_ALLGATHERV:
		for (int r = 0; r < ranks; r++)
			longest = base_max_u64(longest, call->recv.parts[r].bytes);
		return longest;
	default:
		return call->bytes;
	}
}

bool request_is_small(const struct rt_comm *c, const struct coll_call *call)
{
	return call->kind == COLL_BARRIER ||
	       (call->bytes && message_bytes(call, c->size) <= MAILBOX_BYTES);
}

/* ---- posting ----------------------------------------------------------------------------- */

static int copy_out(const struct coll_buf *buf, const struct coll_part *p, char *to)
{
	if (buf->pack)
		return p->bytes ? buf->pack(buf->ctx, p->off, p->bytes, to) : 0;
	memcpy(to, (char *)buf->addr + p->off, p->bytes);
	return 0;
}

/* Returns: the side whose parts [*first, *first + *n) are this rank's message; NULL: this rank
 * posts nothing. An allgather in place sends from its receive buffer. */
static const struct coll_side *sender(const struct rt_request *r, int *first, int *n)
{
	const struct coll_call *call = r->call;
	int rank = r->comm->rank;

	*first = 0;
	*n = call->send.count;
	if (call->kind == COLL_BCAST && rank != call->root)
		return NULL;
	if (call->in_place && request_is(r, COLL_ALLGATHER)) {
		*first = rank;
		*n = 1;
		return &call->recv;
	}
	return *n ? &call->send : NULL;
}

/* Packs parts into `message`, which has MAILBOX_BYTES. Returns: 0 or -errno. */
static int copy_all_out(const struct coll_side *s, int first, int n, char *message,
			uint32_t *out_bytes)
{
	uint32_t bytes = 0;
	int ret = 0;

	for (int i = first; i < first + n && !ret; i++) {
		const struct coll_part *p = &s->parts[i];

		if (p->bytes > MAILBOX_BYTES - bytes)
			return -EREMOTEIO;
		ret = copy_out(&s->buf, p, message + bytes);
		bytes += (uint32_t)p->bytes;
	}
	*out_bytes = bytes;
	return ret;
}

static int post(struct rt_request *r)
{
	char *message = mailbox_record(r->comm->mailbox, r->number);
	uint32_t bytes = 0;
	int first, n, ret = 0;
	const struct coll_side *s = sender(r, &first, &n);

	if (!s && r->call->kind != COLL_BARRIER)
		return 0;
	if (r->message) {
		bytes = r->message_bytes;
		memcpy(message, r->message, bytes);
	} else {
		ret = copy_all_out(s, first, n, message, &bytes);
	}
	if (!ret)
		mailbox_post(r->comm->mailbox, r->number, bytes);
	return ret;
}

/* The host MPI packs buffers with gaps, and the progress thread must not call it. */
static int queued(struct rt_request *r)
{
	int first, n;
	const struct coll_side *s = sender(r, &first, &n);

	if (!s || !s->buf.pack || r->message)
		return 0;
	r->message = malloc(MAILBOX_BYTES);
	return r->message ? copy_all_out(s, first, n, r->message, &r->message_bytes) : -ENOMEM;
}

/* ---- receiving --------------------------------------------------------------------------- */

static int combine(void *ctx, const void *in, void *inout, uint32_t bytes)
{
	const struct coll_reduce *f = ctx;
	uint32_t modes;

	if (f->op == GOAL_NOP)
		return f->combine(f->ctx, in, inout, bytes / f->element_bytes);
	modes = os_float_modes_set(f->float_modes); /* this may be a fault handler */
	goal_local((enum goal_isa)os_simd(), f->op, f->type, inout, in, inout, bytes);
	os_float_modes_set(modes);
	return 0;
}

/* Sets the ranks whose messages this rank reads, and the part of each. */
static void set_ranks(const struct rt_request *r, struct mailbox_read *read)
{
	const struct coll_call *call = r->call;
	int rank = r->comm->rank, ranks = r->comm->size;

	read->end = ranks;
	switch (call->kind) {
	case COLL_BCAST:
	case COLL_SCATTER:
		read->first = call->root;
		read->end = call->root + 1;
		read->at =
			call->kind == COLL_SCATTER ? (uint32_t)(call->bytes * (uint64_t)rank) : 0;
		break;
	case COLL_ALLTOALL:
	case COLL_REDUCE_SCATTER_BLOCK:
		read->at = (uint32_t)(call->bytes * (uint64_t)rank);
		break;
	case COLL_REDUCE_SCATTER:
		for (int k = 0; k < rank; k++)
			read->at += (uint32_t)call->send.parts[k].bytes;
		break;
	case COLL_SCAN:
		read->end = rank + 1;
		break;
	case COLL_EXSCAN:
		read->end = rank;
		break;
	case COLL_GATHER:
		read->skip = call->in_place ? rank : -1;
		break;
	default:
		break;
	}
}

/* Returns: the buffer of the result; NULL: this rank has none. */
static const struct coll_side *receiver(const struct rt_request *r)
{
	const struct coll_call *call = r->call;

	if (call->kind == COLL_BCAST)
		return r->comm->rank == call->root ? NULL : &call->send;
	return call->recv.count && r->read.first < r->read.end ? &call->recv : NULL;
}

/* Returns: bytes of the image: the received parts, or the partial results of a reduction. */
static uint64_t image_bytes(const struct rt_request *r, const struct coll_side *s)
{
	uint32_t messages = (uint32_t)(r->read.end - r->read.first);

	return request_is_reduce(r)
		       ? r->read.stride * base_max_u64(coll_combine_depth(messages), 2)
		       : base_max_u64(side_bytes(s), 1);
}

/* Sets where the result is written: to the program's memory, or, for reductions and buffers with
 * gaps, to an image. */
static int set_place(struct rt_request *r)
{
	const struct coll_side *s = receiver(r);
	struct mailbox_read *read = &r->read;

	if (r->call->kind == COLL_BARRIER) /* a message without bytes arrives from each rank */
		return 0;
	if (!s) {
		read->end = read->first;
		return 0;
	}
	read->bytes = (uint32_t)s->parts[0].bytes;
	if (request_is_reduce(r))
		read->stride = base_round_up(base_max_u64(read->bytes, 1), BASE_CACHE_LINE);
	else
		read->parts = s->count > 1 ? s->parts : NULL;
	if (!request_is_reduce(r) && !s->buf.unpack) {
		read->to = (char *)s->buf.addr + (read->parts ? 0 : s->parts[0].off);
		return 0;
	}
	r->image = aligned_alloc(BASE_CACHE_LINE,
				 base_round_up(image_bytes(r, s), BASE_CACHE_LINE));
	read->to = r->image;
	return r->image ? 0 : -ENOMEM;
}

/* Ranks that take turns on a CPU gain where one combines for all. The bits are those of its float
 * modes, so only ranks with the usual ones take part. */
static bool shares_result(const struct rt_request *r)
{
	const struct coll_reduce *f = &r->call->reduce;

	return r->comm->switches && r->call->kind == COLL_ALLREDUCE && r->call->bytes &&
	       r->call->bytes <= MAILBOX_RESULT_BYTES && f->op != GOAL_NOP && !f->float_modes;
}

/* ---- the operations ---------------------------------------------------------------------- */

static int begin(struct rt_request *r)
{
	int ret = exec_error(r->comm->exec);

	if (ret)
		return ret;
	r->number = r->lane < 0 ? mailbox_begin(r->comm->mailbox) :
				  mailbox_begin_turn(r->comm->mailbox, (uint32_t)r->lane, r->turn);
	if (!r->number)
		return -EBUSY;
	request_set_traced(r, (r->lane < 0 ? r->number : request_number(r)) | TRACE_ON_MAILBOX);
	r->read = (struct mailbox_read){ .skip = -1 };
	set_ranks(r, &r->read);
	ret = set_place(r);
	r->reduce = (struct mailbox_reduce){ combine, (void *)&r->call->reduce,
					     coll_is_prefix(r->call->kind) };
	r->read.reduce = request_is_reduce(r) ? &r->reduce : NULL;
	r->read.is_shared = shares_result(r);
	r->read.next = r->read.first;
	return ret ? ret : post(r);
}

/* Traces the bytes that this rank copied out of messages. */
static void trace_received_bytes(const struct rt_request *r)
{
	const struct coll_side *s = receiver(r);
	int rank = r->comm->rank, first = r->read.first;
	uint64_t bytes = 0;

	for (int i = 0; s && i < s->count; i++)
		bytes += s->count > 1 && i == r->read.skip ? 0 : s->parts[i].bytes;
	if (bytes)
		trace_copied(0, .bytes = bytes, .op = r->traced_op,
			     .group = node_id(r->comm->group),
			     .src = r->read.end - first == 1 ? first : (int)TRACE_FROM_ALL,
			     .dst = rank, .by = rank, .mover = TRACE_CPU);
}

static bool calls_program(const struct rt_request *r)
{
	return r->read.reduce && r->call->reduce.op == GOAL_NOP;
}

static int step(struct rt_request *r, enum exec_copy copy, bool *out_ended)
{
	int ret;

	*out_ended = false;
	if (copy == EXEC_COPY_NOTHING && calls_program(r))
		return 0;
	ret = mailbox_receive(r->comm->mailbox, r->number, &r->read);
	if (ret)
		mailbox_end(r->comm->mailbox, r->number);
	if (ret > 0 && trace_is_on())
		trace_received_bytes(r);
	*out_ended = ret > 0;
	return ret < 0 ? ret : 0;
}

static int finish(struct rt_request *r, bool is_good)
{
	const struct coll_side *s = r->image ? receiver(r) : NULL;
	char *from = r->image;
	int ret = 0;

	for (int i = 0; s && is_good && i < s->count && !ret; i++) {
		const struct coll_part *p = &s->parts[i];
		char *packed = from;

		from += p->bytes;
		if (s->count > 1 && i == r->read.skip) /* in place */
			continue;
		if (s->buf.unpack && p->bytes)
			ret = s->buf.unpack(s->buf.ctx, p->off, p->bytes, packed);
		else if (p->bytes)
			memcpy((char *)s->buf.addr + p->off, packed, p->bytes);
	}
	free(r->image);
	free(r->message);
	r->image = r->message = NULL;
	return ret;
}

static int check(struct rt_request *r)
{
	struct node_group *g = r->comm->group;
	bool is_queued = r->state == REQUEST_QUEUED;
	int dead = node_poisoned(g);
	uint32_t bytes;

	for (int k = is_queued ? 0 : r->read.next;
	     dead < 0 && k < (is_queued ? node_size(g) : r->read.end); k++)
		if (k != node_rank(g) &&
		    (is_queued || !mailbox_peek(r->comm->mailbox, k, r->number, &bytes)) &&
		    node_is_dead(g, k))
			dead = k;
	if (dead < 0)
		return 0;
	base_log(BASE_LOG_ERROR, "rt", "%s: rank %d (pid %d) of this communicator of %d ranks %s",
		 r->call->name, dead, node_pid(g, dead), node_size(g),
		 node_is_dead(g, dead) ? "has died" : "could not take part");
	node_poison(g, dead);
	return node_is_dead(g, dead) ? -EOWNERDEAD : -EIO;
}

const struct request_ops request_small = {
	.way = REQUEST_BY_MAILBOX,
	.begin = begin,
	.queued = queued,
	.step = step,
	.check = check,
	.close = finish,
};

/* ---- blocking calls ---------------------------------------------------------------------- */

bool rt_suits_short(const struct rt_comm *c, enum coll kind, uint64_t bytes)
{
	const struct coll_call call = { .kind = kind, .bytes = bytes };

	return c->switches && request_is_small(c, &call);
}

/* Lets others run, who may wait for a message of this rank. Returns: 0 or -errno. */
static int wait_a_turn(struct rt_request *r, struct node_wait *w)
{
	struct rt_comm *c = r->comm;

	if (node_wait_is_long(w)) {
		rt_requests_progress();
		if (c->progress)
			c->progress(c->progress_ctx);
	}
	return node_wait(c->group, w) ? check(r) : 0;
}

static int run_to_end(struct rt_request *r)
{
	struct node_wait w = { 0 };
	bool ended = false;
	int ret = 0;

	while (!ret && !ended) {
		if (!r->number)
			ret = begin(r);
		if (!ret)
			ret = step(r, EXEC_COPY_ALL, &ended);
		if (ret == -EBUSY || (!ret && !ended))
			ret = wait_a_turn(r, &w);
	}
	node_wait_end(r->comm->group, &w);
	return ret;
}

int rt_collective_short(struct rt_comm *c, const struct coll_call *call)
{
	struct rt_request r = { .ops = &request_small, .comm = c, .call = call, .lane = -1 };
	int ret, closed;

	call_enter(call);
	requests_enter_blocking(c);
	requests_before_blocking(c);
	c->requests.in_call = &r;
	trace_admitted(TRACE_REGION_NONE, call->root, c->rank == call->root);
	ret = run_own_part_fits(call, c->rank) ? run_to_end(&r) : -EREMOTEIO;
	closed = finish(&r, !ret);
	c->requests.in_call = NULL;
	requests_exit_blocking(c);
	call_exit();
	ret = ret ? ret : closed;
	if (ret)
		rt_abandon(c, call->name, ret);
	return ret;
}
