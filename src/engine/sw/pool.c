/* SPDX-License-Identifier: BSD-3-Clause */
/* The worker threads. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "engine/sw/sw.h"

enum {
	/* time to poll for work before sleeping: less than a wake-up costs the poster */
	SEEK_NS = 20000,
	POLLS_PER_CLOCK = 32,
	/* no copy has ended for this time, several times the duration of one: a worker is
	 * displaced */
	DISPLACED_NS = 60000,
	NONTEMPORAL_MIN = 64 << 10,
	NEW_WAIT_NS =
		3000000, /* no thread has polled for this time: the caller has just begun to wait */
};

struct worker {
	BASE_ALIGNED_LINE struct engine_thread thread;
	unsigned id;
	unsigned served; /* the channel of the last copy */
	_Atomic uint32_t busy; /* 1 + the channel of the present copy; 0: none */
};

static struct {
	struct worker workers[SW_WORKERS];
	struct sw_sleep sleep;
	_Atomic uint32_t size;  /* worker threads that run */
	_Atomic bool stopping;
	struct os_cpumask cpus; /* of all worker threads */
} pool;

struct sw_chan sw_chans[SW_CHANNELS];
_Atomic uint64_t sw_open;

/* The done() that this thread executes. Initial-exec, so that the first access, perhaps in a signal
 * handler, allocates nothing. */
static _Thread_local struct {
	struct sw_chan *chan; /* NULL: no done() is running here, or it has retired its channel */
	bool is_worker;
} inside __attribute__((tls_model("initial-exec")));

/* ---- one copy ---------------------------------------------------------------------------- */

/* The caller counts in `running`. */
static void give_back(struct sw_chan *ch, struct engine_copy *c, int slot, int result)
{
	struct sw_chan *outer = inside.chan;

	sw_queue_release(&ch->queue, slot); /* done() may post the next copy into a full channel */
	inside.chan = ch;
	c->done(c, result);
	os_lend_end(&ch->lend);
	if (inside.chan)
		sw_pool_exit(ch);
	inside.chan = outer;
}

static void execute(struct sw_chan *ch, struct engine_copy *c, int slot)
{
	enum base_copy_kernel kernel;
	size_t bytes = c->bytes;

	/* Before the slot is released, which publishes it: sw.c waits for the slots, then for
	 * `running`. */
	atomic_fetch_add_explicit(&ch->running, 1, memory_order_relaxed);
	kernel = os_copy_pick(bytes, base_max_u64(bytes, c->total_bytes));
	/* the reader runs on another core */
	if (base_opt.xfer_copy == BASE_COPY_AUTO && bytes >= NONTEMPORAL_MIN &&
	    os_copy_has(BASE_COPY_NONTEMPORAL))
		kernel = BASE_COPY_NONTEMPORAL;
	os_copy(c->dst, c->src, bytes, kernel);
	give_back(ch, c, slot, 0);
}

void sw_pool_cancel(struct sw_chan *ch, const void *from, size_t bytes)
{
	struct engine_copy *c;
	int slot;

	while ((c = sw_queue_claim_in(&ch->queue, from, bytes, &slot))) {
		/* before the slot is released, as in execute() */
		atomic_fetch_add_explicit(&ch->running, 1, memory_order_relaxed);
		give_back(ch, c, slot, -ECANCELED);
	}
}

void sw_pool_exit(struct sw_chan *ch)
{
	if (inside.chan != ch)
		return;
	inside.chan = NULL;
	/* release: the work of done(), whose data the owner may free at 0; partner:
	 * sw_queue_cancel */
	atomic_fetch_sub_explicit(&ch->running, 1, memory_order_release);
}

/* ---- waiting for a worker ---------------------------------------------------------------- */

/* Binds the workers that are busy with ch, or all workers (NULL), to these CPUs. */
static void move_workers(const struct sw_chan *ch, const struct os_cpumask *cpus)
{
	uint32_t me = ch ? 1 + (uint32_t)(ch - sw_chans) : 0;

	for (int i = 0; i < sw_pool_size(); i++) {
		struct worker *w = &pool.workers[i];

		if (!ch || atomic_load_explicit(&w->busy, memory_order_relaxed) == me)
			os_cpumask_apply(w->thread.tid, cpus);
	}
}

static void place_workers(void *arg, const struct os_cpumask *cpus)
{
	move_workers(cpus ? arg : NULL, cpus ? cpus : &pool.cpus);
}

/* Returns: true when a copy of ch runs and none has ended for DISPLACED_NS. */
static bool is_displaced(struct sw_chan *ch, uint32_t ended)
{
	uint64_t now, checked;

	if (!atomic_load_explicit(&ch->running, memory_order_relaxed))
		return false;
	now = os_now_ns();
	checked = atomic_exchange_explicit(&ch->checked_ns, now, memory_order_relaxed);
	if (atomic_load_explicit(&ch->known_ended, memory_order_relaxed) != ended ||
	    now - checked > NEW_WAIT_NS) {
		atomic_store_explicit(&ch->known_ns, now, memory_order_relaxed);
		atomic_store_explicit(&ch->known_ended, ended, memory_order_relaxed);
		return false;
	}
	return now - atomic_load_explicit(&ch->known_ns, memory_order_relaxed) >= DISPLACED_NS;
}

