/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slots: the copies of a channel to a device that is polled. A slot goes
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

/* The device. Context of all: async-signal-safe. */
struct engine_device_ops {
	const char *name;
	/* Fills in the descriptor of a slot, and clears its record. */
	void (*fill)(struct engine_slots *s, int slot, const struct engine_copy *c);
	/* Submits. Returns: 0 or -errno, -EAGAIN: full; *out_accepted: also after an error. */
	int (*submit)(struct engine_slots *s, uint64_t slots, uint64_t *out_accepted);
	/* Has the device written the record? Without memory order. */
	bool (*is_ended)(struct engine_slots *s, int slot);
	/* Returns: 0 or -errno; SLOT_NOT_ENDED; or SLOT_AGAIN: it is filled in to be submitted
	 * again. Acquires what the device wrote. */
	int (*result)(struct engine_slots *s, int slot, const struct engine_copy *c);
	/* Ends all copies; afterwards the device writes nothing. Returns: whether this call did it;
	 * false: another call does, or the copies end by themselves. */
	bool (*close)(struct engine_slots *s);
};

struct engine_slots {
	const struct engine_device_ops *ops;
	struct sw_queue queue;
	_Atomic uint64_t submitted, waiting, failed;  /* masks of slots */
	struct engine_copy *_Atomic copies[SW_DEPTH]; /* of slots that are not free */
	_Atomic uint32_t submitters;                  /* threads that may use the device */
	_Atomic uint32_t running;                     /* calls of done() */
	_Atomic bool closing, closed; /* retire has begun; the device writes nothing any more */
	uint64_t all;
};

void engine_slots_init(struct engine_slots *s, const struct engine_device_ops *ops, uint32_t depth);
/* The functions of a channel, as in engine.h. */
static inline int engine_slots_post(struct engine_slots *s, struct engine_copy *c)
{
	return sw_queue_post(&s->queue, c);
}
void engine_slots_flush(struct engine_slots *s);
int engine_slots_poll(struct engine_slots *s);
void engine_slots_retire(struct engine_slots *s);
void engine_slots_after_fork_child(struct engine_slots *s);
/* Copies a page by a new channel. Returns: 0, or -errno with the reason. */
int engine_slots_probe(struct engine_chan *ch, char *reason, size_t cap);

#endif
