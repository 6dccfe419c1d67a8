/* SPDX-License-Identifier: BSD-3-Clause */
/* Making a node group: hello, exchange of arenas, probe, agreement. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "node/private.h"
#include "os/endpoint.h"

#define SPIN_NS 50000u /* of a wait that is not polite */
#define YIELD_NS 1000000000u /* from then on it costs less than the host MPI's own spinning */
#define YIELD_SHARED_NS 2000000u /* of a polite wait, where a yield reaches the other ranks */
#define PROBE_BYTES (16u << 10) /* a page of shared memory takes 2 to 5 us */
/* each buffer is used once, as its bytes must lie in the writer's cache, as a root's do */
#define PROBE_COPIES 4
#define NEW_PS_MAX 20000u /* no machine takes 80 us for a page */
#define REACH_READ 1u
#define REACH_WRITE 2u

/* vm_ps << 32 | copy_ps as this process has measured them once, as rank 1 of a group; or 0. */
static _Atomic uint64_t probed_rates;

/* Set after a failed exchange: some peers may know this rank and others not, so it joins no
 * group. */
static _Atomic int exchange_broken;

void group_layout(struct node_group *g, uint64_t area_bytes)
{
	uint64_t n = (uint64_t)g->size;

	g->area_off = base_round_up(n * sizeof(struct node_rank) + n * n, OS_PAGE);
	g->area_bytes = base_round_up(area_bytes, OS_PAGE);
	g->control_bytes = g->area_off + n * g->area_bytes;
}

static void make_hello(struct node_group *g, struct exchange *x, struct node_hello *h)
{
	int err = region_init();
	const struct node_header *own = node_header_self();

	memset(h, 0, sizeof *h);
	h->version = NODE_VERSION;
	h->pid = getpid();
	h->uid = geteuid();
	h->session = getsid(0);
	h->node_id = os_node_id();
	h->start = own && own->pid == h->pid ? own->start : os_process_start(h->pid);
	h->options_hash = base_options_hash();
	os_cpumask_self(&h->cpus);
	h->memory_node = os_numa_node_of(&h->cpus);
	h->has_rates = atomic_load_explicit(&probed_rates, memory_order_relaxed) != 0;
	h->arena_id = node_arena_id();
	x->fd = -1;
	if (!err && atomic_load(&exchange_broken))
		err = -EPROTO;
	if (!err)
		err = exchange_listen(x);
	if (!err && g->rank == 0) {
		err = region_extent_get(g->control_bytes, true, &g->extent);
		h->control_off = g->extent.offset;
	}
	h->error = err;
	h->arena_bytes = region_arena_bytes();
	h->socket_id = x->id;
}

/* A function of what all ranks have, so all ranks get the same result. */
static const char *refusal(const struct node_hello *all, int size)
{
	for (int r = 0; r < size; r++) {
		if (all[r].version != NODE_VERSION)
			return "ranks run different versions of Sluice";
		if (all[r].error)
			return "a rank cannot share memory";
		if (all[r].node_id != all[0].node_id)
			return "ranks are on several nodes or in separate containers";
		if (all[r].options_hash != all[0].options_hash)
			return "ranks have different SLUICE_ options";
		if (all[r].uid != all[0].uid)
			return "ranks belong to different users";
		for (int q = 0; q < r; q++)
			if (all[q].pid == all[r].pid)
				return "two ranks are one process";
	}
	return NULL;
}

static bool is_one_session(const struct node_hello *all, int size)
{
	for (int r = 1; r < size; r++)
		if (all[r].session != all[0].session)
			return false;
	return true;
}

