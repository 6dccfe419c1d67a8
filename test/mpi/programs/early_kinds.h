/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of all kinds with what each rank brings and gets, known beforehand on every rank.
 * Both buffers lie in one block, beside each other or a little apart, and a third behind them:
 *
 *   | 0x77 ... | one | [gap] | the other | beside | 0x77 ... |
 *
 * Elements have 8 bytes: numbers that are added up, or maps that are composed by an operation of
 * the program's.
 */
#ifndef EARLY_KINDS_H
#define EARLY_KINDS_H

#include "early.h"

enum kind {
	SCATTER, SCATTERV, GATHERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW, NEIGHBOR,
	REDUCE, ALLREDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, COMPOSED,
};

enum { WORD = 8, REST = 0x77, BESIDE = 70001, RANKS_MOST = 16 };

struct half {
	char *at, *want; /* want: a private copy, kept in step by actions that write */
	size_t bytes;    /* 0: this rank has none */
};

struct exchange {
	enum kind kind;
	int index, root, late;
	bool in_place;
	bool gone;       /* the action gave the block away: nothing is left to look at */
	size_t part;     /* elements of a message */
	struct half send, recv;
	char *beside, *block;
	size_t block_bytes;
	bool is_mapped;  /* the block is of mmap() */
	MPI_Comm comm;
	uint64_t random; /* this rank's own */
};

static struct {
	MPI_Comm ring; /* each rank has the one before it, and itself, as neighbours */
	MPI_Datatype map;
	MPI_Op compose;
} kinds;

static inline bool is_reduce(enum kind k)
{
	return k >= REDUCE;
}

static inline bool is_to_all(enum kind k)
{
	return k == ALLTOALL || k == ALLTOALLV || k == ALLTOALLW;
}

static inline bool is_rooted(enum kind k)
{
	return k == SCATTER || k == SCATTERV || k == GATHERV || k == REDUCE;
}

/* Affine maps x -> a x + b, modulo 2^32, which do not commute. */
struct map { uint32_t a, b; };

static inline struct map compose(struct map f, struct map g)
{
	return (struct map){ f.a * g.a, f.a * g.b + f.b };
}

static void compose_all(void *in, void *inout, int *n, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *n; i++)
		((struct map *)inout)[i] = compose(((struct map *)in)[i], ((struct map *)inout)[i]);
}

static inline void kinds_begin(void)
{
	int sources[2] = { (rank + size - 1) % size, rank },
	    targets[2] = { (rank + 1) % size, rank }, weights[2] = { 1, 1 };

	if (kinds.map)
		return;
	MPI_Type_contiguous(2, MPI_UNSIGNED, &kinds.map);
	MPI_Type_commit(&kinds.map);
	MPI_Op_create(compose_all, 0, &kinds.compose);
	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, weights, 2, targets, weights,
				       MPI_INFO_NULL, 0, &kinds.ring);
}

/* ---- who gets what ----------------------------------------------------------------------- */

/* Elements from one to another; some have none. */
static inline size_t elements(const struct exchange *x, int from, int to)
{
	int what = x->kind == ALLGATHERV ? from : from + to;

	switch (x->kind) {
	case SCATTERV:
	case GATHERV:
	case ALLGATHERV:
	case ALLTOALLV:
	case ALLTOALLW:
		return x->part * (size_t)((what + x->index) % 4) / 2;
	case REDUCE_SCATTER:
		return x->part * (size_t)((to + x->index) % 3) / 2;
	default:
		return x->part;
	}
}

/* The data of rank r, in parts by rank. */
static inline size_t sum_sent(const struct exchange *x, int r, int before)
{
	size_t sum = 0;

	for (int to = 0; to < before; to++)
		sum += elements(x, r, to);
	return sum;
}

static inline size_t sent(const struct exchange *x, int r)
{
	switch (x->kind) {
	case SCATTER:
	case SCATTERV:
		return r == x->root ? sum_sent(x, r, size) : 0;
	case GATHERV:
		return elements(x, r, x->root);
	case ALLTOALL:
	case ALLTOALLV:
	case ALLTOALLW:
	case REDUCE_SCATTER:
	case REDUCE_SCATTER_BLOCK:
		return sum_sent(x, r, size);
	case NEIGHBOR:
		return 2 * x->part;
	default:
		return elements(x, r, 0);
	}
}

