/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sw: copies by worker threads of this process.
 *
 *   context   what a process has of it: pool and channels (one each, static)
 *   pool      the workers; started with the first channel, ended with the last
 *   worker    a thread; takes from the queues of its own channels, then steals from the others'
 *   item      struct engine_copy, as posted
 *   queue     one a channel: SW_DEPTH slots and two words that say which are what (queue.c)
 *
 * Nothing here is ever freed, so a worker may look at a queue whose channel is just being closed.
 */
#ifndef SLUICE_ENGINE_SW_H
#define SLUICE_ENGINE_SW_H

#include <errno.h>

#include "engine/private.h"

enum { SW_CHANNELS = 64, SW_WORKERS = 48, SW_DEPTH = 63 };

/* ---- queue.c ----------------------------------------------------------------------------- */
/*
 * Posted to and taken from by any thread, in about the order of posting. Lock-free: a thread that
 * is stopped anywhere in a call, as idle workers often are, delays its own item only. A slot goes
 *
 *   free --claim--> (poster's) --ready--> posted --take--> (taker's) --free--> free
 *
 * and each of the steps is one atomic operation on `free` or `ready`. Why not a deque of Chase and
 * Lev: it has one owner who pushes, and here items come from outside, often from a signal handler.
 */
struct sw_queue {
	BASE_ALIGNED_LINE _Atomic uint64_t free; /* bit i: slot i is free; SW_QUEUE_CLOSED */
	_Atomic uint64_t ready; /* bit i: slot i holds an item that nobody has taken */
	_Atomic uint32_t post_next, take_next;   /* where to begin: hints for the order only */
	_Atomic uintptr_t slots[SW_DEPTH];       /* struct engine_copy * */
};
#define SW_QUEUE_CLOSED ((uint64_t)1 << 63)
#define SW_QUEUE_SLOTS (((uint64_t)1 << SW_DEPTH) - 1)

void sw_queue_init(struct sw_queue *q, uint64_t slots); /* slots: mask of those to be used */
/* 0, -EAGAIN: full, -ESHUTDOWN: closed. Async-signal-safe. */
int sw_queue_post(struct sw_queue *q, struct engine_copy *c);
/* An item and its slot, which stays the taker's until sw_queue_release(); NULL: there is none. */
struct engine_copy *sw_queue_take(struct sw_queue *q, int *out_slot);
void sw_queue_release(struct sw_queue *q, int slot);
/* No post succeeds any more. */
void sw_queue_close(struct sw_queue *q);
/* Closed, and every slot is back. */
bool sw_queue_is_drained(struct sw_queue *q, uint64_t slots);
static inline bool sw_queue_is_ready(struct sw_queue *q)
{
	return atomic_load_explicit(&q->ready, memory_order_acquire);
}
/*
 * Of a closed one: what nobody has taken comes back with -ECANCELED. True: every slot is back and
 * nobody of `running` works on one, or in its done(), any more.
 */
static inline bool sw_queue_cancel(struct sw_queue *q, uint64_t slots,
				   const _Atomic uint32_t *running)
{
	struct engine_copy *c;
	int slot;

	while ((c = sw_queue_take(q, &slot))) {
		sw_queue_release(q, slot);
		c->done(c, -ECANCELED);
	}
	return sw_queue_is_drained(q, slots) &&
	       !atomic_load_explicit(running, memory_order_acquire);
}

/* ---- sleep.c ----------------------------------------------------------------------------- */
/*
 * Who sleeps and how many seek work, in one word, so that every decision is one atomic operation on
 * it: bits 0..47 workers asleep, above them the number of seekers. A worker is a seeker from when
 * it runs out of work, or is woken, until it has found some or sleeps.
 *
 * No wake-up is lost: a poster makes its item ready and then reads the word by an operation that
 * also writes it. A worker that goes to sleep, or stops seeking, changes the word and looks at the
 * queues after that. Whichever of the two operations comes second sees what the other thread did
 * before its own.
 */
struct sw_sleep {
	BASE_ALIGNED_LINE _Atomic uint64_t word;
	_Atomic uint32_t wakes[SW_WORKERS]; /* one futex a worker; counts its wake-ups */
};

/* What was made ready before is taken soon: wakes one, at best worker `first` or one after it,
 * unless somebody seeks. Async-signal-safe. */
void sw_sleep_wake(struct sw_sleep *s, unsigned first);
/* Wakes this one if it sleeps. */
void sw_sleep_rouse(struct sw_sleep *s, unsigned worker);
void sw_sleep_seek(struct sw_sleep *s);
/* The seeker has found something. Its duty after this: if more is ready, sw_sleep_wake(). */
void sw_sleep_found(struct sw_sleep *s);
/* From seeker to sleeper. Its duty after this: if something is ready, sw_sleep_undo(), else
 * _wait(). Both return with the worker a seeker again. */
void sw_sleep_begin(struct sw_sleep *s, unsigned worker);
void sw_sleep_undo(struct sw_sleep *s, unsigned worker);
void sw_sleep_wait(struct sw_sleep *s, unsigned worker);

/* ---- pool.c ------------------------------------------------------------------------------ */
struct sw_chan {
	struct engine_chan base;
	struct sw_queue queue;
	_Atomic uint32_t running; /* copies taken whose done() has not returned */
	struct os_lend lend;
	/* of those who wait; relaxed, a mistake costs a moment */
	_Atomic uint32_t seen_ended;
	_Atomic uint64_t seen_ns, looked_ns; /* since when, and when last */
	uint32_t home;            /* the worker that looks here first */
};

extern struct sw_chan sw_chans[SW_CHANNELS];
extern _Atomic uint64_t sw_open; /* bit i: sw_chans[i] is; written under the context's lock */

/* Under the context's lock. 0 or -errno and nothing has changed. */
int sw_pool_start(int node, int workers);
void sw_pool_stop(void); /* nothing is queued */
int sw_pool_size(void);
void sw_pool_forget(void);
/* After posts: see to it that somebody looks. Async-signal-safe. */
void sw_pool_flush(struct sw_chan *ch);
/* For a thread that has to wait for this channel: do one copy here, or let a worker that has been
 * displaced within one go on. True when a copy has ended. Async-signal-safe; may sleep for a
 * moment. */
bool sw_pool_help(struct sw_chan *ch);
/* Inside done() of a copy of this channel: it does not count as running any more. */
void sw_pool_leave(struct sw_chan *ch);

#endif
