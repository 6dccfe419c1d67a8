/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of a collective: from the program's arguments to parts of a buffer. */
#include <errno.h>
#include <stdlib.h>

#include "base/base.h"
#include "mpi/coll/coll_op.h"
#include "os/os.h"

/* ---- checks: local ------------------------------------------------------------------------- */

const struct arg_buf *args_message(const struct coll_args *args)
{
	switch (args->kind) {
	case COLL_BCAST:
	case COLL_REDUCE:
	case COLL_ALLREDUCE:
	case COLL_SCAN:
	case COLL_EXSCAN:
		return &args->send;
	case COLL_ALLGATHER:
	case COLL_ALLTOALL:
	case COLL_REDUCE_SCATTER_BLOCK:
		return &args->recv;
	default: /* depends on the rank, or on all counts */
		return NULL;
	}
}

/* Returns: bytes of one rank's message as far as this rank can tell, else 0; for the trace. */
static uint64_t args_message_bytes(const struct coll_args *args)
{
	const struct arg_buf *side = args_message(args);

	if (args->kind == COLL_GATHER)
		side = args->send.at == abi.in_place ? &args->recv : &args->send;
	else if (args->kind == COLL_SCATTER)
		side = args->recv.at == abi.in_place ? &args->send : &args->recv;
	return side ? types_bytes(side->type, side->count) : 0;
}

/* Returns: bytes of all parts of a buffer. */
static uint64_t buf_bytes(const struct coll_args *args, const struct arg_buf *buf)
{
	int n = buf->form < ARG_EACH ? 1 : members_count(args->comm, buf->which);
	uint64_t bytes = 0;

	if (buf->form == ARG_BUF || buf->form == ARG_EACH)
		return n > 0 && buf->count > 0 ? types_bytes(buf->type, buf->count) * (uint64_t)n
					       : 0;
	for (int i = 0; i < n && buf->counts.at; i++) {
		MPI_Count count = list_get(buf->counts, i);

		if (count > 0)
			bytes += types_bytes(buf->form == ARG_PARTS ? abi_handle_get(buf->types, i)
								    : buf->type,
					     count);
	}
	return bytes;
}

uint64_t args_own_bytes(const struct coll_args *args)
{
	const struct arg_buf *own = args->kind == COLL_SCATTERV ? &args->recv : &args->send;

	if (args_message(args) || args->kind == COLL_GATHER || args->kind == COLL_SCATTER)
		return args_message_bytes(args);
	if (own->at == abi.in_place && !coll_is_neighborhood(args->kind)) {
		own = &args->recv;
		if (args->kind != COLL_ALLTOALLV && args->kind != COLL_ALLTOALLW &&
		    args->kind != COLL_REDUCE_SCATTER)
			return 0;
	}
	return buf_bytes(args, own);
}

/* Returns: whether the address is one. Displacements of a part and those of a derived datatype may
 * be addresses, behind MPI_BOTTOM; elements without bytes need none, whatever bounds the host MPI
 * gives them. */
static bool is_address(const void *at, MPI_Count displ, const struct types_shape *shape)
{
	return at != abi.in_place && (at || displ || shape->true_lb || !shape->size);
}

/* Tries the collective with a few bytes, one buffer for both sides, on the scratch communicator.
 * Returns: the host MPI's error code. */
static int try_alias(enum coll kind, MPI_Comm scratch)
{
	char at[2] = { 0 };
	int two = 2, none = 0; /* some host MPIs check only several parts */

	switch (kind) {
	case COLL_GATHER:
		return host.Gather(at, 2, abi.byte, at, 2, abi.byte, 0, scratch);
	case COLL_SCATTER:
		return host.Scatter(at, 2, abi.byte, at, 2, abi.byte, 0, scratch);
	case COLL_ALLGATHER:
		return host.Allgather(at, 2, abi.byte, at, 2, abi.byte, scratch);
	case COLL_ALLTOALL:
		return host.Alltoall(at, 2, abi.byte, at, 2, abi.byte, scratch);
	case COLL_GATHERV:
		return host.Gatherv(at, 2, abi.byte, at, &two, &none, abi.byte, 0, scratch);
	case COLL_SCATTERV:
		return host.Scatterv(at, &two, &none, abi.byte, at, 2, abi.byte, 0, scratch);
	case COLL_ALLGATHERV:
		return host.Allgatherv(at, 2, abi.byte, at, &two, &none, abi.byte, scratch);
	case COLL_ALLTOALLV:
	case COLL_ALLTOALLW: /* checked alike */
		return host.Alltoallv(at, &two, &none, abi.byte, at, &two, &none, abi.byte,
				      scratch);
	case COLL_REDUCE:
		return host.Reduce(at, at, 2, abi.byte, abi.bor, 0, scratch);
	case COLL_ALLREDUCE:
		return host.Allreduce(at, at, 2, abi.byte, abi.bor, scratch);
	case COLL_REDUCE_SCATTER:
		return host.Reduce_scatter(at, at, &two, abi.byte, abi.bor, scratch);
	case COLL_REDUCE_SCATTER_BLOCK:
		return host.Reduce_scatter_block(at, at, 2, abi.byte, abi.bor, scratch);
	case COLL_SCAN:
		return host.Scan(at, at, 2, abi.byte, abi.bor, scratch);
	case COLL_EXSCAN:
		return host.Exscan(at, at, 2, abi.byte, abi.bor, scratch);
	default: /* of neighbours */
		return 0;
	}
}

