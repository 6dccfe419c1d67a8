/* SPDX-License-Identifier: BSD-3-Clause */
/* Breadth-first search over the states that interleavings lead to: see interleave.h. */
#include "interleave.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

enum { STATES_MAX = 1 << 22, TABLE = 1 << 23 };
enum { BUFFERED_RELEASE = 1 };

struct store {
	uint64_t value;
	uint16_t at;
	uint8_t size, flags;
};

struct thread {
	uint8_t finished, logged, buffered;
	uint16_t asleep_on; /* 1 + offset in shared */
	uint64_t log[IL_LOG];
	struct store buffer[IL_BUFFER];
	_Alignas(8) uint8_t local[IL_LOCAL_BYTES];
};

struct state {
	_Alignas(64) uint8_t shared[IL_SHARED_BYTES];
	struct thread threads[IL_THREADS];
};

/* A visited state: its predecessor, and the offset of its contents in `packed`. */
struct node {
	uint64_t hash[2], at;
	uint32_t parent;
	uint8_t step;
	bool final, good;
};

static struct {
	const struct il_model *model;
	struct state now;
	/* of the step that is taken */
	struct thread *self;
	unsigned cursor;
	bool acted;
	jmp_buf yield;
	const char *violation;
	/* of the search */
	uint32_t *table;
	struct node *nodes;
	uint32_t node_count, node_cap, last;
	uint32_t (*edges)[2];
	size_t edge_count, edge_cap;
	uint8_t *packed;
	size_t packed_bytes, packed_cap;
} il;

enum { YIELD_STEP = 1, YIELD_BLOCKED, YIELD_FAILED };

/* ---- points ------------------------------------------------------------------------------ */

bool il_turn(void)
{
	if (il.cursor < il.self->logged) {
		il.cursor++;
		return false;
	}
	if (il.acted)
		longjmp(il.yield, YIELD_STEP);
	if (il.cursor == IL_LOG)
		il_fail("a round is longer than its log");
	il.acted = true;
	il.self->log[il.cursor++] = 0;
	il.self->logged++;
	return true;
}

static uint64_t *entry(void)
{
	return &il.self->log[il.cursor - 1];
}

uint64_t il_learn(uint64_t now)
{
	if (il_turn())
		*entry() = now;
	return *entry();
}

void il_fail(const char *what)
{
	il.violation = what;
	longjmp(il.yield, YIELD_FAILED);
}

static uint16_t offset_of(const void *p)
{
	const uint8_t *at = p;

	if (at < il.now.shared || at >= il.now.shared + il.model->shared_bytes)
		il_fail("an access outside of shared memory");
	return (uint16_t)(at - il.now.shared);
}

static uint64_t read_mem(uint16_t at, size_t size)
{
	uint64_t v = 0;

	memcpy(&v, il.now.shared + at, size);
	return v;
}

/* Only at the beginning of a step: the thread must be able to try again later. */
static void block_unless(bool can)
{
	if (!can)
		longjmp(il.yield, YIELD_BLOCKED);
}

static bool is_live(void)
{
	return il.cursor == il.self->logged && !il.acted;
}

static bool has_release(memory_order o)
{
	return !(il.model->mutation & IL_NO_RELEASE) && o != memory_order_relaxed &&
	       o != memory_order_acquire;
}

static bool buffers(uint16_t at)
{
	for (unsigned i = 0; i < il.self->buffered; i++)
		if (il.self->buffer[i].at == at)
			return true;
	return false;
}

uint64_t il_load(const void *p, size_t size)
{
	uint16_t at = offset_of(p);

	if (il_turn()) {
		*entry() = read_mem(at, size);
		for (unsigned i = 0; i < il.self->buffered; i++)
			if (il.self->buffer[i].at == at)
				*entry() = il.self->buffer[i].value;
	}
	return *entry();
}

void il_store(void *p, size_t size, uint64_t value, memory_order order)
{
	uint16_t at = offset_of(p);

	if (is_live())
		block_unless(il.self->buffered < IL_BUFFER);
	if (il_turn())
		il.self->buffer[il.self->buffered++] =
			(struct store){ value, at, (uint8_t)size,
					has_release(order) ? BUFFERED_RELEASE : 0 };
}

