/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Submission by write(). Mapping the portal needs CAP_SYS_RAWIO on all parts so far, and for long
 * copies the way of submission makes no difference.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/dsa/dsa.h"

enum { BATCH = 32 }; /* descriptors of one write(), which lie on the stack */

/* Memory that fork() neither copies nor inherits: a device must not meet a page that is to be
 * copied on write. */
static void *memory_get(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_DONTFORK);
	if (mlock(p, bytes))
		base_log(BASE_LOG_DEBUG, "engine", "dsa: records are not locked: %s",
			 strerror(errno));
	return p;
}

int dsa_portal_init(struct dsa_portal *p, int fd)
{
	int ret;

	*p = (struct dsa_portal){ .fd = fd };
	ret = os_file_of(fd, &p->file);
	if (ret)
		return ret;
	p->memory = memory_get(sizeof(*p->memory));
	return p->memory ? 0 : -ENOMEM;
}

void dsa_portal_fini(struct dsa_portal *p)
{
	dsa_portal_close(p);
	if (p->memory)
		munmap(p->memory, sizeof(*p->memory));
	p->memory = NULL;
}

void dsa_portal_fill(struct dsa_portal *p, int slot, const struct dsa_desc *d)
{
	struct dsa_record *r = &p->memory->records[slot];

	p->memory->descs[slot] = *d;
	p->memory->descs[slot].record = (uintptr_t)r;
	r->bytes = 0;
	r->fault_address = 0;
	/* the system call orders it before the device's store */
	atomic_store_explicit(&r->status, 0, memory_order_release);
}

/* Returns: the number of descriptors accepted, or -errno. */
static long put(int fd, const struct dsa_desc *batch, size_t n)
{
	long ret;

	if (base_fault("dsa_refuse"))
		return -EPERM;
	if (base_fault("dsa_full"))
		return -EAGAIN;
	if (n > 1 && base_fault("dsa_short"))
		n /= 2;
	ret = syscall(SYS_write, fd, batch, n * sizeof(*batch));
	return ret < 0 ? -errno : ret / (long)sizeof(*batch);
}

int dsa_portal_submit(struct dsa_portal *p, uint64_t slots, uint64_t *out_accepted)
{
	int fd = atomic_load_explicit(&p->fd, memory_order_relaxed);
	struct dsa_desc batch[BATCH];

	*out_accepted = 0;
	if (!os_file_is_at(&p->file, fd))
		return -EBADF;
	while (slots) {
		uint64_t bits[BATCH];
		long n = 0, accepted;

		for (; slots && n < BATCH; slots &= slots - 1) {
			batch[n] = p->memory->descs[__builtin_ctzll(slots)];
			bits[n++] = slots & -slots;
		}
		accepted = put(fd, batch, (size_t)n);
		for (long i = 0; i < accepted; i++)
			*out_accepted |= bits[i];
		if (accepted < n)
			return accepted < 0 ? (int)accepted : -EAGAIN;
	}
	return 0;
}

bool dsa_portal_close(struct dsa_portal *p)
{
	int fd = atomic_exchange_explicit(&p->fd, -1, memory_order_acq_rel);

	if (os_file_is_at(&p->file, fd))
		close(fd);
	return fd >= 0;
}
