/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * As much of the kernel as the module needs (without main.c and onload.c), in one thread of a
 * process: allocations that fail on request, and work and kernel threads that run when the test
 * says so. host.c executes schedules, copies.c copies over a DMA engine of its own.
 */
#ifndef KMOD_HOST_KERNEL_H
#define KMOD_HOST_KERNEL_H

#include <errno.h>
#include <limits.h>
#include <linux/ioctl.h>
#include <linux/types.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_X86         1
#define IS_ENABLED(option) (option)
#define __user
#define U64_MAX                       UINT64_MAX
#define BIT_ULL(n)                    (1ull << (n))
#define PAGE_SHIFT                    12
#define PAGE_SIZE                     ((size_t)1 << PAGE_SHIFT)
#define PAGE_MASK                     (~(PAGE_SIZE - 1))
#define PAGE_ALIGN(a)                 (((a) + PAGE_SIZE - 1) & PAGE_MASK)
#define offset_in_page(a)             ((size_t)(a) & (PAGE_SIZE - 1))
#define IS_ALIGNED(x, a)              (!((x) & ((a)-1)))
#define round_down(x, a)              ((x) & ~((__typeof__(x))(a)-1))
#define L1_CACHE_BYTES                64
#define min(a, b)                     ((a) < (b) ? (a) : (b))
#define max(a, b)                     ((a) > (b) ? (a) : (b))
#define min3(a, b, c)                 min(a, min(b, c))
#define clamp(x, low, high)           min(max(x, low), high)
#define min_t(t, a, b)                ((t)(a) < (t)(b) ? (t)(a) : (t)(b))
#define max_t(t, a, b)                ((t)(a) > (t)(b) ? (t)(a) : (t)(b))
#define DIV_ROUND_UP(a, b)            (((a) + (b)-1) / (b))
#define READ_ONCE(x)                  (*(volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, v)              (*(volatile __typeof__(x) *)&(x) = (v))
#define WARN_ON(x)                    ((x) ? abort() : (void)0)
#define BUILD_BUG_ON(x)               _Static_assert(!(x), "")
#define pr_notice(...)                ((void)0)
#define strscpy(to, from, n)          ((void)snprintf(to, n, "%s", from))
#define check_add_overflow(a, b, sum) __builtin_add_overflow(a, b, sum)
#define container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))
/* for the test, which sets it */
#define module_param(name, type, mode) void *const param_##name = &name
#define MODULE_PARM_DESC(name, text)   _Static_assert(sizeof(text), "")

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t ktime_t;
typedef u64 dma_addr_t;
typedef _Atomic int atomic_t;
typedef _Atomic int64_t atomic64_t;
#define atomic64_add(n, p)           ((void)(*(p) += (n)))
#define atomic64_sub(n, p)           ((void)(*(p) -= (n)))
#define atomic64_add_return(n, p)    ((u64)(*(p) += (n)))
#define atomic_read(p)               atomic_load(p)
#define atomic_read_acquire(p)       atomic_load(p)
#define atomic_set_release(p, v)     atomic_store(p, v)
#define atomic_xchg(p, v)            atomic_exchange(p, v)
#define atomic_inc(p)                ((void)++*(p))
#define atomic_dec(p)                ((void)--*(p))
#define atomic_dec_return_release(p) ((void)--*(p))
#define smp_load_acquire(p)          __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define smp_store_release(p, v)      __atomic_store_n(p, v, __ATOMIC_RELEASE)

/* ---- memory ------------------------------------------------------------------------------- */

enum { GFP_KERNEL, GFP_KERNEL_ACCOUNT };
extern unsigned fail_at; /* the n-th allocation from now on fails; 0: none does */

static inline void *allocate_zeroed(size_t n)
{
	return fail_at && !--fail_at ? NULL : calloc(1, n ? n : 1);
}
#define kzalloc(n, f)              allocate_zeroed(n)
#define kvzalloc(n, f)             allocate_zeroed(n)
#define kvmalloc(n, f)             allocate_zeroed(n)
#define kcalloc(n, size, f)        allocate_zeroed((size_t)(n) * (size))
#define kvmalloc_array(n, size, f) allocate_zeroed((size_t)(n) * (size))
#define vmalloc_user(n)            allocate_zeroed(n)
#define kfree                      free
#define kvfree                     free
#define vfree                      free

#define IS_ERR(p)   ((uintptr_t)(p) >= (uintptr_t)-4095)
#define ERR_PTR(rc) ((void *)(intptr_t)(rc))
#define PTR_ERR(p)  ((int)(intptr_t)(p))

