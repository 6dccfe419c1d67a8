/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers of this process, and open allocations of others.
 *
 * Opening an allocation costs much more than a copy, so it stays open: at most PEERS of them, and
 * the one that was unused for longest makes room. An owner may free an allocation, and get another
 * one at the same address: that one has another id, and what was open there is closed first. The
 * driver gives the memory of a freed allocation back once no process has it open (ADR 43).
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/base.h"
#include "cuda/private.h"
#include "os/os.h"

enum { PEERS = 128, HANDLES = 64 };
/* Names and numbers of the CUDA driver API. */
enum {
	ATTRIBUTE_CONTEXT = 1,
	ATTRIBUTE_MEMORY_TYPE = 2,
	ATTRIBUTE_BUFFER_ID = 7,
	ATTRIBUTE_IS_LEGACY_IPC_CAPABLE = 10,
	ATTRIBUTE_RANGE_START = 11,
	ATTRIBUTE_RANGE_SIZE = 12,
	MEMORY_TYPE_DEVICE = 2,
	LAZY_PEER_ACCESS = 1,
};

struct cuda_peer {
	int pid;                  /* of the owner; 0: this place is free */
	uint64_t base, bytes, id; /* as in struct cuda_memory */
	uint64_t address;         /* in this process; 0: it cannot be opened */
	uint32_t users;
	uint64_t used_at;
};

static struct {
	pthread_mutex_t lock; /* protects all fields */
	struct cuda_peer peers[PEERS];
	uint64_t now; /* counts uses */
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- own buffers ------------------------------------------------------------------------- */

struct answer {
	uint64_t context, type, id, has_handle, start, bytes;
};

/* Each value may be narrower than its field, which is zero before. */
static int ask(const void *addr, struct answer *out)
{
	int attributes[] = { ATTRIBUTE_CONTEXT,     ATTRIBUTE_MEMORY_TYPE,
			     ATTRIBUTE_BUFFER_ID,   ATTRIBUTE_IS_LEGACY_IPC_CAPABLE,
			     ATTRIBUTE_RANGE_START, ATTRIBUTE_RANGE_SIZE };
	void *values[] = { &out->context,    &out->type,  &out->id,
			   &out->has_handle, &out->start, &out->bytes };

	*out = (struct answer){ 0 };
	return cuda_driver.pointer_attributes(BASE_ARRAY_LEN(attributes), attributes, values,
					      (uintptr_t)addr)
		       ? -EIO
		       : 0;
}

/* Sets handle and id. Handles are kept: an id is that of one allocation for ever. Peers keep what
 * they have opened: they tell a later process with the same pid and ids by `process`. */
static bool get_handle(const struct answer *a, struct cuda_memory *out)
{
	static uint64_t process;
	static struct {
		uint64_t id;
		struct cuda_handle handle;
	} known[HANDLES]; /* under the lock of the table */
	unsigned i = (unsigned)(a->id % HANDLES);
	bool ok = true;

	pthread_mutex_lock(&table.lock);
	if (known[i].id != a->id) {
		known[i].id = 0;
		ok = !cuda_driver.ipc_get(&known[i].handle, a->start);
		known[i].id = ok ? a->id : 0;
	}
	if (!process)
		process = os_random_u64();
	out->id = a->id ^ process;
	memcpy(out->handle, known[i].handle.bytes, sizeof(out->handle));
	pthread_mutex_unlock(&table.lock);
	return ok;
}

int cuda_describe(const void *addr, uint64_t bytes, struct cuda_memory *out)
{
	uint64_t at = (uintptr_t)addr;
	void *context = NULL;
	struct answer a;

	if (cuda_driver.context_current(&context) || ask(addr, &a))
		return -EIO;
	if (a.type != MEMORY_TYPE_DEVICE || a.context != (uintptr_t)context || at < a.start ||
	    at - a.start > a.bytes || bytes > a.bytes - (at - a.start))
		return -EXDEV;
	*out = (struct cuda_memory){ .base = a.start, .bytes = a.bytes, .at = at - a.start };
	return a.has_handle && get_handle(&a, out) ? 0 : -ENOTSUP;
}

/* ---- allocations of others --------------------------------------------------------------- */

static void close_locked(struct cuda_peer *p)
{
	if (p->address)
		cuda_driver.ipc_close(p->address); /* no remedy for a failure */
	p->pid = 0;
}

static bool overlaps(const struct cuda_peer *p, int pid, const struct cuda_memory *m)
{
	return p->pid == pid && p->base < m->base + m->bytes && m->base < p->base + p->bytes;
}

/* Finds the allocation, and closes those that its owner has freed since. Returns: NULL with
 * *out_err 0 (it is not open), or -EBUSY: another thread still copies from freed memory. */
static struct cuda_peer *find_locked(int pid, const struct cuda_memory *m, int *out_err)
{
	struct cuda_peer *found = NULL;

	*out_err = 0;
	for (struct cuda_peer *p = table.peers; p < table.peers + PEERS; p++) {
		if (!overlaps(p, pid, m))
			continue;
		if (p->id == m->id)
			found = p;
		else if (p->users)
			*out_err = -EBUSY;
		else
			close_locked(p);
	}
	return *out_err ? NULL : found;
}

/* Returns: a free place, or NULL: all allocations are in use. */
static struct cuda_peer *make_room_locked(void)
{
	struct cuda_peer *oldest = NULL;

	for (struct cuda_peer *p = table.peers; p < table.peers + PEERS; p++) {
		if (!p->pid)
			return p;
		if (!p->users && (!oldest || p->used_at < oldest->used_at))
			oldest = p;
	}
	if (oldest)
		close_locked(oldest);
	return oldest;
}

static struct cuda_peer *add_locked(int pid, const struct cuda_memory *m)
{
	struct cuda_peer *p = make_room_locked();
	struct cuda_handle handle;

	if (!p)
		return NULL;
	*p = (struct cuda_peer){ .pid = pid, .base = m->base, .bytes = m->bytes, .id = m->id };
	memcpy(handle.bytes, m->handle, sizeof(handle.bytes));
	if (cuda_driver.ipc_open(&p->address, handle, LAZY_PEER_ACCESS))
		p->address = 0;
	return p;
}

int cuda_open(int pid, const struct cuda_memory *m, struct cuda_peer **out)
{
	struct cuda_peer *p;
	int ret;

	pthread_mutex_lock(&table.lock);
	p = find_locked(pid, m, &ret);
	if (!p && !ret)
		p = add_locked(pid, m);
	if (p && p->address) {
		p->users++;
		p->used_at = ++table.now;
		*out = p;
	} else {
		ret = -EIO;
	}
	pthread_mutex_unlock(&table.lock);
	return ret;
}

void *cuda_address(const struct cuda_peer *p, const struct cuda_memory *m)
{
	return (void *)(uintptr_t)(p->address + m->at);
}

void cuda_put(struct cuda_peer *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&table.lock);
	p->users--;
	pthread_mutex_unlock(&table.lock);
}

void cuda_fini(void)
{
	bool is_current = cuda_is_current();

	pthread_mutex_lock(&table.lock);
	for (struct cuda_peer *p = table.peers; p < table.peers + PEERS; p++)
		if (p->pid && is_current && !p->users)
			close_locked(p);
	pthread_mutex_unlock(&table.lock);
}
