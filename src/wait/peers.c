/* SPDX-License-Identifier: BSD-3-Clause */
/* The wake words of this process and of the other ranks of the job on this node. */
#include "os/endpoint.h"
#include "wait/private.h"

#define PLACES 4096 /* ranks whose numbers differ by a multiple of it hide each other */

static struct node_wake_word private_word;
static struct node_wake_word *own = &private_word;

static struct {
	_Atomic(struct node_wake_word *) words; /* NULL: nobody is woken */
	_Atomic uint32_t known;                 /* words that have been seen to have an owner */
	_Atomic uint16_t place[PLACES]; /* by rank: 1 + index of its word; 0: not seen. Hints */
	int world_size;
} peers;

static int32_t owner_of(struct node_wake_word *word)
{
	return atomic_load_explicit(&word->owner, memory_order_relaxed);
}

/* A thread that is armed counts in the word that it has now: after MPI_Init it may be armed. */
static void set_own(struct node_wake_word *word)
{
	wait_call_end(0);
	own = word;
}

/* Claims the first word without an owner. Returns: NULL: there is none. */
static struct node_wake_word *claim_word(struct node_wake_word *words, int world_rank)
{
	for (uint32_t i = 0; i < NODE_WAKE_WORDS; i++) {
		int32_t nobody = 0;

		if (!owner_of(&words[i]) &&
		    atomic_compare_exchange_strong_explicit(&words[i].owner, &nobody,
							    1 + world_rank, memory_order_relaxed,
							    memory_order_relaxed))
			return &words[i];
	}
	return NULL;
}

void wait_connect(int world_rank, int world_size)
{
	struct node_wake_word *words = world_rank < 0 ? NULL : node_wake_words();
	struct node_wake_word *word = words ? claim_word(words, world_rank) : NULL;

	if (!word)
		return;
	set_own(word);
	peers.world_size = world_size;
	/* release: the members above; partner: wait_wake */
	atomic_store_explicit(&peers.words, words, memory_order_release);
}

void wait_disconnect(void)
{
	atomic_store_explicit(&peers.words, NULL, memory_order_release);
	set_own(&private_word);
	atomic_store_explicit(&peers.known, 0, memory_order_relaxed);
	for (uint32_t i = 0; i < PLACES; i++)
		atomic_store_explicit(&peers.place[i], 0, memory_order_relaxed);
}

struct node_wake_word *own_word(void) { return own; }

bool has_all_peers(void)
{
	struct node_wake_word *words = atomic_load_explicit(&peers.words, memory_order_acquire);

	return words && peers.world_size <= NODE_WAKE_WORDS &&
	       owner_of(&words[peers.world_size - 1]);
}

/* Looks for ranks that have claimed a word meanwhile. Returns: how many have one. */
static uint32_t learn(struct node_wake_word *words)
{
	uint32_t n = atomic_load_explicit(&peers.known, memory_order_relaxed);
	int32_t owner;

	for (; n < NODE_WAKE_WORDS && (owner = owner_of(&words[n])); n++)
		atomic_store_explicit(&peers.place[(uint32_t)(owner - 1) % PLACES],
				      (uint16_t)(n + 1), memory_order_relaxed);
	atomic_store_explicit(&peers.known, n, memory_order_relaxed);
	return n;
}

/* Returns: NULL: the rank is on another node, or has no word. */
static struct node_wake_word *word_of(struct node_wake_word *words, int world_rank)
{
	_Atomic uint16_t *place = &peers.place[(uint32_t)world_rank % PLACES];
	uint32_t i = atomic_load_explicit(place, memory_order_relaxed);

	if (base_unlikely(!i)) {
		learn(words);
		i = atomic_load_explicit(place, memory_order_relaxed);
	}
	return i && owner_of(&words[i - 1]) == 1 + world_rank ? &words[i - 1] : NULL;
}

static void wake_one(struct node_wake_word *word, bool hints)
{
	if (word == own)
		return;
	if (hints)
		word_hint(word);
	if (word_wake(word))
		base_count(BASE_CTR_WAKES, 1);
}

void wait_wake(int world_rank)
{
	/* acquire, partner: wait_connect */
	struct node_wake_word *words = atomic_load_explicit(&peers.words, memory_order_acquire);
	struct node_wake_word *word;

	if (!words)
		return;
	if (world_rank == WAIT_ALL) {
		for (uint32_t i = 0, n = learn(words); i < n; i++)
			wake_one(&words[i], false); /* most of them wait for others */
	} else if (world_rank >= 0) {
		word = word_of(words, world_rank);
		if (word)
			wake_one(word, endpoint_self != NULL);
	}
}