#define u64_to_user_ptr(a) ((void *)(uintptr_t)(a))
static inline unsigned long copy_from_user(void *to, const void *from, size_t n)
{
	if (!from)
		return n;
	memcpy(to, from, n);
	return 0;
}

static inline const void *memchr_inv(const void *p, int c, size_t n)
{
	for (const u8 *b = p; n; b++, n--)
		if (*b != (u8)c)
			return b;
	return NULL;
}

struct page {
	u8 bytes[PAGE_SIZE];
};
#define kmap_local_page(p) ((p)->bytes)
#define kunmap_local(p)    ((void)(p))
#define cond_resched()     ((void)0)
#define kernel_fpu_begin() ((void)0)
#define kernel_fpu_end()   ((void)0)
#define ktime_get()        ((ktime_t)1000)
#define ktime_sub(a, b)    ((a) - (b))
#define ktime_to_ns(t)     ((u64)(t))

/* ---- lists -------------------------------------------------------------------------------- */

struct list_head {
	struct list_head *next, *prev;
};
static inline void INIT_LIST_HEAD(struct list_head *l) { l->next = l->prev = l; }
static inline bool list_empty(const struct list_head *l) { return l->next == l; }
static inline void list_add_tail(struct list_head *n, struct list_head *l)
{
	n->prev = l->prev;
	n->next = l;
	l->prev = l->prev->next = n;
}
static inline void list_del(struct list_head *n)
{
	n->next->prev = n->prev;
	n->prev->next = n->next;
	n->next = n->prev = NULL;
}
static inline void list_del_init(struct list_head *n)
{
	list_del(n);
	INIT_LIST_HEAD(n);
}
static inline void list_add(struct list_head *n, struct list_head *l) { list_add_tail(n, l->next); }
static inline void list_move(struct list_head *n, struct list_head *l)
{
	list_del(n);
	list_add(n, l);
}
static inline void list_move_tail(struct list_head *n, struct list_head *l)
{
	list_del(n);
	list_add_tail(n, l);
}
#define LIST_HEAD(name)                   struct list_head name = { &name, &name }
#define list_first_entry(l, t, m)         container_of((l)->next, t, m)
#define list_first_entry_or_null(l, t, m) (list_empty(l) ? NULL : list_first_entry(l, t, m))
#define list_for_each_entry_safe_reverse(p, n, l, member)                                          \
	for (p = container_of((l)->prev, __typeof__(*p), member),                                  \
	    n = container_of(p->member.prev, __typeof__(*p), member);                              \
	     &p->member != (l); p = n, n = container_of(n->member.prev, __typeof__(*p), member))
#define list_for_each_entry(p, l, member)                                                          \
	for (p = container_of((l)->next, __typeof__(*p), member); &p->member != (l);               \
	     p = container_of(p->member.next, __typeof__(*p), member))
#define list_for_each_entry_safe(p, n, l, member)                                                  \
	for (p = container_of((l)->next, __typeof__(*p), member),                                  \
	    n = container_of(p->member.next, __typeof__(*p), member);                              \
	     &p->member != (l); p = n, n = container_of(n->member.next, __typeof__(*p), member))

/* ---- locks, references, bitmaps ----------------------------------------------------------- */

typedef struct {
	bool held;
} spinlock_t;
struct mutex {
	bool held;
};
#define LOCK(l)   ((l)->held ? abort() : (void)0, (l)->held = true)
#define UNLOCK(l) (!(l)->held ? abort() : (void)0, (l)->held = false)
extern unsigned spinning; /* spinlocks held: nothing may sleep */
#define spin_lock(l)           (LOCK(l), (void)spinning++)
#define spin_unlock(l)         (UNLOCK(l), (void)spinning--)
#define spin_lock_init(l)      ((l)->held = false)
#define lockdep_assert_held(l) (!(l)->held ? abort() : (void)0)
#define might_sleep()          (spinning ? abort() : (void)0)
#define DEFINE_MUTEX(l)        struct mutex l
#define mutex_init(l)          ((l)->held = false)
#define mutex_lock(l)          LOCK(l)
#define mutex_unlock(l)        UNLOCK(l)
#define mutex_lock_killable(l) (LOCK(l), 0)

struct kref {
	int n;
};
static inline void kref_init(struct kref *k) { k->n = 1; }
static inline void kref_get(struct kref *k) { k->n++; }
static inline void kref_put(struct kref *k, void (*end)(struct kref *))
{
	if (!--k->n)
		end(k);
}

