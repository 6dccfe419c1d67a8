/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dsa: copies by Intel's Data Streaming Accelerator, from user space.
 *
 *   find.c     work queues of type user that this machine has, and why there is none
 *   portal.c   descriptors, records, and their submission by write()
 *   dsa.c      channels: one opened work queue each
 *
 * A queue accepts descriptors by write() on its device, many in one call; a full queue accepts
 * fewer. The device reads and writes the memory of this process by its page tables (SVA): it sees
 * windows, and a page that is not present ends a copy early. Nothing blocks on page faults: the
 * channel makes pages present and submits the rest again. The device writes the result into a
 * record, which lies in memory of its own that is shared with nobody, present and locked.
 *
 * close() waits until the device has ended everything of this process: this is how a channel is
 * retired. It hangs if the device does. A forked child has no right to the queue.
 */
#ifndef SLUICE_ENGINE_DSA_H
#define SLUICE_ENGINE_DSA_H

#include "engine/private.h"

/* ---- find.c ------------------------------------------------------------------------------ */
enum { DSA_QUEUES_MAX = 64, DSA_NAME_MAX = 48 };

struct dsa_queue {
	char name[DSA_NAME_MAX]; /* of the device, below /dev/dsa */
	int node;                /* NUMA node; -1: none */
	uint32_t size;           /* descriptors that it holds */
	uint64_t max_bytes;      /* of one copy */
};

/*
 * Lists the enabled queues of type user.
 * Returns: their number; 0 with the reason. Context: reads /sys.
 */
__attribute__((cold))
int dsa_find(struct dsa_queue *out, int max, char *reason, size_t cap);
/* Opens a queue. Returns: a descriptor, or -errno with the reason. */
int dsa_open(const struct dsa_queue *q, char *reason, size_t cap);

/* ---- portal.c ---------------------------------------------------------------------------- */
enum {
	DSA_SLOTS = 63, /* as sw_queue has */
	DSA_MEMMOVE = 3,
	DSA_RECORD_VALID = 1 << 2, /* flags: the address of the record is valid, */
	DSA_RECORD_ASKED = 1 << 3, /* and it is written also after a success */
	DSA_TO_CACHE = 1 << 8,     /* write to the cache, not to memory */
	DSA_ENDED_WELL = 1,        /* status */
	DSA_PAGE_FAULT = 3,
	DSA_STATUS_MASK = 0x7f,    /* without the bit that says that a write has faulted */
};

struct dsa_desc {
	uint32_t pasid;           /* the kernel sets it */
	uint32_t flags_and_opcode; /* opcode << 24 */
	uint64_t record, src, dst;
	uint32_t bytes;
	uint32_t none[7];
};
struct dsa_record {
	_Atomic uint8_t status; /* 0: not ended */
	uint8_t result;
	uint16_t none;
	uint32_t bytes; /* copied before a page fault */
	uint64_t fault_address;
	uint64_t rest[2];
};
_Static_assert(sizeof(struct dsa_desc) == 64 && sizeof(struct dsa_record) == 32,
	       "the device knows these sizes");

/* One opened queue with memory for its descriptors and records. */
struct dsa_portal {
	_Atomic int fd; /* -1: closed */
	struct os_file file; /* of fd: the program may have closed it */
	struct dsa_memory {
		struct dsa_record records[DSA_SLOTS + 1];
		struct dsa_desc descs[DSA_SLOTS];
	} *memory;
};

/* Returns: 0 or -errno. Owner: the portal has fd from then on, also after an error. */
int dsa_portal_init(struct dsa_portal *p, int fd);
void dsa_portal_fini(struct dsa_portal *p);
/* Fills in the descriptor of a slot, and clears its record. */
void dsa_portal_fill(struct dsa_portal *p, int slot, const struct dsa_desc *d);
/*
 * Submits the descriptors of `slots`.
 * Returns: 0 or -errno; *out_accepted: the slots that the queue has accepted, also after an error.
 * -EAGAIN: the queue is full. Context: async-signal-safe.
 */
int dsa_portal_submit(struct dsa_portal *p, uint64_t slots, uint64_t *out_accepted);
/* Closes the queue: afterwards the device writes nothing. Returns: whether this call closed it.
 * Context: async-signal-safe; sleeps until the device has ended all copies of this process. */
bool dsa_portal_close(struct dsa_portal *p);

/* Copies that met a page that was not present. For tests. */
extern _Atomic uint64_t dsa_partial_copies;

#endif
