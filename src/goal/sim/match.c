/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unexpected messages and posted receives of each rank, in order. A long list is distributed to
 * bins by sender and tag. Receives with a wildcard stand in a bin of their own; the older of two
 * candidates matches. A receive with a wildcard takes the first message that fits in the order in
 * which they came, as it would have to search all bins.
 */
#include <errno.h>
#include <stdlib.h>

#include "private.h"

#define LONG_LIST 32u /* average length of a bin before the number of bins grows */

/* The first words of struct sim_posted and struct sim_arrived. */
struct key {
	uint32_t peer, tag, seq;
};
typedef struct key key_of(const struct sim *s, uint32_t rank, const void *element);

static struct key posted_key(const struct sim *s, uint32_t rank, const void *element)
{
	const struct sim_posted *p = element;
	const struct sim_op *op = sim_op_of(s, sim_rank_of(s, rank), p->op);

	return (struct key){ sim_peer(s, rank, op), op->tag, p->seq };
}

static struct key arrived_key(const struct sim *s, uint32_t rank, const void *element)
{
	const struct sim_arrived *a = element;

	return (struct key){ a->rank, sim_op_of(s, sim_rank_of(s, a->rank), a->op)->tag, a->seq };
}

static bool is_open(const struct key *k) { return k->peer == GOAL_ANY || k->tag == GOAL_ANY; }

static bool matches(const struct key *a, const struct key *b)
{
	return (a->peer == b->peer || a->peer == GOAL_ANY || b->peer == GOAL_ANY) &&
	       (a->tag == b->tag || a->tag == GOAL_ANY || b->tag == GOAL_ANY);
}

static uint32_t bin_of(const struct sim_bins *b, const struct key *k)
{
	uint64_t h = ((uint64_t)k->peer << 32 | k->tag) * 0x9e3779b97f4a7c15u;

	return is_open(k) ? b->mask + 1 : (uint32_t)(h >> 40) & b->mask;
}

static uint32_t *next_of(const struct sim_pool *pool, uint32_t index)
{
	return sim_pool_at(pool, index);
}

static void push(const struct sim_pool *pool, uint32_t *head, uint32_t *tail, uint32_t index)
{
	*next_of(pool, index) = SIM_NONE;
	if (*tail)
		*next_of(pool, *tail) = index;
	else
		*head = index;
	*tail = index;
}

/* Returns: the first element that matches; *before: the element before it; *compared: how many
 * elements were compared. */
static uint32_t find(const struct sim *s, const struct sim_pool *pool, key_of *key, uint32_t rank,
		     uint32_t head, const struct key *target, uint32_t *before, uint32_t *compared)
{
	*before = SIM_NONE;
	*compared = 0;
	for (uint32_t i = head; i; *before = i, i = *next_of(pool, i)) {
		struct key have = key(s, rank, sim_pool_at(pool, i));

		++*compared;
		if (matches(&have, target))
			return i;
	}
	return SIM_NONE;
}

static void unlink_from(const struct sim_pool *pool, uint32_t *head, uint32_t *tail, uint32_t index,
			uint32_t before)
{
	if (before)
		*next_of(pool, before) = *next_of(pool, index);
	else
		*head = *next_of(pool, index);
	if (*tail == index)
		*tail = before;
}

/* ---- messages in the order in which they came ---------------------------------------------- */

static int order_add(struct sim_order *o, uint32_t index, uint32_t seq)
{
	if (goal_grow(&o->at, &o->cap, o->count + 1ull, sizeof(o->at[0])))
		return -ENOMEM;
	o->at[o->count].index = index;
	o->at[o->count++].seq = seq;
	return 0;
}

/* Drops the received messages when they are more than half of all. */
static void order_shrink(struct sim_order *o)
{
	uint32_t n = 0;

	if (o->received <= o->count / 2)
		return;
	for (uint32_t i = o->first; i < o->count; i++)
		if (o->at[i].index)
			o->at[n++] = o->at[i];
	o->count = n;
	o->first = o->received = 0;
}