static uint64_t modify(void *p, size_t size, memory_order order, uint64_t (*f)(uint64_t, uint64_t),
		       uint64_t by)
{
	uint16_t at = offset_of(p);
	uint64_t v;

	if (is_live())
		block_unless(has_release(order) ? !il.self->buffered : !buffers(at));
	if (il_turn()) {
		*entry() = read_mem(at, size);
		v = f(*entry(), by);
		memcpy(il.now.shared + at, &v, size);
	}
	return *entry();
}

static uint64_t f_add(uint64_t a, uint64_t b)
{
	return a + b;
}
static uint64_t f_or(uint64_t a, uint64_t b)
{
	return a | b;
}
static uint64_t f_and(uint64_t a, uint64_t b)
{
	return a & b;
}

uint64_t il_add(void *p, size_t size, uint64_t v, memory_order o)
{
	return modify(p, size, o, f_add, v);
}
uint64_t il_or(void *p, size_t size, uint64_t v, memory_order o)
{
	return modify(p, size, o, f_or, v);
}
uint64_t il_and(void *p, size_t size, uint64_t v, memory_order o)
{
	return modify(p, size, o, f_and, v);
}

bool il_cas(void *p, size_t size, uint64_t *expected, uint64_t desired, memory_order order)
{
	bool blind = il.model->mutation & IL_BLIND_CAS;
	uint16_t at = offset_of(p);
	uint64_t got;

	if (is_live())
		block_unless(has_release(order) ? !il.self->buffered : !buffers(at));
	if (il_turn()) {
		*entry() = read_mem(at, size);
		if (blind || *entry() == *expected)
			memcpy(il.now.shared + at, &desired, size);
	}
	got = *entry();
	if (blind || got == *expected)
		return true;
	*expected = got;
	return false;
}

void il_fence(memory_order order)
{
	if (il.model->mutation & IL_NO_FENCE || order == memory_order_acquire)
		return;
	if (is_live())
		block_unless(!il.self->buffered);
	il_turn();
}

void il_futex_wait(void *word, uint32_t expected)
{
	uint16_t at = offset_of(word);

	if (is_live())
		block_unless(!il.self->buffered);
	if (il_turn() && read_mem(at, sizeof expected) == expected)
		il.self->asleep_on = (uint16_t)(at + 1);
}

void il_futex_wake(void *word)
{
	uint16_t at = offset_of(word);

	if (is_live())
		block_unless(!il.self->buffered);
	if (!il_turn())
		return;
	for (int t = 0; t < il.model->threads; t++)
		if (il.now.threads[t].asleep_on == at + 1)
			il.now.threads[t].asleep_on = 0;
}

/* ---- steps: 0 .. threads-1 let a thread go on, then IL_BUFFER each let a store land ------ */

static int step_count(void)
{
	return il.model->threads * (1 + IL_BUFFER);
}

static bool land(int t, unsigned i)
{
	struct thread *th = &il.now.threads[t];
	struct store s = th->buffer[i];

	if (i >= th->buffered || (i && s.flags & BUFFERED_RELEASE))
		return false;
	for (unsigned k = 0; k < i; k++)
		if (th->buffer[k].at == s.at)
			return false;
	memcpy(il.now.shared + s.at, &s.value, s.size);
	memmove(&th->buffer[i], &th->buffer[i + 1], (th->buffered - i - 1u) * sizeof s);
	th->buffered--;
	memset(&th->buffer[th->buffered], 0, sizeof s);
	return true;
}

static bool run_thread(int t)
{
	uint8_t local[IL_LOCAL_BYTES];
	bool more;

	il.self = &il.now.threads[t];
	if (il.self->finished || il.self->asleep_on)
		return false;
	il.cursor = 0;
	il.acted = false;
	switch (setjmp(il.yield)) {
	case YIELD_STEP:
		return true;
	case YIELD_BLOCKED:
		return false;
	case YIELD_FAILED:
		return true;
	}
	memcpy(local, il.self->local, sizeof local);
	more = il.model->round(t, il.now.shared, local);
	memcpy(il.self->local, local, sizeof local);
	memset(il.self->log, 0, sizeof il.self->log);
	il.self->logged = 0;
	il.self->finished = !more;
	return true;
}