/* Returns: where host MPIs that refuse one buffer for both sides look for this rank's own part. */
static uintptr_t own_part(const struct coll_op *t, const struct bufref *s)
{
	const struct arg_buf *given = s->given;
	MPI_Count at = 0;

	if (t->args.kind < COLL_ALLTOALL && given->form == ARG_EACH)
		at = given->count * t->cs->rank;
	else if (t->args.kind < COLL_ALLTOALL && given->form == ARG_PART)
		at = list_get(given->displs, t->cs->rank);
	return (uintptr_t)given->at + (at ? (uintptr_t)at * (uintptr_t)s->shape.size : 0);
}

/* Is the rank's own part of both buffers the same memory? */
static bool is_alias(const struct coll_op *t)
{
	const struct arg_buf *send = &t->args.send, *recv = &t->args.recv;
	const struct arg_buf *list = send->form == ARG_PART ? send : recv;

	if (coll_is_neighborhood(t->args.kind) || send->type != recv->type ||
	    send->types != recv->types || own_part(t, &t->send) != own_part(t, &t->recv))
		return false;
	if (list->form == ARG_PART && send->form != recv->form)
		return list_get(list->counts, t->cs->rank);
	return send->count == recv->count && send->counts.at == recv->counts.at;
}

/* Some host MPIs refuse a send buffer that is the receive buffer, others do not: ask this one.
 * Context: wrong programs only. */
static bool is_alias_refused(const struct coll_op *t)
{
	MPI_Comm scratch;

	return is_alias(t) && !scratch_comm(&scratch) &&
	       ON_SCRATCH_LOCKED(try_alias(t->args.kind, scratch));
}

/* Where ranks know each other's counts, the host MPI executes a call without data. */
static bool allows_none(enum coll kind)
{
	return coll_is_local(kind) || kind == COLL_ALLGATHERV || kind == COLL_REDUCE_SCATTER;
}

/* Returns: sum of a list of counts; -1 when the host MPI would refuse the list. */
static MPI_Count sum_of(const struct bufref *s)
{
	MPI_Count sum = 0;

	if (!s->given->counts.at || (!s->given->displs.at && s->given->form != ARG_SUM))
		return -1;
	for (int i = 0; i < s->n; i++) {
		MPI_Count count = list_get(s->given->counts, i);

		if (count < 0 || __builtin_add_overflow(sum, count, &sum))
			return -1;
	}
	return sum;
}

/* Checks parts with a datatype each. */
static bool are_valid_parts(struct bufref *s)
{
	struct types_shape shape;
	MPI_Datatype type;

	if (sum_of(s) < 0 || !s->given->types)
		return false;
	for (int i = 0; i < s->n; i++) {
		if (!list_get(s->given->counts, i))
			continue;
		type = abi_handle_get(s->given->types, i);
		if (type == abi.datatype_null || types_describe(type, &shape) ||
		    !is_address(s->given->at, list_get(s->given->displs, i), &shape))
			return false;
	}
	return true;
}

/* A rank of a reduce_scatter may receive nothing, and then names no receive buffer. */
static bool gets_none(const struct coll_op *t, const struct bufref *s)
{
	return s == &t->recv && s->given->form == ARG_SUM &&
	       !list_get(s->given->counts, t->cs->rank);
}

