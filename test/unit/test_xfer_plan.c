/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every combination of mapped and unmapped ends, edges, offsets and ways to reach each other: the
 * plan is carried out, in this one process, by the views of a sender, a receiver and a helper, and
 * must put each byte in its place, and no other, without a system call that the plan was told does
 * not work.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "node/private.h"
#include "unit.h"
#include "xfer/xfer.h"

enum { SRC, DST, HELPER, RANKS };
enum {
	MIDDLE_PAGES = 6,
	PAGES = MIDDLE_PAGES + 2,
	BUFFER_BYTES = PAGES * 4096,
	NO_PID = 0x7ffffff0
};

/* A rank's buffer: a private page, pages that also lie in its arena, a private page. */
static struct end_memory {
	char *buffer, *arena;
	int fd;
} memory[2];
static struct node_peer peers[RANKS];
static struct node_rank bells[RANKS];
static uint8_t reach_table[RANKS * RANKS];
static _Alignas(64) char ring[XFER_RING_BYTES];
static _Alignas(64) char edges[2 * XFER_EDGE_BYTES];
static struct xfer transfer;
static struct layout layouts[2]; /* of the ends; no block: not typed */

struct shape {
	bool mapped;
	uint32_t start, end;
}; /* of the described buffer, in BUFFER_BYTES */
struct part {
	uint64_t src_off, dst_off, bytes;
}; /* bytes: at most, the buffers may be shorter */
enum order { RECEIVER_FIRST, SENDER_FIRST, HELPER_FIRST, IN_TURN, ORDERS };

struct trial {
	struct xfer_end src, dst;
	struct xfer_plan plan;
	struct xfer_view views[RANKS];
	struct node_group groups[RANKS];
	struct node_peer *peers[RANKS];
	struct node_place places[RANKS][RANKS];
	uint64_t tag;
};

static char which[80]; /* of the cases is tried */
#define HOLDS(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			unit_fail(__FILE__, __LINE__, "%s: %s", which, #condition);                \
	} while (0)

static void memory_make(struct end_memory *m)
{
	const uint64_t middle = MIDDLE_PAGES * OS_PAGE;

	m->fd = memfd_create("arena", MFD_CLOEXEC);
	CHECK(m->fd >= 0 && !ftruncate(m->fd, BUFFER_BYTES));
	m->arena = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	m->buffer = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	CHECK(m->arena != MAP_FAILED && m->buffer != MAP_FAILED);
	/* the arena's first and last page belong to nobody: nothing may be written there */
	CHECK(mmap(m->buffer + OS_PAGE, middle, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		   m->fd, (off_t)OS_PAGE) != MAP_FAILED);
}

static void memory_unmake(struct end_memory *m)
{
	munmap(m->arena, BUFFER_BYTES);
	munmap(m->buffer, BUFFER_BYTES);
	close(m->fd);
}

static struct region_desc describe(const struct end_memory *m, const struct shape *s)
{
	struct region_desc d = { .addr = (uintptr_t)m->buffer + s->start,
				 .bytes = s->end - s->start };
	uint32_t lo = s->start < 4096 ? 4096 : s->start,
		 hi = s->end > BUFFER_BYTES - 4096 ? BUFFER_BYTES - 4096 : s->end;

	if (!s->mapped)
		return d;
	lo = (uint32_t)base_round_up(lo, OS_PAGE);
	hi = (uint32_t)base_round_down(hi, OS_PAGE);
	d.flags = REGION_DESC_MAPPED;
	d.head = lo - s->start;
	d.tail = s->end - hi;
	d.arena_off = lo;
	return d;
}

static char fresh[BUFFER_BYTES]; /* what the source holds */

static void fill(void)
{
	for (uint64_t k = 0; !fresh[0] && k < BUFFER_BYTES; k++)
		fresh[BUFFER_BYTES - 1 - k] = (char)(k * 31 + k / 251 + 1);
	memcpy(memory[SRC].buffer, fresh, BUFFER_BYTES);
	memset(memory[DST].buffer, 0x55, BUFFER_BYTES);
	memset(memory[DST].arena, 0x55, OS_PAGE);
	memset(memory[DST].arena + BUFFER_BYTES - OS_PAGE, 0x55, OS_PAGE);
	memset(memory[SRC].arena, 0x66, OS_PAGE);
	memset(memory[SRC].arena + BUFFER_BYTES - OS_PAGE, 0x66, OS_PAGE);
}

