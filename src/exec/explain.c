/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that do not call the same collective, or with other sizes: which rank is in which call. The
 * slots of the collective say so. A rank of a wrong program may rewrite its slot meanwhile, so the
 * message is a hint.
 */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "exec/private.h"

#define RULE "the ranks of a communicator must call the same collectives in the same order, with " \
	     "equal sizes, roots and operations"

static void add(char *more, size_t cap, const char *text)
{
	size_t used = strlen(more);

	snprintf(more + used, cap - used, "%s%s", used ? ", " : " (", text);
}

/* Writes "MPI_Bcast (1M, root 0, app+0x1234)". */
__attribute__((cold))
static void describe(const struct exec_comm *e, int rank, const struct exec_slot *s,
		     const char *unknown, char *out, size_t cap)
{
	static const char *const names[COLL_COUNT] = {
#define X(id, pattern, family, is_local) #id,
		COLL_LIST(X)
#undef X
	};
	const struct exec_origin *o = &s->origin;
	char name[32] = "", more[256] = "", bytes[32], place[128];
	const char *upper = o->kind && o->kind <= COLL_COUNT ? names[o->kind - 1] : NULL;
	size_t at = 0;

	if (!upper) {
		snprintf(out, cap, "%s", unknown);
		return;
	}
	if (s->is_nonblocking)
		name[at++] = 'I';
	for (size_t i = 0; upper[i] && at + 1 < sizeof name; i++, at++)
		name[at] = at ? (char)tolower((unsigned char)upper[i]) : upper[i];
	if (o->bytes && base_format_bytes(o->bytes, bytes, sizeof bytes))
		add(more, sizeof more, bytes);
	if (o->root >= 0 && snprintf(place, sizeof place, "root %d", o->root))
		add(more, sizeof more, place);
	if (os_place_of(node_pid(e->group, rank), o->site, place, sizeof place))
		add(more, sizeof more, place);
	snprintf(out, cap, "MPI_%s%s%s", name, more, *more ? ")" : "");
}

static bool is_alike(const struct exec_origin *a, const struct exec_origin *b)
{
	return a->kind == b->kind && a->root == b->root && a->bytes == b->bytes;
}

/* Reports the first rank whose call differs from this rank's. Returns: false: none does. */
static bool explain_calls(const struct exec_run *r)
{
	const struct exec_comm *e = r->comm;
	char mine[256], theirs[256];

	for (int k = 0; k < e->size; k++) {
		const struct exec_slot *s = slot_of(e, k, r->op);

		if (!slot_is_published(s, r->op) || is_alike(&s->origin, &r->slot->origin))
			continue;
		describe(e, e->rank, r->slot, r->call.name, mine, sizeof mine);
		describe(e, k, s, "another collective", theirs, sizeof theirs);
		base_log(BASE_LOG_ERROR, "exec",
			 "rank %d of %d is in %s while rank %d is in %s: " RULE, e->rank, e->size,
			 mine, k, theirs);
		return true;
	}
	return false;
}

/* Reports the first part whose ends have different sizes. Returns: false: none has. */
static bool explain_parts(struct exec_run *r)
{
	struct exec_comm *e = r->comm;
	char mine[256];

	for (uint32_t i = 0; i < r->op_count; i++) {
		const struct slot_op *op = run_op(r, i), *other;
		struct exec_slot *s = slot_of(e, (int)op->peer, r->op);
		bool is_send = op->type == OP_SEND;
		uint64_t bytes;

		if ((!is_send && op->type != OP_RECV) || !slot_is_published(s, r->op))
			continue;
		other = is_send ? find_recv(e, s, e->rank, op) : find_send(e, s, e->rank, op);
		bytes = other ? other->bytes : 0;
		if (bytes == op->bytes)
			continue;
		describe(e, e->rank, r->slot, r->call.name, mine, sizeof mine);
		base_log(BASE_LOG_ERROR, "exec",
			 "rank %d of %d in %s %s %" PRIu64 " bytes, and rank %d %s %" PRIu64
			 ": what one rank sends must be what the other receives",
			 e->rank, e->size, mine, is_send ? "sends" : "receives", op->bytes,
			 (int)op->peer, is_send ? "receives" : "sends", bytes);
		return true;
	}
	return false;
}

static _Atomic uint32_t *flag_of(const struct exec_comm *e)
{
	return &slot_of(e, 0, 0)->is_explained;
}

bool is_explained(const struct exec_comm *e)
{
	return atomic_load_explicit(flag_of(e), memory_order_relaxed);
}

void exec_explain(struct exec_run *r)
{
	struct exec_comm *e = r->comm;

	atomic_store_explicit(&e->is_reported, true, memory_order_relaxed);
	if (atomic_exchange_explicit(flag_of(e), 1, memory_order_relaxed))
		return;
	if (!explain_calls(r) && !explain_parts(r))
		base_log(BASE_LOG_ERROR, "exec", "%s: the ranks do not agree: " RULE, r->call.name);
}

bool exec_is_reported(const struct exec_comm *e)
{
	return atomic_load_explicit(&e->is_reported, memory_order_relaxed);
}