/* Returns: where the first part with elements lies; 0: at the buffer's address. */
static MPI_Count first_displ(const struct bufref *s)
{
	int i = 0;

	if (s->given->form != ARG_PART)
		return 0;
	while (!list_get(s->given->counts, i))
		i++;
	return list_get(s->given->displs, i);
}

/* Checks whether the host MPI accepts a buffer, and describes its shape. */
static bool is_valid(const struct coll_op *t, struct bufref *s)
{
	const struct arg_buf *given = s->given;
	MPI_Count count = given->count;

	if (given->form == ARG_PARTS)
		return are_valid_parts(s);
	if (given->form >= ARG_PART)
		count = sum_of(s);
	if (count < 0 || (!count && !allows_none(t->args.kind)) ||
	    given->type == abi.datatype_null || types_describe(given->type, &s->shape))
		return false;
	return !count || gets_none(t, s) || is_address(given->at, first_displ(s), &s->shape);
}

/* The first rank of an exclusive scan receives nothing; its buffer may be invalid. */
static bool gets_nothing(const struct coll_op *t)
{
	return t->args.kind == COLL_EXSCAN && !t->cs->rank && !t->in_place;
}

/* Finds the buffers that are significant on this rank. A rank that no neighbour sends to, or gets
 * data from, needs no buffer there. */
static void find_sides(struct coll_op *t)
{
	const struct coll_args *args = &t->args;
	bool is_scatter = args->kind == COLL_SCATTER || args->kind == COLL_SCATTERV;

	for (int i = 0; i < 2; i++) {
		struct bufref *s = i ? &t->recv : &t->send;

		s->given = i ? &args->recv : &args->send;
		s->parts = s->inline_parts;
		s->pack.map = NULL;
		s->packs.of = NULL;
		s->layouts = NULL;
		s->n = !coll_is_neighborhood(args->kind)
			       ? t->cs->size
			       : members_count(args->comm, i ? MEMBERS_SOURCES : MEMBERS_TARGETS);
		s->is_used = s->given->form != ARG_NONE && s->n &&
			      (!s->given->at_root || t->is_root) &&
			      !(t->in_place && s->given->at == abi.in_place && is_scatter == i) &&
			      !(i && gets_nothing(t));
	}
}

/* Returns: bytes of one rank's message as all ranks know them; 0: unknown, or not admissible. */
static uint64_t shared_bytes(const struct coll_op *t)
{
	const struct coll_args *args = &t->args;
	const struct arg_buf *own = args_message(args);
	MPI_Count sum;

	switch (args->kind) {
	case COLL_GATHER:
		own = t->is_root ? &args->recv : &args->send;
		break;
	case COLL_SCATTER:
		own = t->is_root ? &args->send : &args->recv;
		break;
	case COLL_ALLGATHERV:
	case COLL_REDUCE_SCATTER:
		sum = sum_of(&t->recv);
		if (sum <= 0 || args->recv.type == abi.datatype_null)
			return 0;
		return base_max_u64(types_bytes(args->recv.type, sum) / (uint64_t)t->cs->size, 1);
	default:
		break;
	}
	return own ? types_bytes(own->type, own->count) : 0;
}

bool bufrefs_init(struct coll_op *t)
{
	find_sides(t);
	t->has_root_mismatch = false;
	t->bytes = 0;
	t->neighbours = NULL;
	if (t->args.kind == COLL_BARRIER)
		return true;
	if (coll_is_local(t->args.kind))
		return t->send.n >= 0 && t->recv.n >= 0;
	t->bytes = shared_bytes(t);
	return t->bytes && t->bytes <= INT64_MAX / (uint64_t)t->cs->size;
}

/* The root's own part of a gather may not fit its place; Sluice still executes the parts of the
 * other ranks. */
static bool is_valid_own_part(struct coll_op *t)
{
	const struct arg_buf *send = &t->args.send;

	if (t->args.kind != COLL_GATHER || !t->is_root || t->in_place)
		return true;
	if (send->count < 0 || send->type == abi.datatype_null)
		return false;
	t->has_root_mismatch = types_bytes(send->type, send->count) != t->bytes;
	t->send.is_used = !t->has_root_mismatch;
	return true;
}