/* Each rank as a process of its own would see it; calls that must not be made go to a pid of
 * nobody. */
static void trial_group(struct trial *t, int me, const struct xfer_reach *reach)
{
	bool can = me == DST ? reach->can_read : me == SRC ? reach->can_write : false;

	for (int r = 0; r < RANKS; r++)
		t->places[me][r] = (struct node_place){
			.pid = can ? getpid() : NO_PID,
			.arena = r == me ? region_arena_base() : peers[r].base,
			.arena_bytes = r == me ? region_arena_bytes() : peers[r].bytes,
		};
	t->groups[me] = (struct node_group){ .rank = me,
					     .size = RANKS,
					     .peers = t->peers,
					     .places = t->places[me],
					     .ranks = bells,
					     .reach = reach_table };
}

static void trial_make(struct trial *t, const struct shape *src, const struct shape *dst,
		       const struct part *p, const struct xfer_reach *reach, bool inline_edges)
{
	static uint64_t tag;

	*t = (struct trial){ .tag = ++tag };
	t->src = (struct xfer_end){ describe(&memory[SRC], src), p->src_off, SRC,
				    .edges = inline_edges ? edges : NULL,
				    .layout = layouts[SRC] };
	t->dst = (struct xfer_end){ describe(&memory[DST], dst), p->dst_off, DST, .edges = NULL,
				    .layout = layouts[DST] };
	memset(reach_table, 0, sizeof reach_table);
	reach_table[DST * RANKS + SRC] |= reach->can_read ? 1 : 0;
	reach_table[SRC * RANKS + DST] |= reach->can_write ? 2 : 0;
	for (int r = 0; r < RANKS; r++) {
		t->peers[r] = &peers[r];
		trial_group(t, r, reach);
	}
	xfer_plan(&t->src, &t->dst, p->bytes, reach, &t->plan);
	memset(edges, 0x77, sizeof edges);
	if (inline_edges)
		xfer_fill_edges(&t->src.desc, memory[SRC].buffer + src->start, edges);
	xfer_open(&transfer, t->tag);
	for (int r = 0; r < RANKS; r++) {
		t->views[r] = (struct xfer_view){ .x = &transfer, .tag = t->tag,
						  .group = &t->groups[r], .src = t->src,
						  .dst = t->dst, .plan = t->plan };
		xfer_view_init(&t->views[r], XFER_VIEW_NORMAL);
	}
}

/* Does the work of a rank in exec/ without waiting. Returns: whether it found work. */
static bool act(struct trial *t, int r)
{
	struct xfer_view *v = &t->views[r];
	int ret;

	if (t->plan.way == XFER_STAGED) {
		static _Atomic uint64_t filled;

		if (r == SRC)
			return xfer_stage_fill(&filled, t->tag, ring,
					       (char *)(uintptr_t)t->src.desc.addr + t->src.off,
					       t->plan.bytes,
					       xfer_stage_consumed(&transfer, t->tag));
		return r == DST && xfer_stage_drain(v, &filled, ring);
	}
	if (r == HELPER && !t->plan.others_move)
		return false;
	ret = r == DST && !v->edges_done ? xfer_move_edges(v) : xfer_move(v, XFER_ANY);
	if (ret < 0)
		unit_fail(__FILE__, __LINE__, "%s: rank %d: %s", which, r, strerror(-ret));
	return ret;
}

static void carry_out(struct trial *t, enum order order)
{
	static const int orders[ORDERS][RANKS] = { { DST, SRC, HELPER },
						   { SRC, DST, HELPER },
						   { HELPER, SRC, DST },
						   { SRC, HELPER, DST } };
	bool any = true;

	while (any) {
		any = false;
		for (int i = 0; i < RANKS; i++)
			while (act(t, orders[order][i])) {
				any = true;
				if (order == IN_TURN || t->plan.way == XFER_STAGED)
					break;
			}
	}
}