static void set_waiting(struct node_group *g, const struct node_hello *all)
{
	struct os_cpumask cpus = all[0].cpus;
	bool is_polite;

	for (int r = 1; r < g->size; r++)
		os_cpumask_or(&cpus, &all[r].cpus);
	g->cpus = cpus;
	g->oversubscribed = os_cpumask_count(&cpus) < g->size;
	is_polite = base_opt.wait == BASE_WAIT_AUTO ? g->oversubscribed
						    : base_opt.wait == BASE_WAIT_POLITE;
	is_polite |= endpoint_self != NULL;
	g->spin_ns = is_polite ? 0 : SPIN_NS;
	if (base_opt.node_spin_us >= 0)
		g->spin_ns = (uint32_t)base_opt.node_spin_us * 1000;
	g->yield_ns = is_polite ? YIELD_SHARED_NS : YIELD_NS;
	g->is_one_session = !is_polite || endpoint_self || is_one_session(all, g->size);
	if (base_fault("nap"))
		g->yield_ns = 0;
}

/* ---- probe: can the ranks reach each other's memory? --------------------------------------- */

/* The bytes stay zeros, but lie in this CPU's cache then. The least time counts: a rank may lose
 * its CPU meanwhile. */
static void touch_copies(struct node_group *g)
{
	uint64_t begin_ns = os_now_ns(), least_ns = UINT64_MAX;

	for (int i = 0; i < PROBE_COPIES; i++) {
		uint64_t now_ns;

		memset((char *)node_area(g, 0) + i * PROBE_BYTES, 0, PROBE_BYTES);
		now_ns = os_now_ns();
		least_ns = base_min_u64(least_ns, now_ns - begin_ns);
		begin_ns = now_ns;
	}
	g->ranks[0].rates.new_ps =
		(uint32_t)base_min_u64(least_ns * 1000 / PROBE_BYTES, NEW_PS_MAX);
}

static void probe_prepare(struct node_group *g, const struct node_hello *all)
{
	struct node_rank *me = &g->ranks[g->rank];

	me->probe_value = node_arena_id();
	me->probe_addr = (uintptr_t)&me->probe_value;
	me->area_addr = (uintptr_t)node_area(g, g->rank);
	me->process_word_off = process_word();
	if (g->rank == 0 && g->size > 1 && !all[1].has_rates &&
	    g->area_bytes >= PROBE_COPIES * PROBE_BYTES)
		touch_copies(g);
}

static uint8_t probe_peer(struct node_group *g, int r)
{
	const struct node_rank *peer = &g->ranks[r];
	struct iovec remote = { (void *)(uintptr_t)peer->probe_addr, sizeof(uint64_t) };
	uint64_t value = 0;
	struct iovec local = { &value, sizeof value };
	uint8_t reach = 0;

	if (!base_fault("vm_readv") &&
	    process_vm_readv(g->places[r].pid, &local, 1, &remote, 1, 0) == sizeof value &&
	    value == peer->probe_value)
		reach |= REACH_READ;
	/* writes the value that stands there, so that all peers may try at once */
	value = peer->probe_value;
	if (!base_fault("vm_writev") &&
	    process_vm_writev(g->places[r].pid, &local, 1, &remote, 1, 0) == sizeof value)
		reach |= REACH_WRITE;
	return reach;
}

/* Measures the two ways to read memory that is not mapped: rank 1 reads from rank 0. Returns: as
 * probed_rates; 0: no memory for it. */
static uint64_t probe_rates(struct node_group *g)
{
	char *buf = g->area_bytes >= PROBE_COPIES * PROBE_BYTES ? malloc(PROBE_BYTES) : NULL;
	uint64_t vm = UINT32_MAX, copy = UINT32_MAX;

	if (!buf)
		return 0;
	memset(buf, 1, PROBE_BYTES);
	for (uint64_t off = 0; off < PROBE_COPIES * PROBE_BYTES; off += 2 * PROBE_BYTES) {
		uint64_t t0 = os_now_ns(), t1;
		int err = node_vm_read(g, 0, buf, g->ranks[0].area_addr + off, PROBE_BYTES);

		t1 = os_now_ns();
		if (err)
			vm = 0;
		vm = base_min_u64(vm, t1 - t0);
		memcpy(buf, (char *)node_area(g, 0) + off + PROBE_BYTES, PROBE_BYTES);
		__asm__ volatile("" : : "r"(buf) : "memory"); /* keep the copy */
		copy = base_min_u64(copy, os_now_ns() - t1);
	}
	free(buf);
	vm = base_min_u64(vm * 1000 / PROBE_BYTES, UINT32_MAX);
	copy = base_min_u64(copy * 1000 / PROBE_BYTES, UINT32_MAX);
	base_log(BASE_LOG_DEBUG, "node", "%u ps a byte by process_vm_readv, %u by memcpy",
		 (uint32_t)vm, (uint32_t)copy);
	return vm << 32 | copy;
}