bool bufrefs_check(struct coll_op *t)
{
	if (!is_valid_own_part(t) || (t->send.is_used && !is_valid(t, &t->send)) ||
	    (t->recv.is_used && !is_valid(t, &t->recv)))
		return false;
	/* host MPIs look at the buffer of the first rank of an exclusive scan, too */
	return t->in_place || !t->send.is_used || (!t->recv.is_used && !gets_nothing(t)) ||
	       !is_alias_refused(t);
}

/* ---- parts ------------------------------------------------------------------------------- */

int bufref_piece(const struct bufref *s, int i, struct bufref_piece *out)
{
	const struct arg_buf *g = s->given;

	out->count = list_get(g->counts, i);
	if (g->form == ARG_PARTS) {
		out->type = abi_handle_get(g->types, i);
		out->at = list_get(g->displs, i);
		return out->count ? types_describe(out->type, &out->shape) : 0;
	}
	out->type = g->type;
	out->shape = s->shape;
	out->at = (__int128)list_get(g->displs, i) * s->shape.extent;
	return 0;
}

static bool is_contiguous(MPI_Count count, const struct types_shape *shape)
{
	return shape->in_order && (count == 1 || shape->extent == shape->size);
}

/* Each of n parts has `count` elements, from the first on: one run of elements. */
static int prepare_run(struct bufref *s, MPI_Count count, int n, struct coll_side *out)
{
	uint64_t bytes = (uint64_t)(count * s->shape.size);

	for (int i = 0; i < n; i++)
		s->parts[i] = (struct coll_part){ (uint64_t)i * bytes, bytes };
	out->count = n;
	return pack_init(&s->pack, (void *)s->given->at, count * n, &s->shape, &out->buf);
}

/* A list cuts one run of elements into parts. */
static int prepare_sum(struct bufref *s, struct coll_side *out)
{
	uint64_t at = 0;

	for (int i = 0; i < s->n; i++) {
		uint64_t bytes = (uint64_t)(list_get(s->given->counts, i) * s->shape.size);

		s->parts[i] = (struct coll_part){ at, bytes };
		at += bytes;
	}
	out->count = s->n;
	return pack_init(&s->pack, (void *)s->given->at, sum_of(s), &s->shape, &out->buf);
}

/* Describes the parts of a list in place. Returns: false when parts have gaps or too much memory
 * lies between them. Parts that are adjacent, in either direction, have no memory between them. */
static bool prepare_hull(struct bufref *s, struct coll_side *out)
{
	__int128 lo = 0, hi = 0, sum = 0;
	bool is_apart = false;
	struct bufref_piece p;

	for (int i = 0; i < s->n; i++) {
		__int128 begin, bytes;

		if (bufref_piece(s, i, &p))
			return false;
		bytes = p.count ? (__int128)p.count * p.shape.size : 0;
		s->parts[i] = (struct coll_part){ 0, (uint64_t)bytes };
		if (!bytes)
			continue;
		if (!is_contiguous(p.count, &p.shape))
			return false;
		begin = (__int128)(uintptr_t)s->given->at + p.at + p.shape.true_lb;
		s->parts[i].off = (uint64_t)begin;
		is_apart |= sum && (begin > hi || begin + bytes < lo);
		lo = sum && lo < begin ? lo : begin;
		hi = sum && hi > begin + bytes ? hi : begin + bytes;
		sum += bytes;
	}
	for (int i = 0; i < s->n; i++)
		s->parts[i].off = s->parts[i].bytes ? s->parts[i].off - (uint64_t)lo : 0;
	out->buf = (struct coll_buf){ .addr = (void *)(uintptr_t)lo,
				    .bytes = (uint64_t)(hi - lo),
				    .is_shared = is_apart };
	out->count = s->n;
	return hi - lo - sum <= sum / 2 && !os_is_device_memory(out->buf.addr, out->buf.bytes);
}

/* ---- several parts, packed one after the other ------------------------------------------- */

static int packs_range(const struct packs *packs, uint64_t off, uint64_t len, char *at,
		       bool is_unpack)
{
	int ret = 0;

	for (int i = 0; i < packs->n && len && !ret; i++) {
		const struct coll_part *p = &packs->parts[i];
		uint64_t n;

		if (off >= p->off + p->bytes)
			continue;
		n = base_min_u64(len, p->off + p->bytes - off);
		ret = is_unpack ? pack_write(&packs->of[i], off - p->off, n, at) :
				  pack_read(&packs->of[i], off - p->off, n, at);
		off += n;
		len -= n;
		at += n;
	}
	return ret;
}