static void check_plan(const struct trial *t, const struct part *p)
{
	const struct xfer_plan *l = &t->plan;

	HOLDS(l->bytes == p->bytes);
	HOLDS(l->lo <= l->hi && l->hi <= l->bytes);
	HOLDS(l->fragments <= XFER_FRAGMENTS_MAX);
	HOLDS(l->units == l->fragments || l->units == l->fragments + 1);
	HOLDS(l->way == XFER_STAGED || (l->total & xfer_bits(l->units)) == xfer_bits(l->units));
	HOLDS(l->way == XFER_STAGED || !l->fragments || t->views[SRC].can_move ||
	      t->views[DST].can_move);
	/* what the plan promises of a rank, its view keeps */
	HOLDS(l->way == XFER_STAGED || t->views[SRC].can_move == l->sender_moves);
	HOLDS(l->way == XFER_STAGED || t->views[DST].can_move == l->receiver_moves);
	HOLDS(l->way == XFER_STAGED || !l->others_move || t->views[HELPER].can_move);
}

static void check_bytes(const struct shape *src, const struct shape *dst, const struct part *p)
{
	static char want[BUFFER_BYTES];
	uint64_t from = src->start + p->src_off, to = dst->start + p->dst_off;

	memset(want, 0x55, sizeof want);
	HOLDS(!memcmp(memory[DST].arena, want, OS_PAGE));
	HOLDS(!memcmp(memory[DST].arena + BUFFER_BYTES - OS_PAGE, want, OS_PAGE));
	memcpy(want + to, fresh + from, p->bytes);
	HOLDS(!memcmp(memory[SRC].buffer, fresh, BUFFER_BYTES));
	for (uint64_t k = 0; memcmp(memory[DST].buffer, want, BUFFER_BYTES) && k < BUFFER_BYTES;
	     k++)
		if (memory[DST].buffer[k] != want[k])
			unit_fail(__FILE__, __LINE__, "%s: byte %" PRId64 " of the transfer is %s",
				  which, (int64_t)(k - to),
				  k >= to && k < to + p->bytes ? "wrong" : "written");
}

static const struct shape shapes[] = {
	{ false, 0, BUFFER_BYTES }, /* whole, by system call or staging */
	{ false, 77, BUFFER_BYTES - 1234 },
	{ true, 4096, BUFFER_BYTES - 4096 }, /* scratch memory: no edges */
	{ true, 4095, BUFFER_BYTES - 4095 },
	{ true, 1, BUFFER_BYTES - 4096 },
	{ true, 4096, BUFFER_BYTES - 1 },
	{ true, 1000, BUFFER_BYTES - 2000 },
	{ true, 3 * 4096 - 50, 5 * 4096 + 60 },
	{ true, 4096 - 3, 2 * 4096 + 2 }, /* one page and little more */
};

static const struct part parts[] = {
	{ 0, 0, UINT64_MAX }, { 0, 0, 1 },         { 0, 0, 4096 },
	{ 3, 5, UINT64_MAX }, { 5, 3, 9000 },      { 4096, 0, 5000 },
	{ 0, 4096, 5000 },    { 8000, 8000, 200 }, { 900, 4200, UINT64_MAX },
};

/* False when the buffers are too short for it. */
static bool clamp_part(const struct shape *src, const struct shape *dst, struct part *p)
{
	uint64_t s = src->end - src->start, d = dst->end - dst->start;

	if (p->src_off >= s || p->dst_off >= d)
		return false;
	p->bytes = base_min_u64(p->bytes, base_min_u64(s - p->src_off, d - p->dst_off));
	return true;
}

static void try_one(const struct shape *src, const struct shape *dst, struct part part,
		    unsigned bits, enum order order)
{
	const struct xfer_reach reach = { .can_read = bits & 1,
					  .can_write = bits & 2,
					  .prefer_vm = bits & 4 };
	struct trial t;

	if (!clamp_part(src, dst, &part))
		return;
	fill();
	trial_make(&t, src, dst, &part, &reach, bits & 8);
	check_plan(&t, &part);
	carry_out(&t, order);
	HOLDS(xfer_is_done(&transfer, t.tag, t.plan.total));
	check_bytes(src, dst, &part);
}

