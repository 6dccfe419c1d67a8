/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to wait/. */
#ifndef SLUICE_WAIT_PRIVATE_H
#define SLUICE_WAIT_PRIVATE_H

#include "wait/wait.h"

struct wait_word { _Atomic uint32_t *wakes, *sleepers, *hints; };

/* wake.c. A thread arms, polls once more, and then sleeps or disarms. */
void word_arm(struct wait_thread *w, struct wait_word *word);
void word_disarm(struct wait_thread *w, struct wait_word *word);
/* Returns: whether a peer has woken the thread, or did so before it slept. */
bool word_sleep(struct wait_thread *w, struct wait_word *word, uint64_t ns);
/* After a delivery: the thread's next polls find something. May be lost. */
void word_hint(const struct wait_word *word);
/* After a delivery. Returns: whether somebody may have slept. */
bool word_wake(const struct wait_word *word);

/* peers.c */
struct wait_word *own_word(void); /* never NULL; without a header nobody else knows it */
bool has_all_peers(void);         /* all ranks of the job are on this node and wake this one */

#endif
