/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions of two levels on machines that hwloc makes up, and on any division: units are claimed
 * by ranks in any order, several at a time, and done on a model of the memory, in which an element
 * is the set of ranks whose input is in it. In the end everyone has what it is to get, made of each
 * input once; only a part and a result cross to another domain; nothing is overwritten that is to
 * be read, in place either; and somebody can always go on.
 */
#include <stdlib.h>
#include <string.h>

#include "coll/coll.h"
#include "reduce/reduce.h"
#include "places.h"
#include "unit.h"

enum { RANKS_MAX = 24, ELEMENT = 8, UNITS_MAX = 8, NOTHING = 1 << 30 };

struct cell { uint32_t in, out, part; };

/* A unit that a rank has claimed: where it is, and whether the work has been done. */
struct claim { struct reduce_step st; uint32_t unit; bool is_there, is_worked; };

static struct world {
	uint32_t ranks;
	bool in_place;
	struct coll_domains domains;
	struct reduce_domains m;
	int words[4 * RANKS_MAX + 1];
	uint64_t starts[RANKS_MAX + 1], random;
	struct reduce_view v;
	struct xfer x[RANKS_MAX][2 * RANKS_MAX + 1];
	struct cell cells[RANKS_MAX][RANKS_MAX][UNITS_MAX]; /* of a rank: its slices' units */
	int crossed_in[RANKS_MAX][UNITS_MAX], crossed_out[RANKS_MAX][UNITS_MAX];
	struct claim claims[RANKS_MAX];
} w;

static uint32_t draw(uint32_t n)
{
	w.random = w.random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(w.random >> 33) % n;
}

static struct xfer *words_of(void *ctx, uint32_t slice)
{
	(void)ctx;
	return w.x[slice];
}

/* ---- the model of the memory ------------------------------------------------------------- */

static uint32_t everyone(void) { return (1u << w.ranks) - 1; }

static uint32_t members_of(uint32_t domain)
{
	uint32_t set = 0;

	for (uint32_t r = 0; r < w.ranks; r++)
		set |= (uint32_t)w.m.of[r] == domain ? 1u << r : 0;
	return set;
}

static uint32_t *input(uint32_t rank, const struct claim *c)
{
	struct cell *cell = &w.cells[rank][c->st.slice][c->unit];

	return w.in_place ? &cell->out : &cell->in;
}

static uint32_t *part(uint32_t rank, const struct claim *c)
{
	struct cell *cell = &w.cells[rank][c->st.slice][c->unit];

	CHECK(w.v.shape.kind == COLL_ALLREDUCE || reduce_keeps_parts(&w.v.shape, &w.m, rank));
	return w.v.shape.kind == COLL_ALLREDUCE ? &cell->out : &cell->part;
}

static bool gets(uint32_t rank, uint32_t slice, uint32_t unit)
{
	uint64_t first, n, at, count;

	reduce_unit_range(&w.v.shape, &w.v.cut, slice, unit, &first, &n);
	reduce_result(&w.v.shape, w.starts, rank, &at, &count);
	return at < first + n && at + count > first;
}

static uint32_t read_inputs(const struct claim *c, uint32_t domain)
{
	uint32_t sum = 0;

	for (uint32_t r = 0; r < w.ranks; r++)
		if ((uint32_t)w.m.of[r] == domain) {
			CHECK_EQ(*input(r, c), 1u << r);
			sum |= *input(r, c);
		}
	return sum;
}

static void make_result(const struct claim *c)
{
	uint32_t slice = c->st.slice, home = c->st.domain, sum = 0;

	CHECK_EQ(home, reduce_home(&w.v, slice));
	for (uint32_t d = 0; d < w.m.count; d++) {
		const struct reduce_step st = { REDUCE_PART, d, slice };
		uint32_t more = reduce_has_step(&w.v, &st) ? *part(reduce_entry(&w.v, d, slice), c)
							 : read_inputs(c, d);

		CHECK_EQ(more, members_of(d));
		CHECK(!(sum & more));
		sum |= more;
		w.crossed_in[slice][c->unit] += d != home;
	}
	for (uint32_t r = 0; r < w.ranks; r++) {
		uint32_t d = (uint32_t)w.m.of[r];
		bool is_spread = w.v.shape.kind == COLL_ALLREDUCE && d != home &&
				 r != reduce_entry(&w.v, d, slice);

		if (!gets(r, slice, c->unit) || is_spread)
			continue;
		w.cells[r][slice][c->unit].out = sum;
		w.crossed_out[slice][c->unit] += d != home;
	}
}

