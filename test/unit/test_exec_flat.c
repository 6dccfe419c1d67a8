/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every collective that only moves data between processes, as coll/ builds it and exec/ runs it:
 * parts of any size, none too, at odd addresses, in place, with any neighbours; waited for, stepped
 * through, left; every byte is compared. RANDOM_SEED=n plays other sequences.
 */
#include <stdlib.h>

#include "coll/coll.h"
#include "exec_case.h"

#define OPTIONS(...)                                                                               \
	((char *const[]){ "SLUICE_TEST=region_adopt_min=4K", __VA_ARGS__ __VA_OPT__(, ) NULL })
enum { NEIGHBOURS_MAX = 12, PARTS_MAX = RANKS_MAX + NEIGHBOURS_MAX };

/* Parameters that all ranks draw alike: bytes that rank `from` sends to rank `to`, or along the
 * n-th edge of the graph. */
struct drawn {
	enum coll kind;
	int ranks, root, edge_count;
	bool in_place;
	uint64_t key;
	uint64_t bytes[RANKS_MAX][RANKS_MAX];
	struct { int from, to; uint64_t bytes; } edge[RANKS_MAX * 3];
};

struct one {
	struct drawn d;
	struct coll_part send[PARTS_MAX], recv[PARTS_MAX];
	uint64_t send_key[PARTS_MAX], recv_key[PARTS_MAX]; /* of what is in the part */
	int sends, recvs, sources[NEIGHBOURS_MAX], targets[NEIGHBOURS_MAX], source_count,
		target_count;
	struct case_side out, in; /* what is sent from, received to */
	bool one_buffer, in_place;
	char what[96];
	struct exec_shape shape;
};

static char value_of(uint64_t key, uint64_t k)
{
	uint64_t x = (k / 8 + 1) * 0x9e3779b97f4a7c15u + key * 0xff51afd7ed558ccdu;

	return (char)((x ^ x >> 29) >> (k % 8 * 8));
}

static void fill(char *to, uint64_t n, uint64_t key)
{
	for (uint64_t k = 0; k < n; k++)
		to[k] = value_of(key, k);
}

/* ---- drawing ----------------------------------------------------------------------------- */

static uint64_t draw_bytes(uint64_t max, uint64_t *common)
{
	uint64_t bits = 64 - (uint64_t)__builtin_clzll(max),
		 top = 1ull << ranks_below(common, bits);

	if (ranks_below(common, 8) == 0)
		return 0;
	return base_min_u64(max, top + ranks_below(common, top));
}

static const enum coll kinds[] = {
	COLL_BCAST,    COLL_GATHER,             COLL_SCATTER,           COLL_ALLGATHER,
	COLL_ALLTOALL, COLL_NEIGHBOR_ALLGATHER, COLL_NEIGHBOR_ALLTOALL,
};

static bool is_regular(enum coll kind)
{
	return kind == COLL_BCAST || kind == COLL_NEIGHBOR_ALLGATHER;
}

/* Neighbours: any, oneself and the same one several times too. */
static void draw_edges(struct drawn *d, uint64_t max, uint64_t *common)
{
	int out[RANKS_MAX] = { 0 }, in[RANKS_MAX] = { 0 };
	int n = (int)ranks_below(common, 3 * (uint64_t)d->ranks + 1);

	for (int i = 0; i < n; i++) {
		int from = (int)ranks_below(common, (uint64_t)d->ranks),
		    to = (int)ranks_below(common, (uint64_t)d->ranks);

		if (out[from]++ >= NEIGHBOURS_MAX || in[to]++ >= NEIGHBOURS_MAX)
			continue;
		d->edge[d->edge_count].from = from;
		d->edge[d->edge_count].to = to;
		d->edge[d->edge_count++].bytes = d->kind == COLL_NEIGHBOR_ALLGATHER
							 ? d->bytes[from][0]
							 : draw_bytes(max, common);
	}
}

static void draw(struct drawn *d, int ranks, uint64_t max, uint64_t *common)
{
	int most = ranks > NEIGHBOURS_MAX ? ranks : NEIGHBOURS_MAX; /* parts of a buffer */

	*d = (struct drawn){ .ranks = ranks, .key = ranks_random(common) };
	d->kind = kinds[ranks_below(common, BASE_ARRAY_LEN(kinds))];
	d->root = (int)ranks_below(common, (uint64_t)ranks);
	d->in_place = ranks_below(common, 3) == 0;
	for (int from = 0; from < ranks; from++)
		for (int to = 0; to < ranks; to++)
			d->bytes[from][to] =
				is_regular(d->kind) && (from || to) && d->kind == COLL_BCAST
					? d->bytes[0][0]
					: draw_bytes(max / (uint64_t)most, common);
	if (d->kind == COLL_ALLGATHER)
		for (int from = 0; from < ranks; from++)
			for (int to = 1; to < ranks; to++)
				d->bytes[from][to] = d->bytes[from][0];
	if (d->kind >= COLL_NEIGHBOR_ALLGATHER)
		draw_edges(d, max / NEIGHBOURS_MAX, common);
}