static void try_all(uint64_t fragment_bytes)
{
	base_opt.xfer_fragment_bytes = fragment_bytes;
	for (unsigned s = 0; s < BASE_ARRAY_LEN(shapes); s++)
		for (unsigned d = 0; d < BASE_ARRAY_LEN(shapes); d++)
			for (unsigned p = 0; p < BASE_ARRAY_LEN(parts); p++)
				for (unsigned bits = 0; bits < 16; bits++) {
					enum order order =
						(enum order)((s + d + p + bits) % ORDERS);

					snprintf(which, sizeof which,
						 "src %u dst %u part %u reach %u order %u", s, d, p,
						 bits, order);
					try_one(&shapes[s], &shapes[d], parts[p], bits, order);
				}
}

UNIT_TEST(plan_puts_each_byte_in_its_place_for_all_kinds_of_ends)
{
	struct base_options saved = base_opt;

	for (int r = 0; r < 2; r++) {
		memory_make(&memory[r]);
		peers[r] = (struct node_peer){ .base = memory[r].arena,
					       .bytes = BUFFER_BYTES,
					       .pid = getpid() };
	}
	try_all(4096);
	base_opt = saved;
	for (int r = 0; r < 2; r++)
		memory_unmake(&memory[r]);
}

/* ---- typed ends -------------------------------------------------------------------------- */

static const struct shape whole = { true, 4096, BUFFER_BYTES - 4096 };

/* Rows of a matrix, or columns backwards; 6000 bytes in 24000. */
static struct layout make_layout(unsigned which_one)
{
	struct layout l = layout_block(which_one == 2 ? 23900 : 100, which_one == 2 ? 8 : 60);

	if (!which_one)
		return (struct layout){ 0 };
	if (which_one == 2) {
		CHECK(!layout_repeat(&l, 25, -930));
		CHECK(!layout_repeat(&l, 30, -24));
	} else {
		CHECK(!layout_repeat(&l, 100, 240));
	}
	return l;
}

static struct layout_end place_of(const struct xfer_end *e, char *buffer)
{
	if (xfer_is_typed(e))
		return (struct layout_end){ buffer, &e->layout, e->off };
	return (struct layout_end){ buffer, NULL, e->off };
}

static void try_typed(const struct shape *src, const struct shape *dst, unsigned bits,
		      enum order order)
{
	const struct xfer_reach reach = { bits & 1, bits & 2, bits & 4 };
	struct part part = { 0, 0, 5990 };
	static char want[BUFFER_BYTES];
	struct layout_end to, from;
	struct trial t;

	if (!clamp_part(src, dst, &part))
		return;
	part.dst_off = layouts[DST].block_bytes ? 6 : 0;
	part.bytes -= base_min_u64(part.bytes, layouts[DST].block_bytes ? 6 : 0);
	fill();
	memset(want, 0x55, sizeof want);
	trial_make(&t, src, dst, &part, &reach, bits & 8);
	check_plan(&t, &part);
	HOLDS(t.plan.way == XFER_DIRECT);
	carry_out(&t, order);
	HOLDS(xfer_is_done(&transfer, t.tag, t.plan.total));
	to = place_of(&t.dst, want + dst->start);
	from = place_of(&t.src, fresh + src->start);
	layout_copy(&to, &from, part.bytes, BASE_COPY_PLAIN);
	HOLDS(!memcmp(memory[DST].buffer, want, BUFFER_BYTES));
}

UNIT_TEST(movers_copy_from_and_to_typed_ends)
{
	struct base_options saved = base_opt;

	base_opt.xfer_fragment_bytes = 4096;
	for (int r = 0; r < 2; r++) {
		memory_make(&memory[r]);
		peers[r] = (struct node_peer){ .base = memory[r].arena,
					       .bytes = BUFFER_BYTES,
					       .pid = getpid() };
	}
	for (unsigned kinds = 1; kinds < 9; kinds++)
		for (unsigned other = 0; other < BASE_ARRAY_LEN(shapes); other++)
			for (unsigned bits = 0; bits < 16; bits++) {
				unsigned s = kinds % 3, d = kinds / 3;

				snprintf(which, sizeof which, "src %u dst %u other %u reach %u", s,
					 d, other, bits);
				layouts[SRC] = make_layout(s);
				layouts[DST] = make_layout(d);
				try_typed(s ? &whole : &shapes[other], d ? &whole : &shapes[other],
					  bits, (enum order)((kinds + other + bits) % ORDERS));
			}
	layouts[SRC] = layouts[DST] = (struct layout){ 0 };
	base_opt = saved;
	for (int r = 0; r < 2; r++)
		memory_unmake(&memory[r]);
}

