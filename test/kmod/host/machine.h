/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine of copies.c: processes with pages, a DMA engine, time. Included once. */
#ifndef KMOD_HOST_MACHINE_H
#define KMOD_HOST_MACHINE_H

#include "kernel.h"

#include <sanitizer/asan_interface.h>

#include "../../../kernel/sluice/sluice.h"

enum { PROCESSES = 2, PAGES = 64, SLOTS = 8, RAM = 512, DESCRIPTORS = 32, ERESTARTSYS = 512 };
enum { SLICE = PAGES / 2 / SLOTS * 4096 }; /* of a slot's destinations, in the second half */

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "BROKEN line %d: %s, round %d\n", __LINE__, #x,            \
				round_number);                                                     \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

unsigned fail_at, spinning;
unsigned long jiffies;
u64 memlock_bytes;
bool is_privileged, is_killed;
size_t dma_line_bytes, dma_most_bytes;
struct work_struct *queued_work;
struct sluice_counters sluice_counters;
static struct task_struct thread = { 0 };
struct task_struct *current = &thread;
extern void *const param_cache_regions, *const param_cache_pages,
						*const param_depth, *const param_pages_per_item;
#define PARAM(type, name) (*(type *)param_##name)

static int round_number;
static struct { /* of a round */
	bool bounces, reorders, is_silent, is_lazy, stops, hangs, fails, is_quiet;
	unsigned room, refuses; /* descriptors; one of */
} habit;

static unsigned below(unsigned n) { return (unsigned)rand() % n; }
static void preempt(void);

/* ---- pages -------------------------------------------------------------------------------- */

static struct page ram[RAM] __attribute__((aligned(4096)));
static unsigned uses[RAM];    /* mappings and pins */
static unsigned writers[RAM]; /* pins of those who may write */

/* One copy, of a slot. */
struct copy {
	bool is_busy, is_cancelled, has_hole, is_unsure; /* unsure: which pages were pinned */
	u64 src, dst, bytes;
	unsigned births[5]; /* of the destination's pages */
	u8 wanted[SLICE];
};
static struct process {
	struct mm_struct *mm;
	struct sluice_context *context;
	int at[PAGES]; /* in `ram`; -1: not mapped */
	unsigned births[PAGES];
	u8 shadow[PAGES * 4096]; /* what is to be read there */
	struct copy copies[SLOTS];
} processes[PROCESSES];
enum { SPACES = 100 };
static struct mm_struct spaces[SPACES]; /* also of the dead */
static unsigned space_count;
static LIST_HEAD(notifiers);

u64 page_to_pfn(const struct page *p) { return (u64)(p - ram); }
static u64 address_of(const struct process *p, u64 off)
{
	return ((u64)(p - processes + 1) << 40) + off;
}
static u8 *byte_at(struct process *p, u64 off) { return &ram[p->at[off / 4096]].bytes[off % 4096]; }

static void page_put(int i)
{
	CHECK(uses[i]);
	if (!--uses[i])
		ASAN_POISON_MEMORY_REGION(&ram[i], 4096);
}

static void map_at(struct process *p, unsigned v, int i)
{
	CHECK(!uses[i]++);
	ASAN_UNPOISON_MEMORY_REGION(&ram[i], 4096);
	for (int k = 0; k < 4096; k++)
		p->shadow[v * 4096 + k] = ram[i].bytes[k] =
			(u8)(i * 31 + k * 7 + k / 256 + p->births[v]);
	p->at[v] = i;
	p->births[v]++;
}

static void map(struct process *p, unsigned v)
{
	int i = v && p->at[v - 1] >= 0 && below(4) ? (p->at[v - 1] + 1) % RAM : (int)below(RAM);

	while (uses[i])
		i = (i + 1) % RAM;
	map_at(p, v, i);
}

/* Takes away, maps anew, or only protects pages. The notifiers hear of it before. */
static void change(struct process *p, unsigned v, unsigned n, bool is_mapped_anew,
		   bool is_protection)
{
	struct mmu_notifier_range range = { is_protection ? MMU_NOTIFY_PROTECTION_VMA
							  : MMU_NOTIFY_UNMAP };
	u64 start = address_of(p, v * 4096), end = start + n * 4096;
	struct mmu_interval_notifier *i;
	static unsigned long seq;

	list_for_each_entry(i, &notifiers, list) if (i->mm == p->mm && i->start < end &&
						     start < i->start + i->bytes)
		CHECK(i->ops->invalidate(i, &range, ++seq));
	for (; n && !is_protection; n--, v++) {
		if (p->at[v] >= 0)
			page_put(p->at[v]);
		p->at[v] = -1;
		if (is_mapped_anew)
			map(p, v);
	}
}

static void change_some(struct process *p, bool is_mapped_anew)
{
	unsigned v = below(PAGES);

	change(p, v, 1 + below(min(6u, PAGES - v)), is_mapped_anew, !below(4));
}

