/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of announcements, and how threads sleep without missing one. A poster increments
 * `count`, then reads the numbers of seekers and sleepers. A thread registers as a sleeper, and no
 * longer as a seeker, then reads `count` once more. All four accesses are sequentially consistent,
 * so one of the two threads sees the other.
 */
#include "worker/private.h"

enum {
	POLLS_PER_CLOCK = 16,
	RELAX = 4, /* between two polls: a rank may use the other hardware thread of the core */
};

bool announce_post(struct worker_announcements *b, uint64_t word)
{
	uint32_t from = atomic_load_explicit(&b->count, memory_order_relaxed), i;

	for (i = 0; i < WORKER_ANNOUNCEMENTS; i++) {
		_Atomic uint64_t *e = &b->entries[(from + i) % WORKER_ANNOUNCEMENTS];
		uint64_t none = 0;

		/* release: what the rank published before; partner: announce_peek */
		if (!atomic_load_explicit(e, memory_order_relaxed) &&
		    atomic_compare_exchange_strong_explicit(e, &none, word, memory_order_release,
							    memory_order_relaxed))
			break;
	}
	if (i == WORKER_ANNOUNCEMENTS)
		return false;
	atomic_fetch_add_explicit(&b->count, 1, memory_order_seq_cst);
	announce_wake(b);
	return true;
}

void announce_wake(struct worker_announcements *b)
{
	if (!atomic_load_explicit(&b->seekers, memory_order_seq_cst) &&
	    atomic_load_explicit(&b->sleepers, memory_order_seq_cst))
		os_futex_wake(&b->count, 1);
}

uint64_t announce_peek(struct worker_announcements *b, uint32_t *at)
{
	for (uint32_t i = 0; i < WORKER_ANNOUNCEMENTS; i++) {
		uint32_t k = (*at + i) % WORKER_ANNOUNCEMENTS;
		/* acquire: what the rank published; partner: announce_post */
		uint64_t word = atomic_load_explicit(&b->entries[k], memory_order_acquire);

		if (!word)
			continue;
		*at = k;
		return word;
	}
	return 0;
}

void announce_remove(struct worker_announcements *b, uint32_t at, uint64_t word)
{
	/* another thread may have removed it, and a new one may stand there */
	atomic_compare_exchange_strong_explicit(&b->entries[at], &word, 0, memory_order_relaxed,
						memory_order_relaxed);
}

static bool has_changed(struct worker_announcements *b, uint32_t known)
{
	return atomic_load_explicit(&b->count, memory_order_seq_cst) != known;
}

bool announce_poll(struct worker_announcements *b, uint32_t known, uint64_t until_ns)
{
	atomic_fetch_add_explicit(&b->seekers, 1, memory_order_seq_cst);
	for (uint32_t polls = 1; !has_changed(b, known); polls++) {
		if (polls % POLLS_PER_CLOCK == 0 && os_now_ns() >= until_ns)
			break;
		for (int i = 0; i < RELAX; i++)
			os_cpu_relax();
	}
	atomic_fetch_sub_explicit(&b->seekers, 1, memory_order_seq_cst);
	return has_changed(b, known);
}

void announce_sleep(struct worker_announcements *b, uint32_t known)
{
	atomic_fetch_add_explicit(&b->sleepers, 1, memory_order_seq_cst);
	if (!has_changed(b, known))
		os_futex_wait(&b->count, known, OS_FOR_EVER);
	atomic_fetch_sub_explicit(&b->sleepers, 1, memory_order_relaxed);
}