static void spread(const struct claim *c)
{
	uint32_t entry = reduce_entry(&w.v, c->st.domain, c->st.slice);

	CHECK_EQ(w.v.shape.kind, COLL_ALLREDUCE);
	CHECK_EQ(*part(entry, c), everyone());
	for (uint32_t r = 0; r < w.ranks; r++)
		if ((uint32_t)w.m.of[r] == c->st.domain && r != entry)
			w.cells[r][c->st.slice][c->unit].out = everyone();
}

static void work(uint32_t rank, struct claim *c)
{
	uint32_t entry = reduce_entry(&w.v, c->st.domain, c->st.slice);

	CHECK_EQ(w.m.of[rank], c->st.domain);
	CHECK_EQ(w.m.of[entry], c->st.domain);
	c->is_worked = true;
	if (c->st.level == REDUCE_PART)
		*part(entry, c) = read_inputs(c, c->st.domain);
	else if (c->st.level == REDUCE_RESULT)
		make_result(c);
	else
		spread(c);
}

/* ---- one reduce ---------------------------------------------------------------------------- */

static uint64_t bits_of(uint32_t slice)
{
	return xfer_bits(reduce_units(&w.v.shape, &w.v.cut, slice));
}

/* A rank does something: claims a unit, works on what it has, or says that it is done. False: it
 * cannot. */
static bool act(uint32_t rank)
{
	struct claim *c = &w.claims[rank];

	if (!c->is_there) {
		c->is_worked = false;
		c->is_there = reduce_claim_step(&w.v, rank, &c->st, &c->unit);
		if (c->is_there && draw(2))
			work(rank, c);
		return c->is_there;
	}
	if (!c->is_worked)
		work(rank, c);
	xfer_complete(reduce_step_words(&w.v, &c->st), w.v.tag, xfer_bit(c->unit),
		      bits_of(c->st.slice));
	c->is_there = false;
	return true;
}

static void begin(uint32_t kind, uint32_t root)
{
	uint64_t count = w.ranks * 3000ull + draw(5000), at = 0;

	w.v = (struct reduce_view){
		.shape = { .kind = kind,
			   .ranks = w.ranks,
			   .root = root,
			   .type = GOAL_ADD,
			   .dtype = GOAL_F64,
			   .domains = w.m.count,
			   .count = count,
			   .element_bytes = ELEMENT },
		.starts = w.starts,
		.tag = 1 + draw(1000),
		.words = words_of,
		.domains = &w.m,
	};
	reduce_cut(&w.v.shape, &w.v.cut);
	for (uint32_t r = 0; r < w.ranks; r++) {
		w.starts[r] = at;
		at += r + 1 == w.ranks ? count - at
		      : draw(3)        ? draw((uint32_t)(count - at) + 1) / (1 + draw(w.ranks))
				       : 0;
	}
	w.starts[w.ranks] = count;
	memset(w.crossed_in, 0, sizeof w.crossed_in);
	memset(w.crossed_out, 0, sizeof w.crossed_out);
	for (uint32_t r = 0; r < w.ranks; r++) {
		for (uint32_t i = 0; i < reduce_words(&w.v.shape); i++)
			xfer_open(&w.x[r][i], w.v.tag);
		for (uint32_t s = 0; s < w.ranks; s++)
			for (uint32_t u = 0; u < UNITS_MAX; u++)
				w.cells[r][s][u] =
					(struct cell){ 1u << r, w.in_place ? 1u << r : NOTHING,
						       NOTHING };
	}
}

static void check_unit(uint32_t slice, uint32_t unit)
{
	int others = (int)w.m.count - 1;

	for (uint32_t r = 0; r < w.ranks; r++)
		CHECK_EQ(w.cells[r][slice][unit].out, gets(r, slice, unit) ? everyone()
						      : w.in_place         ? 1u << r
									   : (uint32_t)NOTHING);
	CHECK_EQ(w.crossed_in[slice][unit], others);
	if (w.v.shape.kind != COLL_REDUCE_SCATTER)
		CHECK_EQ(w.crossed_out[slice][unit], w.v.shape.kind == COLL_ALLREDUCE ? others : 0);
}