/* Takes step number s from il.now. False when it cannot be taken there. */
static bool take(int s)
{
	int n = il.model->threads;

	return s < n ? run_thread(s) : land((s - n) / IL_BUFFER, (unsigned)(s - n) % IL_BUFFER);
}

static bool is_final(void)
{
	for (int t = 0; t < il.model->threads; t++)
		if (!il.now.threads[t].finished || il.now.threads[t].buffered)
			return false;
	return true;
}

static void check_end(void)
{
	il.self = &il.now.threads[0];
	if (il.model->end && !setjmp(il.yield))
		il.model->end(il.now.shared);
}

/* ---- the search -------------------------------------------------------------------------- */

static uint8_t *put(uint8_t *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
	return to + bytes;
}

static const uint8_t *get(void *to, const uint8_t *from, size_t bytes)
{
	memcpy(to, from, bytes);
	return from + bytes;
}

/* Packs the parts of each thread that are in use. Returns: the number of bytes. */
static size_t pack(uint8_t *to)
{
	uint8_t *at = put(to, il.now.shared, il.model->shared_bytes);

	for (int t = 0; t < il.model->threads; t++) {
		const struct thread *th = &il.now.threads[t];

		at = put(at, th, offsetof(struct thread, log));
		at = put(at, th->log, th->logged * sizeof th->log[0]);
		at = put(at, th->buffer, th->buffered * sizeof th->buffer[0]);
		at = put(at, th->local, il.model->local_bytes);
	}
	return (size_t)(at - to);
}

static void unpack(const uint8_t *from)
{
	memset(&il.now, 0, sizeof il.now);
	from = get(il.now.shared, from, il.model->shared_bytes);
	for (int t = 0; t < il.model->threads; t++) {
		struct thread *th = &il.now.threads[t];

		from = get(th, from, offsetof(struct thread, log));
		from = get(th->log, from, th->logged * sizeof th->log[0]);
		from = get(th->buffer, from, th->buffered * sizeof th->buffer[0]);
		from = get(th->local, from, il.model->local_bytes);
	}
}

static void *grow(void *p, size_t used, size_t *cap, size_t more, size_t each)
{
	if (used + more <= *cap)
		return p;
	*cap = 2 * *cap + more + 4096;
	p = realloc(p, *cap * each);
	if (!p)
		abort();
	return p;
}

static void hash(const uint8_t *p, size_t bytes, uint64_t out[2])
{
	uint64_t a = 0x9e3779b97f4a7c15u, b = 0xc2b2ae3d27d4eb4fu, w;

	for (size_t i = 0; i < bytes; i += 8) {
		w = 0;
		memcpy(&w, p + i, bytes - i < 8 ? bytes - i : 8);
		a = (a ^ w) * 0xff51afd7ed558ccdu;
		a ^= a >> 32;
		b = (b + w) * 0xc4ceb9fe1a85ec53u;
		b ^= b >> 29;
	}
	out[0] = a;
	out[1] = b;
}

/* The node of il.now, made when it is new. */
static uint32_t intern(uint32_t parent, int step, bool *out_new)
{
	struct node *n;
	uint64_t h[2];
	size_t bytes, cap = il.node_cap;
	uint32_t slot;

	il.packed = grow(il.packed, il.packed_bytes, &il.packed_cap, sizeof il.now, 1);
	bytes = pack(il.packed + il.packed_bytes);
	hash(il.packed + il.packed_bytes, bytes, h);
	*out_new = false;
	for (slot = h[0] & (TABLE - 1); il.table[slot]; slot = (slot + 1) & (TABLE - 1)) {
		n = &il.nodes[il.table[slot] - 1];
		if (n->hash[0] == h[0] && n->hash[1] == h[1])
			return il.table[slot] - 1;
	}
	if (il.node_count == STATES_MAX)
		unit_fail(__FILE__, __LINE__, "more than %d states", STATES_MAX);
	il.nodes = grow(il.nodes, il.node_count, &cap, 1, sizeof *il.nodes);
	il.node_cap = (uint32_t)cap;
	il.table[slot] = il.node_count + 1;
	il.nodes[il.node_count] = (struct node){ .hash = { h[0], h[1] },
						 .at = il.packed_bytes,
						 .parent = parent,
						 .step = (uint8_t)step,
						 .final = is_final() };
	il.packed_bytes += bytes;
	*out_new = true;
	return il.node_count++;
}

