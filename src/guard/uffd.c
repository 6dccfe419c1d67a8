/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kind uffd: page tables are moved away (shadow.c) and the empty mapping is registered with
 * userfaultfd. A thread that touches it, also inside a system call or a peer's process_vm_readv,
 * sleeps in the kernel until a thread of ours has served the fault.
 *
 *   one thread leads: sleeps in poll(), reads one fault, serves it
 *     read of a GUARD_READ_ONLY page   the page is mapped write-protected, no wait (Linux 6.4)
 *     any other touch                  touched()
 *
 * When touched() waits for others, another thread takes the lead: a late partner of one range
 * delays no touch of another range. A fault in a range that a thread of ours waits for is not
 * served; it is woken after the wait and comes again. So all touches of one range need one thread
 * of ours, also those that return from signal handlers. There are as many threads as armed ranges,
 * up to THREADS_MAX.
 *
 * An idle thread costs its stack only. Every signal is blocked in these threads.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "guard/private.h"

#ifndef UFFD_FEATURE_MINOR_SHMEM
#define UFFD_FEATURE_MINOR_SHMEM (1 << 10)
#endif
#ifndef UFFDIO_CONTINUE
#define UFFDIO_REGISTER_MODE_MINOR ((__u64)1 << 2)
#define UFFDIO_CONTINUE            _IOWR(UFFDIO, 0x07, struct uffdio_continue)
struct uffdio_continue {
	struct uffdio_range range;
	__u64 mode;
	__s64 mapped;
};
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef UFFDIO_CONTINUE_MODE_WP
#define UFFDIO_CONTINUE_MODE_WP ((__u64)1 << 1)
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

enum { FILL_MIN = 6 << 20, THREADS_MIN = 2, THREADS_MAX = 8, STACK_BYTES = 256 << 10 };

static const uint64_t needed =
	UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_THREAD_ID;
static const uint64_t for_reads = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;

static struct {
	long fd, stop_fd;
	bool reads;             /* reads of GUARD_READ_ONLY pages need not wait */
	pthread_t thread[THREADS_MAX];
	_Atomic uint32_t threads; /* written under start_lock */
	_Atomic uint32_t has_leader; /* 1: a thread reads faults; futex */
	_Atomic bool stop;
} uffd = { .fd = -1, .stop_fd = -1 };
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

static __thread enum { NOT_OURS, SERVES, LEADS } role __attribute__((tls_model("initial-exec")));
/* The range that a thread of ours waits for; written by that thread. end 0: none. */
static struct waiting { _Atomic uintptr_t start, end; } waiting[THREADS_MAX];
static __thread struct waiting *own_wait __attribute__((tls_model("initial-exec")));
static __thread uintptr_t page_served __attribute__((tls_model("initial-exec")));
static __thread int fault_tid __attribute__((tls_model("initial-exec"))); /* the thread served */

/* ---- closing and opening, under the lock ------------------------------------------------- */

static int call(unsigned long request, void *arg)
{
	return (int)sud_syscall(SYS_ioctl, uffd.fd, request, arg);
}

static int range_call(unsigned long request, uintptr_t start, uintptr_t end)
{
	struct uffdio_range range = { .start = start, .len = end - start };

	return call(request, &range);
}

static int kind_arm(struct guard_range *r)
{
	struct uffdio_register reg = {
		.range = { .start = r->start, .len = r->end - r->start },
		.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR,
	};
	int ret = shadow_move_out(r);

	if (ret)
		return ret;
	if (r->access == GUARD_READ_ONLY && uffd.reads)
		reg.mode |= UFFDIO_REGISTER_MODE_WP;
	ret = base_fault("guard_uffd") ? -ENOMEM : call(UFFDIO_REGISTER, &reg);
	if (ret) {
		shadow_move_back(r, r->start, r->end);
		shadow_end(r);
		return ret;
	}
	/* drops pages that other threads read between the two calls; failure needs no undo */
	sud_syscall(SYS_madvise, r->start, r->end - r->start, (long)MADV_DONTNEED);
	return 0;
}