UNIT_TEST(a_layout_that_leaves_its_region_is_no_end_of_a_transfer)
{
	struct xfer_end e = { .desc = { .bytes = 24000, .flags = REGION_DESC_MAPPED },
			      .layout = make_layout(1) };

	CHECK(xfer_end_is_valid(&e, 6000));
	CHECK(!xfer_end_is_valid(&e, 6001));
	e.desc.bytes = 23919;
	CHECK(!xfer_end_is_valid(&e, 6000));
	e.desc.bytes = 24000;
	e.layout.base = -1;
	CHECK(!xfer_end_is_valid(&e, 6000));
	e.layout = make_layout(1);
	e.desc.head = 1; /* movers do not know which packed bytes these are */
	CHECK(!xfer_end_is_valid(&e, 6000));
	e.desc.head = 0;
	e.desc.flags = 0;
	CHECK(!xfer_end_is_valid(&e, 6000));
	e.layout = (struct layout){ 0 };
	CHECK(xfer_end_is_valid(&e, 6000));
}

static void check_cut(uint64_t lo, uint64_t bytes)
{
	struct xfer_plan p = { .lo = lo, .hi = lo + bytes, .bytes = lo + bytes + 5 };
	uint64_t next = lo, at, n, last = UINT64_MAX;

	xfer_cut(&p);
	CHECK(p.fragments <= XFER_FRAGMENTS_MAX);
	for (uint32_t i = 0; i < p.fragments; i++) {
		xfer_fragment_range(&p, i, &at, &n);
		CHECK_EQ(at, next);
		CHECK(n > 0 && (n <= last || i == p.in_half));
		CHECK(n % OS_PAGE == 0 || i + 1 == p.fragments);
		CHECK_EQ(xfer_fragment_of(&p, at), i);
		CHECK_EQ(xfer_fragment_of(&p, at + n - 1), i);
		CHECK_EQ(xfer_units_of(&p, at, n), xfer_bit(i));
		CHECK_EQ(xfer_units_of(&p, lo, at + n - lo), xfer_bits(i + 1));
		next = at + n;
		last = n;
	}
	CHECK_EQ(next, p.hi);
	CHECK_EQ(xfer_fragment_of(&p, p.hi), p.fragments);
	CHECK_EQ(xfer_units_of(&p, p.hi, 3), xfer_bit(p.fragments));
	CHECK_EQ(xfer_units_of(&p, 0, p.bytes), xfer_bits(p.fragments + 1));
	CHECK_EQ(xfer_units_of(&p, lo, bytes), xfer_bits(p.fragments));
	CHECK_EQ(xfer_units_of(&p, lo, 0), 0);
}

UNIT_TEST(fragments_cover_every_byte_once_in_pages_and_few_of_them)
{
	struct base_options saved = base_opt;

	for (uint64_t wanted = 0; wanted <= 3 << 20; wanted = wanted * 7 + 1) {
		base_opt.xfer_fragment_bytes = wanted;
		for (uint64_t bytes = 1; bytes < 1ull << 40; bytes += bytes / 3 + 1)
			for (uint64_t lo = 0; lo < 9000; lo = lo * 3 + 7)
				check_cut(lo, bytes);
	}
	base_opt = saved;
}

UNIT_TEST(fragments_have_the_size_that_is_asked_for_where_it_can_be)
{
	struct base_options saved = base_opt;
	struct xfer_plan p = { .hi = 32 * OS_PAGE };

	base_opt.xfer_fragment_bytes = 1;
	xfer_cut(&p);
	CHECK_EQ(p.fragments, 32);
	CHECK_EQ(p.small_bytes, OS_PAGE);
	p.hi = 64 << 20;
	xfer_cut(&p);
	CHECK(p.fragments > XFER_FRAGMENTS_MAX / 2 && p.fragments <= XFER_FRAGMENTS_MAX);
	base_opt = saved;
}

