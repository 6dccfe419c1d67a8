/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which buffers are worth adopting, and how much of one at a time. Adopting a byte costs as much as
 * several copies of it, and saves a part of each later copy. A buffer earns its adoption by its
 * uses:
 *
 *   saved   what its uses would have saved, had it been adopted. A buffer is adopted when that has
 *           reached the price: ski rental, which costs at most twice the optimum
 *   budget  1/50 of the time that the uses of all buffers take that are not adopted, which is about
 *           1/25 of the time of the calls: a byte on its way is in use at both ends; 1/33 of the
 *           time of messages, whose uses count at the sender only; and half of what calls have
 *           saved so far, as trials tell. Adoption
 *           spends no more than that, so a loop of calls takes at most 1.04 times as long, however
 *           soon the loop ends. A long buffer is adopted in pieces, as the budget allows. After 100
 *           uses a buffer of 128 KiB or more needs no budget
 *
 * The price of a byte is measured at each adoption in this process: fresh pages or pages of the
 * pool, huge pages or not. Times of uses are estimates from measured copy rates and, for buffers
 * with gaps, from trials of the host MPI, not times of calls: late partners and noise do not
 * decide. Each time that a region ends before it has repaid its price, the buffer at its address
 * has to save twice as much before the next adoption. So a program that allocates, broadcasts and
 * frees in a loop is not adopted in vain; when the hooks report its allocations, never.
 * SLUICE_REGION_ADOPT_AFTER=-1 selects this rule; 0 and more are a number of uses instead.
 *
 * Called at every use of a buffer that is not adopted, so without the folder's lock, which costs
 * two system calls. All of it is a hint: a caller that finds another thread in here (or, in a
 * signal handler, the interrupted one) leaves the table unchanged.
 */
#include "base/backoff.h"
#include "region/private.h"

#define REUSE_SETS 256
#define REUSE_WAYS 4
#define REUSE_INTERVAL_MAX 4096 /* times as much as a new buffer has to save */
#define REUSE_SMALL_BYTES ((uint64_t)256 << 10)
#define LIFETIME_USES_MIN 6 /* with a fixed number of uses: after so many adoption has paid off */

/* A buffer of so many bytes that has been used so often goes on, and what it saves repays its price
 * soon. */
#define USES_MANY 100
#define MANY_BYTES ((uint64_t)128 << 10)
#define BUDGET_SHARE 50
#define BUDGET_SHARE_SENT 33 /* a message is in use at one end only */
#define EARNED_SHARE 2
#define BUDGET_MAX_NS 100000000 /* by savings: they may come from another part of the program */
#define PIECE_MAX ((uint64_t)4 << 20) /* adopted at a time: a call is not late by more than that */
#define FIXED_NS 30000u /* of one adoption: system calls, TLB shootdowns */
/* Until the first measurement: picoseconds per byte. */
#define PRICE_PS 600u
#define PRIVATE_PS 100u
#define MAPPED_PS 40u
/* Until the first measurement: the sender packs, a mover copies, the receiver unpacks, both by the
 * strides of a datatype. */
#define PACKED_COPIES 4

struct use_count {
	uintptr_t start; /* page number of the first whole page, 0: free */
	uint64_t bytes;
	uint32_t uses, interval; /* interval: as struct backoff has it */
	uint64_t saved_ns;
	uint64_t last;
};
static struct use_count counts[REUSE_SETS][REUSE_WAYS];
static uint64_t use_clock;
static _Atomic bool is_busy;

static _Atomic uint32_t private_ps = PRIVATE_PS, price_ps = PRICE_PS;
/* The rate of mapped memory by that of private memory, in 1 / 2^32. */
static _Atomic uint64_t mapped_share = ((uint64_t)MAPPED_PS << 32) / PRIVATE_PS;
static _Atomic uint32_t packed_ps; /* 0: not measured */
static _Atomic int64_t budget_ns; /* below 0: an adoption was dearer than expected */

static bool table_try_begin(void)
{
	return !atomic_exchange_explicit(&is_busy, true,
					 memory_order_acquire); /* partner: table_end */
}

