/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of sluice.ko in user space, under sanitizers: region.c, channel.c and context.c over
 * kernel.h. Processes copy, map anew, cancel, retire and die, over a device that ends copies in any
 * order, fails, refuses, hangs, and sees memory through bounce buffers. Pages that nobody maps or
 * pins are poisoned.
 *
 *   copies ROUNDS   ends by a signal when a rule is broken
 */
#include "machine.h"

/* ---- what the other files of the module do ------------------------------------------------ */

void sluice_run_cancel(struct sluice_context *c, u64 from, u64 bytes)
{
	(void)c, (void)from, (void)bytes;
}
void sluice_group_leave(struct sluice_context *c) { (void)c; }
unsigned int sluice_onload_start(void) { return 0; }
void sluice_onload_stop(void) {}
struct sluice_pool *sluice_onload_pool(unsigned int i) { return (void)i, NULL; }
int sluice_onload_node(const struct sluice_pool *p) { return (void)p, -1; }
unsigned int sluice_onload_workers(const struct sluice_pool *p) { return (void)p, 0; }
void sluice_onload_submit(struct sluice_pool *p, struct sluice_item *item) { (void)p, (void)item; }

/* ---- processes ---------------------------------------------------------------------------- */

static void die(struct process *p)
{
	bool is_unmapped_first = below(2);

	for (int i = 0; i < 2; i++)
		if (is_unmapped_first == !i) {
			change(p, 0, PAGES, false, false);
		} else {
			sluice_context_close(p->context);
			p->context = NULL;
		}
	memset(p->copies, 0, sizeof(p->copies));
}

static void live(struct process *p)
{
	struct sluice_attach attach = { 0 };

	p->mm = &spaces[space_count++];
	CHECK(space_count <= SPACES);
	memset(p->mm, 0, sizeof(*p->mm));
	current->mm = p->mm;
	for (unsigned v = 0; v < PAGES; v++)
		map(p, v);
	p->context = sluice_context_new();
	CHECK(p->context);
	p->context->channels = sluice_channels_get();
	CHECK(p->context->channels == 1 && !sluice_context_attach(p->context, &attach));
}

static bool has_hole(const struct process *p, u64 off, u64 bytes)
{
	for (u64 v = off / 4096; v <= (off + bytes - 1) / 4096; v++)
		if (p->at[v] < 0)
			return true;
	return false;
}

/* Sums of the regions agree, and the memory that is kept without need is bounded. */
static void check_regions(struct process *p, bool has_made_one)
{
	unsigned long pages = 0, n = 0, unused = 0;
	struct sluice_region *r;

	list_for_each_entry(r, &p->context->regions, list)
	{
		n++;
		pages += r->count;
		unused += !r->refs;
	}
	CHECK(n == p->context->region_count && pages == p->context->pages);
	CHECK(pages == (u64)p->mm->pinned_vm && (is_privileged || pages * 4096 <= memlock_bytes));
	CHECK(!has_made_one || !unused ||
	      (n <= PARAM(unsigned, cache_regions) && pages <= PARAM(unsigned long, cache_pages)));
}

/* Changes when one of the pages does. */
static u64 age(const struct process *p, u64 off, u64 bytes)
{
	u64 sum = 0;

	for (u64 v = off / 4096; v <= (off + bytes - 1) / 4096; v++)
		sum += p->births[v];
	return sum;
}

static int enter(struct process *p, struct sluice_entry *entries, unsigned n)
{
	struct sluice_enter e = { (uintptr_t)entries, n, 0, 0, 0 };
	int rc;

	current->mm = p->mm;
	mutex_lock(&p->context->enter);
	rc = sluice_context_enter(p->context, &e);
	mutex_unlock(&p->context->enter);
	CHECK(rc || e.accepted == n);
	return rc;
}

