/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of random nested datatypes: other types on the two sides of a message with one
 * signature, gaps, negative strides, no elements, MPI_BOTTOM, in place. Every byte of all buffers,
 * the gaps too, is compared with what the maps of the types say and what the MPI library's own
 * function does. Where these two differ on some rank, the library is wrong, and nothing is asked.
 * The types are freed, and others made in their memory, before a nonblocking call completes.
 *
 * HARNESS_SEED; HARNESS_CASES: how many; HARNESS_CASE: this one only. Open MPI chooses algorithms
 * by counts that differ between ranks here, and waits for ever: OMPI_MCA_coll=^tuned.
 *
 * Run alone: HARNESS_CASES=1000 mpiexec -n 3 sluice run types_random alltoallw
 */
#include "types_sides.h"

enum { DECOYS = 4 * RANKS_MAX };

/* what is sent; what lay in the other buffer before; what the maps say; the library; the call */
static char *sent, *sent_before, *before, *expected, *want, *got;

/* ---- the call ---------------------------------------------------------------------------- */

/* The operation of the reduction: exclusive or of the bytes that belong to an element. */
static MPI_Op xor ;
static struct layout reduced;

static void combine(void *in, void *inout, int *n, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *n; i++)
		for (size_t k = 0; k < reduced.n; k++)
			for (int b = 0; b < reduced.map[k].bytes; b++) {
				ptrdiff_t at = i * reduced.extent + reduced.map[k].at + b;

				((char *)inout)[at] ^= ((char *)in)[at];
			}
}

static void set_list(struct list *l, const struct side *s)
{
	for (int j = 0; j < p; j++) {
		const struct part *part = &s->parts[j];
		MPI_Aint unit = now.kind == Alltoallw ? 1 : part->layout->extent;

		l->counts[j] = part->count;
		l->displs[j] = unit ? (int)(part->at / unit) : 0;
		l->bytes[j] = (int)part->at;
		l->counts_c[j] = l->counts[j];
		l->displs_c[j] = l->displs[j];
		l->bytes_c[j] = l->bytes[j];
		l->types[j] = part->layout->type;
	}
}

/* Turns the side's types into types of absolute addresses. */
static void set_bottom(struct side *s, const char *address, struct list *l)
{
	MPI_Aint at;

	MPI_Get_address(address, &at);
	for (int i = 0; i < s->layout_count; i++) {
		MPI_Type_create_hindexed_block(1, 1, &at, s->layouts[i].type, &s->at_bottom[i]);
		MPI_Type_commit(&s->at_bottom[i]);
	}
	for (int j = 0; j < p; j++)
		l->types[j] = s->at_bottom[s->parts[j].layout - s->layouts];
}

static char *origin(const struct side *s, char *block) { return block + MARGIN - s->lo; }

/* The arguments of the call, with the receive buffer in `block`. */
static void set_call(char *block, bool is_bottom)
{
	struct call *c = &now.call;
	struct side *s = &now.s, *r = &now.r;

	*c = (struct call){ .send = NULL,
			    .stype = MPI_DATATYPE_NULL,
			    .type = MPI_DATATYPE_NULL,
			    .op = xor,
			    .root = now.root,
			    .comm = comm };
	if (s->is_used) {
		set_list(&c->s, s);
		c->send = origin(s, sent);
		c->stype = s->layouts[0].type;
		c->scount = s->parts[0].count;
	}
	if (r->is_used) {
		set_list(&c->r, r);
		c->recv = origin(r, block);
		c->type = r->layouts[0].type;
		c->rcount = r->parts[0].count;
	}
	if (is_bottom && s->is_used) {
		set_bottom(s, c->send, &c->s);
		c->send = MPI_BOTTOM;
		c->stype = c->s.types[0];
	}
	if (is_bottom && r->is_used) {
		set_bottom(r, c->recv, &c->r);
		c->recv = MPI_BOTTOM;
		c->type = c->r.types[0];
	}
	if (is_in_place_here() && (now.kind == Scatter || now.kind == Scatterv))
		c->recv = MPI_IN_PLACE;
	else if (is_in_place_here())
		c->send = MPI_IN_PLACE;
}

