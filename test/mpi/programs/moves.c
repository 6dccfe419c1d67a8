/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every collective that moves data, in communicators of 2 ranks up to all: datatypes with and
 * without gaps, other ones on the two sides, every root, MPI_IN_PLACE, unequal counts, none at all.
 * What is received is known from who sent it; what lies between and around it must stay as it was.
 *
 * Run alone: mpiexec -n 3 sluice run moves alltoall
 */
#include "check.h"

#include "collective.h"

enum { SIDES = 2, MOST_RANKS = 16 };

static MPI_Comm comm;
static int me, p;
static struct buffer out, in; /* what is sent, what is received */

/* One shape of messages: the same bytes by a type on each side. */
struct form {
	const char *name;
	MPI_Datatype type[SIDES];
	int count[SIDES];
};

/* The data from rank `from` to rank `to`; parts of one rank differ. */
static uint64_t seed_of(int from, int to)
{
	return check_seed((uint64_t)from + 1, (uint64_t)to + 100);
}

static const struct form *form;

static void put(struct buffer *b, int side, MPI_Aint at, int count, int from, int to)
{
	buffer_put(b, at, form->type[side], count, seed_of(from, to));
}

static void see(struct buffer *b, int side, MPI_Aint at, int count, int from, int to,
		const char *what)
{
	buffer_see(b, at, form->type[side], count, seed_of(from, to), what);
}

static MPI_Aint stride(int side)
{
	MPI_Aint lb, extent;

	MPI_Type_get_extent(form->type[side], &lb, &extent);
	return extent;
}

/* Counts of the i-th part where they differ: each rank's and partner's alike. */
static int count_of(int side, int from, int to)
{
	return form->count[side] * ((from * 5 + to * 3) % 4); /* some are 0 */
}

/* ---- one call each ----------------------------------------------------------------------- */

static void each_bcast(void)
{
	for (int root = 0; root < p; root++) {
		int side = me != root;

		buffer_clear(&out);
		if (me == root)
			put(&out, 0, 0, form->count[0], root, 0);
		MPI_Bcast(out.at, form->count[side], form->type[side], root, comm);
		see(&out, side, 0, form->count[side], root, 0, "bcast");
	}
}

static void each_gather(void)
{
	for (int how = 0; how < 2 * p; how++) {
		int root = how / 2, in_place = how % 2 && me == root;
		MPI_Aint step = form->count[1] * stride(1);

		buffer_clear(&out);
		buffer_clear(&in);
		put(&out, 0, 0, form->count[0], me, 0);
		if (in_place)
			put(&in, 1, me * step, form->count[1], me, 0);
		MPI_Gather(in_place ? MPI_IN_PLACE : out.at, form->count[0], form->type[0], in.at,
			   form->count[1], form->type[1], root, comm);
		for (int r = 0; me == root && r < p; r++)
			see(&in, 1, r * step, form->count[1], r, 0, "gather");
		buffer_rest(&in, "gather");
	}
}

static void each_scatter(void)
{
	for (int how = 0; how < 2 * p; how++) {
		int root = how / 2, in_place = how % 2 && me == root;
		MPI_Aint step = form->count[0] * stride(0);

		buffer_clear(&out);
		buffer_clear(&in);
		for (int r = 0; me == root && r < p; r++)
			put(&out, 0, r * step, form->count[0], root, r);
		MPI_Scatter(out.at, form->count[0], form->type[0], in_place ? MPI_IN_PLACE : in.at,
			    form->count[1], form->type[1], root, comm);
		if (!in_place)
			see(&in, 1, 0, form->count[1], root, me, "scatter");
		buffer_rest(&in, "scatter");
	}
}

static void each_allgather(void)
{
	for (int in_place = 0; in_place < 2; in_place++) {
		MPI_Aint step = form->count[1] * stride(1);

		buffer_clear(&out);
		buffer_clear(&in);
		put(&out, 0, 0, form->count[0], me, 0);
		if (in_place)
			put(&in, 1, me * step, form->count[1], me, 0);
		MPI_Allgather(in_place ? MPI_IN_PLACE : out.at, form->count[0], form->type[0],
			      in.at, form->count[1], form->type[1], comm);
		for (int r = 0; r < p; r++)
			see(&in, 1, r * step, form->count[1], r, 0, "allgather");
		buffer_rest(&in, "allgather");
	}
}

static void each_alltoall(void)
{
	for (int in_place = 0; in_place < 2; in_place++) {
		MPI_Aint step[SIDES] = { form->count[0] * stride(0), form->count[1] * stride(1) };

		buffer_clear(&out);
		buffer_clear(&in);
		for (int r = 0; r < p; r++) {
			put(&out, 0, r * step[0], form->count[0], me, r);
			if (in_place)
				put(&in, 1, r * step[1], form->count[1], me, r);
		}
		MPI_Alltoall(in_place ? MPI_IN_PLACE : out.at, form->count[0], form->type[0], in.at,
			     form->count[1], form->type[1], comm);
		for (int r = 0; r < p; r++)
			see(&in, 1, r * step[1], form->count[1], r, me, "alltoall");
		buffer_rest(&in, "alltoall");
	}
}