/*
 * The program may have unmapped memory by a raw system call, which the kernel does not report, and
 * mapped other memory there. Tables that came back would replace that.
 */
static bool is_in_place(const struct guard_range *r, uintptr_t start, uintptr_t end)
{
	uintptr_t shadow = r->shadow + (start - r->start);
	struct os_vma here, tables;
	int ret = os_vma_query_is_cheap() ? os_vma_query((void *)start, &here) : -ENOTTY;

	if (ret || os_vma_query((void *)shadow, &tables))
		return ret != -ENOENT;
	return here.end >= end && here.inode == tables.inode &&
	       here.offset - here.start + start == tables.offset - tables.start + shadow;
}

/* Opens what has remained of [start, end), without its tables: accesses fault pages in. */
__attribute__((cold)) static void open_remains(uintptr_t start, uintptr_t end)
{
	struct os_vma v;

	for (uintptr_t at = start; at < end && !os_vma_query_next((void *)at, &v); at = v.end)
		if (v.start < end)
			range_call(UFFDIO_UNREGISTER, base_max_u64(at, v.start),
				   base_min_u64(end, v.end));
	range_call(UFFDIO_WAKE, start, end);
}

/*
 * Moving tables back interrupts every CPU on which a thread of this process runs, once a table. So
 * when a thread of ours releases a large range that is complete, it opens the empty mapping instead
 * and populates its tables itself.
 */
static int kind_release(struct guard_range *r, uintptr_t start, uintptr_t end)
{
	bool fill = end - start >= FILL_MIN && role == NOT_OURS && sud_is_own_thread();
	int ret;

	if (!is_in_place(r, start, end)) {
		open_remains(start, end);
		return 0;
	}
	ret = fill ? -EBUSY : shadow_move_back(r, start, end);
	if (ret)
		ret = range_call(UFFDIO_UNREGISTER, start, end);
	else /* the tables may bring the registration back, which would forbid huge mappings */
		range_call(UFFDIO_UNREGISTER, start, end);
	if (!ret)
		range_call(UFFDIO_WAKE, start, end);
	if (!fill || ret)
		return ret;
	sud_syscall(SYS_madvise, r->shadow + (start - r->start), end - start, (long)MADV_DONTNEED);
	os_populate((void *)start, end - start);
	return 0;
}

/* ---- serving ----------------------------------------------------------------------------- */

static int let_read(uintptr_t start, uintptr_t end)
{
	struct uffdio_continue map = {
		.range = { .start = start, .len = end - start },
		.mode = UFFDIO_CONTINUE_MODE_WP,
	};
	int ret = call(UFFDIO_CONTINUE, &map);

	/* a part was mapped, or another reader was first */
	return map.mapped > 0 || ret == -EEXIST ? 0 : ret;
}

static bool is_waited_for(uintptr_t page)
{
	for (int i = 0; i < THREADS_MAX; i++) {
		/* acquire: pairs with the release in uffd_wait_begin() */
		uintptr_t end = atomic_load_explicit(&waiting[i].end, memory_order_acquire);

		if (page < end &&
		    page >= atomic_load_explicit(&waiting[i].start, memory_order_relaxed))
			return true;
	}
	return false;
}

static void serve(const struct uffd_msg *msg)
{
	uintptr_t page = base_round_down(msg->arg.pagefault.address, OS_PAGE), start, end;
	bool write =
		msg->arg.pagefault.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP);

	fault_tid = (int)msg->arg.pagefault.feat.ptid;
	page_served = page;
	if (write || !uffd.reads || guard_read_sig(page, let_read)) {
		if (is_waited_for(page))
			return; /* the thread that waits for it will wake this fault too */
		if (guard_touch_sig(page, OS_PAGE, write))
			base_count(BASE_CTR_FAULTS, 1);
	}
	start = atomic_load_explicit(&own_wait->start, memory_order_relaxed);
	end = atomic_load_explicit(&own_wait->end, memory_order_relaxed);
	/* before the wake: a later fault is served, an earlier one is woken */
	atomic_store_explicit(&own_wait->end, 0, memory_order_seq_cst);
	/* also when the page had been released before the fault was read */
	range_call(UFFDIO_WAKE, page, page + OS_PAGE);
	if (end)
		range_call(UFFDIO_WAKE, start, end);
}