#define BITS                64
#define bitmap_zalloc(n, f) allocate_zeroed(DIV_ROUND_UP(n, BITS) * sizeof(long))
#define bitmap_free         free
static inline bool test_bit(unsigned i, const unsigned long *b)
{
	return b[i / BITS] >> i % BITS & 1;
}
static inline void __set_bit(unsigned i, unsigned long *b) { b[i / BITS] |= 1ul << i % BITS; }
static inline bool test_and_set_bit(unsigned i, unsigned long *b)
{
	bool was = test_bit(i, b);

	__set_bit(i, b);
	return was;
}

/* ---- work, threads and waiting ------------------------------------------------------------ */

struct work_struct {
	void (*run)(struct work_struct *);
	bool is_queued;
	struct work_struct *next;
};
struct workqueue_struct;
enum { WQ_UNBOUND = 1, WQ_HIGHPRI = 2, WQ_UNBOUND_MAX_ACTIVE = 512 };
extern struct work_struct *queued_work; /* the first one */

#define system_unbound_wq               ((struct workqueue_struct *)1)
#define INIT_WORK(w, f)                 (*(w) = (struct work_struct){ f, false, NULL })
#define alloc_workqueue(name, flags, n) ((struct workqueue_struct *)1)
#define destroy_workqueue(q)            ((void)(q))
static inline bool queue_work(struct workqueue_struct *q, struct work_struct *w)
{
	struct work_struct **at = &queued_work;

	(void)q;
	if (w->is_queued)
		return false;
	while (*at)
		at = &(*at)->next;
	w->is_queued = true;
	w->next = NULL;
	*at = w;
	return true;
}

static inline void cancel_work_sync(struct work_struct *w)
{
	struct work_struct **at = &queued_work;

	might_sleep();
	while (*at && *at != w)
		at = &(*at)->next;
	if (*at)
		*at = w->next;
	w->is_queued = false;
}

/* Runs the first one, if none is running: there is one worker. Returns: whether it did. */
static inline bool run_work(void)
{
	struct work_struct *w = queued_work;
	static bool is_running;

	if (!w || is_running)
		return false;
	queued_work = w->next;
	w->is_queued = false;
	is_running = true;
	w->run(w);
	is_running = false;
	return true;
}

/* A thread's function returns where it would sleep; the test calls it again while it is awake. */
struct mm_struct {
	atomic64_t pinned_vm;
	int users;
};
struct task_struct {
	struct mm_struct *mm;
	int (*run)(void *);
	void *arg;
	bool is_awake;
};
extern struct task_struct *current;
struct task_struct *thread_create(int (*run)(void *), void *arg);
void thread_stop(struct task_struct *t);
extern unsigned long jiffies;
enum { TASK_RUNNING, TASK_IDLE };
#define kthread_create_on_node(run, arg, ...) thread_create(run, arg)
#define kthread_stop(t)                       thread_stop(t)
#define kthread_should_stop()                 true
#define wake_up_process(t)                    ((void)((t)->is_awake = true))
#define set_current_state(s)                  ((void)(s))
#define __set_current_state(s)                ((void)(s))
#define schedule_timeout(t)                   ((void)(t))
#define MAX_SCHEDULE_TIMEOUT                  LONG_MAX
#define msecs_to_jiffies(ms)                  ((unsigned long)(ms))
#define time_before(a, b)                     ((long)((a) - (b)) < 0)
#define usleep_range(low, high)               ((void)0)

typedef struct {
	int unused;
} wait_queue_head_t;
int wait_a_while(bool is_killable); /* Returns: 0 or -ERESTARTSYS. */
#define init_waitqueue_head(q)       ((void)(q))
#define wake_up_all(q)               ((void)(q))
#define wait_event_idle(q, what)     ((void)wait_event_host(what, false))
#define wait_event_killable(q, what) wait_event_host(what, true)
#define wait_event_host(what, is_killable)                                                         \
	({                                                                                         \
		int rc_ = 0;                                                                       \
		while (!(what) && !rc_)                                                            \
			rc_ = wait_a_while(is_killable);                                           \
		rc_;                                                                               \
	})

/* ---- pages of a process ------------------------------------------------------------------- */

enum mmu_notifier_event {
	MMU_NOTIFY_UNMAP,
	MMU_NOTIFY_PROTECTION_VMA,
	MMU_NOTIFY_PROTECTION_PAGE,
	MMU_NOTIFY_SOFT_DIRTY
};
struct mmu_notifier_range {
	enum mmu_notifier_event event;
};
struct mmu_interval_notifier;
struct mmu_interval_notifier_ops {
	bool (*invalidate)(struct mmu_interval_notifier *n, const struct mmu_notifier_range *range,
			   unsigned long seq);
};
struct mmu_interval_notifier {
	struct list_head list;
	struct mm_struct *mm;
	u64 start, bytes;
	const struct mmu_interval_notifier_ops *ops;
	unsigned long seq;
};
int mmu_interval_notifier_insert(struct mmu_interval_notifier *n, struct mm_struct *mm, u64 start,
				 u64 bytes, const struct mmu_interval_notifier_ops *ops);