/* A process measures once: the memory for it costs more than all else of a connection. */
static void probe_rates_once(struct node_group *g, bool has_rates)
{
	uint64_t rates = has_rates ? atomic_load_explicit(&probed_rates, memory_order_relaxed)
				   : probe_rates(g);

	g->ranks[1].rates.vm_ps = (uint32_t)(rates >> 32);
	g->ranks[1].rates.copy_ps = (uint32_t)rates;
	if (rates >> 32) /* else the kernel refused a read */
		atomic_store_explicit(&probed_rates, rates, memory_order_relaxed);
}

/* Returns: 0 when every peer's control data can be read through its mapping. */
static int probe_run(struct node_group *g, const struct node_hello *all)
{
	for (int r = 0; r < g->size; r++) {
		if (r == g->rank)
			continue;
		if (g->ranks[r].probe_value != all[r].arena_id)
			return -EPROTO;
		g->reach[g->rank * g->size + r] = probe_peer(g, r);
	}
	if (g->rank == 1 && node_can_read(g, 1, 0))
		probe_rates_once(g, all[1].has_rates);
	return 0;
}

/* ---- creation ---------------------------------------------------------------------------- */

/* Control segments whose group this process, as rank 0, destroyed before others did: a peer may
 * still write to its part, so the pages must not be reused yet. */
struct parked {
	struct region_extent extent;
	struct node_rank *ranks;
	int size;
	struct parked *next;
};
static struct parked *parked_list;
static pthread_mutex_t parked_lock = PTHREAD_MUTEX_INITIALIZER;

static bool all_destroyed(struct node_rank *ranks, int size)
{
	return atomic_load_explicit(&ranks[0].destroyed, memory_order_acquire) == (uint32_t)size;
}

static void parked_sweep(void)
{
	pthread_mutex_lock(&parked_lock);
	for (struct parked **link = &parked_list, *p; (p = *link) != NULL;) {
		if (!all_destroyed(p->ranks, p->size)) {
			link = &p->next;
			continue;
		}
		*link = p->next;
		region_extent_put(&p->extent);
		free(p);
	}
	pthread_mutex_unlock(&parked_lock);
}

static void release_control(struct node_group *g)
{
	struct parked *p;

	if (g->ranks) { /* this rank's last access to the segment */
		atomic_fetch_add_explicit(&g->ranks[0].destroyed, 1, memory_order_acq_rel);
		os_peer_memory_done();
	}
	if (!g->extent.bytes)
		return;
	if (!g->ranks || all_destroyed(g->ranks, g->size)) {
		region_extent_put(&g->extent);
		return;
	}
	p = malloc(sizeof *p);
	if (!p)
		return; /* costs 2 MiB of address space, no memory */
	*p = (struct parked){ g->extent, g->ranks, g->size, NULL };
	pthread_mutex_lock(&parked_lock);
	p->next = parked_list;
	parked_list = p;
	pthread_mutex_unlock(&parked_lock);
}

void node_group_destroy(struct node_group *g)
{
	if (!g)
		return;
	release_control(g);
	group_drop(g);
}

struct node_group *group_alloc(int rank, int size)
{
	struct node_group *g = calloc(1, sizeof *g);

	if (!g)
		return NULL;
	g->rank = rank;
	g->size = size;
	g->peers = calloc((size_t)size, sizeof *g->peers);
	g->places = calloc((size_t)size, sizeof *g->places);
	if (g->peers && g->places)
		return g;
	group_drop(g);
	return NULL;
}

