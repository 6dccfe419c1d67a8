/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every collective in every form, with every datatype, every operation that goes with it, every
 * root, in place and not, in communicators of 1 rank up to all: what comes out, and what stays as
 * it was, is compared byte by byte with what the MPI library's own blocking function does with the
 * same arguments.
 *
 * HARNESS_EACH=n: of these cases about one in n, the same ones on all ranks; 1 is all of them.
 *
 * Run alone: HARNESS_EACH=1 mpiexec -n 3 sluice run matrix allreduce
 */
#include "matrix_calls.h"
#include "matrix_types.h"

enum { COUNTS = 3, MARGIN = 4096 };

static const char *only; /* this type; NULL: all of them */
static MPI_Comm comm;  /* of the first p ranks, or neighbours made of it */
static int me, p, each;
static uint64_t number; /* of the case, the same on all ranks */
static int sources, targets; /* parts that a rank of a neighbourhood gets and sends */

/* what is sent, what the library receives into, what we do; and what lay there before */
static struct area { char *block; size_t bytes; } sent, sent_before, got, want, before;
static size_t capacity, offset; /* of each area; where buffers begin in it */

static struct {
	enum kind kind;
	const struct type *type;
	const struct operation *op; /* NULL: it moves */
	int count, root;
	bool in_place;
	struct call call;
	size_t used; /* bytes of each area */
	int results; /* elements that a reduce writes to here; what follows it is as it was */
} now;

static char *buffer(struct area *a) { return a->block + offset; }

/* ---- the shape of a case ----------------------------------------------------------------- */

/* Elements from one rank to another in the forms with lists; symmetrical, as in place they must be.
 */
static int listed(int from, int to) { return now.count * ((from + to) % 3); }

/* Partner i of this rank in its list; neighbours are not looked up, all of theirs are alike. */
static void set_list(struct list *l, int n, bool is_neighbours_, int *out_elements)
{
	int at = 1;

	for (int k = n - 1; k >= 0; k--) {
		l->counts[k] = is_neighbours_ ? now.count : listed(me, k);
		l->displs[k] = at;
		l->bytes[k] = (int)(at * now.type->extent);
		l->counts_c[k] = l->counts[k];
		l->displs_c[k] = at;
		l->bytes_c[k] = l->bytes[k];
		l->types[k] = now.type->type;
		at += l->counts[k] + 1;
	}
	*out_elements = at;
}

/* In an Allgatherv, Gatherv or Scatterv the count of a part is its rank's. */
static void set_list_of_ranks(struct list *l, int *out_elements)
{
	int at = 1;

	for (int k = p - 1; k >= 0; k--) {
		l->counts[k] = listed(k, k);
		l->displs[k] = at;
		l->counts_c[k] = l->counts[k];
		l->displs_c[k] = at;
		at += l->counts[k] + 1;
	}
	*out_elements = at;
}

static int set_reduce_scatter(struct call *c)
{
	int all = 0;

	for (int k = 0; k < p; k++) {
		c->r.counts[k] = now.count * ((k + 1) % 3);
		c->r.counts_c[k] = c->r.counts[k];
		all += c->r.counts[k];
	}
	now.results = c->r.counts[me];
	return all;
}

/* Counts of the call, and *s, *r: elements from the beginning of the buffers that belong to it. */
static void set_shape(struct call *c, int *s, int *r)
{
	bool lists_of_ranks = now.kind == Gatherv || now.kind == Scatterv || now.kind == Allgatherv;
	int n = now.count, parts = is_neighbours(now.kind) ? 0 : p;

	c->scount = c->rcount = n;
	*s = n * (parts + targets);
	*r = n * (parts + sources);
	if (lists_of_ranks) {
		c->scount = c->rcount = listed(me, me);
		set_list_of_ranks(&c->s, s);
		set_list_of_ranks(&c->r, r);
	} else if (now.kind == Reduce_scatter) {
		*s = *r = set_reduce_scatter(c);
	} else if (has_lists(now.kind)) {
		set_list(&c->s, is_neighbours(now.kind) ? targets : p, is_neighbours(now.kind), s);
		set_list(&c->r, is_neighbours(now.kind) ? sources : p, is_neighbours(now.kind), r);
	} else if (now.kind == Reduce_scatter_block) {
		now.results = n;
	}
}

static bool is_in_place_here(void)
{
	return now.in_place && (!has_root(now.kind) || me == now.root);
}

static void set_call(void)
{
	struct call *c = &now.call;
	bool in_place = is_in_place_here(), scatters = now.kind == Scatter || now.kind == Scatterv;
	int s, r;

	*c = (struct call){ .stype = now.type->type, .type = now.type->type, .comm = comm,
			    .root = now.root };
	if (now.op)
		c->op = now.op->op;
	set_shape(c, &s, &r);
	now.used = (size_t)(s > r ? s : r) * (size_t)now.type->extent + 64;
	if (offset + now.used + MARGIN > capacity) {
		check_fail("%s: %zu bytes", kind_name(now.kind), now.used);
		MPI_Abort(MPI_COMM_WORLD, 5);
	}
	c->send = in_place && !scatters ? MPI_IN_PLACE : buffer(&sent);
}