static void copy_some(struct process *p)
{
	unsigned slot = below(SLOTS);
	struct copy *c = &p->copies[slot];
	long regions = sluice_counters.regions;
	struct sluice_entry e;
	u64 before;

	if (c->is_busy || p->context->retired)
		return;
	c->dst = PAGES / 2 * 4096 + slot * SLICE + below(SLICE);
	c->bytes = 1 + below(PAGES / 2 * 4096 + (slot + 1) * SLICE - (unsigned)c->dst);
	if (!below(3)) { /* as aligned as devices like it */
		c->dst &= ~63ull;
		c->bytes = max(c->bytes & ~63ull, 64ull);
	}
	c->src = below(PAGES / 2 * 4096 - (unsigned)c->bytes);
	c->src = below(2) ? c->src : (c->src & ~4095ull) + c->dst % 4096 % (4096 - c->bytes % 4096);
	c->has_hole = has_hole(p, c->src, c->bytes) || has_hole(p, c->dst, c->bytes);
	c->is_cancelled = false;
	e = (struct sluice_entry){
		slot, SLUICE_OP_COPY, address_of(p, c->src), address_of(p, c->dst), c->bytes,
		slot, { 0 }
	};
	p->context->records[slot].state = 0;
	fail_at = habit.fails && !below(20) ? 1 + below(4) : 0;
	is_killed = habit.fails && !below(50);
	before = age(p, c->src, c->bytes) + age(p, c->dst, c->bytes);
	CHECK(!enter(p, &e, 1));
	c->is_unsure = before != age(p, c->src, c->bytes) + age(p, c->dst, c->bytes);
	fail_at = 0;
	check_regions(p, habit.is_quiet && !p->context->records[slot].state &&
				 sluice_counters.regions > regions);
	c->is_busy = true;
	for (unsigned i = 0; i < 5 && c->dst / 4096 + i < PAGES; i++)
		c->births[i] = p->births[c->dst / 4096 + i];
	if (!c->has_hole)
		memcpy(c->wanted, p->shadow + c->src, c->bytes);
}

/* A copy has ended: its result is right, and so is what it wrote to pages that are still there. */
static void check_end(struct process *p, struct copy *c, int result)
{
	c->is_busy = false;
	if (c->has_hole)
		CHECK(result < 0 || c->is_unsure);
	else if (!habit.fails && is_privileged)
		CHECK(!result || (result == -ECANCELED && c->is_cancelled) ||
		      (result == -EIO && habit.hangs));
	else
		CHECK(!result || result == -ENOMEM || result == -EFAULT || result == -EIO ||
		      result == -EINTR || (result == -ECANCELED && c->is_cancelled));
	for (u64 off = c->dst; off < c->dst + c->bytes; off++) {
		unsigned v = (unsigned)off / 4096;

		if (p->at[v] < 0 || p->births[v] != c->births[v - c->dst / 4096])
			continue;
		CHECK(result || c->is_unsure || *byte_at(p, off) == c->wanted[off - c->dst]);
		p->shadow[off] = *byte_at(p, off);
	}
}

/* Returns: whether none is busy. */
static bool look(struct process *p)
{
	bool is_idle = true;

	for (unsigned i = 0; i < SLOTS; i++) {
		const struct sluice_record *r = &p->context->records[i];

		if (p->copies[i].is_busy && r->state)
			check_end(p, &p->copies[i], r->result);
		is_idle &= !p->copies[i].is_busy;
	}
	return is_idle;
}

/* Nothing is under way: every byte is what it should be. */
static void check_memory(struct process *p)
{
	for (u64 off = 0; off < PAGES * 4096; off += 4096)
		CHECK(p->at[off / 4096] < 0 || !memcmp(byte_at(p, off), p->shadow + off, 4096));
}

static void cancel_some(struct process *p)
{
	u64 from = below(SLOTS), n = below(4) ? 1 + below(3) : U64_MAX;

	from = n == U64_MAX ? 0 : from;
	for (unsigned i = 0; i < SLOTS; i++)
		p->copies[i].is_cancelled |= p->copies[i].is_busy && i - from < n;
	sluice_context_cancel(p->context, from, n);
}