int mmu_interval_notifier_insert(struct mmu_interval_notifier *n, struct mm_struct *mm, u64 start,
				 u64 bytes, const struct mmu_interval_notifier_ops *ops)
{
	might_sleep();
	if (habit.fails && !below(50))
		return -ENOMEM;
	*n = (struct mmu_interval_notifier){ { 0 }, mm, start, bytes, ops, 0 };
	list_add(&n->list, &notifiers);
	return 0;
}

void mmu_interval_notifier_remove(struct mmu_interval_notifier *n)
{
	might_sleep();
	preempt();
	list_del(&n->list);
}

long pin_user_pages_fast(u64 start, unsigned long count, unsigned flags, struct page **pages)
{
	struct process *p = &processes[(start >> 40) - 1];
	unsigned long n, v = (start & ((1ull << 40) - 1)) / 4096;

	CHECK(flags & FOLL_LONGTERM);
	might_sleep();
	for (n = 0; n < count && v + n < PAGES && p->at[v + n] >= 0; n++) {
		if (habit.fails && !below(200))
			break;
		pages[n] = &ram[p->at[v + n]];
		uses[p->at[v + n]]++;
		writers[p->at[v + n]] += flags & FOLL_WRITE ? 1 : 0;
	}
	preempt(); /* before the notifier is asked whether it has seen a change */
	return n ? (long)n : -EFAULT;
}

void unpin_user_pages_dirty_lock(struct page **pages, unsigned long count, bool is_dirty)
{
	might_sleep();
	for (unsigned long i = 0; i < count; i++) {
		page_put((int)(pages[i] - ram));
		CHECK(writers[pages[i] - ram] >= is_dirty);
		writers[pages[i] - ram] -= is_dirty;
	}
}

/* ---- the device --------------------------------------------------------------------------- */

struct device {
	int unused;
};
static struct device device;
static struct dma_device dma_device = { &device, 0 };
static struct dma_chan dma_channel = { &dma_device };
static bool is_taken, is_hung;
static struct mapping {
	dma_addr_t at; /* 0: free */
	u8 *memory, *bounce;
	size_t n;
	enum dma_data_direction to;
} mappings[2 * DESCRIPTORS];
static struct descriptor {
	struct dma_async_tx_descriptor tx;
	enum { FREE, READY, PENDING, ACTIVE } state;
	struct mapping *to, *from;
	size_t n;
} descriptors[DESCRIPTORS];
static unsigned long terminated;

struct dma_chan *dma_request(bool (*is_wanted)(struct dma_chan *, void *))
{
	if (is_taken || !is_wanted(&dma_channel, NULL))
		return NULL;
	is_taken = true;
	return &dma_channel;
}

void dma_release_channel(struct dma_chan *dma)
{
	CHECK(dma == &dma_channel && is_taken);
	is_taken = false;
}

static struct mapping *mapping_at(dma_addr_t at)
{
	for (struct mapping *m = mappings; m < mappings + 2 * DESCRIPTORS; m++)
		if (m->at == at)
			return m;
	CHECK(!"mapped");
	return NULL;
}

dma_addr_t dma_map_page(struct device *d, struct page *p, size_t off, size_t n,
			enum dma_data_direction to)
{
	struct mapping *m = mapping_at(0);
	static u64 last;

	CHECK(d == &device && off < 4096 && n && n <= dma_most_bytes);
	preempt();
	if (habit.fails && !below(30))
		return U64_MAX;
	for (size_t i = 0; i < DIV_ROUND_UP(off + n, 4096); i++)
		CHECK(to == DMA_FROM_DEVICE ? writers[page_to_pfn(p) + i]
					    : uses[page_to_pfn(p) + i]);
	*m = (struct mapping){ (++last << 30) + off, p->bytes + off, NULL, n, to };
	if (habit.bounces)
		m->bounce = memcpy(malloc(n), m->memory, n);
	return m->at;
}

void dma_unmap_page(struct device *d, dma_addr_t at, size_t n, enum dma_data_direction to)
{
	struct mapping *m = mapping_at(at);

	CHECK(d == &device && m->n == n && m->to == to);
	for (int i = 0; i < DESCRIPTORS; i++) /* the device does not use it */
		CHECK(descriptors[i].state < PENDING ||
		      (descriptors[i].to != m && descriptors[i].from != m));
	if (m->bounce && to == DMA_FROM_DEVICE)
		memcpy(m->memory, m->bounce, n);
	free(m->bounce);
	m->at = 0;
}

