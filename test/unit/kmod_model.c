/* SPDX-License-Identifier: BSD-3-Clause */
#include "kmod_model.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

enum { CONTEXTS = 32 };

struct context {
	ino_t inode;                   /* of the open file; 0: not in use */
	struct sluice_record *records; /* the model's own mapping */
	struct sluice_entry jobs[SLUICE_SLOTS];
	uint64_t queued, running, hung; /* masks of slots */
	bool is_attached, is_retired;
	unsigned number; /* of the open */
};

struct kmod_model kmod_model = { .abi = SLUICE_ABI, .channels = 2 };
static struct context contexts[CONTEXTS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* The lock is held: no test goes on. */
_Noreturn static void wrong(const char *what)
{
	fprintf(stderr, "kmod_model: %s\n", what);
	abort();
}

static void lock(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, old);
	pthread_mutex_lock(&mutex);
}

static void unlock(const sigset_t *old)
{
	pthread_mutex_unlock(&mutex);
	pthread_sigmask(SIG_SETMASK, old, NULL);
}

/* ---- the device -------------------------------------------------------------------------- */

/* A sanitizer does not see what a device does. */
UNIT_UNSANITIZED static void copy(uint64_t dst, uint64_t src, uint64_t bytes)
{
#ifdef __x86_64__
	__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes) : : "memory");
#else
	while (bytes--)
		*(volatile char *)(uintptr_t)dst++ = *(volatile char *)(uintptr_t)src++;
#endif
}

UNIT_UNSANITIZED static void record(struct context *c, int slot, int result)
{
	c->records[slot].result = result;
	__atomic_store_n(&c->records[slot].state, SLUICE_RECORD_ENDED, __ATOMIC_RELEASE);
}

static struct context *next_context(void)
{
	static unsigned turn;

	for (unsigned i = 0; i < CONTEXTS; i++) {
		struct context *c = &contexts[(turn + i) % CONTEXTS];

		if (c->inode && c->queued) {
			turn = (turn + i + 1) % CONTEXTS;
			return c;
		}
	}
	return NULL;
}

/* Executes one copy, without the lock. */
UNIT_UNSANITIZED static void execute(struct context *c, int slot)
{
	struct sluice_entry e = c->jobs[slot];
	unsigned n = ++kmod_model.copies;
	bool hangs = kmod_model.hang_at && n >= kmod_model.hang_at,
	     fails = n == kmod_model.error_at;

	if (hangs) {
		c->hung |= 1ull << slot;
		return;
	}
	pthread_mutex_unlock(&mutex);
	if (!fails)
		copy(e.dst, e.src, e.bytes);
	pthread_mutex_lock(&mutex);
	c->running &= ~(1ull << slot);
	record(c, slot, fails ? (kmod_model.copy_error ? kmod_model.copy_error : -EIO) : 0);
	pthread_cond_broadcast(&changed);
}

static void *device(void *unused)
{
	pthread_mutex_lock(&mutex);
	for (;;) {
		struct context *c = next_context();

		if (c) {
			int slot = __builtin_ctzll(c->queued);

			c->queued &= ~(1ull << slot);
			c->running |= 1ull << slot;
			execute(c, slot);
		} else {
			pthread_cond_wait(&changed, &mutex);
		}
	}
	return unused;
}

/* ---- calls ------------------------------------------------------------------------------- */

static ino_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

static struct context *context_of(int fd)
{
	ino_t inode = inode_of(fd);

	for (int i = 0; i < CONTEXTS; i++)
		if (inode && contexts[i].inode == inode)
			return &contexts[i];
	return NULL;
}

static void forget(struct context *c)
{
	if (c->records)
		munmap(c->records, SLUICE_RECORDS_BYTES);
	*c = (struct context){ 0 };
}

static int model_open(void)
{
	static unsigned opens;
	struct context *c = NULL;
	sigset_t old;
	int fd;

	if (kmod_model.open_error)
		return kmod_model.open_error;
	fd = memfd_create("kmod-model", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, SLUICE_RECORDS_BYTES))
		return -errno;
	lock(&old);
	for (int i = 0; i < CONTEXTS && !c; i++) {
		struct context *old_one = &contexts[i];

		/* whether its file is still open, the model does not know */
		if (old_one->inode &&
		    (old_one->is_retired || (!old_one->is_attached && old_one->number + 8 < opens)))
			forget(&contexts[i]);
		c = contexts[i].inode ? NULL : &contexts[i];
	}
	if (!c)
		wrong("too many contexts");
	c->inode = inode_of(fd);
	c->number = ++opens;
	unlock(&old);
	return fd;
}