static void lead_begin(void)
{
	uint32_t none = 0;

	/* Acquire: pairs with the release in lead_end(). */
	while (!atomic_compare_exchange_strong_explicit(&uffd.has_leader, &none, 1,
							memory_order_acquire,
							memory_order_relaxed)) {
		os_futex_wait(&uffd.has_leader, 1, UINT64_MAX / 2);
		none = 0;
	}
	role = LEADS;
}

static void lead_end(void)
{
	role = SERVES;
	atomic_store_explicit(&uffd.has_leader, 0, memory_order_release);
	os_futex_wake(&uffd.has_leader, 1);
}

bool uffd_wait_begin(void)
{
	uintptr_t start, end;

	if (role == LEADS) {
		if (guard_bounds_sig(page_served, &start, &end)) {
			atomic_store_explicit(&own_wait->start, start, memory_order_relaxed);
			/* Release: pairs with the acquire in is_waited_for(). */
			atomic_store_explicit(&own_wait->end, end, memory_order_release);
		}
		lead_end();
	}
	return role != NOT_OURS;
}

int guard_fault_tid(void) { return role == NOT_OURS ? (int)sud_syscall(SYS_gettid) : fault_tid; }

static void *serve_faults(void *arg)
{
	sud_own_thread();
	prctl(PR_SET_NAME, "sluice-guard");
	own_wait = arg;
	role = SERVES;
	for (;;) {
		struct pollfd p[2] = { { .fd = (int)uffd.fd, .events = POLLIN },
				       { .fd = (int)uffd.stop_fd, .events = POLLIN } };
		struct uffd_msg msg;

		if (role != LEADS)
			lead_begin();
		sud_syscall(SYS_ppoll, p, 2L, NULL, NULL, 0L);
		if (atomic_load_explicit(&uffd.stop, memory_order_relaxed))
			break;
		if (sud_syscall(SYS_read, uffd.fd, &msg, sizeof msg) == sizeof msg &&
		    msg.event == UFFD_EVENT_PAGEFAULT)
			serve(&msg);
	}
	lead_end();
	return NULL;
}

/* ---- threads ----------------------------------------------------------------------------- */

static int start_one(void)
{
	uint32_t n = atomic_load_explicit(&uffd.threads, memory_order_relaxed);
	pthread_attr_t attr;
	int ret = pthread_attr_init(&attr);

	if (ret)
		return -ret;
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sud_enter(); /* it inherits that every signal is blocked */
	ret = base_fault("guard_thread")
		      ? EAGAIN
		      : pthread_create(&uffd.thread[n], &attr, serve_faults, &waiting[n]);
	sud_exit();
	pthread_attr_destroy(&attr);
	if (!ret)
		atomic_store_explicit(&uffd.threads, n + 1, memory_order_relaxed);
	return -ret;
}

bool uffd_has_threads(uint32_t count)
{
	uint32_t target = (uint32_t)base_min_u64(base_max_u64(count + 1, THREADS_MIN), THREADS_MAX);
	int ret = 0;

	if (base_likely(atomic_load_explicit(&uffd.threads, memory_order_relaxed) >= target))
		return true;
	pthread_mutex_lock(&start_lock);
	while (!ret && atomic_load_explicit(&uffd.threads, memory_order_relaxed) < target)
		ret = start_one();
	pthread_mutex_unlock(&start_lock);
	return !ret;
}