static void retire(struct process *p)
{
	for (unsigned i = 0; i < SLOTS; i++)
		p->copies[i].is_cancelled = true;
	if (!sluice_context_retire(p->context))
		CHECK(look(p));
}

static void step(struct process *p)
{
	waits = 0;
	switch (below(12)) {
	case 0:
		change_some(p, below(3));
		break;
	case 1:
		if (!below(4))
			cancel_some(p);
		break;
	case 2:
		if (!below(4))
			sluice_region_drop(p->context, address_of(p, below(PAGES) * 4096),
					   1 + below(40000));
		break;
	case 3:
		run_work();
		break;
	case 4:
		if (below(10))
			break;
		if (below(2))
			retire(p);
		die(p);
		live(p);
		break;
	case 5:
	case 6:
		feed();
		break;
	case 7:
		device_step();
		break;
	default:
		copy_some(p);
	}
	look(p);
}

static void begin(void)
{
	bool is_limited = !below(4);

	habit.bounces = below(2), habit.reorders = below(2), habit.is_silent = below(2);
	habit.is_lazy = below(2), habit.stops = below(2), habit.hangs = !below(4),
	habit.fails = !below(3);
	habit.room = 1 + below(8), habit.refuses = below(2) ? 10 : INT_MAX,
	habit.is_quiet = !below(4);
	is_hung = false;
	is_privileged = !is_limited;
	memlock_bytes = is_limited ? 30 * 4096 : 0;
	dma_device.copy_align = below(2) ? 0 : below(8);
	dma_line_bytes = below(2) ? 1 : 128;
	dma_most_bytes = below(2) ? SIZE_MAX : 8192;
	PARAM(unsigned, depth) = 1 + below(8);
	PARAM(unsigned, pages_per_item) = below(3) ? 256 : 1;
	PARAM(unsigned, cache_regions) = below(2) ? 64 : 1 + below(4);
	PARAM(unsigned long, cache_pages) = below(2) ? 65536 : 12;
}

static void end(void)
{
	waits = 0;
	for (int i = 0; i < PROCESSES; i++) {
		struct process *p = &processes[i];

		if (!p->context)
			continue;
		while (!is_hung && !look(p)) /* also without anybody's help */
			wait_a_while(false);
		if (!is_hung)
			check_memory(p);
		die(p);
	}
	while (run_work())
		;
	CHECK(!sluice_counters.contexts && sluice_counters.pins == sluice_counters.unpins &&
	      !is_taken);
	CHECK(sluice_counters.descriptors == sluice_counters.callbacks + (long)terminated &&
	      !feeder);
	CHECK(list_empty(&notifiers));
	for (; space_count; space_count--)
		CHECK(!spaces[space_count - 1].pinned_vm && !spaces[space_count - 1].users);
	for (int i = 0; i < RAM; i++)
		CHECK(!uses[i] && !writers[i]);
	for (int i = 0; i < 2 * DESCRIPTORS; i++)
		CHECK(!mappings[i].at);
}

/* ---- rules that a random run would not show ------------------------------------------------ */

enum { BEHIND = PAGES / 2 }; /* where copies go, unless they go elsewhere */

/* Copies pages of a process, and nothing else at a time. Returns: its result. */
static int copy_alone(struct process *p, unsigned to, unsigned from, unsigned pages)
{
	struct sluice_entry e = { 0,
				  SLUICE_OP_COPY,
				  address_of(p, from * 4096),
				  address_of(p, to * 4096),
				  pages * 4096,
				  0,
				  { 0 } };

	p->context->records[0].state = 0;
	CHECK(!enter(p, &e, 1));
	for (waits = 0; !p->context->records[0].state;)
		wait_a_while(false);
	if (!p->context->records[0].result)
		memcpy(p->shadow + to * 4096, p->shadow + from * 4096, pages * 4096);
	return p->context->records[0].result;
}