static void order_remove(struct sim_order *o, uint32_t seq)
{
	uint32_t low = o->first, high = o->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if ((int32_t)(o->at[middle].seq - seq) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	o->at[low].index = SIM_NONE;
	o->received++;
	while (o->first < o->count && !o->at[o->first].index)
		o->first++;
	order_shrink(o);
}

/* Returns: the key of the first message that a receive with a wildcard takes; peer GOAL_ANY: there
 * is none. It is also the first of its key in its bin. */
static struct key first_in_order(const struct sim *s, const struct sim_order *o,
				 const struct sim_pool *pool, key_of *key, uint32_t rank,
				 const struct key *target)
{
	for (uint32_t i = o->first; i < o->count; i++) {
		struct key have;

		if (!o->at[i].index)
			continue;
		have = key(s, rank, sim_pool_at(pool, o->at[i].index));
		if (matches(&have, target))
			return have;
	}
	return (struct key){ .peer = GOAL_ANY };
}

/* ---- bins -------------------------------------------------------------------------------- */

/* A receive with sender and tag may be in its bin or among those with wildcards, as a message is in
 * its bin. */
static uint32_t remove_from_bins(const struct sim *s, const struct sim_list *l,
				 const struct sim_pool *pool, key_of *key, uint32_t rank,
				 const struct key *target)
{
	struct sim_bins *b = s->bins[l->bins];
	struct key known = *target;
	uint32_t best = SIM_NONE, best_before = SIM_NONE, best_bin = 0, best_seq = 0;
	uint32_t bins[2];

	if (is_open(target))
		known = first_in_order(s, &b->order, pool, key, rank, target);
	bins[0] = bin_of(b, &known);
	bins[1] = b->mask + 1;
	for (int k = 0; k < 2 && known.peer != GOAL_ANY; k++) {
		uint32_t before, compared, i;
		struct key have;

		i = find(s, pool, key, rank, b->bin[bins[k]].head, &known, &before, &compared);
		if (!i)
			continue;
		have = key(s, rank, sim_pool_at(pool, i));
		if (best && (int32_t)(have.seq - best_seq) > 0)
			continue;
		best = i;
		best_before = before;
		best_bin = bins[k];
		best_seq = have.seq;
	}
	if (!best)
		return SIM_NONE;
	unlink_from(pool, &b->bin[best_bin].head, &b->bin[best_bin].tail, best, best_before);
	if (b->order.count)
		order_remove(&b->order, best_seq);
	return best;
}

/* Returns: counts of this list, or NULL. */
static struct sim_matching_list *counts_of(const struct sim *s, uint32_t rank,
					   const struct sim_list *l)
{
	if (!s->matching)
		return NULL;
	return l == &sim_rank_of(s, rank)->posted ? &s->matching[rank].posted
						  : &s->matching[rank].unexpected;
}

static void count_search(struct sim_matching_list *counts, uint32_t compared, bool is_found)
{
	if (!counts)
		return;
	if (is_found)
		counts->hits++;
	else
		counts->misses++;
	counts->compared += compared;
	if (compared > counts->compared_most)
		counts->compared_most = compared;
}

static uint32_t remove_match(const struct sim *s, struct sim_list *l, const struct sim_pool *pool,
			     key_of *key, uint32_t rank, const struct key *target)
{
	uint32_t before, compared = 0, i = SIM_NONE;

	if (!l->count) {
		/* nothing to search */
	} else if (l->bins) {
		i = remove_from_bins(s, l, pool, key, rank, target);
	} else {
		i = find(s, pool, key, rank, l->head, target, &before, &compared);
		if (i)
			unlink_from(pool, &l->head, &l->tail, i, before);
	}
	count_search(counts_of(s, rank, l), compared, i != SIM_NONE);
	l->count -= i != SIM_NONE;
	return i;
}

static uint32_t new_bins(struct sim *s)
{
	if (goal_grow(&s->bins, &s->bins_cap, s->bins_count + 2ull, sizeof(struct sim_bins *)))
		return SIM_NONE;
	if (!s->bins_count)
		s->bins[s->bins_count++] = NULL; /* SIM_NONE */
	s->bins[s->bins_count] = NULL;
	return s->bins_count++;
}

void sim_bins_free(struct sim_bins *b)
{
	if (b)
		free(b->order.at);
	free(b);
}

/* Returns: the order of a list that gets bins, or more of them; an error in *error. */
static struct sim_order order_of(const struct sim *s, const struct sim_list *l,
				 const struct sim_pool *pool, uint32_t rank, int *error)
{
	struct sim_order o = { NULL };

	*error = 0;
	if (l->bins)
		return s->bins[l->bins]->order;
	for (uint32_t i = pool == &s->arrived ? l->head : SIM_NONE; i && !*error;
	     i = *next_of(pool, i))
		*error = order_add(&o, i, arrived_key(s, rank, sim_pool_at(pool, i)).seq);
	return o;
}

/* Distributes the list to `bins` bins, a power of two. */
static int deal_out(struct sim *s, struct sim_list *l, const struct sim_pool *pool, key_of *key,
		    uint32_t rank, uint32_t bins)
{
	struct sim_bins *fresh = calloc(1, sizeof(*fresh) + (bins + 1) * sizeof(fresh->bin[0]));
	struct sim_bins *old = l->bins ? s->bins[l->bins] : NULL;
	uint32_t lists = old ? old->mask + 2 : 1;
	int error;

	if (!fresh)
		return -ENOMEM;
	fresh->order = order_of(s, l, pool, rank, &error);
	if (!error && !l->bins)
		l->bins = new_bins(s);
	if (error || !l->bins) {
		sim_bins_free(fresh);
		return -ENOMEM;
	}
	fresh->mask = bins - 1;
	for (uint32_t k = 0; k < lists; k++)
		for (uint32_t i = old ? old->bin[k].head : l->head, next; i; i = next) {
			struct key have = key(s, rank, sim_pool_at(pool, i));
			uint32_t bin = bin_of(fresh, &have);

			next = *next_of(pool, i);
			push(pool, &fresh->bin[bin].head, &fresh->bin[bin].tail, i);
		}
	free(old);
	s->bins[l->bins] = fresh;
	return 0;
}

static int add(struct sim *s, struct sim_list *l, const struct sim_pool *pool, key_of *key,
	       uint32_t rank, uint32_t index)
{
	uint32_t bins = l->bins ? s->bins[l->bins]->mask + 1 : 1, bin;
	struct sim_matching_list *counts = counts_of(s, rank, l);
	struct key have;

	/* comparisons are counted in a list without bins */
	if (!counts && l->count >= LONG_LIST * bins && bins < 1u << 20) {
		int rc = deal_out(s, l, pool, key, rank, bins * 16);

		if (rc)
			return rc;
	}
	l->count++;
	if (counts && l->count > counts->length_most)
		counts->length_most = l->count;
	if (!l->bins) {
		push(pool, &l->head, &l->tail, index);
		return 0;
	}
	have = key(s, rank, sim_pool_at(pool, index));
	if (pool == &s->arrived && order_add(&s->bins[l->bins]->order, index, have.seq))
		return -ENOMEM;
	bin = bin_of(s->bins[l->bins], &have);
	push(pool, &s->bins[l->bins]->bin[bin].head, &s->bins[l->bins]->bin[bin].tail, index);
	return 0;
}

bool sim_match_posted(struct sim *s, uint32_t rank, uint32_t src, uint32_t tag,
		      struct sim_posted *out)
{
	struct key target = { src, tag, 0 };
	uint32_t i = remove_match(s, &sim_rank_of(s, rank)->posted, &s->posted, posted_key, rank,
				  &target);

	if (!i)
		return false;
	*out = *(struct sim_posted *)sim_pool_at(&s->posted, i);
	sim_pool_put(&s->posted, i);
	return true;
}

bool sim_match_arrived(struct sim *s, uint32_t rank, const struct sim_op *recv,
		       struct sim_arrived *out)
{
	struct key target = { sim_peer(s, rank, recv), recv->tag, 0 };
	uint32_t i = remove_match(s, &sim_rank_of(s, rank)->arrived, &s->arrived, arrived_key, rank,
				  &target);

	if (!i)
		return false;
	*out = *(struct sim_arrived *)sim_pool_at(&s->arrived, i);
	sim_pool_put(&s->arrived, i);
	return true;
}

int sim_post(struct sim *s, uint32_t rank, uint32_t op, uint32_t from)
{
	struct sim_rank *r = sim_rank_of(s, rank);
	uint32_t i = sim_pool_get(&s->posted);

	if (!i)
		return -ENOMEM;
	*(struct sim_posted *)sim_pool_at(&s->posted, i) =
		(struct sim_posted){ .op = op, .seq = r->made++, .from = from };
	return add(s, &r->posted, &s->posted, posted_key, rank, i);
}

int sim_arrive(struct sim *s, uint32_t rank, const struct sim_arrived *message)
{
	struct sim_rank *r = sim_rank_of(s, rank);
	uint32_t i = sim_pool_get(&s->arrived);
	struct sim_arrived *a;

	if (!i)
		return -ENOMEM;
	a = sim_pool_at(&s->arrived, i);
	*a = *message;
	a->seq = r->made++;
	s->stats.unexpected++;
	if (r->arrived.count + 1 > s->stats.unexpected_most) {
		s->stats.unexpected_most = r->arrived.count + 1;
		s->stats.unexpected_rank = rank;
	}
	return add(s, &r->arrived, &s->arrived, arrived_key, rank, i);
}

void sim_list_each(const struct sim *s, const struct sim_list *l, const struct sim_pool *pool,
		   void (*visit)(void *ctx, uint32_t index), void *ctx)
{
	const struct sim_bins *b = l->bins ? s->bins[l->bins] : NULL;
	uint32_t lists = b ? b->mask + 2 : 1;

	for (uint32_t k = 0; k < lists; k++)
		for (uint32_t i = b ? b->bin[k].head : l->head; i; i = *next_of(pool, i))
			visit(ctx, i);
}