static inline size_t received(const struct exchange *x, int r)
{
	size_t sum = 0;

	if (is_rooted(x->kind) && x->kind != SCATTER && x->kind != SCATTERV && r != x->root)
		return 0;
	if (x->kind == NEIGHBOR)
		return 2 * x->part;
	if (x->kind == SCATTER || x->kind == SCATTERV)
		return elements(x, x->root, r);
	if (is_reduce(x->kind))
		return x->kind == EXSCAN && !r ? 0 : elements(x, 0, r);
	for (int from = 0; from < size; from++)
		sum += elements(x, from, r);
	return sum;
}

/* ---- what that is ------------------------------------------------------------------------ */

static inline void fill_sent(const struct exchange *x, int r, char *out)
{
	check_fill(out, sent(x, r) * WORD, check_seed((uint64_t)x->index, (uint64_t)r + 50));
}

static inline void combine(const struct exchange *x, char *acc, const char *next, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t a, b;
		struct map f, g;

		memcpy(&a, acc + i * WORD, WORD);
		memcpy(&b, next + i * WORD, WORD);
		memcpy(&f, &a, WORD);
		memcpy(&g, &b, WORD);
		a += b;
		if (x->kind == COMPOSED)
			f = compose(f, g);
		memcpy(acc + i * WORD, x->kind == COMPOSED ? (void *)&f : (void *)&a, WORD);
	}
}

static inline void expect_combined(const struct exchange *x, int r, char *out)
{
	size_t n = sent(x, 0);
	char *acc = check_alloc(n * WORD + 1), *next = check_alloc(n * WORD + 1);
	int last = x->kind == SCAN ? r : x->kind == EXSCAN ? r - 1 : size - 1;
	bool is_cut = x->kind == REDUCE_SCATTER || x->kind == REDUCE_SCATTER_BLOCK;

	fill_sent(x, 0, acc);
	for (int k = 1; k <= last; k++) {
		fill_sent(x, k, next);
		combine(x, acc, next, n);
	}
	memcpy(out, acc + (is_cut ? sum_sent(x, 0, r) * WORD : 0), received(x, r) * WORD);
	free(acc);
	free(next);
}

/* Part `to` of what rank `from` brings. Returns its bytes. */
static inline size_t expect_part(const struct exchange *x, int from, int to, char *out)
{
	char *all = check_alloc(sent(x, from) * WORD + 1);
	bool is_cut = is_to_all(x->kind) || x->kind == SCATTER || x->kind == SCATTERV;
	size_t at = is_cut                              ? sum_sent(x, from, to)
		    : x->kind == NEIGHBOR && from == to ? x->part
							: 0;
	size_t n = elements(x, from, to) * WORD;

	fill_sent(x, from, all);
	memcpy(out, all + at * WORD, n);
	free(all);
	return n;
}

/* All that rank r gets. */
static inline void expect_received(const struct exchange *x, int r, char *out)
{
	if (!received(x, r))
		return;
	if (is_reduce(x->kind)) {
		expect_combined(x, r, out);
	} else if (x->kind == NEIGHBOR) {
		out += expect_part(x, (r + size - 1) % size, r, out);
		expect_part(x, r, r, out);
	} else if (x->kind == SCATTER || x->kind == SCATTERV) {
		expect_part(x, x->root, r, out);
	} else {
		for (int from = 0; from < size; from++)
			out += expect_part(x, from, r, out);
	}
}

/* ---- the call ---------------------------------------------------------------------------- */

struct counts {
	int sent[RANKS_MOST], sent_at[RANKS_MOST], received[RANKS_MOST], received_at[RANKS_MOST];
	MPI_Datatype types[RANKS_MOST];
};