/* ---- opening ----------------------------------------------------------------------------- */

/* A userfaultfd that reports faults of the kernel too. */
static long descriptor_open(void)
{
	long fd = sud_syscall(SYS_userfaultfd, (long)(O_CLOEXEC | O_NONBLOCK)), dev;

	if (fd != -EPERM)
		return fd;
	dev = sud_syscall(SYS_openat, (long)AT_FDCWD, "/dev/userfaultfd",
			  (long)(O_RDWR | O_CLOEXEC), 0L);
	if (dev < 0)
		return fd;
	fd = sud_syscall(SYS_ioctl, dev, (unsigned long)USERFAULTFD_IOC_NEW,
			 (long)(O_CLOEXEC | O_NONBLOCK));
	sud_syscall(SYS_close, dev);
	return fd;
}

static int features_ask(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };

	return call(UFFDIO_API, &api);
}

static void descriptors_close(void)
{
	if (uffd.fd >= 0)
		sud_syscall(SYS_close, uffd.fd);
	if (uffd.stop_fd >= 0)
		sud_syscall(SYS_close, uffd.stop_fd);
	uffd.fd = uffd.stop_fd = -1;
}

static void kind_close(void)
{
	uint32_t n = atomic_load_explicit(&uffd.threads, memory_order_relaxed);

	atomic_store_explicit(&uffd.stop, true, memory_order_relaxed);
	if (n)
		sud_syscall(SYS_write, uffd.stop_fd, &(uint64_t){ 1 }, 8L);
	for (uint32_t i = 0; i < n; i++)
		pthread_join(uffd.thread[i], NULL);
	atomic_store_explicit(&uffd.threads, 0, memory_order_relaxed);
	atomic_store_explicit(&uffd.stop, false, memory_order_relaxed);
	descriptors_close();
	shadow_unreserve();
}

void uffd_after_fork_child(void)
{
	/* threads exist in the parent only */
	descriptors_close();
	atomic_store_explicit(&uffd.threads, 0, memory_order_relaxed);
	atomic_store_explicit(&uffd.has_leader, 0, memory_order_relaxed);
	memset(waiting, 0, sizeof waiting);
	pthread_mutex_init(&start_lock, NULL);
}

static const struct guard_kind trial = { .arm = kind_arm,
					 .release = kind_release,
					 .end = shadow_end };

int uffd_open(char *reason, size_t cap)
{
	bool had_shadows = shadow_is_reserved();
	int ret;

	uffd.fd = base_fault("guard_uffd") ? -EPERM : descriptor_open();
	if (uffd.fd < 0) {
		snprintf(reason, cap, "userfaultfd for faults in the kernel: %s",
			 strerror((int)-uffd.fd));
		return (int)uffd.fd;
	}
	uffd.reads = !features_ask(needed | for_reads);
	ret = uffd.reads ? 0 : features_ask(needed);
	if (ret) {
		snprintf(reason, cap, "userfaultfd for shared memory: %s", strerror(-ret));
		goto close_fds;
	}
	uffd.stop_fd = sud_syscall(SYS_eventfd2, 0L, (long)O_CLOEXEC);
	ret = uffd.stop_fd < 0 ? (int)uffd.stop_fd : shadow_reserve(reason, cap);
	if (!ret)
		ret = shadow_trial(&trial, reason, cap);
	if (!ret)
		return 0;
	if (!had_shadows)
		shadow_unreserve();
close_fds:
	descriptors_close();
	return ret;
}

static int kind_open(char *reason, size_t cap)
{
	int ret = uffd_open(reason, cap);

	if (ret || uffd_has_threads(0))
		return ret;
	snprintf(reason, cap, "no threads to serve faults");
	kind_close();
	return -EAGAIN;
}

const struct guard_kind guard_uffd = {
	.name = "uffd",
	.open = kind_open,
	.close = kind_close,
	.arm = kind_arm,
	.release = kind_release,
	.end = shadow_end,
};