static int packs_read(void *ctx, uint64_t off, uint64_t len, void *out)
{
	return packs_range(ctx, off, len, out, false);
}

static int packs_write(void *ctx, uint64_t off, uint64_t len, const void *in)
{
	return packs_range(ctx, off, len, (char *)in, true);
}

static int prepare_packs(struct bufref *s, struct coll_side *out)
{
	struct bufref_piece p;
	uint64_t at = 0;
	int ret = 0;

	s->packs.of = calloc((size_t)s->n, sizeof(*s->packs.of));
	if (!s->packs.of)
		return -ENOMEM;
	s->packs.n = s->n;
	s->packs.parts = s->parts;
	for (int i = 0; i < s->n && !ret; i++) {
		struct coll_buf buf;

		ret = bufref_piece(s, i, &p);
		s->parts[i] = (struct coll_part){ at, 0 };
		if (ret || !p.count)
			continue;
		s->parts[i].bytes = (uint64_t)(p.count * p.shape.size);
		at += s->parts[i].bytes;
		ret = pack_init_packed(&s->packs.of[i], (char *)s->given->at + (intptr_t)p.at,
				       p.count, &p.shape, &buf);
	}
	out->count = s->n;
	out->buf = (struct coll_buf){ .addr = (void *)s->given->at, .bytes = at, .pack = packs_read,
				    .unpack = packs_write, .ctx = &s->packs };
	return ret;
}

/* ---- preparation ------------------------------------------------------------------------- */

static int prepare_parts(struct coll_op *t, struct bufref *s, struct coll_side *out)
{
	const struct arg_buf *given = s->given;

	*out = (struct coll_side){ 0 };
	if (!s->is_used)
		return 0;
	if (s->n > BUFREF_PARTS_INLINE && given->form != ARG_BUF) {
		s->parts = malloc((size_t)s->n * sizeof(*s->parts));
		if (!s->parts) {
			s->parts = s->inline_parts;
			return -ENOMEM;
		}
	}
	out->parts = s->parts;
	switch (given->form) {
	case ARG_EACH:
		/* each rank keeps one part of a reduction */
		return prepare_run(s, given->count,
				   coll_is_reduce(t->args.kind) && s == &t->recv ? 1 : s->n, out);
	case ARG_SUM:
		if (s == &t->recv)
			return prepare_run(s, list_get(given->counts, t->cs->rank), 1, out);
		return prepare_sum(s, out);
	case ARG_PART:
	case ARG_PARTS:
		return prepare_hull(s, out) ? 0 : prepare_packs(s, out);
	default:
		return prepare_run(s, given->count, 1, out);
	}
}

static int prepare_side(struct coll_op *t, struct bufref *s, struct coll_side *out)
{
	int ret = prepare_parts(t, s, out);

	if (!ret && !coll_is_reduce(t->args.kind))
		bufref_add_layouts(s, out);
	return ret;
}

static int prepare_neighbours(struct coll_op *t)
{
	int n = t->recv.n, m = members_count(t->args.comm, MEMBERS_TARGETS);

	t->neighbours = m < 0 ? NULL : malloc(((size_t)n + (size_t)m + 1) * sizeof(*t->neighbours));
	if (!t->neighbours)
		return -ENOMEM;
	t->call.sources = t->neighbours;
	t->call.targets = t->neighbours + n;
	t->call.target_count = m;
	return topology_neighbors(t->args.comm, t->neighbours, n, t->neighbours + n, m) ? 0 : -EIO;
}

int bufrefs_open(struct coll_op *t)
{
	int ret = prepare_side(t, &t->send, &t->call.send);

	if (!ret)
		ret = prepare_side(t, &t->recv, &t->call.recv);
	return ret || !coll_is_neighborhood(t->args.kind) ? ret : prepare_neighbours(t);
}

static void close_side(struct bufref *s)
{
	for (int i = 0; s->packs.of && i < s->packs.n; i++)
		pack_fini(&s->packs.of[i]);
	pack_fini(&s->pack);
	free(s->packs.of);
	free(s->layouts);
	if (s->parts != s->inline_parts)
		free(s->parts);
	/* a call may be prepared again, and closed before it gets here */
	s->packs.of = NULL;
	s->layouts = NULL;
	s->parts = s->inline_parts;
}

void bufrefs_close(struct coll_op *t)
{
	close_side(&t->send);
	close_side(&t->recv);
	free(t->neighbours);
	t->neighbours = NULL;
}
