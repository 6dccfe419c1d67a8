/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: layout of the ranks' areas, creation, leaving. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "goal/sched/private.h"

#define DESTROY_WAIT_NS 2000000000ull

/* ---- layout of an area ------------------------------------------------------------------- */

enum {
	PART_STATE,
	PART_PEERS,
	PART_ENDS,
	PART_RINGS,
	PART_STORES,
	PART_EAGERS,
	PART_DIRECTORY,
	PARTS
};

static uint64_t part_off(int size, int part)
{
	const uint64_t n = (uint64_t)size, bytes[PARTS] = {
		[PART_STATE] = sizeof(struct sched_state),
		[PART_PEERS] = n * sizeof(struct sched_peer),
		[PART_ENDS] = n * sizeof(struct sched_ends),
		[PART_RINGS] = n * SCHED_RING * sizeof(struct sched_slot),
		[PART_STORES] = n * SCHED_STORE * sizeof(struct sched_stored),
		[PART_EAGERS] = n * SCHED_EAGERS * sizeof(struct sched_eager),
		[PART_DIRECTORY] = SCHED_INSTS * sizeof(uint64_t),
	};
	uint64_t off = 0;

	for (int i = 0; i < part; i++)
		off += base_round_up(bytes[i], OS_PAGE);
	return off;
}

sched_ref area_ref(const struct sched_group *g, const void *p)
{
	return ref_of(0, (uint64_t)((const char *)p - g->mappings[0].base));
}

/* ---- creation ---------------------------------------------------------------------------- */

/* Returns: how many bytes of a rank's arena this process maps. */
static uint64_t mapped_bytes(const struct node_group *node, int rank)
{
	uint64_t lo = 0, hi = region_arena_bytes() / REGION_UNIT;

	if (node_map(node, rank, 0, hi * REGION_UNIT))
		return hi * REGION_UNIT;
	while (lo + 1 < hi) {
		uint64_t mid = (lo + hi) / 2;

		*(node_map(node, rank, 0, mid * REGION_UNIT) ? &lo : &hi) = mid;
	}
	return lo * REGION_UNIT;
}

static void set_driver(struct sched_group *g, int rank)
{
	struct sched_driver *d = &g->drivers[rank];
	char *area = node_area(g->node, rank);

	*d = (struct sched_driver){ .g = g, .rank = rank, .own = rank == g->rank };
	d->st = (struct sched_state *)area;
	d->peers = (struct sched_peer *)(area + part_off(g->size, PART_PEERS));
	d->ends = (struct sched_ends *)(area + part_off(g->size, PART_ENDS));
	d->rings = (struct sched_slot *)(area + part_off(g->size, PART_RINGS));
	d->stores = (struct sched_stored *)(area + part_off(g->size, PART_STORES));
	d->eagers = (struct sched_eager *)(area + part_off(g->size, PART_EAGERS));
	d->directory = (_Atomic uint64_t *)(area + part_off(g->size, PART_DIRECTORY));
}