/* In bytes; of REDUCE_SCATTER in elements. */
static inline void list_counts(const struct exchange *x, struct counts *c)
{
	int unit = x->kind == REDUCE_SCATTER ? 1 : WORD, out = 0, in = 0;

	for (int r = 0; r < size; r++) {
		c->sent[r] = (int)elements(x, rank, r) * unit;
		c->received[r] = (int)elements(x, r, x->kind == GATHERV ? x->root : rank) * unit;
		if (x->kind == REDUCE_SCATTER)
			c->received[r] = (int)elements(x, 0, r);
		c->sent_at[r] = out;
		c->received_at[r] = in;
		c->types[r] = MPI_BYTE;
		out += c->sent[r];
		in += c->received[r];
	}
}

static inline int move(struct exchange *x, const void *s, void *d)
{
	int n = (int)(x->part * WORD), mine = (int)elements(x, rank, x->root) * WORD;
	struct counts c;

	list_counts(x, &c);
	switch (x->kind) {
	case SCATTER:
		return MPI_Scatter(s, n, MPI_BYTE, d, n, MPI_BYTE, x->root, x->comm);
	case SCATTERV:
		return MPI_Scatterv(s, c.sent, c.sent_at, MPI_BYTE, d,
				    (int)elements(x, x->root, rank) * WORD, MPI_BYTE, x->root,
				    x->comm);
	case GATHERV:
		return MPI_Gatherv(s, mine, MPI_BYTE, d, c.received, c.received_at, MPI_BYTE,
				   x->root, x->comm);
	case ALLGATHER:
		return MPI_Allgather(s, n, MPI_BYTE, d, n, MPI_BYTE, x->comm);
	case ALLGATHERV:
		return MPI_Allgatherv(s, c.sent[0], MPI_BYTE, d, c.received, c.received_at,
				      MPI_BYTE, x->comm);
	case ALLTOALL:
		return MPI_Alltoall(s, n, MPI_BYTE, d, n, MPI_BYTE, x->comm);
	case ALLTOALLV:
		return MPI_Alltoallv(s, c.sent, c.sent_at, MPI_BYTE, d, c.received, c.received_at,
				     MPI_BYTE, x->comm);
	case ALLTOALLW:
		return MPI_Alltoallw(s, c.sent, c.sent_at, c.types, d, c.received, c.received_at,
				     c.types, x->comm);
	default:
		return MPI_Neighbor_alltoall(s, n, MPI_BYTE, d, n, MPI_BYTE, kinds.ring);
	}
}

static inline int reduce(struct exchange *x, const void *s, void *d)
{
	int n = (int)x->part;
	struct counts c;

	list_counts(x, &c);
	switch (x->kind) {
	case REDUCE:
		return MPI_Reduce(s, d, n, MPI_UINT64_T, MPI_SUM, x->root, x->comm);
	case ALLREDUCE:
		return MPI_Allreduce(s, d, n, MPI_UINT64_T, MPI_SUM, x->comm);
	case REDUCE_SCATTER:
		return MPI_Reduce_scatter(s, d, c.received, MPI_UINT64_T, MPI_SUM, x->comm);
	case REDUCE_SCATTER_BLOCK:
		return MPI_Reduce_scatter_block(s, d, n, MPI_UINT64_T, MPI_SUM, x->comm);
	case SCAN:
		return MPI_Scan(s, d, n, MPI_UINT64_T, MPI_SUM, x->comm);
	case EXSCAN:
		return MPI_Exscan(s, d, n, MPI_UINT64_T, MPI_SUM, x->comm);
	default:
		return MPI_Allreduce(s, d, n, kinds.map, kinds.compose, x->comm);
	}
}

static inline void exchange(struct exchange *x)
{
	bool is_scatter = x->kind == SCATTER || x->kind == SCATTERV;
	const void *s = x->in_place && !is_scatter ? MPI_IN_PLACE : x->send.at;
	void *d = x->in_place && is_scatter ? MPI_IN_PLACE : x->recv.at;

	EXPECT(!(is_reduce(x->kind) ? reduce(x, s, d) : move(x, s, d)));
}

#endif
