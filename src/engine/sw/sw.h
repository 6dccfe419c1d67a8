/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sw: copies by worker threads of this process.
 *
 *   context   the pool and the channels of a process, static
 *   pool      the worker threads; started with the first channel, ended with the last
 *   worker    a thread; takes from the queues of its own channels, then steals from others
 *   item      struct engine_copy, as posted
 *   queue     one per channel: SW_DEPTH slots and two words with their states (queue.c)
 *
 * Nothing here is ever freed, so a worker may read the queue of a channel that is being closed.
 */
#ifndef SLUICE_ENGINE_SW_H
#define SLUICE_ENGINE_SW_H

#include <errno.h>

#include "engine/private.h"

enum { SW_CHANNELS = 64, SW_WORKERS = 48, SW_DEPTH = 63 };

/* ---- queue.c ----------------------------------------------------------------------------- */
/*
 * A queue to which any thread posts and from which any thread takes, roughly in order of posting.
 * Lock-free: a thread that is stopped anywhere in a call, as idle workers often are, delays only
 * its own item. A slot goes
 *
 *   free --claim--> (poster's) --ready--> posted --take--> (taker's) --free--> free
 *
 * by one atomic operation on `free` or `ready` per step. A Chase-Lev deque does not fit: it has one
 * owner who pushes, but here items come from outside, often from a signal handler.
 */
struct sw_queue {
	BASE_ALIGNED_LINE _Atomic uint64_t free; /* bit i: slot i is free; or SW_QUEUE_CLOSED */
	_Atomic uint64_t ready; /* bit i: slot i holds a posted item */
	_Atomic uint32_t post_next, claim_next;   /* where the search begins; hints */
	_Atomic uintptr_t slots[SW_DEPTH];       /* struct engine_copy * */
};
#define SW_QUEUE_CLOSED ((uint64_t)1 << 63)
#define SW_QUEUE_SLOTS (((uint64_t)1 << SW_DEPTH) - 1)

void sw_queue_init(struct sw_queue *q, uint64_t slots); /* slots: mask of the slots to use */
/* Returns: 0, -EAGAIN (full) or -ESHUTDOWN (closed). Context: async-signal-safe. */
int sw_queue_post(struct sw_queue *q, struct engine_copy *c);
/* Returns: an item with its slot, which the taker owns until sw_queue_release(); or NULL. */
struct engine_copy *sw_queue_claim(struct sw_queue *q, int *out_slot);
/* As sw_queue_claim(), of an item in [from, from + bytes). Afterwards the caller flushes: for a
 * moment other items may not have looked ready. */
struct engine_copy *sw_queue_claim_in(struct sw_queue *q, const void *from, size_t bytes,
				      int *out_slot);
void sw_queue_release(struct sw_queue *q, int slot);
/* Makes every later post fail. */
void sw_queue_close(struct sw_queue *q);
/* Returns: true when the queue is closed and every slot is free. */
bool sw_queue_is_drained(struct sw_queue *q, uint64_t slots);
static inline bool sw_queue_is_ready(struct sw_queue *q)
{
	return atomic_load_explicit(&q->ready, memory_order_acquire);
}
/* Cancels the posted items of a closed queue. Returns: true when every slot is free and no thread
 * of `running` copies or executes a done(). */
static inline bool sw_queue_cancel(struct sw_queue *q, uint64_t slots,
				   const _Atomic uint32_t *running)
{
	struct engine_copy *c;
	int slot;

	while ((c = sw_queue_claim(q, &slot))) {
		sw_queue_release(q, slot);
		c->done(c, -ECANCELED);
	}
	return sw_queue_is_drained(q, slots) &&
	       !atomic_load_explicit(running, memory_order_acquire);
}

/* ---- sleep.c ----------------------------------------------------------------------------- */
/*
 * One word holds the sleeping workers and the number of seekers, so that every decision is one
 * atomic operation: bits 0..47 workers asleep, above them the number of seekers. A worker is a
 * seeker from when it runs out of work, or is woken, until it has found work or sleeps.
 *
 * No wake-up is lost: a poster makes its item ready, and then reads the word by an operation that
 * also writes it. A worker that goes to sleep, or stops seeking, changes the word and then checks
 * the queues. Whichever of the two operations comes second sees what the other thread did before
 * its own.
 */
struct sw_sleep {
	BASE_ALIGNED_LINE _Atomic uint64_t word;
	_Atomic uint32_t wakes[SW_WORKERS]; /* one futex per worker; counts its wake-ups */
};

/* Makes sure that a worker takes a posted item soon: unless one seeks, wakes one, preferably worker
 * `first` or the next after it. Context: async-signal-safe. */
void sw_sleep_wake(struct sw_sleep *s, unsigned first);
/* Wakes this worker if it sleeps. */
void sw_sleep_rouse(struct sw_sleep *s, unsigned worker);
void sw_sleep_seek(struct sw_sleep *s);
/* A seeker has found work. It must call sw_sleep_wake() afterwards if more is ready. */
void sw_sleep_found(struct sw_sleep *s);
/* Turns a seeker into a sleeper. It must call sw_sleep_undo() if work is ready, else
 * sw_sleep_wait(). Both return with the worker a seeker again. */
void sw_sleep_begin(struct sw_sleep *s, unsigned worker);
void sw_sleep_undo(struct sw_sleep *s, unsigned worker);
void sw_sleep_wait(struct sw_sleep *s, unsigned worker);

/* ---- pool.c ------------------------------------------------------------------------------ */
struct sw_chan {
	struct engine_chan base;
	struct sw_queue queue;
	_Atomic uint32_t running; /* copies taken whose done() has not returned */
	struct os_lend lend;
	/* Written by waiting threads; relaxed, as a wrong value costs a moment. */
	_Atomic uint32_t known_ended;
	_Atomic uint64_t known_ns, checked_ns; /* when known_ended was read first, and last */
	uint32_t home;            /* the worker that serves this channel first */
};

extern struct sw_chan sw_chans[SW_CHANNELS];
extern _Atomic uint64_t sw_open; /* bit i: sw_chans[i] is open; written under the context's lock */

/* Starts the workers. Returns: 0, or -errno and nothing has changed. Context: under the context's
 * lock. */
__attribute__((cold))
int sw_pool_start(int node, int workers);
__attribute__((cold))
void sw_pool_stop(void); /* the queues are empty */
int sw_pool_size(void);
void sw_pool_forget(void);
/* Wakes a worker for posted copies. Context: async-signal-safe. */
void sw_pool_flush(struct sw_chan *ch);
/*
 * Helps a thread that waits for this channel: executes one copy, or lends the CPU to a displaced
 * worker. Returns: true when a copy has ended. Context: async-signal-safe; sleeps for OS_LEND_NS at
 * most.
 */
bool sw_pool_help(struct sw_chan *ch);
/* Gives back the posted copies in [from, from + bytes). Context: async-signal-safe. */
void sw_pool_cancel(struct sw_chan *ch, const void *from, size_t bytes);
/* Inside done() of a copy of this channel: `running` no longer counts this copy. */
void sw_pool_exit(struct sw_chan *ch);

#endif