void group_drop(struct node_group *g)
{
	for (int r = 0; r < g->size && g->peers; r++)
		if (g->peers[r])
			peer_put(g->peers[r]);
	free(g->peers);
	free(g->places);
	free(g);
}

void group_set_control(struct node_group *g, char *control)
{
	g->control = control;
	g->ranks = (struct node_rank *)g->control;
	g->reach = (uint8_t *)(g->ranks + g->size);
}

static int group_connect(struct node_group *g, struct exchange *x, const struct node_hello *all)
{
	int ret;

	if (g->rank == 0) /* others may reach the segment from now on, whatever fails here */
		group_set_control(g, (char *)region_arena_base() + all[0].control_off);
	ret = exchange_run(x, all, g->rank, g->size, g->peers);
	if (ret) {
		atomic_store(&exchange_broken, 1);
		return ret;
	}
	for (int r = 0; r < g->size; r++) {
		const struct node_peer *p = g->peers[r];

		g->places[r] =
			(struct node_place){ .pid = all[r].pid,
					     .memory_node = all[r].memory_node,
					     .arena = p ? p->base : region_arena_base(),
					     .arena_bytes = p ? p->bytes : region_arena_bytes(),
					     .shares_memory = endpoint_is_peer(all[r].pid) };
	}
	if (all[0].control_off + g->control_bytes > all[0].arena_bytes)
		return -EPROTO;
	group_set_control(g, g->places[0].arena + all[0].control_off);
	set_waiting(g, all);
	probe_prepare(g, all);
	return 0;
}

/* Collective: a rank that has failed takes part all the same. */
static int agree(const struct node_oob *oob, int local, int *out_all)
{
	int64_t min;
	int ret = oob->allreduce_min(oob->ctx, local, &min);

	*out_all = (int)min;
	return ret;
}

static char last_refusal[160];
static int last_error;

const char *node_refusal(void) { return last_refusal; }

int node_refusal_error(void) { return last_error; }

int node_group_create(const struct node_oob *oob, uint64_t area_bytes, struct node_group **out)
{
	struct node_group *g = base_fault("group") ? NULL : group_alloc(oob->rank, oob->size);
	struct node_hello mine = { 0 }, *all = calloc((size_t)oob->size, sizeof *all);
	struct exchange x = { .fd = -1 };
	const char *why = NULL;
	int ret, err = 0;

	*out = NULL;
	parked_sweep();
	ret = agree(oob, g && all ? 0 : -ENOMEM, &err);
	if (ret || err) {
		free(all);
		node_group_destroy(g);
		last_error = -ENOMEM;
		snprintf(last_refusal, sizeof last_refusal, "a rank is out of memory");
		base_count(BASE_CTR_GROUPS_REFUSED, !ret);
		base_log(BASE_LOG_INFO, "node", "communicator of %d ranks goes to the host MPI: %s",
			 oob->size, last_refusal);
		return ret;
	}
	group_layout(g, area_bytes);
	make_hello(g, &x, &mine);
	ret = oob->allgather(oob->ctx, &mine, sizeof mine, all);
	if (ret)
		goto out;
	why = refusal(all, g->size);
	if (why)
		goto out;
	ret = agree(oob, group_connect(g, &x, all), &err);
	if (ret || err)
		goto out;
	ret = agree(oob, probe_run(g, all), &err);
	g->id = (uint32_t)(all[0].socket_id >> 32 ^ all[0].socket_id) | 1;
out:
	exchange_close(&x);
	free(all);
	if (!ret && !why && !err) {
		*out = g;
		base_count(BASE_CTR_GROUPS, 1);
		return 0;
	}
	if (!ret) {
		base_count(BASE_CTR_GROUPS_REFUSED, 1);
		if (mine.error && region_init_error()[0])
			why = region_init_error();
		last_error = why ? 0 : err;
		snprintf(last_refusal, sizeof(last_refusal), "%s%s%s", why ? why : strerror(-err),
			 mine.error && why != region_init_error() ? ": " : "",
			 mine.error && why != region_init_error() ? strerror(-mine.error) : "");
		base_log(BASE_LOG_INFO, "node", "communicator of %d ranks goes to the host MPI: %s",
			 g->size, last_refusal);
	}
	node_group_destroy(g);
	return ret;
}