/* ---- contents ---------------------------------------------------------------------------- */

static void fill_elements(char *at, int n, uint64_t seed)
{
	uint64_t state = check_seed(seed, number * 64 + (uint64_t)me);

	if (!now.op) {
		check_fill(at, (size_t)n * (size_t)now.type->extent, state);
		return;
	}
	for (int i = 0; i < n; i++)
		put_element(at + i * now.type->extent, now.type, now.op->fill, me,
			    check_random(&state));
}

static size_t whole(void) { return offset + now.used; }

static void fill_areas(void)
{
	int n = (int)((now.used - 64) / (size_t)(now.type->extent ? now.type->extent : 1));

	memset(sent.block, 0x11, whole());
	memset(before.block, 0x5a, whole());
	fill_elements(buffer(&sent), n, 1);
	if (is_in_place_here() || now.kind == Bcast)
		fill_elements(buffer(&before), n, 2);
	memcpy(sent_before.block, sent.block, whole());
}

/* ---- a case ------------------------------------------------------------------------------ */

static void clear(struct area *a)
{
	MPI_Aint es = now.type->extent;
	int n = (int)((now.used - 64) / (size_t)(es ? es : 1));

	if (now.op && now.kind == Exscan && !me)
		memset(a->block, 0, whole());
	if (now.op && is_in_place_here() &&
	    (now.kind == Reduce_scatter || now.kind == Reduce_scatter_block))
		memset(buffer(a) + now.results * es, 0, now.used - (size_t)(now.results * es));
	for (int i = 0; i < n; i++)
		clear_undefined(buffer(a) + i * es, now.type, now.op);
}

static void compare(const char *form)
{
	size_t at = 0;

	clear(&got);
	if (memcmp(sent.block, sent_before.block, whole()))
		check_fail("%s %s of %s: what is sent was changed", form, kind_name(now.kind),
			   now.type->name);
	if (!memcmp(got.block, want.block, whole()))
		return;
	while (got.block[at] == want.block[at])
		at++;
	check_fail("%s %s of %d %s, %s, root %d, in place %d, %d ranks: byte %zd of %zu is %02x, "
		   "not %02x",
		   form, kind_name(now.kind), now.count, now.type->name,
		   now.op ? now.op->name : "moved", now.root, now.in_place, p,
		   (ssize_t)at - (ssize_t)offset, now.used, (uint8_t)got.block[at],
		   (uint8_t)want.block[at]);
}

static void start_over(void) { memcpy(got.block, before.block, whole()); }

static void run_persistent(void)
{
	MPI_Request request;

	start_over();
	call_init(now.kind, &now.call, &request);
	for (int round = 0; round < 2; round++) {
		start_over();
		MPI_Start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		compare("persistent");
	}
	MPI_Request_free(&request);
}

