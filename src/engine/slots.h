/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slots: the channels to a device that is polled, and their copies. A slot goes
 *
 *   free --post--> ready --flush--> submitted --the device ends it, poll--> done(), free
 *                             |          ^
 *                             v          | poll
 *                          waiting ------+    not accepted, or to be submitted again
 *
 * Each step is one atomic operation on a mask, so that any thread and signal handler may take it.
 */
#ifndef SLUICE_ENGINE_SLOTS_H
#define SLUICE_ENGINE_SLOTS_H

#include "engine/private.h"
#include "engine/sw/sw.h" /* for its queue */

struct engine_slots;

enum { SLOT_NOT_ENDED = 1, SLOT_AGAIN = 2 };

/* The device. Context: async-signal-safe, but for chan, open and fini. */
struct engine_device_ops {
	const struct engine_ops *engine;
	/* Returns: channel i of this process, open or not; NULL: there are no more. */
	struct engine_slots *(*chan)(int i);
	/*
	 * Opens number `index` of those near `node`, and calls engine_slots_init().
	 * Returns: as chan_open(), with the reason.
	 */
	int (*open)(struct engine_slots *s, int node, int index, char *reason, size_t cap);
	/* Releases what open() got. in_child: in a forked child, which has no right to it and did
	 * not inherit its shared memory. */
	void (*fini)(struct engine_slots *s, bool in_child);
	/* Fills in the descriptor of a slot, and clears its record. */
	void (*fill)(struct engine_slots *s, int slot, const struct engine_copy *c);
	/* Submits. Returns: 0 or -errno, -EAGAIN: full; *out_accepted: also after an error. */
	int (*submit)(struct engine_slots *s, uint64_t slots, uint64_t *out_accepted);
	/* Has the device written the record? Without memory order. */
	bool (*is_ended)(struct engine_slots *s, int slot);
	/* Returns: 0 or -errno; SLOT_NOT_ENDED; or SLOT_AGAIN: it is filled in to be submitted
	 * again. Acquires what the device wrote. */
	int (*result)(struct engine_slots *s, int slot, const struct engine_copy *c);
	/*
	 * Asks the device to end copies in [from, from + bytes) that it has not begun, and no
	 * others: their results are then -ECANCELED. NULL: the device cannot.
	 */
	void (*cancel)(struct engine_slots *s, const void *from, size_t bytes);
	/* Ends all copies; afterwards the device writes nothing. Returns: whether this call did it;
	 * false: another call does, or the copies end by themselves. */
	bool (*close)(struct engine_slots *s);
};

/* First member of every back end's channel. */
struct engine_slots {
	struct engine_chan base;
	const struct engine_device_ops *ops;
	struct sw_queue queue;
	_Atomic uint64_t submitted, waiting, failed;  /* masks of slots */
	struct engine_copy *_Atomic copies[SW_DEPTH]; /* of slots that are not free */
	_Atomic uint32_t submitters;                  /* threads that may use the device */
	_Atomic uint32_t running;                     /* calls of done() */
	_Atomic bool closing, closed; /* retire has begun; the device writes nothing any more */
	uint64_t all;
	uint64_t max_bytes; /* of one copy */
	bool in_use;        /* opened; under a lock of slots.c */
};

/* depth: copies that the device holds. max_bytes: of one copy. */
void engine_slots_init(struct engine_slots *s, uint32_t depth, uint64_t max_bytes);
/* Opens a channel and copies a page. Returns: 0, or -errno with the reason. */
int engine_slots_probe(const struct engine_device_ops *ops, char *reason, size_t cap);
/* The functions of a channel, as in engine.h. */
int engine_slots_open(const struct engine_device_ops *ops, int node, int index,
		      struct engine_chan **out);
void engine_slots_close(struct engine_chan *ch);
void engine_slots_caps(const struct engine_chan *ch, struct engine_caps *out);
int engine_slots_post(struct engine_chan *ch, struct engine_copy *c);
void engine_slots_flush(struct engine_chan *ch);
int engine_slots_poll(struct engine_chan *ch);
void engine_slots_cancel(struct engine_chan *ch, const void *from, size_t bytes);
void engine_slots_retire(struct engine_chan *ch);
void engine_slots_after_fork_child(const struct engine_device_ops *ops);

#endif
