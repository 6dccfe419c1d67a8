/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of message/ only. */
#ifndef SLUICE_MESSAGE_PRIVATE_H
#define SLUICE_MESSAGE_PRIVATE_H

#include "message/message.h"

#include "node/node.h"

extern _Atomic bool message_is_on;

/* Longest message of which the sender offers a copy. */
#define SNAPSHOT_MAX_BYTES (256u << 10)

/* ---- snapshot.c ---------------------------------------------------------------------------- */
/* The owner, at its start: reserves memory for the copies. */
void snapshot_begin(struct node_header *h);
/* The reader: copies bytes of the owner's memory from a copy that the owner offers. Returns: false:
 * it offers none, or has withdrawn it; `to` may hold anything then. */
bool snapshot_copy(struct node_header *h, char *to, uintptr_t from, uint64_t bytes);
/* The owner, before it sends from [start, end): withdraws the copies that earlier calls have left
 * there. */
void snapshot_forget(struct node_header *h, uintptr_t start, uintptr_t end);

#endif
