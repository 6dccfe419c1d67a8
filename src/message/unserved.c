/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers of which nothing is served. To check a peer's regions and copies, and to tell the peer
 * what the kernel reads, takes 0.1 us of a read of 1 us. After CHECKS in vain most reads of a
 * peer are the kernel's at once, as long as it offers no copy and its regions do not change. The
 * same holds of a process that was not found.
 *
 * A lost or mixed update costs a check, or one read by the kernel.
 */
#include "message/private.h"
#include "node/node.h"
#include "region/region.h"

enum { PEERS = 64, CHECKS = 32, SKIP_MAX = 15 };

static struct peer {
	_Atomic int pid;
	_Atomic uint32_t checks; /* in a row that were in vain */
	_Atomic uint32_t skip;  /* reads before the next check */
	_Atomic(struct node_header *) header; /* stays mapped; NULL: it was not found */
	_Atomic uint64_t regions; /* their version at the last check */
} peers[PEERS];

static struct peer *peer_of(int pid) { return &peers[(unsigned)pid % PEERS]; }

static uint32_t skip_after(uint32_t checks)
{
	return message_is_by_cost() ? (uint32_t)base_min_u64(checks / CHECKS, SKIP_MAX) : 0;
}

#define GET(field)	  atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

bool unserved_is(int pid)
{
	struct peer *p = peer_of(pid);
	/* acquire, partner: unserved_note */
	uint32_t skip = atomic_load_explicit(&p->skip, memory_order_acquire);
	struct node_header *h = GET(p->header);

	if (!skip || GET(p->pid) != pid)
		return false;
	if (h && (snapshot_is_any(h) || region_peer_version(h) != GET(p->regions))) {
		SET(p->checks, 0);
		SET(p->skip, 0);
		return false;
	}
	SET(p->skip, skip - 1);
	return true;
}

uint32_t unserved_note(int pid, struct node_header *h)
{
	struct peer *p = peer_of(pid);
	bool is_known = GET(p->pid) == pid && GET(p->header) == h;
	uint32_t checks = is_known ? GET(p->checks) : 0;

	SET(p->pid, pid);
	SET(p->header, h);
	SET(p->regions, h ? region_peer_version(h) : 0);
	SET(p->checks, checks + 1);
	/* release: the header; partner: unserved_is */
	atomic_store_explicit(&p->skip, skip_after(checks + 1), memory_order_release);
	return 1 + skip_after(checks);
}

void unserved_end(int pid)
{
	struct peer *p = peer_of(pid);

	if (GET(p->checks) && GET(p->pid) == pid)
		SET(p->checks, 0);
}
