/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * As much of the kernel as group.c and run.c need, in one thread of a process: allocations that
 * fail on request, and work that runs when the test says so.
 */
#ifndef KMOD_HOST_KERNEL_H
#define KMOD_HOST_KERNEL_H

#include <errno.h>
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
#define U64_MAX                        UINT64_MAX
#define BIT_ULL(n)                     (1ull << (n))
#define PAGE_SHIFT                     12
#define PAGE_SIZE                      ((size_t)1 << PAGE_SHIFT)
#define offset_in_page(a)              ((size_t)(a) & (PAGE_SIZE - 1))
#define min(a, b)                      ((a) < (b) ? (a) : (b))
#define max(a, b)                      ((a) > (b) ? (a) : (b))
#define min_t(t, a, b)                 ((t)(a) < (t)(b) ? (t)(a) : (t)(b))
#define DIV_ROUND_UP(a, b)             (((a) + (b)-1) / (b))
#define READ_ONCE(x)                   (*(volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, v)               (*(volatile __typeof__(x) *)&(x) = (v))
#define WARN_ON(x)                     ((x) ? abort() : (void)0)
#define check_add_overflow(a, b, sum)  __builtin_add_overflow(a, b, sum)
#define container_of(p, type, member)  ((type *)((char *)(p)-offsetof(type, member)))
#define module_param(name, type, mode) _Static_assert(sizeof(name), "")
#define MODULE_PARM_DESC(name, text)   _Static_assert(sizeof(text), "")

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t ktime_t;
typedef u64 dma_addr_t;
typedef _Atomic int atomic_t;
typedef _Atomic int64_t atomic64_t;
#define atomic64_add(n, p) ((void)(*(p) += (n)))

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
#define kfree                      free
#define kvfree                     free

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
#define LOCK(l)                ((l)->held ? abort() : (void)0, (l)->held = true)
#define UNLOCK(l)              (!(l)->held ? abort() : (void)0, (l)->held = false)
#define spin_lock(l)           LOCK(l)
#define spin_unlock(l)         UNLOCK(l)
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

/* ---- work --------------------------------------------------------------------------------- */

struct work_struct {
	void (*run)(struct work_struct *);
	bool is_queued;
};
struct workqueue_struct;
enum { WQ_UNBOUND = 1, WQ_HIGHPRI = 2 };
extern struct work_struct *queued_work; /* one at most: the test has one group */

#define INIT_WORK(w, f)                 (*(w) = (struct work_struct){ f, false })
#define alloc_workqueue(name, flags, n) ((struct workqueue_struct *)1)
#define destroy_workqueue(q)            ((void)(q))
static inline bool queue_work(struct workqueue_struct *q, struct work_struct *w)
{
	(void)q;
	if (w->is_queued)
		return false;
	w->is_queued = true;
	queued_work = w;
	return true;
}

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

struct mmu_interval_notifier {
	int unused;
};
typedef struct {
	int unused;
} wait_queue_head_t;
struct mm_struct;
struct task_struct;
struct dma_chan;

#endif