static void run_form(enum form form)
{
	static const char *const names[FORMS] = { "blocking", "nonblocking", "persistent",
						  "blocking large", "nonblocking large" };
	MPI_Request request = MPI_REQUEST_NULL;

	start_over();
	if (form == BLOCKING)
		call_blocking(now.kind, &now.call);
	else if (form == BLOCKING_C)
		call_blocking_c(now.kind, &now.call);
	else if (form == NONBLOCKING)
		call_nonblocking(now.kind, &now.call, &request);
	else
		call_nonblocking_c(now.kind, &now.call, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	compare(names[form]);
}

static void run_case(void)
{
	static const size_t offsets[] = { 0, 16, 1008 };

	offset = MARGIN / 2 + offsets[number % 3];
	if (now.type->lb < 0)
		offset += (size_t)-now.type->lb;
	set_call();
	fill_areas();
	memcpy(want.block, before.block, whole());
	now.call.recv = buffer(&want);
	if ((now.kind == Scatter || now.kind == Scatterv) && is_in_place_here())
		now.call.recv = MPI_IN_PLACE;
	call_host(now.kind, &now.call);
	clear(&want);
	if (now.call.recv != MPI_IN_PLACE)
		now.call.recv = buffer(&got);
	for (int form = 0; form < FORMS; form++)
		if (has_form(form) && form == PERSISTENT)
			run_persistent();
		else if (has_form(form))
			run_form(form);
}

/* ---- which cases ------------------------------------------------------------------------- */

static bool is_wanted(void)
{
	uint64_t state = ++number * 7919 + (uint64_t)now.kind;

	return !(check_random(&state) % (uint64_t)each);
}

static void each_root(void)
{
	int roots = has_root(now.kind) ? p : 1,
	    places = now.kind == Bcast || is_neighbours(now.kind) ? 1 : 2;

	for (now.root = 0; now.root < roots; now.root++)
		for (int in_place = 0; in_place < places; in_place++) {
			now.in_place = in_place;
			if (is_wanted())
				run_case();
		}
}

static void each_count(void)
{
	int large = 20000 / (int)(now.type->extent ? now.type->extent : 1),
	    counts[COUNTS] = { 1, 61, large };

	for (int i = 0; i < COUNTS; i++) {
		now.count = counts[i];
		each_root();
	}
}

static void each_type(void)
{
	for (int i = 0; i < type_count; i++) {
		now.type = &types[i];
		now.op = NULL;
		if (only && strcmp(now.type->name, only))
			continue;
		if (now.kind == Gather && p > 3 &&
		    (now.type->class == PAIR || !strcmp(now.type->name, "structure")))
			continue; /* MPICH 5 finds, where it gathers along a tree, that these types
				     do not match themselves */
		if (!is_reduce(now.kind))
			each_count();
		for (int k = 0; is_reduce(now.kind) && k < operation_count; k++) {
			now.op = &operations[k];
			if (now.op->classes >> now.type->class & 1)
				each_count();
		}
	}
}

/* A ring, and a graph in which each sends to the two that follow it and to itself. Of fewer
 * than three ranks libraries differ in which of two messages to a neighbour comes first. */
static void each_neighbourhood(MPI_Comm all)
{
	int to[3] = { (me + 1) % p, (me + 2) % p, me },
	    from[3] = { (me + p - 1) % p, (me + p - 2) % p, me };
	int weights[3] = { 1, 1, 1 };

	if (p < 3)
		return;
	MPI_Cart_create(all, 1, (int[]){ p }, (int[]){ 1 }, 0, &comm);
	sources = targets = 2;
	each_type();
	MPI_Comm_free(&comm);
	MPI_Dist_graph_create_adjacent(all, 3, from, weights, 3, to, weights, MPI_INFO_NULL, 0,
				       &comm);
	sources = targets = 3;
	each_type();
	MPI_Comm_free(&comm);
}

static void make(struct area *a)
{
	a->block = check_alloc(capacity);
	memset(a->block, 0, capacity);
}

static void run_kind(enum kind kind)
{
	struct area *areas[] = { &sent, &sent_before, &got, &want, &before };

	host_find();
	add_all_types();
	add_all_operations();
	each = only ? 1 : (int)check_env("HARNESS_EACH", 700);
	now.kind = kind;
	capacity = (size_t)(2 * size + 6) * 20100 + 3 * MARGIN;
	for (size_t i = 0; i < 5; i++)
		make(areas[i]);
	for (p = 1; p <= size && p <= RANKS_MAX; p++) {
		MPI_Comm some;

		MPI_Comm_split(MPI_COMM_WORLD, rank < p ? 0 : MPI_UNDEFINED, rank, &some);
		if (rank >= p)
			continue;
		me = rank;
		number = (uint64_t)p << 32; /* not all ranks have been here before */
		comm = some;
		sources = targets = 0;
		if (is_neighbours(kind))
			each_neighbourhood(some);
		else
			each_type();
		MPI_Comm_free(&some);
	}
	for (size_t i = 0; i < 5; i++)
		free(areas[i]->block);
	free_types_and_operations();
}

BEHAVIOUR(bcast, 1) { run_kind(Bcast); }
BEHAVIOUR(gather, 1) { run_kind(Gather); }
BEHAVIOUR(gatherv, 1) { run_kind(Gatherv); }
BEHAVIOUR(scatter, 1) { run_kind(Scatter); }
BEHAVIOUR(scatterv, 1) { run_kind(Scatterv); }
BEHAVIOUR(allgather, 1) { run_kind(Allgather); }
BEHAVIOUR(allgatherv, 1) { run_kind(Allgatherv); }
BEHAVIOUR(alltoall, 1) { run_kind(Alltoall); }
BEHAVIOUR(alltoallv, 1) { run_kind(Alltoallv); }
BEHAVIOUR(alltoallw, 1) { run_kind(Alltoallw); }
BEHAVIOUR(reduce, 1) { run_kind(Reduce); }
BEHAVIOUR(allreduce, 1) { run_kind(Allreduce); }
BEHAVIOUR(reduce_scatter, 1) { run_kind(Reduce_scatter); }
BEHAVIOUR(reduce_scatter_block, 1) { run_kind(Reduce_scatter_block); }
BEHAVIOUR(scan, 1) { run_kind(Scan); }
BEHAVIOUR(exscan, 1) { run_kind(Exscan); }
BEHAVIOUR(neighbor_allgather, 3) { run_kind(Neighbor_allgather); }
BEHAVIOUR(neighbor_allgatherv, 3) { run_kind(Neighbor_allgatherv); }
BEHAVIOUR(neighbor_alltoall, 3) { run_kind(Neighbor_alltoall); }
BEHAVIOUR(neighbor_alltoallv, 3) { run_kind(Neighbor_alltoallv); }
BEHAVIOUR(neighbor_alltoallw, 3) { run_kind(Neighbor_alltoallw); }

BEHAVIOUR(elements_without_bytes, 3)
{
	only = "nothing";
	for (int kind = 0; kind < KINDS; kind++)
		run_kind((enum kind)kind);
	only = NULL;
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