static void group_free(struct sched_group *g)
{
	if (!g)
		return;
	for (int r = 0; r < g->size && g->drivers; r++)
		free(g->drivers[r].insts);
	for (struct sched_channel *c = g->channels, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	free(g->drivers);
	free(g->mappings);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

static struct sched_group *group_alloc(int rank, int size)
{
	struct sched_group *g = aligned_alloc(BASE_CACHE_LINE, sizeof *g);

	if (!g)
		return NULL;
	memset(g, 0, sizeof *g);
	g->rank = rank;
	g->size = size;
	pthread_mutex_init(&g->lock, NULL);
	g->mappings = calloc((size_t)size, sizeof *g->mappings);
	g->drivers = calloc((size_t)size, sizeof *g->drivers);
	if (g->mappings && g->drivers)
		return g;
	group_free(g);
	return NULL;
}

static int group_connect(struct sched_group *g)
{
	for (int r = 0; r < g->size; r++) {
		g->mappings[r].base = node_map(g->node, r, 0, 0);
		g->mappings[r].bytes = mapped_bytes(g->node, r);
		set_driver(g, r);
	}
	g->trouble = &g->drivers[0].st->trouble;
	g->watcher = &g->drivers[0].st->watcher;
	g->detached = &g->drivers[0].st->detached;
	g->watched_ns = &g->drivers[0].st->watched_ns;
	g->covered_ns = &g->drivers[0].st->covered_ns;
	g->use_vm = base_opt.region_kind != BASE_REGION_STAGED;
	g->keep_times = base_opt.goal_profile[0];
	g->pool = pool_create();
	g->drivers[g->rank].insts = calloc(SCHED_INSTS, sizeof *g->drivers[0].insts);
	return g->pool && g->drivers[g->rank].insts ? 0 : -ENOMEM;
}

int sched_group_create(const struct node_oob *oob, struct sched_group **out)
{
	struct sched_group *g;
	int64_t all_ok = 0;
	int ret, err;

	*out = NULL;
	if (oob->size < 1 || oob->rank < 0 || oob->rank >= oob->size)
		return -EINVAL;
	g = group_alloc(oob->rank, oob->size);
	if (!g)
		return -ENOMEM;
	ret = node_group_create(oob, part_off(oob->size, PARTS), &g->node);
	if (ret || !g->node) {
		group_free(g);
		return ret;
	}
	err = group_connect(g);
	ret = oob->allreduce_min(oob->ctx, err, &all_ok);
	if (!ret && !all_ok) {
		hook_add(g);
		*out = g;
		return 0;
	}
	pool_destroy(g->pool);
	node_group_destroy(g->node);
	group_free(g);
	return ret ? ret : (int)all_ok;
}

int sched_rank(const struct sched_group *g) { return g->rank; }
int sched_size(const struct sched_group *g) { return g->size; }
void sched_keep_times(struct sched_group *g, bool keep) { g->keep_times = keep; }

/* ---- leaving ----------------------------------------------------------------------------- */

/* Peers may still read this rank's arena. Returns: true when every peer has left or died. */
static bool wait_for_all(struct sched_group *g)
{
	uint64_t give_up = os_now_ns() + DESTROY_WAIT_NS;

	for (int r = 0; r < g->size; r++) {
		struct sched_state *st = g->drivers[r].st;

		while (!atomic_load_explicit(&st->departed, memory_order_acquire) &&
		       !node_is_dead(g->node, r)) {
			if (os_now_ns() > give_up)
				return false;
			sched_yield();
		}
	}
	return true;
}

void sched_group_destroy(struct sched_group *g)
{
	struct sched_inst *s;

	if (!g)
		return;
	hook_remove(g);
	thread_stop(g);
	while ((s = g->instances) != NULL) {
		if (sched_close(s) == -EBUSY) {
			sched_cancel(s);
			sched_test(s);
			sched_close(s);
		}
	}
	profile_write(g);
	atomic_store_explicit(&g->drivers[g->rank].st->departed, 1,
			      memory_order_release); /* partner: wait_for_all */
	atomic_fetch_add_explicit(g->trouble, 1, memory_order_release);
	for (int r = 0; r < g->size; r++)
		if (r != g->rank)
			node_wake(g->node, r);
	if (wait_for_all(g))
		pool_destroy(g->pool);
	else
		base_log(BASE_LOG_WARN, "sched",
			 "rank %d destroys a group that peers still use: its memory stays mapped",
			 g->rank);
	while ((s = g->zombies) != NULL) {
		g->zombies = s->next;
		inst_free(s);
	}
	for (int r = 0; r < g->size; r++)
		for (uint32_t k = 0; r != g->rank && g->drivers[r].insts && k < SCHED_INSTS; k++)
			inst_free(atomic_load_explicit(&g->drivers[r].insts[k],
						       memory_order_relaxed));
	node_group_destroy(g->node);
	group_free(g);
}

/* ---- memory ------------------------------------------------------------------------------ */

void *sched_alloc(struct sched_group *g, uint64_t bytes)
{
	void *p = pool_get(g->pool, bytes);

	if (!p)
		errno = ENOMEM;
	return p;
}

void sched_free(struct sched_group *g, void *p) { pool_put(g->pool, p); }