static int enter(struct context *c, struct sluice_enter *arg)
{
	const struct sluice_entry *e = (const void *)(uintptr_t)arg->entries;
	unsigned room = kmod_model.accepts ? kmod_model.accepts : SLUICE_SLOTS;

	kmod_model.enters++;
	if (kmod_model.enter_error)
		return kmod_model.enter_error;
	for (; arg->accepted < arg->count; arg->accepted++, e++) {
		uint64_t used = c->queued | c->running | c->hung;

		if (e->slot >= SLUICE_SLOTS || e->op != SLUICE_OP_COPY || !e->bytes ||
		    e->bytes > 4 << 20 || e->zero[0] || e->zero[1] || e->zero[2])
			wrong("a malformed entry");
		if (used >> e->slot & 1)
			wrong("a slot is in use");
		if (!room--)
			return -EAGAIN;
		c->jobs[e->slot] = *e;
		c->queued |= 1ull << e->slot;
	}
	pthread_cond_broadcast(&changed);
	return 0;
}

static void cancel(struct context *c, const struct sluice_cancel *arg)
{
	for (uint64_t all = c->queued; all; all &= all - 1) {
		int slot = __builtin_ctzll(all);

		if (c->jobs[slot].cookie - arg->from >= arg->bytes)
			continue;
		c->queued &= ~(1ull << slot);
		record(c, slot, -ECANCELED);
	}
}

static void retire(struct context *c)
{
	uint64_t stopped = c->hung;

	c->is_retired = true;
	for (; c->queued; c->queued &= c->queued - 1)
		record(c, __builtin_ctzll(c->queued), -ECANCELED);
	while (c->running & ~c->hung)
		pthread_cond_wait(&changed, &mutex);
	for (; stopped; stopped &= stopped - 1) /* a stuck device is stopped */
		record(c, __builtin_ctzll(stopped), -EIO);
	c->running = c->hung = 0;
	if (c->records)
		munmap(c->records, SLUICE_RECORDS_BYTES);
	c->records = NULL;
}

static int execute_call(struct context *c, int fd, unsigned long request, void *arg)
{
	struct sluice_attach *a = arg;

	switch (request) {
	case SLUICE_IOC_INFO:
		*(struct sluice_info *)arg = (struct sluice_info){ .abi = kmod_model.abi,
								   .channels = kmod_model.channels,
								   .slots = SLUICE_SLOTS };
		return 0;
	case SLUICE_IOC_ATTACH:
		if (kmod_model.attach_error)
			return kmod_model.attach_error;
		if (a->channel >= kmod_model.channels || c->is_attached)
			return -EINVAL;
		c->is_attached = true;
		c->records = mmap(NULL, SLUICE_RECORDS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
				  fd, 0);
		a->max_bytes = 4 << 20;
		return 0;
	case SLUICE_IOC_ENTER:
		return c->is_retired ? -ESHUTDOWN : enter(c, arg);
	case SLUICE_IOC_CANCEL:
		cancel(c, arg);
		return 0;
	case SLUICE_IOC_RETIRE:
		retire(c);
		return 0;
	}
	return -ENOTTY;
}

static int model_call(int fd, unsigned long request, void *arg)
{
	struct context *c;
	sigset_t old;
	int rc;

	lock(&old);
	c = context_of(fd);
	rc = c ? execute_call(c, fd, request, arg) : -EPERM;
	unlock(&old);
	return rc;
}

bool kmod_model_is_absent(void) { return kmod_system.open != model_open; }

void kmod_model_reset(void)
{
	kmod_model = (struct kmod_model){ .abi = SLUICE_ABI, .channels = 2 };
}

static void start(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, device, NULL))
		abort();
}

/* A child has no right to what its parent opened, and may open the device itself. */
static void start_in_child(void)
{
	pthread_mutex_init(&mutex, NULL);
	pthread_cond_init(&changed, NULL);
	memset(contexts, 0, sizeof contexts);
	start();
}

/* Before the first test, so that the harness counts the thread among those that were there. */
__attribute__((constructor)) static void begin(void)
{
#ifdef __SANITIZE_THREAD__
	return; /* it takes a thread of a forked child for this one; dsa's tests run the same code
		 */
#endif
	if (!access("/dev/sluice", F_OK))
		return;
	kmod_system = (struct kmod_system){ model_open, model_call };
	pthread_atfork(NULL, NULL, start_in_child);
	start();
}
