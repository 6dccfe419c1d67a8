/* SPDX-License-Identifier: BSD-3-Clause */
/* The wake words of this process and of the other ranks of the job on this node. */
#include "os/endpoint.h"
#include "wait/private.h"

#define PEERS_MAX 256 /* ranks of a job beyond wake by naps only */

static _Atomic uint32_t private_wakes, private_sleepers, private_hints;
static const struct wait_word private_word = { &private_wakes, &private_sleepers, &private_hints };
static struct wait_word own = { &private_wakes, &private_sleepers, &private_hints };

/* A rank is looked for once: at first, and by any thread, with the same result. */
static struct {
	_Atomic(struct node_header *) header[PEERS_MAX];
	_Atomic bool is_known[PEERS_MAX];
	_Atomic int size;  /* 0: nobody is woken */
	_Atomic int found; /* ranks with a header, this one included */
	int rank;
} peers;

static struct wait_word word_of(struct node_header *h)
{
	return (struct wait_word){ &h->wakes, &h->sleepers, &h->hints };
}

/* A thread that is armed counts in the word that it has now: after MPI_Init it may be armed. */
static void set_own(struct wait_word word)
{
	wait_call_end(0);
	own = word;
}

void wait_connect(int world_rank, int world_size)
{
	struct node_header *h = node_header_self();

	if (!h)
		return;
	set_own(word_of(h));
	peers.rank = world_rank;
	atomic_store_explicit(&peers.found, 1, memory_order_relaxed);
	atomic_store_explicit(&peers.size, world_size < PEERS_MAX ? world_size : PEERS_MAX,
			      memory_order_release); /* partner: peer_of */
}

void wait_disconnect(void)
{
	atomic_store_explicit(&peers.size, 0, memory_order_release);
	set_own(private_word);
	for (int r = 0; r < PEERS_MAX; r++) {
		atomic_store_explicit(&peers.is_known[r], false, memory_order_relaxed);
		atomic_store_explicit(&peers.header[r], NULL, memory_order_relaxed);
	}
}

struct wait_word *own_word(void) { return &own; }

bool has_all_peers(void)
{
	int size = atomic_load_explicit(&peers.size, memory_order_relaxed);

	return size && size < PEERS_MAX &&
	       atomic_load_explicit(&peers.found, memory_order_relaxed) == size;
}

static struct node_header *peer_find(int r)
{
	struct node_header *h = NULL;
	int pid;

	if (r != peers.rank) {
		pid = node_job_process(r);
		h = pid ? node_header_of(pid, true) : NULL;
	}
	if (atomic_exchange_explicit(&peers.is_known[r], true, memory_order_relaxed))
		return h;
	if (h)
		atomic_fetch_add_explicit(&peers.found, 1, memory_order_relaxed);
	/* release: the header; partner: wake_one */
	atomic_store_explicit(&peers.header[r], h, memory_order_release);
	return h;
}

static void wake_one(int r, bool hints)
{
	/* acquire, partner: peer_find */
	struct node_header *h = atomic_load_explicit(&peers.header[r], memory_order_acquire);
	struct wait_word word;

	if (!h && !atomic_load_explicit(&peers.is_known[r], memory_order_relaxed))
		h = peer_find(r);
	if (!h)
		return;
	word = word_of(h);
	if (hints)
		word_hint(&word);
	if (word_wake(&word))
		base_count(BASE_CTR_WAKES, 1);
}

void wait_wake(int world_rank)
{
	int size = atomic_load_explicit(&peers.size, memory_order_acquire);

	if (world_rank >= 0 && world_rank < size)
		wake_one(world_rank, endpoint_self != NULL);
	else if (world_rank == WAIT_ALL)
		for (int r = 0; r < size; r++)
			wake_one(r, false); /* most of them wait for others */
}