static void begin_plain(struct process *p, unsigned pages_per_item)
{
	begin();
	memset(&habit, 0, sizeof(habit));
	habit.room = DESCRIPTORS, habit.refuses = INT_MAX;
	is_privileged = true;
	dma_device.copy_align = 0;
	dma_line_bytes = 1;
	dma_most_bytes = SIZE_MAX;
	PARAM(unsigned, pages_per_item) = pages_per_item;
	PARAM(unsigned, cache_regions) = 3;
	PARAM(unsigned long, cache_pages) = 65536;
	habit.is_quiet = true;
	live(p);
}

/* The cache gives up the least recently used range, finds parts of ranges, and pins a range again
 * that was pinned to be read and is to be written. */
static void check_cache(struct process *p)
{
	long hits, regions = sluice_counters.regions;

	begin_plain(p, 256);
	copy_alone(p, BEHIND, 0, 2); /* destination and source: 2 */
	copy_alone(p, BEHIND, 4, 2); /* 3 */
	copy_alone(p, BEHIND, 1, 1); /* a part of the first one */
	copy_alone(p, BEHIND, 8, 2); /* page 4 has to go */
	CHECK(sluice_counters.regions == regions + 4 && sluice_counters.evicted == 1);
	hits = sluice_counters.hits;
	copy_alone(p, BEHIND, 0, 2);
	CHECK(sluice_counters.hits == hits + 2);
	copy_alone(p, BEHIND, 4, 2);
	CHECK(sluice_counters.hits == hits + 3 && sluice_counters.evicted == 2);
	change(p, 4, 1, true, true); /* rights only */
	copy_alone(p, BEHIND, 4, 2);
	CHECK(sluice_counters.hits == hits + 5);
	change(p, 4, 1, true, false);
	copy_alone(p, BEHIND, 4, 2);
	CHECK(sluice_counters.hits == hits + 6);
	/* it was pinned to be read */
	copy_alone(p, 4, BEHIND, 1);
	CHECK(sluice_counters.hits == hits + 7);
	/* what is kept without need makes room for what is needed */
	is_privileged = false;
	memlock_bytes = 12 * 4096;
	CHECK(!copy_alone(p, BEHIND, 10, 6) && copy_alone(p, BEHIND, 10, 7) == -ENOMEM &&
	      !copy_alone(p, BEHIND, 0, 6));
	check_regions(p, false);
	end();
}

/* Descriptors are as long as pages follow each other, and at most pages_per_item. */
static void check_pieces(struct process *p)
{
	static const unsigned wanted[] = { 8, 5, 3, 3, 2, 2 }; /* of 3 and 5 pages in a row */

	for (unsigned most = 1; most <= 6; most++) {
		long before = sluice_counters.descriptors;

		begin_plain(p, most);
		change(p, 0, PAGES, false, false);
		for (unsigned v = 0; v < PAGES; v++)
			map_at(p, v, (int)(v < 3 ? v : v + 1));
		CHECK(!copy_alone(p, BEHIND, 0, 8));
		CHECK(sluice_counters.descriptors == before + wanted[most - 1]);
		end();
	}
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 100;

	ASAN_POISON_MEMORY_REGION(ram, sizeof(ram));
	CHECK(!sluice_context_init());
	check_cache(&processes[0]);
	check_pieces(&processes[0]);
	for (round_number = 1; round_number <= rounds; round_number++) {
		srand((unsigned)round_number);
		begin();
		for (int i = 0; i < PROCESSES; i++)
			live(&processes[i]);
		for (int i = 0; i < 400; i++)
			step(&processes[below(PROCESSES)]);
		end();
	}
	printf("COPIES %d rounds, %ld copies, %ld cancelled, %ld pages pinned, %ld regions, %ld "
	       "found, %ld "
	       "stale, %ld evicted, %ld descriptors, %lu terminated\n",
	       rounds, (long)sluice_counters.copies, (long)sluice_counters.cancelled,
	       (long)sluice_counters.pins, (long)sluice_counters.regions,
	       (long)sluice_counters.hits, (long)sluice_counters.stale,
	       (long)sluice_counters.evicted, (long)sluice_counters.descriptors, terminated);
	return 0;
}
