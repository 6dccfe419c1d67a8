/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of message/ only. */
#ifndef SLUICE_MESSAGE_PRIVATE_H
#define SLUICE_MESSAGE_PRIVATE_H

#include "message/message.h"

#include "node/node.h"

extern _Atomic bool message_is_on;
extern _Atomic bool message_has_sent; /* a message that its receiver may read (a hint) */

/* Longest message of which a blocking send offers a copy. */
#define SNAPSHOT_MAX_BYTES (256u << 10)
/* A message of at most so many bytes is copied whole, also where a region holds a part of it; so
 * are those of nonblocking sends. */
#define SNAPSHOT_WHOLE_BYTES (64u << 10)
#define SNAPSHOT_POSTED 24 /* nonblocking sends that offer copies at a time */

/* Do times decide, rather than SLUICE_REGION_ADOPT_AFTER? */
static inline bool message_is_by_cost(void) { return base_opt.region_adopt_after < 0; }

/* Bytes at the ends of a message that no region holds. */
struct message_edges { uint64_t head, tail; };

/* ---- rates.c ------------------------------------------------------------------------------- */
/* Time of a byte by length of the message, in ps; 0: not measured. */
enum { RATE_CLASSES = 7 };
int rate_class(uint64_t bytes);
/* Chooses one of `each` events, by the golden ratio, so that no regular sequence of them hides a
 * kind of them; not the first, which finds pages and caches cold. events: so far. */
bool rate_chooses(_Atomic uint32_t *events, uint32_t each);
/* messages: of this kind so far. Returns: the time now, or 0, as only some messages are timed. */
uint64_t rate_begin(_Atomic uint32_t *messages);
/* Adds the measurement that rate_begin() has begun. Noise of an eighth is not written. */
void rate_end(_Atomic uint32_t *rates, uint64_t bytes, uint64_t begin_ns);

/* ---- unserved.c ---------------------------------------------------------------------------- */
/* Is a short read from this process the kernel's without a check? Counts it. */
bool unserved_is(int pid);
/* A check found nothing to serve; h: NULL: nor the peer. Returns: the reads that it stands for, at
 * least 1. */
uint32_t unserved_note(int pid, struct node_header *h);
/* A read from this process was served. */
void unserved_end(int pid);

/* ---- snapshot.c ---------------------------------------------------------------------------- */
/* The owner, at its start: reserves memory for the copies. */
void snapshot_begin(struct node_header *h);
/* The reader: may the owner offer a copy now? */
bool snapshot_is_any(struct node_header *h);
/* The reader: copies bytes of the owner's memory from a copy that the owner offers. Returns: false:
 * it offers none, or has withdrawn it; `to` may hold anything then. */
bool snapshot_copy(struct node_header *h, char *to, uintptr_t from, uint64_t bytes);
/* The owner, before it sends: copies the edges. Returns: NULL: no copy, as it may not be read or
 * would be useless. */
struct snapshot *snapshot_offer(struct node_header *h, const void *buf, uint64_t bytes,
				const struct message_edges *edges, bool is_posted);
/* Makes a copy, without the question whether it pays: of at most SNAPSHOT_MAX_BYTES, or, if
 * is_posted, SNAPSHOT_WHOLE_BYTES. NULL: no place is free. */
struct snapshot *snapshot_make(struct node_header *h, const void *buf, uint64_t bytes,
			       const struct message_edges *edges, bool is_posted);
/* The send is complete. */
void snapshot_end(struct node_header *h, struct snapshot *s);

/* ---- posted.c ------------------------------------------------------------------------------ */
/* Withdraws all copies of nonblocking sends. Returns: whether there were any. */
bool posted_end(void);

#endif