static void table_end(void) { atomic_store_explicit(&is_busy, false, memory_order_release); }

static struct use_count *set_of(uintptr_t page)
{
	return counts[(page * 0x9e3779b97f4a7c15ull) >> 56];
}

static struct use_count *count_find(uintptr_t start)
{
	uintptr_t page = start / OS_PAGE;
	struct use_count *set = set_of(page), *victim = set;

	for (int i = 0; i < REUSE_WAYS; i++) {
		if (set[i].start == page)
			return &set[i];
		if (set[i].last < victim->last)
			victim = &set[i];
	}
	*victim = (struct use_count){ .start = page };
	return victim;
}

/* How many times the price a buffer has to save, after regions at its address that did not repay.
 */
static uint64_t times(const struct use_count *s) { return base_max_u64(s->interval, 1); }

static void forget_uses(struct use_count *s)
{
	s->uses = 0;
	s->saved_ns = 0;
}

/* ---- prices ------------------------------------------------------------------------------ */

static uint64_t ns_of(uint64_t bytes, const _Atomic uint32_t *ps)
{
	return bytes * atomic_load_explicit(ps, memory_order_relaxed) / 1000;
}

/* Returns: the time of a use of a buffer that is not adopted. */
static uint64_t ns_of_use(uint64_t bytes, bool is_packed)
{
	uint64_t packed = ns_of(bytes, &packed_ps);

	if (!is_packed)
		return ns_of(bytes, &private_ps);
	return packed ? packed : PACKED_COPIES * ns_of(bytes, &private_ps);
}

static uint64_t saved_by_a_use(uint64_t bytes, bool is_packed)
{
	uint64_t share = atomic_load_explicit(&mapped_share, memory_order_relaxed);
	uint64_t now = ns_of_use(bytes, is_packed),
		 mapped = (uint64_t)((__uint128_t)ns_of(bytes, &private_ps) * share >> 32);

	return now > mapped ? now - mapped : 0;
}

static uint64_t price_of(uint64_t bytes) { return FIXED_NS + ns_of(bytes, &price_ps); }

void region_set_copy_rates(uint32_t private_ps_per_byte, uint32_t mapped_ps_per_byte)
{
	uint64_t mapped = base_min_u64(mapped_ps_per_byte, private_ps_per_byte);

	atomic_store_explicit(&private_ps, private_ps_per_byte, memory_order_relaxed);
	atomic_store_explicit(&mapped_share, (mapped << 32) / base_max_u64(private_ps_per_byte, 1),
			      memory_order_relaxed);
}

void region_set_private_rate(uint32_t ps_per_byte)
{
	atomic_store_explicit(&private_ps, ps_per_byte, memory_order_relaxed);
}

void region_expect_price(uint32_t ps_per_byte)
{
	uint32_t first = PRICE_PS;

	atomic_compare_exchange_strong_explicit(&price_ps, &first, ps_per_byte,
						memory_order_relaxed, memory_order_relaxed);
}

void region_set_packed_rate(uint32_t ps_per_byte)
{
	atomic_store_explicit(&packed_ps, ps_per_byte, memory_order_relaxed);
}

/* One measurement moves the price by a factor of two at most: a thread may lose its CPU
 * meanwhile. */
static void learn_price(uint64_t bytes, uint64_t ns)
{
	uint32_t old = atomic_load_explicit(&price_ps, memory_order_relaxed);
	uint64_t now = (ns > FIXED_NS ? ns - FIXED_NS : 0) * 1000 / bytes;

	now = base_min_u64(base_max_u64(now, old / 4), (uint64_t)old * 4);
	now = ((uint64_t)old * 2 + now) / 3;
	atomic_store_explicit(&price_ps, (uint32_t)base_min_u64(base_max_u64(now, 10), 1000000),
			      memory_order_relaxed);
}

void region_earn(uint64_t saved_ns)
{
	if (atomic_load_explicit(&budget_ns, memory_order_relaxed) < BUDGET_MAX_NS)
		atomic_fetch_add_explicit(&budget_ns, (int64_t)(saved_ns / EARNED_SHARE),
					  memory_order_relaxed);
}