struct dma_async_tx_descriptor *dmaengine_prep_dma_memcpy(struct dma_chan *dma, dma_addr_t to,
							  dma_addr_t from, size_t n, unsigned flags)
{
	size_t align = max((size_t)1 << dma_device.copy_align, dma_line_bytes);
	struct descriptor *free_one = NULL;
	unsigned used = 0;

	CHECK(dma == &dma_channel && flags & DMA_PREP_INTERRUPT &&
	      !((to | from | n) & (align - 1)));
	CHECK(n >= L1_CACHE_BYTES && n <= PARAM(unsigned, pages_per_item) * 4096ull);
	preempt();
	for (struct descriptor *i = descriptors; i < descriptors + DESCRIPTORS; i++)
		if (i->state == FREE)
			free_one = i;
		else
			used++;
	CHECK(used < PARAM(unsigned, depth));
	if (used >= habit.room || !below(habit.refuses))
		return NULL;
	*free_one = (struct descriptor){ { 0 }, READY, mapping_at(to), mapping_at(from), n };
	CHECK(free_one->to->to == DMA_FROM_DEVICE && free_one->from->to == DMA_TO_DEVICE);
	CHECK(free_one->to->n >= n && free_one->from->n >= n);
	return &free_one->tx;
}

int dmaengine_submit(struct dma_async_tx_descriptor *tx)
{
	struct descriptor *i = container_of(tx, struct descriptor, tx);
	bool is_refused = habit.fails && !below(30);

	CHECK(i->state == READY);
	i->state = is_refused ? FREE : PENDING;
	preempt();
	return is_refused ? -ENOMEM : 1;
}

void dma_async_issue_pending(struct dma_chan *dma)
{
	bool is_active = false;

	CHECK(dma == &dma_channel);
	for (int i = 0; i < DESCRIPTORS; i++)
		is_active |= descriptors[i].state == ACTIVE;
	for (int i = 0; i < DESCRIPTORS; i++)
		if (descriptors[i].state == PENDING && !(is_active && habit.is_lazy))
			descriptors[i].state = ACTIVE;
	preempt();
}

/* Ends one copy, or does a part of it. */
static void device_step(void)
{
	unsigned k = habit.reorders ? below(DESCRIPTORS) : 0, n = 0;
	struct dmaengine_result result = { habit.fails && !below(30) ? DMA_TRANS_ABORTED
								     : DMA_TRANS_NOERROR };
	struct descriptor *i;

	while (n < DESCRIPTORS && descriptors[(k + n) % DESCRIPTORS].state != ACTIVE)
		n++;
	if (is_hung || n == DESCRIPTORS)
		return;
	i = &descriptors[(k + n) % DESCRIPTORS];
	CHECK(i->to->at && i->from->at);
	n = below(3) && !result.result ? i->n : below(i->n);
	memcpy(i->to->bounce ? i->to->bounce : i->to->memory,
	       i->from->bounce ? i->from->bounce : i->from->memory, n);
	if (n < i->n && !result.result)
		return;
	is_hung = habit.hangs && !below(10);
	i->state = FREE;
	i->tx.callback_result(i->tx.callback_param,
			      habit.is_silent && !result.result ? NULL : &result);
}

int dmaengine_terminate_sync(struct dma_chan *dma)
{
	CHECK(dma == &dma_channel && jiffies >= 1000);
	might_sleep();
	preempt();
	if (!habit.stops)
		return -ENOSYS;
	for (int i = 0; i < DESCRIPTORS; i++) {
		terminated += descriptors[i].state != FREE;
		descriptors[i].state = FREE;
	}
	is_hung = false;
	return 0;
}

/* ---- time --------------------------------------------------------------------------------- */

static struct task_struct *feeder; /* the only thread */
static bool is_feeding;
static unsigned long fed, waits; /* since the test has done something */

struct task_struct *thread_create(int (*run)(void *), void *arg)
{
	feeder = allocate_zeroed(sizeof(*feeder));
	if (!feeder)
		return ERR_PTR(-ENOMEM);
	feeder->run = run;
	feeder->arg = arg;
	return feeder;
}

void thread_stop(struct task_struct *t)
{
	CHECK(t == feeder);
	free(t);
	feeder = NULL;
}

/* Runs the feeder if it was woken, or if the time is over for which it sleeps while items are with
 * the device. */
static void feed(void)
{
	if (!feeder || is_feeding ||
	    (!feeder->is_awake && !(sluice_channel(0)->in_flight && jiffies - fed >= 250)))
		return;
	is_feeding = true;
	feeder->is_awake = false;
	fed = jiffies;
	feeder->run(feeder->arg);
	is_feeding = false;
}

/* Other CPUs do something. */
static void preempt(void)
{
	struct process *p = &processes[below(PROCESSES)];
	static unsigned nested;

	CHECK(!spinning);
	if (nested++ < 3 && !habit.is_quiet)
		switch (below(8)) {
		case 0:
			if (p->context)
				change_some(p, true);
			break;
		case 1:
			device_step();
			break;
		case 2:
			feed();
			break;
		case 3:
			if (!is_feeding)
				run_work();
		}
	nested--;
}

int wait_a_while(bool is_killable)
{
	might_sleep();
	CHECK(!is_feeding && ++waits < 10000);
	jiffies += 20;
	if (waits > 500 && !habit.stops)
		is_hung = false;
	device_step();
	feed();
	if (!below(4))
		run_work();
	return is_killable && !below(100) ? -ERESTARTSYS : 0;
}

#endif