static void try_leaving(const struct xfer_end *sender, const struct xfer_end *dst, uint64_t bytes,
			unsigned bits)
{
	const struct xfer_reach reach = { bits & 1, bits & 2, bits & 4 };
	struct xfer_end src = *sender;
	struct xfer_plan plan;

	src.edges = bits & 8 ? edges : NULL;
	xfer_plan(&src, dst, bytes, &reach, &plan);
	HOLDS(!plan.sender_needed || !xfer_sender_may_detach(&src, bytes));
	HOLDS(!plan.receiver_needed || !xfer_receiver_may_detach(dst, bytes));
	/* and what the plan says is so: without that end the others can move all of it */
	HOLDS(plan.receiver_needed || plan.others_move || plan.sender_moves);
	HOLDS(plan.sender_needed || plan.others_move || plan.receiver_moves);
	HOLDS(plan.sender_needed || plan.receiver_needed || plan.others_move || plan.units == 0);
	HOLDS(plan.sender_needed || plan.edges != XFER_EDGES_ENDS);
	HOLDS(plan.receiver_needed || plan.edges != XFER_EDGES_RECEIVER);
}

/* Every buffer of some pages with every head, tail, part of it, and way to reach the other. */
UNIT_TEST(an_end_that_may_leave_before_the_other_has_come_is_not_needed)
{
	static const uint32_t sides[] = { 0, 1, 4095 };
	static const uint64_t offs[] = { 0, 1, 4095, 4096, 9000 };
	struct xfer_end ends[2 * 9 * 5 + 1];
	unsigned count = 0;

	for (unsigned k = 0; k < 2 * 9 * 5; k++) {
		struct region_desc d = { .head = sides[k / 2 % 3], .tail = sides[k / 6 % 3] };

		d.bytes = d.head + 3 * OS_PAGE + d.tail;
		if (k % 2)
			d.flags = REGION_DESC_MAPPED;
		else
			d.head = d.tail = 0;
		ends[count++] = (struct xfer_end){ .desc = d, .off = offs[k / 18] };
	}
	ends[count++] = (struct xfer_end){ .desc = { .bytes = 24000, .flags = REGION_DESC_MAPPED },
					   .layout = make_layout(2) };
	for (unsigned s = 0; s < count; s++)
		for (unsigned d = 0; d < count; d++)
			for (unsigned bits = 0; bits < 16; bits++) {
				uint64_t most = base_min_u64(ends[s].desc.bytes - ends[s].off,
							     ends[d].desc.bytes - ends[d].off);

				snprintf(which, sizeof which, "src %u dst %u bits %u", s, d, bits);
				try_leaving(&ends[s], &ends[d], most, bits);
				try_leaving(&ends[s], &ends[d], most - 1, bits);
				try_leaving(&ends[s], &ends[d], 1, bits);
			}
}

/* Fragments that the kernel refused wait for the sender to lay them out, and for the receiver to
 * take them. */
UNIT_TEST(ends_of_a_transfer_stay_while_something_is_to_be_repaired)
{
	const struct shape unmapped = { false, 0, BUFFER_BYTES },
			   mapped = { true, 4096, BUFFER_BYTES - 4096 };
	const struct xfer_reach reach = { .can_read = true, .can_write = true };
	const struct part part = { 0, 0, 4 * OS_PAGE };
	struct trial t;

	for (int r = 0; r < 2; r++)
		memory_make(&memory[r]);
	trial_make(&t, &mapped, &unmapped, &part, &reach, true);
	CHECK(!xfer_needs_me(&t.views[SRC]) && xfer_needs_me(&t.views[DST]));
	trial_make(&t, &unmapped, &mapped, &part, &reach, true);
	CHECK(xfer_needs_me(&t.views[SRC]) && !xfer_needs_me(&t.views[DST]));
	CHECK(!xfer_needs_repair(&t.views[DST]));
	atomic_store(&transfer.failed, 3);
	CHECK(xfer_needs_repair(&t.views[SRC]) && xfer_needs_me(&t.views[DST]));
	atomic_store(&transfer.repaired, 3);
	CHECK(!xfer_needs_repair(&t.views[SRC]) && xfer_needs_me(&t.views[DST]));
	t.views[DST].repaired = 3;
	CHECK(!xfer_needs_me(&t.views[DST]));
	trial_make(&t, &mapped, &unmapped, &part, &reach, true);
	atomic_store(&transfer.failed, 1); /* by process_vm_writev of the sender */
	CHECK(xfer_needs_me(&t.views[SRC]));
	for (int r = 0; r < 2; r++)
		memory_unmake(&memory[r]);
}