static void free_types(struct side *s, bool is_bottom)
{
	for (int i = 0; i < s->layout_count; i++) {
		layout_free_type(&s->layouts[i]);
		if (is_bottom)
			MPI_Type_free(&s->at_bottom[i]);
	}
}

/* Frees the types of the call, and makes others in their place, with the same handles if the
 * library reuses memory. */
static int free_types_early(MPI_Datatype *decoys)
{
	int n = now.s.layout_count + now.r.layout_count;

	free_types(&now.s, now.is_bottom);
	free_types(&now.r, now.is_bottom);
	n = now.is_bottom ? 2 * n : n;
	for (int i = 0; i < n; i++) {
		MPI_Type_vector(3 + i, 1, 2 + i % 3, MPI_SHORT, &decoys[i]);
		MPI_Type_commit(&decoys[i]);
	}
	return n;
}

static void make_call(void)
{
	MPI_Request request = MPI_REQUEST_NULL;
	MPI_Datatype decoys[DECOYS];
	int n = 0, rounds = now.form == PERSISTENT ? 2 : 1;

	if (now.form == BLOCKING)
		call_blocking(now.kind, &now.call);
	else if (now.form == BLOCKING_C)
		call_blocking_c(now.kind, &now.call);
	else if (now.form == NONBLOCKING)
		call_nonblocking(now.kind, &now.call, &request);
	else if (now.form == NONBLOCKING_C)
		call_nonblocking_c(now.kind, &now.call, &request);
	else
		call_init(now.kind, &now.call, &request);
	/* Open MPI 5.0.11's persistent requests use types that were freed */
	if ((now.form != PERSISTENT || !check_library("Open MPI")) &&
	    one_in(&(uint64_t){ state_of(8, (uint64_t)me, 0) }, 2))
		n = free_types_early(decoys);
	for (int i = 0; i < rounds; i++) {
		if (now.form == PERSISTENT) {
			memcpy(got, before, now.used);
			MPI_Start(&request);
		}
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	if (now.form == PERSISTENT)
		MPI_Request_free(&request);
	if (!n) {
		free_types(&now.s, now.is_bottom);
		free_types(&now.r, now.is_bottom);
	}
	while (n)
		MPI_Type_free(&decoys[--n]);
}

/* ---- what the maps say ------------------------------------------------------------------- */

/* Copies the part's bytes out of the buffer, or into it. Returns: their number. */
static int part_move(const struct part *part, char *buffer, char *packed, bool is_in)
{
	const struct layout *l = part->layout;
	char *at = packed;

	for (int i = 0; l && i < part->count; i++)
		for (size_t k = 0; k < l->n; k++) {
			char *element = buffer + part->at + i * l->extent + l->map[k].at;

			if (packed)
				memcpy(is_in ? element : at, is_in ? at : element,
				       (size_t)l->map[k].bytes);
			at += l->map[k].bytes;
		}
	return (int)(at - packed);
}

static void set_expected(void)
{
	bool is_own_receive = now.kind == Bcast ||
			      (is_in_place_here() && now.kind != Scatter && now.kind != Scatterv);
	const struct side *s = is_own_receive ? &now.r : &now.s;
	char *from = is_own_receive ? before : sent, *out, *in;
	int sizes[2][RANKS_MAX] = { { 0 } }, places_[2][RANKS_MAX] = { { 0 } }, all[2] = { 0 };

	for (int j = 0; j < p; j++) {
		/* an Allgather in place sends this rank's part to all */
		int k = is_own_receive && now.kind < Alltoall && now.kind != Bcast ? me : j;

		places_[0][j] = all[0];
		places_[1][j] = all[1];
		if (moves(me, j))
			all[0] += sizes[0][j] = part_move(&s->parts[k], NULL, NULL, false);
		if (moves(j, me))
			all[1] += sizes[1][j] = part_move(&now.r.parts[j], NULL, NULL, false);
	}
	out = check_alloc((size_t)all[0]);
	in = check_alloc((size_t)all[1]);
	for (int j = 0; j < p; j++) {
		int k = is_own_receive && now.kind < Alltoall && now.kind != Bcast ? me : j;

		if (sizes[0][j])
			part_move(&s->parts[k], origin(s, from), out + places_[0][j], false);
	}
	host.Alltoallv(out, sizes[0], places_[0], MPI_BYTE, in, sizes[1], places_[1], MPI_BYTE,
		       comm);
	memcpy(expected, before, now.used);
	for (int j = 0; j < p; j++)
		if (sizes[1][j])
			part_move(&now.r.parts[j], origin(&now.r, expected), in + places_[1][j],
				  true);
	free(out);
	free(in);
}

/* ---- a case ------------------------------------------------------------------------------ */

static void tell(void (*say)(const char *fmt, ...), const char *what, const char *is,
		 const char *should)
{
	static const char *const forms[FORMS] = { "blocking", "nonblocking", "persistent",
						  "blocking large", "nonblocking large" };
	size_t at = 0;

	while (at < now.used && is[at] == should[at])
		at++;
	say("seed %lu, case %lu: %s %s, %d ranks, root %d, in place %d, bottom %d: %s: byte "
	    "%zu of %zu is %02x, not %02x; the first type sends %s, receives %s",
	    (unsigned long)seed, (unsigned long)number, forms[now.form], kind_name(now.kind), p,
	    now.root, now.in_place, now.is_bottom, what, at, now.used, (uint8_t)is[at],
	    (uint8_t)should[at], now.s.is_used ? now.s.layouts[0].text : "-",
	    now.r.is_used ? now.r.layouts[0].text : "-");
}

static void compare(void)
{
	if (memcmp(sent, sent_before, now.used))
		tell(check_fail, "what is sent was changed", sent, sent_before);
	if (memcmp(got, expected, now.used))
		tell(check_fail, "what is received", got, expected);
}

/* Does the library pack, or unpack, a part of this side otherwise than its map says? */
static bool packs_wrong(const struct side *s, char *block)
{
	bool wrong = false;

	for (int j = 0; s->is_used && j < p && !wrong; j++) {
		const struct part *part = &s->parts[j];
		int n = part_move(part, NULL, NULL, false), packed = 0, unpacked = 0;
		char *a = check_alloc((size_t)n), *b = check_alloc((size_t)n),
		     *at = origin(s, block) + part->at;

		check_fill(block, now.used, number);
		part_move(part, origin(s, block), a, false);
		PMPI_Pack(at, part->count, part->layout->type, b, n, &packed, MPI_COMM_SELF);
		wrong = memcmp(a, b, (size_t)n) != 0;
		memset(block, 0, now.used);
		PMPI_Unpack(a, n, &unpacked, at, part->count, part->layout->type, MPI_COMM_SELF);
		part_move(part, origin(s, block), b, false);
		wrong |= !map_overlaps(part->layout->map, part->layout->n) &&
			 memcmp(a, b, (size_t)n) != 0;
		free(a);
		free(b);
	}
	return wrong;
}

/* Open MPI 5.0.11 packs some types wrong, or sends them wrong, not always both. */
static bool is_library_wrong(void)
{
	int wrong = memcmp(want, expected, now.used) != 0, on_any = 0;

	if (wrong)
		tell(check_note, "the MPI library is wrong", want, expected);
	if (check_library("Open MPI"))
		wrong |= packs_wrong(&now.s, got) || packs_wrong(&now.r, got);
	PMPI_Allreduce(&wrong, &on_any, 1, MPI_INT, MPI_MAX, comm);
	return on_any;
}

static void draw_case(enum kind kind)
{
	uint64_t state = state_of(0, 0, 0);
	static const enum form often[] = { BLOCKING,    BLOCKING,   BLOCKING,   NONBLOCKING,
					   NONBLOCKING, PERSISTENT, BLOCKING_C, NONBLOCKING_C };
	bool is_scatter = kind == Scatter || kind == Scatterv;

	signature_count = 0;
	now.kind = kind;
	now.form = often[below(&state, 8)];
	now.form = has_form(now.form) ? now.form : BLOCKING;
	now.root = below(&state, p);
	/* Alltoallw in place where some counts are 0: Open MPI waits for ever, and MPICH 4.0.2
	 * fails */
	now.in_place = kind != Bcast && one_in(&state, 4) &&
		       (kind != Alltoallw ||
			(!check_library("Open MPI") && !check_library("4.0.2")));
	now.is_bottom = kind != Allreduce && one_in(&state, 5);
	now.is_fft = kind == Alltoallw && !now.in_place && one_in(&state, 3);
	now.is_large = one_in(&state, 40);
	now.reps = 1 + below(&state, 6);
	now.one = signature_draw(&state, 3, now.is_large ? 20000 : 1 + below(&state, 400));
	now.s.is_used = kind != Bcast && (!is_scatter || me == now.root) &&
			(!is_in_place_here() || is_scatter);
	now.r.is_used = ((kind != Gather && kind != Gatherv) || me == now.root) &&
			!(is_in_place_here() && is_scatter);
	draw_side(&now.s, true);
	draw_side(&now.r, false);
	now.used = 2 * MARGIN + (size_t)(now.s.hi - now.s.lo > now.r.hi - now.r.lo
						 ? now.s.hi - now.s.lo
						 : now.r.hi - now.r.lo);
}

static void run_case(enum kind kind)
{
	char *usual = got;
	bool is_wrong;

	draw_case(kind);
	if (now.used > CAPACITY) {
		check_fail("a case needs %zu bytes", now.used);
		MPI_Abort(MPI_COMM_WORLD, 5);
	}
	check_fill(sent, now.used, state_of(9, (uint64_t)me, 0));
	check_fill(before, now.used, state_of(10, (uint64_t)me, 0));
	memcpy(sent_before, sent, now.used);
	memcpy(want, before, now.used);
	set_call(want, false);
	reduced = now.r.layouts[0];
	call_host(kind, &now.call);
	if (kind == Allreduce)
		memcpy(expected, want, now.used);
	else
		set_expected();
	is_wrong = is_library_wrong();
	if (number % 8 == 7) /* memory that no call has seen */
		got = check_alloc(now.used);
	memcpy(got, before, now.used);
	set_call(got, now.is_bottom);
	make_call();
	if (!is_wrong)
		compare();
	if (got != usual)
		free(got);
	got = usual;
	for (int i = 0; i < now.s.layout_count; i++)
		layout_free(&now.s.layouts[i]);
	for (int i = 0; i < now.r.layout_count; i++)
		layout_free(&now.r.layouts[i]);
}

static void run_kind(enum kind kind)
{
	char **areas[] = { &sent, &sent_before, &before, &expected, &want, &got, &marks };
	uint64_t cases = (uint64_t)check_env("HARNESS_CASES", 60);
	long only = check_env("HARNESS_CASE", -1);

	seed = (uint64_t)check_env("HARNESS_SEED", 1) * 64 + kind;
	host_find();
	basics_init();
	MPI_Op_create(combine, 1, &xor);
	for (size_t i = 0; i < sizeof(areas) / sizeof(areas[0]); i++)
		*areas[i] = check_alloc(CAPACITY);
	memset(marks, 0, CAPACITY);
	for (p = 2; p <= size && p <= RANKS_MAX; p++) {
		MPI_Comm_split(MPI_COMM_WORLD, rank < p ? 0 : MPI_UNDEFINED, rank, &comm);
		if (rank >= p)
			continue;
		me = rank;
		for (number = (uint64_t)p - 2; number < cases; number += (uint64_t)size - 1)
			if (only < 0 || (uint64_t)only == number)
				run_case(kind);
		MPI_Comm_free(&comm);
	}
	for (size_t i = 0; i < sizeof(areas) / sizeof(areas[0]); i++)
		free(*areas[i]);
	MPI_Op_free(&xor);
}

BEHAVIOUR(bcast, 2) { run_kind(Bcast); }
BEHAVIOUR(gather, 2) { run_kind(Gather); }
BEHAVIOUR(gatherv, 2) { run_kind(Gatherv); }
BEHAVIOUR(scatter, 2) { run_kind(Scatter); }
BEHAVIOUR(scatterv, 2) { run_kind(Scatterv); }
BEHAVIOUR(allgather, 2) { run_kind(Allgather); }
BEHAVIOUR(allgatherv, 2) { run_kind(Allgatherv); }
BEHAVIOUR(alltoall, 2) { run_kind(Alltoall); }
BEHAVIOUR(alltoallv, 2) { run_kind(Alltoallv); }
BEHAVIOUR(alltoallw, 2) { run_kind(Alltoallw); }
BEHAVIOUR(allreduce, 2) { run_kind(Allreduce); }

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