static uint64_t key_of(const struct drawn *d, int from, int to)
{
	bool is_one = d->kind == COLL_ALLGATHER || d->kind == COLL_BCAST ||
		      d->kind == COLL_NEIGHBOR_ALLGATHER;

	return d->key + 1000 * (uint64_t)from + (is_one ? 0 : (uint64_t)to);
}

/* ---- one rank's side --------------------------------------------------------------------- */

static void add_send(struct one *o, uint64_t bytes, uint64_t key)
{
	o->send[o->sends].bytes = bytes;
	o->send_key[o->sends++] = key;
}

static void add_recv(struct one *o, uint64_t bytes, uint64_t key)
{
	o->recv[o->recvs].bytes = bytes;
	o->recv_key[o->recvs++] = key;
}

static void find_neighbours(struct one *o, int rank)
{
	const struct drawn *d = &o->d;

	if (d->kind == COLL_NEIGHBOR_ALLGATHER)
		add_send(o, d->bytes[rank][0], key_of(d, rank, 0));
	for (int i = 0; i < d->edge_count; i++) {
		uint64_t key = d->kind == COLL_NEIGHBOR_ALLGATHER ? key_of(d, d->edge[i].from, 0)
								  : d->key + (uint64_t)i;

		if (d->edge[i].from == rank) {
			o->targets[o->target_count++] = d->edge[i].to;
			if (d->kind == COLL_NEIGHBOR_ALLTOALL)
				add_send(o, d->edge[i].bytes, key);
		}
		if (d->edge[i].to == rank) {
			o->sources[o->source_count++] = d->edge[i].from;
			add_recv(o, d->edge[i].bytes, key);
		}
	}
}

static void find_parts(struct one *o, int rank)
{
	const struct drawn *d = &o->d;
	bool is_root = rank == d->root;

	if (d->kind >= COLL_NEIGHBOR_ALLGATHER)
		find_neighbours(o, rank);
	else if (d->kind == COLL_BCAST)
		add_send(o, d->bytes[0][0], key_of(d, d->root, 0));
	else if (d->kind == COLL_GATHER)
		add_send(o, d->bytes[rank][d->root], key_of(d, rank, d->root));
	else if (d->kind == COLL_SCATTER)
		add_recv(o, d->bytes[d->root][rank], key_of(d, d->root, rank));
	else if (d->kind == COLL_ALLGATHER)
		add_send(o, d->bytes[rank][0], key_of(d, rank, 0));
	for (int r = 0; r < d->ranks; r++) {
		if (d->kind == COLL_ALLTOALL || (d->kind == COLL_SCATTER && is_root))
			add_send(o, d->bytes[rank][r], key_of(d, rank, r));
		if (d->kind == COLL_ALLTOALL || d->kind == COLL_ALLGATHER ||
		    (d->kind == COLL_GATHER && is_root))
			add_recv(o, d->bytes[r][rank], key_of(d, r, rank));
	}
}

/* Where the parts lie: with gaps here and there, in any order. Returns the bytes in all. */
static uint64_t lay_out(struct coll_part *p, int n)
{
	uint64_t at = 0;
	int first = n ? (int)ranks_below(&exec_case.own, (uint64_t)n) : 0;

	for (int k = 0; k < n; k++) {
		struct coll_part *part = &p[(first + k) % n];

		at += ranks_below(&exec_case.own, 3) ? 0 : ranks_below(&exec_case.own, 100);
		part->off = at;
		at += part->bytes;
	}
	return at;
}

static void describe(struct one *o)
{
	o->shape = (struct exec_shape){
		.kind = o->d.kind,
		.root = o->d.root,
		.send = o->send,
		.recv = o->recv,
		.in_place = o->in_place,
		.sources = o->sources,
		.targets = o->targets,
		.source_count = o->source_count,
		.target_count = o->target_count,
	};
}