static void play(uint32_t kind, uint32_t root)
{
	bool is_going = true;

	begin(kind, root);
	while (is_going) {
		for (uint32_t n = 0; n < 8 * w.ranks; n++)
			act(draw(w.ranks));
		is_going = false;
		for (uint32_t r = 0; r < w.ranks; r++)
			is_going |= act(r);
	}
	for (uint32_t s = 0; s < w.ranks; s++) {
		uint32_t units = reduce_units(&w.v.shape, &w.v.cut, s);

		CHECK(units <= UNITS_MAX);
		CHECK(reduce_steps_are_done(&w.v, s));
		for (uint32_t u = 0; u < units; u++)
			check_unit(s, u);
	}
}

static void check_all(int ranks, const int *number_of)
{
	w.ranks = (uint32_t)ranks;
	coll_domains_init(&w.domains, w.words, ranks, number_of);
	w.m = (struct reduce_domains){ (uint32_t)w.domains.count, w.domains.of, w.domains.members,
				     w.domains.first, w.domains.at };
	if (!reduce_can_have_levels(COLL_REDUCE, GOAL_ADD, &w.m))
		return;
	for (int in_place = 0; in_place < 2; in_place++) {
		w.in_place = in_place;
		play(COLL_ALLREDUCE, 0);
	}
	w.in_place = false;
	play(COLL_REDUCE, draw(w.ranks));
	play(COLL_REDUCE_SCATTER, 0);
}

#ifdef HAVE_HWLOC
UNIT_TEST(levels_on_every_machine_in_every_placement) { places_each(check_all); }
#endif

UNIT_TEST(levels_of_any_division)
{
	for (int n = 0; n < 300; n++) {
		int number_of[RANKS_MAX], ranks = 2 + n % 22;

		for (int r = 0; r < ranks; r++)
			number_of[r] = (int)draw(1 + (uint32_t)n % 5) * 7;
		check_all(ranks, number_of);
	}
}

/* Members of a domain begin with slices of their own, and each domain with as many. */
UNIT_TEST(levels_deal_the_slices)
{
	const int number_of[] = { 0, 1, 0, 1, 0, 1, 0, 1 };
	bool is_taken[REDUCE_SPREAD + 1][RANKS_MAX] = { 0 };

	w.ranks = 8;
	coll_domains_init(&w.domains, w.words, 8, number_of);
	w.m = (struct reduce_domains){ 2, w.domains.of, w.domains.members, w.domains.first,
				     w.domains.at };
	begin(COLL_ALLREDUCE, 0);
	for (uint32_t r = 0; r < 8; r++) {
		struct claim *c = &w.claims[r];

		CHECK(reduce_claim_step(&w.v, r, &c->st, &c->unit));
		CHECK_EQ(c->st.level, REDUCE_PART);
		CHECK_EQ(reduce_entry(&w.v, c->st.domain, c->st.slice), r);
		CHECK(!is_taken[REDUCE_PART][c->st.slice]);
		is_taken[REDUCE_PART][c->st.slice] = true;
	}
}

UNIT_TEST(levels_are_not_for_scans_nor_for_what_the_program_computes)
{
	const int one[] = { 3, 3, 3, 3 }, two[] = { 5, 2, 5, 2 };

	coll_domains_init(&w.domains, w.words, 4, two);
	w.m = (struct reduce_domains){ (uint32_t)w.domains.count, w.domains.of, w.domains.members,
				     w.domains.first, w.domains.at };
	CHECK(reduce_can_have_levels(COLL_REDUCE_SCATTER, GOAL_MAX, &w.m));
	CHECK(!reduce_can_have_levels(COLL_ALLREDUCE, GOAL_NOP, &w.m));
	CHECK(!reduce_can_have_levels(COLL_SCAN, GOAL_ADD, &w.m));
	CHECK(!reduce_can_have_levels(COLL_EXSCAN, GOAL_ADD, &w.m));
	CHECK(!reduce_can_have_levels(COLL_REDUCE, GOAL_ADD, NULL));
	coll_domains_init(&w.domains, w.words, 4, one);
	w.m.count = (uint32_t)w.domains.count;
	CHECK(!reduce_can_have_levels(COLL_REDUCE, GOAL_ADD, &w.m));
}