/* ---- unequal counts ---------------------------------------------------------------------- */

struct lists {
	int counts[MOST_RANKS], displs[MOST_RANKS], bytes[MOST_RANKS];
	MPI_Datatype types[MOST_RANKS];
};

/* Parts in descending order of rank, with a gap of an element between them. */
static void lay_out(struct lists *l, int side, bool sends)
{
	int at = 1;

	for (int r = p - 1; r >= 0; r--) {
		l->counts[r] = sends ? count_of(side, me, r) : count_of(side, r, me);
		l->displs[r] = at;
		l->bytes[r] = (int)(at * stride(side));
		l->types[r] = form->type[side];
		at += l->counts[r] + 1;
	}
}

static void each_gatherv(void)
{
	for (int how = 0; how < 2 * p; how++) {
		int root = how / 2, in_place = how % 2 && me == root;
		struct lists l = { 0 };

		buffer_clear(&out);
		buffer_clear(&in);
		if (me == root)
			lay_out(&l, 1, false);
		put(&out, 0, 0, count_of(0, me, root), me, root);
		if (in_place)
			put(&in, 1, l.displs[me] * stride(1), l.counts[me], me, root);
		MPI_Gatherv(in_place ? MPI_IN_PLACE : out.at, count_of(0, me, root), form->type[0],
			    in.at, l.counts, l.displs, form->type[1], root, comm);
		for (int r = 0; me == root && r < p; r++)
			see(&in, 1, l.displs[r] * stride(1), l.counts[r], r, root, "gatherv");
		buffer_rest(&in, "gatherv");
	}
}

static void each_scatterv(void)
{
	for (int how = 0; how < 2 * p; how++) {
		int root = how / 2, in_place = how % 2 && me == root;
		struct lists l = { 0 };

		buffer_clear(&out);
		buffer_clear(&in);
		if (me == root)
			lay_out(&l, 0, true);
		for (int r = 0; me == root && r < p; r++)
			put(&out, 0, l.displs[r] * stride(0), l.counts[r], root, r);
		MPI_Scatterv(out.at, l.counts, l.displs, form->type[0],
			     in_place ? MPI_IN_PLACE : in.at, count_of(1, root, me), form->type[1],
			     root, comm);
		if (!in_place)
			see(&in, 1, 0, count_of(1, root, me), root, me, "scatterv");
		buffer_rest(&in, "scatterv");
	}
}

static void each_allgatherv(void)
{
	for (int in_place = 0; in_place < 2; in_place++) {
		struct lists l = { 0 };
		int at = 2;

		for (int r = p - 1; r >= 0; r--) {
			l.counts[r] = count_of(1, r, 0);
			l.displs[r] = at;
			at += l.counts[r] + 1;
		}
		buffer_clear(&out);
		buffer_clear(&in);
		put(&out, 0, 0, count_of(0, me, 0), me, 0);
		if (in_place)
			put(&in, 1, l.displs[me] * stride(1), l.counts[me], me, 0);
		MPI_Allgatherv(in_place ? MPI_IN_PLACE : out.at, count_of(0, me, 0), form->type[0],
			       in.at, l.counts, l.displs, form->type[1], comm);
		for (int r = 0; r < p; r++)
			see(&in, 1, l.displs[r] * stride(1), l.counts[r], r, 0, "allgatherv");
		buffer_rest(&in, "allgatherv");
	}
}

static void exchange_lists(bool is_w)
{
	struct lists s, d;

	lay_out(&s, 0, true);
	lay_out(&d, 1, false);
	buffer_clear(&out);
	buffer_clear(&in);
	for (int r = 0; r < p; r++)
		put(&out, 0, s.displs[r] * stride(0), s.counts[r], me, r);
	if (is_w)
		MPI_Alltoallw(out.at, s.counts, s.bytes, s.types, in.at, d.counts, d.bytes, d.types,
			      comm);
	else
		MPI_Alltoallv(out.at, s.counts, s.displs, form->type[0], in.at, d.counts, d.displs,
			      form->type[1], comm);
	for (int r = 0; r < p; r++)
		see(&in, 1, d.displs[r] * stride(1), d.counts[r], r, me,
		    is_w ? "alltoallw" : "alltoallv");
	buffer_rest(&in, "alltoallv");
}