static void fill_sides(struct one *o, int place)
{
	int rank = exec_case.r->rank,
	    own = o->d.kind == COLL_ALLGATHER || o->d.kind == COLL_ALLTOALL ? rank : o->d.root;
	uint64_t send_bytes = lay_out(o->send, o->sends), recv_bytes = lay_out(o->recv, o->recvs);

	o->one_buffer = o->d.kind == COLL_BCAST || (o->d.kind == COLL_ALLGATHER && o->in_place);
	case_side_make(&o->out, place, 0,
		       o->d.kind == COLL_ALLGATHER && o->in_place ? recv_bytes : send_bytes, 0x11);
	case_side_make(&o->in, place, 1, o->one_buffer ? 0 : recv_bytes, 0x22);
	for (int i = 0; i < o->sends && !o->one_buffer; i++)
		fill(o->out.addr + o->send[i].off, o->send[i].bytes, o->send_key[i]);
	if (o->d.kind == COLL_BCAST && rank == o->d.root)
		fill(o->out.addr + o->send[0].off, o->send[0].bytes, o->send_key[0]);
	if (o->in_place && o->recvs > own)
		fill((o->one_buffer ? o->out.addr : o->in.addr) + o->recv[own].off,
		     o->recv[own].bytes, o->recv_key[own]);
}

static struct exec_run *one_begin(struct one *o, int place)
{
	struct exec_call call = { .shape = &o->shape, .name = "flat" };
	int rank = exec_case.r->rank;
	struct exec_run *run;

	find_parts(o, rank);
	/* each rank for itself, but where there must be one buffer at all; in place a scatter's
	 * root gets nothing */
	o->in_place = o->d.kind == COLL_ALLGATHER  ? o->d.in_place
		      : o->d.kind == COLL_ALLTOALL ? ranks_below(&exec_case.own, 2)
		      : o->d.kind == COLL_GATHER || o->d.kind == COLL_SCATTER
			      ? rank == o->d.root && o->d.in_place
			      : false;
	if (o->d.kind == COLL_SCATTER && o->in_place)
		o->recvs = 0;
	snprintf(o->what, sizeof o->what, "kind %d, rank %d of %d, root %d%s", (int)o->d.kind, rank,
		 o->d.ranks, o->d.root, o->in_place ? ", in place" : "");
	fill_sides(o, place);
	case_side_begin(&o->out);
	case_side_begin(&o->in);
	describe(o);
	call.user[0] = o->out.used;
	call.user[1] = o->in.used;
	call.desc[COLL_SEND] = o->out.desc;
	call.desc[COLL_RECV] = o->in.desc;
	CHECK_EQ(exec_begin(exec_case.e, &call, &run), 0);
	return run;
}

static void check_part(const struct one *o, const char *base, const struct coll_part *p,
		       uint64_t key)
{
	for (uint64_t k = 0; k < p->bytes; k++)
		if (base[p->off + k] != value_of(key, k))
			unit_fail(__FILE__, __LINE__,
				  "%s: byte %" PRIu64 " of a part of %" PRIu64 " is wrong", o->what,
				  k, p->bytes);
}

static void one_end(struct one *o)
{
	case_side_end(&o->out, o->what);
	case_side_end(&o->in, o->what);
	for (int i = 0; i < o->recvs; i++)
		check_part(o, o->one_buffer ? o->out.addr : o->in.addr, &o->recv[i],
			   o->recv_key[i]);
	for (int i = 0; i < o->sends && !(o->one_buffer && o->d.kind == COLL_ALLGATHER); i++)
		check_part(o, o->out.addr, &o->send[i], o->send_key[i]);
	memset(o->out.addr, 1, o->out.bytes); /* nobody may read it any more */
	memset(o->in.addr, 2, o->in.bytes);
}

/* ---- many -------------------------------------------------------------------------------- */

struct sequence { uint64_t seed, max_bytes; int rounds; };

static void play(struct ranks *r)
{
	const struct sequence *q = r->arg;
	uint64_t common = q->seed;
	static struct one ones[CASE_RUNS];

	exec_case_begin(r, q->seed);
	for (int round = 0; round < q->rounds; round++) {
		int n = ranks_below(&common, 3) ? 1 : 1 + (int)ranks_below(&common, CASE_RUNS);
		struct exec_run *runs[CASE_RUNS];

		for (int i = 0; i < n; i++) {
			memset(&ones[i], 0, sizeof ones[i]);
			draw(&ones[i].d, r->size, q->max_bytes, &common);
			exec_case_dawdle();
			runs[i] = one_begin(&ones[i], i);
		}
		exec_case_finish(runs, n, (enum case_how)ranks_below(&exec_case.own, CASE_HOWS));
		for (int i = 0; i < n; i++)
			one_end(&ones[i]);
	}
	exec_case_end();
}

UNIT_TEST(collectives_that_move_data_bring_every_part_to_its_place)
{
	for (int ranks = 2; ranks <= 9; ranks++) {
		struct sequence q = { exec_case_seed((uint64_t)ranks),
				      ranks < 5 ? 1 << 20 : 400 << 10, ranks < 5 ? 40 : 20 };

		ranks_run(ranks, OPTIONS("SLUICE_TEST=fault=slots:all"), play, &q);
	}
}
