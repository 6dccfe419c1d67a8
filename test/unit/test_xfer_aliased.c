/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Views through the arena: a transfer between two adopted buffers of this process, whose own
 * addresses cannot be touched meanwhile. Whoever the plan says can do without the others does all
 * of it alone.
 */
#include <errno.h>
#include <sys/mman.h>

#include "node/private.h"
#include "unit.h"
#include "xfer/xfer.h"

enum { SRC, DST, HELPER, RANKS };
enum { PAGES = 24, BYTES = PAGES * 4096, FRAGMENT = 8192 };

static struct buffer {
	char *base;
	uint64_t start, bytes; /* the described part */
	struct region_desc desc;
} buffers[2];
static struct node_rank bells[RANKS];
static struct node_peer peer;
static struct node_peer *peers[RANKS] = { &peer, &peer, &peer };
static uint8_t reach_table[RANKS * RANKS];
static struct node_group groups[RANKS];
static struct node_place places[RANKS];
static _Alignas(64) char edges[2 * XFER_EDGE_BYTES];
static struct xfer transfer;

static uint64_t round_number; /* pages of the pool hold what was in them before */

static char byte_at(uint64_t k)
{
	return (char)(k * 13 + k / 250 + round_number * 101 + 1);
}

static void buffer_make(struct buffer *b, uint64_t start, uint64_t end, char fill)
{
	b->base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(b->base != MAP_FAILED);
	memset(b->base, fill, BYTES);
	b->start = start;
	b->bytes = end - start;
	region_describe(b->base + start, b->bytes, REGION_FORCE, &b->desc);
	if (!(b->desc.flags & REGION_DESC_MAPPED))
		unit_fail(__FILE__, __LINE__, "%" PRIu64 " bytes from %" PRIu64 ": %s", b->bytes,
			  start, region_refusal(b->base + start, b->bytes));
}

static void buffer_protect(const struct buffer *b, int prot)
{
	const struct region_desc *d = &b->desc;

	CHECK(!mprotect((char *)(uintptr_t)d->addr + d->head, d->bytes - d->head - d->tail, prot));
}

static void setup(void)
{
	static char problems[512];

	CHECK(!base_options_load((char *[]){ "SLUICE_TEST=region_adopt_min=4K",
					     "SLUICE_TEST=xfer_fragment=8K", NULL },
				 problems, sizeof problems));
	CHECK(!region_init());
	peer = (struct node_peer){ .base = region_arena_base(), .bytes = region_arena_bytes() };
	for (int r = 0; r < RANKS; r++)
		places[r] = (struct node_place){ .arena = peer.base, .arena_bytes = peer.bytes };
	for (int r = 0; r < RANKS; r++)
		groups[r] = (struct node_group){ .rank = r,
						 .size = RANKS,
						 .peers = peers,
						 .places = places,
						 .ranks = bells,
						 .reach = reach_table };
}

/* `who` alone moves the transfer through the arena; false when the plan needs one of the ends. */
static bool move_alone(int who, uint64_t tag, uint64_t src_off, uint64_t dst_off, uint64_t bytes,
		       bool inline_edges)
{
	const struct xfer_reach reach = { .can_read = !inline_edges };
	struct xfer_view v = { .x = &transfer,
			       .tag = tag,
			       .group = &groups[who],
			       .src = { .desc = buffers[SRC].desc, .off = src_off, .rank = SRC,
					.edges = inline_edges ? edges : NULL },
			       .dst = { .desc = buffers[DST].desc, .off = dst_off, .rank = DST } };
	struct xfer_view receiver;

	xfer_plan(&v.src, &v.dst, bytes, &reach, &v.plan);
	if (inline_edges)
		xfer_fill_edges(&v.src.desc, (char *)(uintptr_t)v.src.desc.addr, edges);
	xfer_open(&transfer, tag);
	receiver = v;
	receiver.group = &groups[DST];
	xfer_view_init(&receiver, XFER_VIEW_NORMAL);
	CHECK_EQ(xfer_needs_me(&receiver), v.plan.receiver_needed);
	if (v.plan.sender_needed) {
		xfer_view_init(&v, XFER_VIEW_ALIASED);
		CHECK_EQ(v.units, v.plan.fragments); /* its edges lie in no arena */
		return false;
	}
	if (!receiver.edges_done) {
		CHECK(v.plan.receiver_needed);
		CHECK_EQ(xfer_move_edges(&receiver), 1);
	}
	CHECK(!xfer_needs_me(&receiver));
	buffer_protect(&buffers[SRC], PROT_NONE);
	buffer_protect(&buffers[DST], PROT_NONE);
	xfer_view_init(&v, XFER_VIEW_ALIASED);
	while (xfer_move(&v, XFER_ANY) > 0)
		;
	CHECK(xfer_is_range_done(&v, 0, bytes));
	CHECK(xfer_is_done(&transfer, tag, v.plan.total));
	buffer_protect(&buffers[SRC], PROT_READ | PROT_WRITE);
	buffer_protect(&buffers[DST], PROT_READ | PROT_WRITE);
	return true;
}

static void check_moved(uint64_t src_off, uint64_t dst_off, uint64_t bytes)
{
	uint64_t to = buffers[DST].start + dst_off, from = buffers[SRC].start + src_off;

	for (uint64_t k = 0; k < BYTES; k++)
		CHECK_EQ(buffers[DST].base[k],
			 k >= to && k < to + bytes ? byte_at(from + k - to) : 0x55);
}

static unsigned try_shapes(const uint64_t *starts, unsigned n, uint64_t tag)
{
	static const uint64_t offs[] = { 0, 4096, 5000 };
	unsigned moved = 0;

	for (unsigned s = 0; s < n * n * 3 * 6; s++) {
		int who = (int)(s % 3);
		uint64_t off = offs[s / 3 % 3], bytes;
		bool inline_edges = s / 9 % 2;

		round_number = s;
		buffer_make(&buffers[SRC], starts[s / 18 % n], BYTES - starts[s / 18 / n % n], 0);
		buffer_make(&buffers[DST], starts[s / 18 / n % n], BYTES - starts[s / 18 % n] / 2,
			    0x55);
		for (uint64_t k = 0; k < BYTES; k++)
			buffers[SRC].base[k] = byte_at(k);
		bytes = base_min_u64(buffers[SRC].bytes, buffers[DST].bytes) - off;
		if (move_alone(who, tag + s, off, s % 2 ? off : 0, bytes, inline_edges)) {
			check_moved(off, s % 2 ? off : 0, bytes);
			moved++;
		}
		for (int b = 0; b < 2; b++) {
			region_release(&buffers[b].desc);
			region_drop((uintptr_t)buffers[b].base, (uintptr_t)buffers[b].base + BYTES);
			munmap(buffers[b].base, BYTES);
		}
	}
	return moved;
}

static void alone(void *arg)
{
	static const uint64_t starts[] = { 0, 1, 4095, 4096, 6000 };

	(void)arg;
	setup();
	CHECK(try_shapes(starts, BASE_ARRAY_LEN(starts), 1) > 100);
}

UNIT_TEST(view_through_the_arena_moves_what_may_not_be_touched)
{
	CHECK_EQ(unit_fork(alone, NULL), 0);
}
