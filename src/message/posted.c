/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of nonblocking sends. While one exists, every MPI call that can complete a request goes
 * through its wrapper (rt_intercept_ref, mpi/front), which withdraws the copies of the requests
 * that the call names:
 *
 *   message_listed()    before the call: the sends in its list of requests
 *   the call            peers may still read the copies
 *   message_completed() after it: withdraws those that are no longer in the list
 *
 * Without MPI_THREAD_MULTIPLE one thread at a time is in MPI, and the program orders its threads.
 * With it nobody offers copies here: two threads could meet in the table.
 */
#include "message/private.h"
#include "node/node.h"

static struct {
	uint64_t all; /* which entries are used */
	uintptr_t requests[SNAPSHOT_POSTED];
	struct snapshot *copies[SNAPSHOT_POSTED];
	bool is_persistent[SNAPSHOT_POSTED];
} posted;

static void end_all(uint64_t which)
{
	struct node_header *h = node_header_self();

	posted.all &= ~which;
	for (; which && h; which &= which - 1)
		snapshot_end(h, posted.copies[__builtin_ctzll(which)]);
}

void message_posted(struct snapshot *s, uintptr_t request, bool is_persistent)
{
	/* each copy has an entry: as many places as entries */
	uint32_t i = (uint32_t)__builtin_ctzll(~posted.all);

	posted.all |= 1ull << i;
	posted.requests[i] = request;
	posted.copies[i] = s;
	posted.is_persistent[i] = is_persistent;
}

bool message_has_posted(void) { return posted.all; }

uint64_t message_listed(uintptr_t request)
{
	uint64_t found = 0;

	for (int i = 0; i < SNAPSHOT_POSTED; i++)
		found |= (uint64_t)(posted.requests[i] == request) << i;
	return found & posted.all;
}

bool message_completed(uint64_t listed, uint64_t remaining)
{
	/* a persistent request keeps its handle when it is complete */
	for (int i = 0; i < SNAPSHOT_POSTED; i++)
		if (posted.is_persistent[i])
			remaining &= ~(1ull << i);
	listed &= posted.all & ~remaining;
	end_all(listed);
	return listed && !posted.all;
}

void message_not_posted(struct snapshot *s)
{
	struct node_header *h = node_header_self();

	if (h)
		snapshot_end(h, s);
}

bool posted_end(void)
{
	bool any = posted.all;

	end_all(posted.all);
	return any;
}