/* ---- uses -------------------------------------------------------------------------------- */

/* SLUICE_REGION_ADOPT_AFTER: the gain of a use shrinks with the size, the cost of the system calls
 * does not. */
static bool has_enough_uses(const struct use_count *s, uint64_t bytes)
{
	uint64_t needed = (uint64_t)base_opt.region_adopt_after;

	if (bytes < REUSE_SMALL_BYTES)
		needed *= REUSE_SMALL_BYTES / base_max_u64(bytes, OS_PAGE);
	return s->uses > needed * times(s);
}

/* Returns: whether a use of the buffer may be late by the price. */
static bool has_budget(const struct use_count *s, uint64_t price)
{
	return atomic_load_explicit(&budget_ns, memory_order_relaxed) >= (int64_t)price ||
	       (s->bytes >= MANY_BYTES && s->uses > USES_MANY);
}

/* The bytes that both accounts pay for now, at most PIECE_MAX; 0 when less than that and less than
 * the whole buffer. */
static uint64_t bytes_paid(const struct use_count *s, uint64_t remaining)
{
	uint64_t piece = base_min_u64(remaining, PIECE_MAX), price = price_of(piece);

	return has_budget(s, price) && s->saved_ns >= price * times(s) ? piece : 0;
}

uint64_t reuse_count(uintptr_t start, uint64_t bytes, uint64_t adopted,
		     enum region_intent intent, uint32_t uses, bool is_spent)
{
	bool is_packed = intent == REGION_USE_PACKED;
	uint32_t share = intent == REGION_USE_SENT ? BUDGET_SHARE_SENT : BUDGET_SHARE;
	uint64_t remaining = bytes > adopted ? bytes - adopted : bytes, earned = 0;
	struct use_count *s;

	if (!table_try_begin())
		return 0;
	s = count_find(start);
	s->last = ++use_clock;
	/* a longer buffer at the same address is another buffer; a shorter one is contained */
	if (bytes > s->bytes)
		forget_uses(s);
	s->bytes = base_max_u64(s->bytes, bytes);
	s->uses += uses;
	if (reuse_is_by_cost()) {
		atomic_fetch_add_explicit(
			&budget_ns, (int64_t)(uses * ns_of_use(bytes, is_packed) / share),
			memory_order_relaxed);
		s->saved_ns += uses * saved_by_a_use(bytes, is_packed);
		earned = bytes_paid(s, remaining);
	} else if (has_enough_uses(s, bytes)) {
		earned = bytes;
		if (is_spent)
			s->uses = 0;
	}
	table_end();
	return earned;
}

void reuse_pay(uintptr_t start, uint64_t bytes, uint64_t ns)
{
	struct use_count *s;

	base_count(BASE_CTR_BYTES_ADOPTED, bytes);
	base_count(BASE_CTR_ADOPT_US, ns / 1000);
	learn_price(bytes, ns);
	atomic_fetch_sub_explicit(&budget_ns, (int64_t)ns, memory_order_relaxed);
	if (!table_try_begin())
		return;
	s = count_find(start);
	s->saved_ns -= base_min_u64(s->saved_ns, ns * times(s));
	table_end();
}

void reuse_forget(uintptr_t start)
{
	uintptr_t page = start / OS_PAGE;
	struct use_count *set = set_of(page);

	if (!table_try_begin())
		return;
	for (int i = 0; i < REUSE_WAYS; i++)
		if (set[i].start == page)
			forget_uses(&set[i]);
	table_end();
}

void reuse_note_lifetime(uintptr_t start, uint64_t bytes, uint64_t uses)
{
	uint64_t saved_ns = uses * saved_by_a_use(bytes, false);
	bool is_repaid = reuse_is_by_cost() ? saved_ns >= price_of(bytes)
					    : uses >= LIFETIME_USES_MIN;
	struct use_count *s;

	if (!table_try_begin())
		return;
	s = count_find(start);
	s->last = ++use_clock;
	forget_uses(s);
	s->interval = is_repaid ? 0 : backoff_longer(s->interval, 2, REUSE_INTERVAL_MAX);
	table_end();
}