bool sw_pool_help(struct sw_chan *ch)
{
	int slot;
	struct engine_copy *c;
	uint32_t ended;

	if (inside.chan) /* no nesting: the stack is small */
		return false;
	c = sw_queue_claim(&ch->queue, &slot);
	if (c) {
		execute(ch, c, slot);
		return true;
	}
	ended = atomic_load_explicit(&ch->lend.ended, memory_order_acquire);
	return is_displaced(ch, ended) && os_lend_cpu(&ch->lend, ended, place_workers, ch);
}

/* ---- workers ----------------------------------------------------------------------------- */

static bool any_ready(void)
{
	uint64_t remaining = atomic_load_explicit(&sw_open, memory_order_acquire);

	for (; remaining; remaining &= remaining - 1)
		if (sw_queue_is_ready(&sw_chans[__builtin_ctzll(remaining)].queue))
			return true;
	return false;
}

static void serve(struct worker *w, struct sw_chan *ch, struct engine_copy *c, int slot)
{
	sw_sleep_found(&pool.sleep);
	if (any_ready())
		sw_sleep_wake(&pool.sleep, (w->id + 1) % SW_WORKERS);
	atomic_store_explicit(&w->busy, 1 + (uint32_t)(ch - sw_chans), memory_order_relaxed);
	execute(ch, c, slot);
	atomic_store_explicit(&w->busy, 0, memory_order_relaxed);
	sw_sleep_seek(&pool.sleep);
}

/* Executes one copy of these channels: of the worker's own channels, or of the others. */
static bool work_on(struct worker *w, uint64_t chans, bool own)
{
	for (; chans; chans &= chans - 1) {
		unsigned i = (unsigned)__builtin_ctzll(chans);
		struct sw_chan *ch = &sw_chans[i];
		struct engine_copy *c;
		int slot;

		if ((ch->home == w->id) != own)
			continue;
		c = sw_queue_claim(&ch->queue, &slot);
		if (!c)
			continue;
		w->served = i;
		serve(w, ch, c, slot);
		return true;
	}
	return false;
}

/* Executes one copy: of an own channel, else a stolen one; starts after the channel served last. */
static bool work_once(struct worker *w)
{
	uint64_t open = atomic_load_explicit(&sw_open, memory_order_acquire);
	uint64_t behind = open & ~(((uint64_t)2 << w->served) - 1);

	return work_on(w, behind, true) || work_on(w, open & ~behind, true) ||
	       work_on(w, behind, false) || work_on(w, open & ~behind, false);
}

/* Polls for work for SEEK_NS. Returns: true when it executed a copy. */
static bool seek(struct worker *w)
{
	uint64_t until = 0;

	for (unsigned looks = 0;; looks++) {
		if (work_once(w))
			return true;
		if (atomic_load_explicit(&pool.stopping, memory_order_relaxed))
			return false;
		if (looks % POLLS_PER_CLOCK == 0) {
			uint64_t now = os_now_ns();

			if (!until)
				until = now + SEEK_NS;
			if (now >= until)
				return false;
		}
		os_cpu_relax();
	}
}

static void worker_main(void *arg)
{
	struct worker *w = arg;

	inside.is_worker = true;
	sw_sleep_seek(&pool.sleep);
	for (;;) {
		while (seek(w))
			;
		sw_sleep_begin(&pool.sleep, w->id);
		if (any_ready() || atomic_load_explicit(&pool.stopping, memory_order_relaxed))
			sw_sleep_undo(&pool.sleep, w->id);
		else
			sw_sleep_wait(&pool.sleep, w->id);
		if (atomic_load_explicit(&pool.stopping, memory_order_relaxed) && !any_ready())
			break;
	}
	sw_sleep_found(&pool.sleep);
}

void sw_pool_flush(struct sw_chan *ch)
{
	/* a worker inside done() polls afterwards, and wakes another if there is more */
	if (!inside.is_worker && sw_queue_is_ready(&ch->queue))
		sw_sleep_wake(&pool.sleep, ch->home);
}

/* ---- the pool ---------------------------------------------------------------------------- */

int sw_pool_size(void) { return (int)atomic_load_explicit(&pool.size, memory_order_relaxed); }

void sw_pool_stop(void)
{
	int size = sw_pool_size();
	struct os_cpumask here;

	atomic_store_explicit(&pool.stopping, true, memory_order_relaxed);
	/* this thread waits for them: lend them its CPU, as in os_lend_cpu() */
	if (os_cpumask_here(&here)) {
		pool.cpus = here;
		move_workers(NULL, &pool.cpus);
	}
	for (int i = 0; i < size; i++)
		sw_sleep_rouse(&pool.sleep, (unsigned)i);
	for (int i = 0; i < size; i++)
		pthread_join(pool.workers[i].thread.handle, NULL);
	sw_pool_forget();
}

void sw_pool_forget(void) { memset(&pool, 0, sizeof(pool)); }

int sw_pool_start(int node, int workers)
{
	struct os_cpumask cpus;

	if (workers > SW_WORKERS)
		workers = SW_WORKERS;
	if (!engine_worker_cpus(node, &cpus) || workers < 1)
		return -ENODEV;
	pool.cpus = cpus;
	for (int i = 0; i < workers; i++) {
		struct worker *w = &pool.workers[i];
		int rc;

		w->id = (unsigned)i;
		rc = engine_thread_create("sluice-sw", &cpus, worker_main, w, &w->thread);
		/* fewer workers are enough, none is not */
		if (rc && !i)
			return rc;
		if (rc)
			break;
		atomic_store_explicit(&pool.size, (uint32_t)i + 1, memory_order_relaxed);
	}
	return 0;
}
