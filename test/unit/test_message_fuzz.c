/* SPDX-License-Identifier: BSD-3-Clause */
/* Random calls against random memory: each has the result, the errno and the bytes of the kernel's
 * own call with the same arguments. */
#include <errno.h>

#include "message/private.h"
#include "message_case.h"

enum { PAGE = 4096, SPAN = 3 * MIB, LAYOUTS = 24, CALLS = 80, VECTORS = 64 };
enum { SENDS = 3, CLOSED = 3, REGIONS = 5 }; /* of a layout */

/* ---- the owner ----------------------------------------------------------------------------- */

struct owner {
	int adopted;
	char *p, *at[REGIONS];
	uint64_t bytes[REGIONS];
	uint64_t state;
	struct { uintptr_t start, end; } closed[CLOSED];
	struct snapshot *sends[SENDS];
};

static uintptr_t below(uint64_t *state, uintptr_t n) { return ranks_below(state, n); }

static void fill(struct owner *o)
{
	uint32_t ticket = region_unmap_begin((uintptr_t)o->p, (uintptr_t)o->p + SPAN);

	CHECK(mmap(o->p, SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == o->p);
	region_unmap_end(ticket, (uintptr_t)o->p, (uintptr_t)o->p + SPAN, true);
	for (size_t i = 0; i < SPAN; i++)
		o->p[i] = (char)byte_at(i + o->state % 1000);
	for (int i = 0; i < REGIONS; i++) {
		o->bytes[i] = 30000 + below(&o->state, 200000);
		o->at[i] = o->p + below(&o->state, SPAN - MIB);
		o->adopted += is_mapped(o->at[i], o->bytes[i]);
	}
}

/* Pages that can only be read, that cannot, and that are not there, as the hooks do it. */
static void close_pages(struct owner *o)
{
	for (int i = 0; i < CLOSED; i++) {
		uintptr_t at = (uintptr_t)o->p + below(&o->state, SPAN / PAGE - 4) * PAGE;
		size_t bytes = (1 + below(&o->state, 3)) * PAGE;
		uint32_t ticket;

		o->closed[i].start = at;
		o->closed[i].end = at + bytes;
		if (i < 2) {
			region_return(at, at + bytes);
			CHECK_EQ(mprotect((void *)at, bytes, i ? PROT_NONE : PROT_READ), 0);
		} else {
			ticket = region_unmap_begin(at, at + bytes);
			CHECK_EQ(munmap((void *)at, bytes), 0);
			region_unmap_end(ticket, at, at + bytes, true);
		}
	}
}

/* A message, often of a region. */
static char *some_send(struct owner *o, uint64_t *out_bytes)
{
	uint64_t region = below(&o->state, 2 * REGIONS);

	if (region < REGIONS) {
		*out_bytes = o->bytes[region];
		return o->at[region];
	}
	*out_bytes = 1 + below(&o->state, 250000);
	return o->p + below(&o->state, SPAN - *out_bytes);
}

/* Not in closed pages, of which MPI_Send would make an error. */
static char *place_send(struct owner *o, uint64_t *out_bytes)
{
	for (;;) {
		char *p = some_send(o, out_bytes);
		uintptr_t at = (uintptr_t)p;
		bool is_open = true;

		for (int i = 0; i < CLOSED; i++)
			is_open &= at + *out_bytes <= o->closed[i].start || at >= o->closed[i].end;
		if (is_open)
			return p;
	}
}

/* Sends that are under way, of private memory and of regions with their edges. */
static void begin_sends(struct ranks *r, struct owner *o)
{
	for (int i = 0; i < SENDS; i++) {
		uint64_t bytes;
		char *at = place_send(o, &bytes);
		struct message_edges edges = { bytes, 0 };
		struct region_desc d;

		region_describe(at, bytes, REGION_LOOKUP, &d);
		if (d.flags & REGION_DESC_MAPPED)
			edges = (struct message_edges){ d.head, d.tail };
		region_release(&d);
		o->sends[i] = snapshot_make(node_header_self(), at, bytes, &edges,
					    edges.head + edges.tail <= SNAPSHOT_WHOLE_BYTES);
		CHECK(o->sends[i]);
		atomic_store(&r->words[1 + 2 * i], (uintptr_t)at);
		atomic_store(&r->words[2 + 2 * i], bytes);
	}
}

static void end_sends(struct owner *o)
{
	for (int i = 0; i < SENDS; i++)
		snapshot_end(node_header_self(), o->sends[i]);
}

/* ---- the reader ---------------------------------------------------------------------------- */

/* A length: mostly a few bytes or many; sometimes none. */
static size_t some_bytes(uint64_t *state)
{
	switch (below(state, 6)) {
	case 0:
		return 0;
	case 1:
		return 1 + below(state, 64);
	case 2:
		return PAGE * (1 + below(state, 16));
	default:
		return 1 + below(state, 120000);
	}
}

/* Anywhere, at the edges of pages, where the last run ended; seldom outside. */
static uintptr_t some_address(uintptr_t p, uintptr_t last, uint64_t *state)
{
	switch (below(state, 24)) {
	case 0:
		return 0;
	case 1:
		return UINTPTR_MAX - below(state, 3 * PAGE);
	case 2:
		return p + SPAN - below(state, PAGE);
	case 3 ... 9:
		return last;
	case 10 ... 15:
		return p + below(state, SPAN / PAGE) * PAGE - 8 + below(state, 16);
	default:
		return p + below(state, SPAN);
	}
}

struct vectors {
	struct iovec local[VECTORS], other[VECTORS], remote[VECTORS];
	int locals, remotes;
};

/* Most of a message that is being sent. */
static struct iovec some_message(struct ranks *r, uint64_t *state)
{
	uint64_t i = below(state, SENDS), at = below(state, 40), behind = below(state, 40);
	uint64_t bytes = atomic_load(&r->words[2 + 2 * i]);

	return (struct iovec){ (char *)atomic_load(&r->words[1 + 2 * i]) + at,
			       bytes > 80 ? bytes - at - behind : bytes };
}

static void choose(struct ranks *r, struct vectors *v, char *mine, char *other, uint64_t *state)
{
	uintptr_t p = atomic_load(&r->words[0]), last = p;
	size_t at = 0;

	v->locals = 1 + (int)below(state, below(state, 2) ? 3 : VECTORS);
	v->remotes = 1 + (int)below(state, below(state, 2) ? 3 : VECTORS);
	for (int i = 0; i < v->remotes; i++) {
		v->remote[i].iov_base = (void *)some_address(p, last, state);
		v->remote[i].iov_len = some_bytes(state);
		if (!below(state, 4))
			v->remote[i] = some_message(r, state);
		last = (uintptr_t)v->remote[i].iov_base + v->remote[i].iov_len;
	}
	for (int i = 0; i < v->locals; i++) {
		size_t n = some_bytes(state);

		n = n < SPAN - at ? n : SPAN - at;
		v->local[i] = (struct iovec){ mine + at, n };
		v->other[i] = (struct iovec){ other + at, n };
		at += n + below(state, 2) * 8;
		at = at < SPAN ? at : SPAN;
	}
}

/* Bytes behind the count may be anything inside the vectors; beside them nothing changes. */
static void compare(const struct vectors *v, const char *mine, ssize_t n)
{
	const char *end = mine;
	ssize_t left = n > 0 ? n : 0;

	for (int i = 0; i < v->locals; i++) {
		const struct iovec *l = &v->local[i];
		size_t bytes = left < (ssize_t)l->iov_len ? (size_t)left : l->iov_len;

		for (; end < (char *)l->iov_base; end++)
			CHECK_EQ(*end, 0x55);
		CHECK(!memcmp(l->iov_base, v->other[i].iov_base, bytes));
		left -= (ssize_t)bytes;
		end = (char *)l->iov_base + l->iov_len;
	}
	CHECK(end == mine + SPAN || *end == 0x55);
}

static void call_as_the_kernel(struct ranks *r, char *mine, char *other, uint64_t *state)
{
	struct vectors v;
	ssize_t want, got;
	int err, pid = r->pids[0];

	choose(r, &v, mine, other, state);
	memset(mine, 0x55, SPAN);
	errno = 0;
	want = process_vm_readv(pid, v.other, (unsigned)v.locals, v.remote, (unsigned)v.remotes, 0);
	err = errno;
	errno = 0;
	got = read_vectors(pid, v.local, v.locals, v.remote, v.remotes);
	CHECK_EQ(got, want);
	CHECK_EQ(errno, err);
	compare(&v, mine, want);
}

static void calls_are_random(struct ranks *r)
{
	struct owner o = { .state = 11 };
	char *mine = pages(SPAN), *other = pages(SPAN);
	uint64_t state = 23;

	announce(r);
	if (!r->rank) {
		/* the bytes around it do not change */
		o.p = (char *)mmap(NULL, SPAN + 2 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0) + MIB;
		tell(r, o.p);
	}
	ranks_barrier(r);
	for (int i = 0; i < LAYOUTS; i++) {
		if (!r->rank) {
			fill(&o);
			close_pages(&o);
			begin_sends(r, &o);
		}
		ranks_barrier(r);
		for (int k = 0; k < CALLS && r->rank; k++)
			call_as_the_kernel(r, mine, other, &state);
		ranks_barrier(r);
		if (!r->rank)
			end_sends(&o);
	}
	CHECK(r->rank || o.adopted > 2 * LAYOUTS);
	CHECK(!r->rank || base_counter_value(BASE_CTR_MESSAGES) > 50);
	ranks_barrier(r);
}

UNIT_TEST(random_calls_have_the_results_of_the_kernels)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), calls_are_random, NULL);
}