void mmu_interval_notifier_remove(struct mmu_interval_notifier *n);
#define mmu_interval_read_begin(n)      ((n)->seq)
#define mmu_interval_read_retry(n, old) ((n)->seq != (old))
#define mmu_interval_set_seq(n, new)    ((void)((n)->seq = (new)))
enum { FOLL_LONGTERM = 1, FOLL_WRITE = 2 };
long pin_user_pages_fast(u64 start, unsigned long count, unsigned flags, struct page **pages);
void unpin_user_pages_dirty_lock(struct page **pages, unsigned long count, bool is_dirty);
u64 page_to_pfn(const struct page *p);
extern u64 memlock_bytes;
extern bool is_privileged, is_killed;
#define rlimit(which)           memlock_bytes
#define capable(which)          is_privileged
#define fatal_signal_pending(t) is_killed
#define mmgrab(m)               ((void)(m)->users++)
#define mmdrop(m)               ((void)(m)->users--)

/* ---- a DMA engine ------------------------------------------------------------------------- */

enum { DMA_MEMCPY, DMA_PREP_INTERRUPT = 1, DMA_CTRL_ACK = 2 };
enum dma_data_direction { DMA_TO_DEVICE, DMA_FROM_DEVICE };
enum { DMA_TRANS_NOERROR, DMA_TRANS_ABORTED };
typedef u64 dma_cap_mask_t;
struct device;
struct dma_device {
	struct device *dev;
	unsigned copy_align;
};
struct dma_chan {
	struct dma_device *device;
};
struct dmaengine_result {
	int result;
};
struct dma_async_tx_descriptor {
	void (*callback_result)(void *param, const struct dmaengine_result *result);
	void *callback_param;
};
extern size_t dma_line_bytes, dma_most_bytes; /* of caches that it does not see; of a mapping */
struct dma_chan *dma_request(bool (*is_wanted)(struct dma_chan *, void *));
void dma_release_channel(struct dma_chan *dma);
dma_addr_t dma_map_page(struct device *d, struct page *p, size_t off, size_t n,
			enum dma_data_direction to);
void dma_unmap_page(struct device *d, dma_addr_t at, size_t n, enum dma_data_direction to);
struct dma_async_tx_descriptor *dmaengine_prep_dma_memcpy(struct dma_chan *dma, dma_addr_t to,
							  dma_addr_t from, size_t n,
							  unsigned flags);
int dmaengine_submit(struct dma_async_tx_descriptor *tx);
void dma_async_issue_pending(struct dma_chan *dma);
int dmaengine_terminate_sync(struct dma_chan *dma);
#define dma_cap_zero(mask)              ((void)((mask) = 0))
#define dma_cap_set(bit, mask)          ((void)((mask) |= BIT_ULL(bit)))
#define dma_request_channel(mask, f, p) ((void)(mask), dma_request(f))
#define dma_submit_error(cookie)        ((cookie) < 0)
#define dma_mapping_error(d, at)        ((at) == U64_MAX)
#define dma_get_cache_alignment()       dma_line_bytes
#define dma_max_mapping_size(d)         dma_most_bytes
#define dmaengine_synchronize(dma)      ((void)(dma))
#define dma_chan_name(dma)              "dma0chan0"
#define dev_driver_string(d)            ((void)(d), "host")
#define dev_to_node(d)                  ((void)(d), -1)

/* ---- files, and what sluice.h only names -------------------------------------------------- */

struct inode;
struct file;
struct file_operations {
	void *owner;
	int (*release)(struct inode *, struct file *);
	void *llseek;
};
struct file {
	const struct file_operations *f_op;
	void *private_data;
};
#define THIS_MODULE NULL
#define noop_llseek NULL
enum { HOST_O_RDWR = 2, HOST_O_CLOEXEC = 02000000 };
#define O_RDWR    HOST_O_RDWR
#define O_CLOEXEC HOST_O_CLOEXEC
extern struct file group_file; /* descriptor 3 */
static inline int anon_inode_getfd(const char *name, const struct file_operations *ops, void *data,
				   int flags)
{
	(void)name, (void)flags;
	group_file = (struct file){ ops, data };
	return 3;
}
static inline struct file *fget(int fd) { return fd == 3 ? &group_file : NULL; }
#define fput(f) ((void)(f))

#endif