static void add_edge(uint32_t from, uint32_t to)
{
	il.edges = grow(il.edges, il.edge_count, &il.edge_cap, 1, sizeof *il.edges);
	il.edges[il.edge_count][0] = from;
	il.edges[il.edge_count++][1] = to;
}

static void expand(uint32_t n)
{
	bool is_new, any = false;

	for (int s = 0; s < step_count() && !il.violation; s++) {
		unpack(il.packed + il.nodes[n].at);
		if (!take(s))
			continue;
		any = true;
		il.last = intern(n, s, &is_new);
		add_edge(n, il.last);
		if (!il.violation && is_new && is_final())
			check_end();
	}
	if (!any && !il.nodes[n].final && !il.violation) {
		il.violation = "deadlock";
		il.last = n;
	}
}

static void describe(uint32_t n, char *out, size_t cap)
{
	uint8_t steps[4096];
	size_t count = 0, at = 0;

	for (; n && count < sizeof steps; n = il.nodes[n].parent)
		steps[count++] = il.nodes[n].step;
	while (count && at + 4 < cap) {
		int s = steps[--count], t = il.model->threads;

		out[at++] = (char)('0' + (s < t ? s : (s - t) / IL_BUFFER));
		if (s >= t)
			out[at++] = 'b';
	}
	out[at] = 0;
}

/* From which states can the end be reached? The edges are walked backwards until nothing changes.
 */
static void check_livelock(void)
{
	bool changed = true;

	for (uint32_t n = 0; n < il.node_count; n++)
		il.nodes[n].good = il.nodes[n].final;
	while (changed) {
		changed = false;
		for (size_t e = il.edge_count; e-- > 0;) {
			if (il.nodes[il.edges[e][1]].good && !il.nodes[il.edges[e][0]].good)
				changed = il.nodes[il.edges[e][0]].good = true;
		}
	}
	for (uint32_t n = 0; n < il.node_count && !il.violation; n++) {
		if (!il.nodes[n].good) {
			il.violation = "livelock: the end cannot be reached any more";
			il.last = n;
		}
	}
}

void il_explore(const struct il_model *m, struct il_result *out)
{
	bool is_new;

	if (m->shared_bytes > IL_SHARED_BYTES || m->local_bytes > IL_LOCAL_BYTES ||
	    m->threads > IL_THREADS)
		abort();
	memset(&il, 0, sizeof il);
	il.model = m;
	il.table = calloc(TABLE, sizeof *il.table); /* pages are touched as they are used */
	if (!il.table)
		abort();
	m->init(il.now.shared);
	intern(0, 0, &is_new);
	for (uint32_t n = 0; n < il.node_count && !il.violation; n++)
		expand(n);
	if (!il.violation)
		check_livelock();
	memset(out, 0, sizeof *out);
	out->violation = il.violation;
	out->states = il.node_count;
	out->steps = il.edge_count;
	if (il.violation)
		describe(il.last, out->order, sizeof out->order);
	free(il.table);
	free(il.nodes);
	free(il.edges);
	free(il.packed);
	memset(&il, 0, sizeof il);
}

const char *il_violation(const struct il_model *m)
{
	static struct il_result r;

	il_explore(m, &r);
	if (getenv("INTERLEAVE_SHOW"))
		printf("  %" PRIu64 " states, %" PRIu64 " steps: %s %s\n", r.states, r.steps,
		       r.violation ? r.violation : "holds", r.order);
	return r.violation;
}