/* In place both ends give the same count. */
static void exchange_lists_in_place(bool is_w)
{
	struct lists d;
	int at = 1;

	for (int r = 0; r < p; r++) {
		d.counts[r] = form->count[1] * ((me + r) % 3);
		d.displs[r] = at;
		d.bytes[r] = (int)(at * stride(1));
		d.types[r] = form->type[1];
		at += d.counts[r] + 1;
	}
	buffer_clear(&in);
	for (int r = 0; r < p; r++)
		put(&in, 1, d.displs[r] * stride(1), d.counts[r], me, r);
	if (is_w)
		MPI_Alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, in.at, d.counts, d.bytes, d.types,
			      comm);
	else
		MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, in.at, d.counts,
			      d.displs, form->type[1], comm);
	for (int r = 0; r < p; r++)
		see(&in, 1, d.displs[r] * stride(1), d.counts[r], r, me, "alltoallv in place");
	buffer_rest(&in, "alltoallv in place");
}

static void each_alltoallv(void)
{
	exchange_lists(false);
	exchange_lists_in_place(false);
}

static void each_alltoallw(void)
{
	exchange_lists(true);
	exchange_lists_in_place(true);
}

/* ---- all of it --------------------------------------------------------------------------- */

/* In every form, at two places in a page, several times: memory is adopted in between. */
static void run_forms(void (*each)(void), const struct form *forms, int n)
{
	for (int i = 0; i < n; i++) {
		form = &forms[i];
		for (int round = 0; round < 2; round++) {
			buffer_shift(&out, round ? 24 : 0);
			buffer_shift(&in, round ? 8 : 0);
			each();
		}
	}
}

static void run_all(void (*each)(void))
{
	MPI_Datatype pairs, gaps;

	MPI_Type_contiguous(2, MPI_INT, &pairs);
	MPI_Type_commit(&pairs);
	MPI_Type_vector(3, 2, 3, MPI_INT, &gaps);
	MPI_Type_commit(&gaps);
	for (p = 2; p <= size; p++) {
		const struct form forms[] = {
			{ "one", { MPI_INT, MPI_INT }, { 1, 1 } },
			{ "some", { MPI_DOUBLE, MPI_DOUBLE }, { 700, 700 } },
			{ "many", { MPI_INT, MPI_INT }, { 9000, 9000 } },
			{ "pairs", { MPI_INT, pairs }, { 3000, 1500 } },
			{ "gaps sent", { gaps, MPI_INT }, { 800, 4800 } },
			{ "gaps received", { pairs, gaps }, { 2400, 800 } },
		};

		MPI_Comm_split(MPI_COMM_WORLD, rank < p ? 0 : MPI_UNDEFINED, rank, &comm);
		if (rank >= p)
			continue;
		MPI_Comm_rank(comm, &me);
		buffer_make(&out, (size_t)(p * 3 + 4) * 48000);
		buffer_make(&in, (size_t)(p * 3 + 4) * 48000);
		run_forms(each, forms, (int)(sizeof(forms) / sizeof(forms[0])));
		buffer_free(&out);
		buffer_free(&in);
		MPI_Comm_free(&comm);
	}
	MPI_Type_free(&pairs);
	MPI_Type_free(&gaps);
}

BEHAVIOUR(bcast, 2) { run_all(each_bcast); }
BEHAVIOUR(gather, 2) { run_all(each_gather); }
BEHAVIOUR(scatter, 2) { run_all(each_scatter); }
BEHAVIOUR(allgather, 2) { run_all(each_allgather); }
BEHAVIOUR(alltoall, 2) { run_all(each_alltoall); }
BEHAVIOUR(gatherv, 2) { run_all(each_gatherv); }
BEHAVIOUR(scatterv, 2) { run_all(each_scatterv); }
BEHAVIOUR(allgatherv, 2) { run_all(each_allgatherv); }
BEHAVIOUR(alltoallv, 2) { run_all(each_alltoallv); }
BEHAVIOUR(alltoallw, 2) { run_all(each_alltoallw); }

/* The root alone gives MPI_BOTTOM, which the others do not know. */
BEHAVIOUR(elements_without_bytes_at_bottom, 2)
{
	int counts[MOST_RANKS], displs[MOST_RANKS], value = rank + 7;
	MPI_Datatype nothing;

	MPI_Type_contiguous(0, MPI_INT, &nothing);
	MPI_Type_commit(&nothing);
	for (int r = 0; r < size; r++) {
		counts[r] = 3;
		displs[r] = r;
	}
	for (int round = 0; round < 3; round++) {
		MPI_Gatherv(&value, 3, nothing, rank ? &value : MPI_BOTTOM, counts, displs, nothing,
			    0, MPI_COMM_WORLD);
		MPI_Bcast(&value, 1, MPI_INT, round % size, MPI_COMM_WORLD);
		EXPECT(value == 7);
	}
	MPI_Type_free(&nothing);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
