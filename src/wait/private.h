/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to wait/. */
#ifndef SLUICE_WAIT_PRIVATE_H
#define SLUICE_WAIT_PRIVATE_H

#include "wait/wait.h"

/* wake.c. A thread arms, polls once more, and then sleeps or disarms. */
void word_arm(struct wait_thread *w, struct node_wake_word *word);
void word_disarm(struct wait_thread *w, struct node_wake_word *word);
/* Returns: whether a peer has woken the thread, or did so before it slept. */
bool word_sleep(struct wait_thread *w, struct node_wake_word *word, uint64_t ns);
/* After a delivery: the thread's next polls find something. May be lost. */
void word_hint(struct node_wake_word *word);
/* After a delivery. Returns: whether somebody may have slept. */
bool word_wake(struct node_wake_word *word);

/* peers.c */
struct node_wake_word *own_word(void); /* never NULL; before wait_connect() only this process's */
bool has_all_peers(void);              /* all ranks of the job are on this node and wake this one */

#endif
