/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads that copy. */
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/private.h"

#define DUE_NS 60000u         /* a copy that exceeds its expected time by this much is displaced */
#define SLOW_BYTES_PER_NS 4   /* every machine copies faster */
#define STOP_NS 200000000u

static struct {
	struct worker_page *page;
	_Atomic(struct exec_comm *) comm[WORKER_GROUPS];
	_Atomic uint32_t made[WORKER_GROUPS]; /* groups that have had the number so far */
	_Atomic uint32_t claiming; /* spin lock: one thread claims at a time */
	_Atomic bool stop;
} serve;

/* One announcement in service. */
struct mover {
	struct worker_thread *thread;
	uint32_t client;
	bool has_shared;
};

/* ---- callbacks of exec --------------------------------------------------------------------- */

/* Yields, because the holder runs at idle priority and may be displaced. */
static void claim_lock(void *arg)
{
	while (atomic_exchange_explicit(&serve.claiming, 1,
					memory_order_acquire)) /* partner: claim_unlock */
		sched_yield();
}

static void claim_unlock(void *arg)
{
	atomic_store_explicit(&serve.claiming, 0, memory_order_release);
}

/* Wakes another thread if the first fragment of this thread, of `bytes` bytes, is long enough; the
 * others are mostly as long. Returns: true when it woke one. */
static bool share(uint64_t bytes)
{
	struct worker_announcements *b = &serve.page->announced;

	if (!progress_shares(os_copy_ns(bytes),
			     atomic_load_explicit(&b->seekers, memory_order_relaxed),
			     atomic_load_explicit(&b->sleepers, memory_order_relaxed)))
		return false;
	announce_wake(b);
	return true;
}

static void began(void *arg, uint64_t name, uint64_t bytes)
{
	struct mover *m = arg;

	atomic_store_explicit(&m->thread->due_ns,
			      os_now_ns() + DUE_NS + bytes / SLOW_BYTES_PER_NS,
			      memory_order_relaxed);
	atomic_store_explicit(&m->thread->claim, name,
			      memory_order_release); /* partner: worker_check */
	if (!m->has_shared)
		m->has_shared = share(bytes);
}

static void ended(void *arg, uint64_t bytes)
{
	struct mover *m = arg;

	atomic_store_explicit(&m->thread->claim, 0, memory_order_release);
	os_lend_end(&m->thread->lend);
	atomic_fetch_add_explicit(&serve.page->bytes[m->client], bytes, memory_order_relaxed);
}

/* ---- one announcement -------------------------------------------------------------------- */

/* The collective that this thread has served completely last: each rank may announce it. */
static _Thread_local uint64_t served_whole;

static void serve_one(struct worker_thread *t, uint64_t word)
{
	uint32_t group = (uint32_t)(word >> 24) & (WORKER_GROUPS - 1),
		 client = (uint32_t)(word >> 34) & (WORKER_CLIENTS - 1);
	struct mover mover = { .thread = t, .client = client };
	struct exec_mover m = {
		.group = group,
		.intent = &serve.page->intent,
		.arg = &mover,
		.lock = claim_lock,
		.unlock = claim_unlock,
		.began = began,
		.ended = ended,
		.stop = &serve.stop,
	};
	/* the numbers of collectives begin anew in the next group of this number */
	uint64_t of_all = announcement(
		atomic_load_explicit(&serve.made[group], memory_order_relaxed), group,
		word & XFER_TAG_MASK);
	struct exec_comm *e;

	if (of_all == served_whole)
		return;
	/* seq_cst, as the store in worker_group_close(): either that rank waits for this thread, or
	 * this thread sees the group closed */
	atomic_store_explicit(&t->in_group, group, memory_order_seq_cst);
	if (atomic_load_explicit(&serve.page->group[group].is_open, memory_order_seq_cst)) {
		e = atomic_load_explicit(&serve.comm[group],
					 memory_order_acquire); /* partner: serve_group */
		if (e && exec_serve(e, word & XFER_TAG_MASK, &m))
			served_whole = of_all;
	}
	atomic_store_explicit(&t->in_group, 0,
			      memory_order_release); /* partner: worker_group_close */
}

/* Serves the announcement at *at. */
static void serve_announced(struct worker_thread *t, uint32_t *at, uint64_t word)
{
	serve_one(t, word);
	/* last, as another thread may help meanwhile */
	announce_remove(&serve.page->announced, *at, word);
	*at = (*at + 1) % WORKER_ANNOUNCEMENTS; /* next the announcements of other ranks */
}

/* ---- threads ----------------------------------------------------------------------------- */

static void settle_in(struct worker_thread *t)
{
	struct sched_param none = { 0 };

	prctl(PR_SET_NAME, "sluice-worker");
	os_cpumask_apply(0, &serve.page->cpus);
	if (!serve.page->is_normal && sched_setscheduler(0, SCHED_IDLE, &none))
		setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
	atomic_store_explicit(&t->tid, (uint32_t)syscall(SYS_gettid), memory_order_release);
}

/* Polls, for poll_ns, and sleeps, as nothing is announced. Returns: how long the next poll may
 * last. */
static uint64_t poll_or_sleep(uint32_t known, uint64_t poll_ns)
{
	struct worker_announcements *b = &serve.page->announced;
	uint64_t since = os_now_ns();

	if (!poll_ns || !announce_poll(b, known, since + poll_ns))
		announce_sleep(b, known);
	return progress_poll_ns(poll_ns, os_now_ns() - since, serve.page->poll_max_ns);
}

static void *thread_main(void *arg)
{
	struct worker_thread *t = arg;
	struct worker_announcements *b = &serve.page->announced;
	bool polls = t == &serve.page->thread[0]; /* one polling thread is enough */
	uint64_t poll_ns = 0, word;
	uint32_t at = 0, known;

	settle_in(t);
	for (;;) {
		known = atomic_load_explicit(&b->count, memory_order_acquire);
		word = announce_peek(b, &at);
		if (word)
			serve_announced(t, &at, word);
		else
			poll_ns = poll_or_sleep(known, polls ? poll_ns : 0);
	}
	return NULL;
}

int serve_start(struct worker_page *page)
{
	pthread_t thread;

	serve.page = page;
	for (uint32_t i = 0; i < page->threads; i++) {
		int ret = pthread_create(&thread, NULL, thread_main, &page->thread[i]);

		if (ret && !i)
			return -ret; /* fewer threads are enough, none is not */
		if (ret)
			break;
		pthread_detach(thread);
	}
	return 0;
}

void serve_group(uint32_t i, struct exec_comm *e)
{
	atomic_fetch_add_explicit(&serve.made[i], e != NULL, memory_order_relaxed);
	atomic_store_explicit(&serve.comm[i], e, memory_order_release);
}

/* A worker without claims can exit at once, and nobody has to reclaim. */
static bool is_free(void)
{
	for (uint32_t i = 0; i < serve.page->threads; i++)
		if (atomic_load_explicit(&serve.page->thread[i].claim, memory_order_acquire))
			return false;
	return !atomic_load_explicit(&serve.page->intent, memory_order_acquire);
}

void serve_stop(void)
{
	uint64_t until = os_now_ns() + STOP_NS;

	atomic_store_explicit(&serve.stop, true, memory_order_relaxed);
	claim_lock(NULL); /* for ever: nobody claims any more */
	while (!is_free() && os_now_ns() < until)
		sched_yield();
}