/* ---- accessors --------------------------------------------------------------------------- */

uint32_t node_id(const struct node_group *g) { return g->id; }
int node_rank(const struct node_group *g) { return g->rank; }
int node_size(const struct node_group *g) { return g->size; }
int node_pid(const struct node_group *g, int rank) { return g->places[rank].pid; }
int node_memory_node(const struct node_group *g, int rank) { return g->places[rank].memory_node; }
bool node_is_oversubscribed(const struct node_group *g) { return g->oversubscribed; }

void *node_area(const struct node_group *g, int rank)
{
	return g->control + g->area_off + (uint64_t)rank * g->area_bytes;
}

bool node_can_read(const struct node_group *g, int reader, int owner)
{
	return g->reach[reader * g->size + owner] & REACH_READ;
}

bool node_can_write(const struct node_group *g, int writer, int owner)
{
	return g->reach[writer * g->size + owner] & REACH_WRITE;
}

void node_cpus(const struct node_group *g, struct os_cpumask *out) { *out = g->cpus; }

struct node_rates node_probe_rates(const struct node_group *g)
{
	struct node_rates rates = g->ranks[1].rates;

	rates.new_ps = g->ranks[0].rates.new_ps;
	return rates;
}

uint64_t node_arena_bytes(const struct node_group *g)
{
	uint64_t least = UINT64_MAX;

	for (int r = 0; r < g->size; r++)
		least = base_min_u64(least, g->places[r].arena_bytes);
	return least;
}

void *node_map(const struct node_group *g, int rank, uint64_t off, uint64_t bytes)
{
	const struct node_place *p = &g->places[rank];

	return off > p->arena_bytes || bytes > p->arena_bytes - off ? NULL : p->arena + off;
}

void node_premap(const struct node_group *g, int rank, uint32_t id, void *addr, uint64_t bytes)
{
	struct node_peer *p = rank == g->rank ? NULL : g->peers[rank];
	uint32_t *slot = p && id ? &p->premapped[id % NODE_PREMAP_SLOTS] : NULL;

	if (!slot || __atomic_load_n(slot, __ATOMIC_RELAXED) == id)
		return;
	__atomic_store_n(slot, id, __ATOMIC_RELAXED);
	os_populate(addr, bytes);
}

/* ---- a peer's private memory, by system call; of an image, directly ----------------------- */

static int vm_copy(const struct node_place *p, char *mine, char *theirs, uint64_t bytes, bool write)
{
	int pid = p->pid;

	if (base_fault("vm_copy")) /* refused although the probe worked */
		return -EPERM;
	/* of a rank that has ended the kernel says so */
	if (p->shares_memory && endpoint_is_peer(pid)) {
		os_copy(write ? theirs : mine, write ? mine : theirs, bytes,
			os_copy_pick(bytes, bytes));
		return 0;
	}
	while (bytes) {
		struct iovec local = { mine, bytes }, remote = { theirs, bytes };
		ssize_t n = write ? process_vm_writev(pid, &local, 1, &remote, 1, 0)
				  : process_vm_readv(pid, &local, 1, &remote, 1, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 && errno == ESRCH ? -EOWNERDEAD : n < 0 ? -errno : -EFAULT;
		mine += n;
		theirs += n;
		bytes -= (uint64_t)n;
	}
	return 0;
}

int node_vm_read(const struct node_group *g, int owner, void *dst, uint64_t src_addr,
		 uint64_t bytes)
{
	return vm_copy(&g->places[owner], dst, (char *)(uintptr_t)src_addr, bytes, false);
}

int node_vm_write(const struct node_group *g, int owner, uint64_t dst_addr, const void *src,
		  uint64_t bytes)
{
	return vm_copy(&g->places[owner], (char *)(uintptr_t)src, (char *)(uintptr_t)dst_addr,
		       bytes, true);
}
