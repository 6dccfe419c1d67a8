/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random sequences of broadcasts and gathers between processes, for each way in which bytes can
 * travel: every byte is compared, those beside the buffers too. RANDOM_SEED=n plays other
 * sequences.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "os/os.h"
#include "ranks.h"
#include "rt_case.h"

enum { BUFFERS = 3, BUFFER_BYTES = 3 << 20, GUARD = 4096 + 64, RUN = 5, STRIDE = 8 };
#define GUARD_BYTE ((char)0xa5)

struct sequence {
	uint64_t seed;
	int ops;
	uint64_t max_bytes;
	char *const *later; /* options after creation */
};

/* ---- buffers ----------------------------------------------------------------------------- */

/* The program's memory of this rank: buffers that are used again and again, at odd addresses. */
struct memory {
	char *map[BUFFERS];
};

static void memory_make(struct memory *m)
{
	for (int i = 0; i < BUFFERS; i++) {
		m->map[i] = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(m->map[i] != MAP_FAILED);
	}
}

/* `bytes` of packed data in a buffer of the program, with gaps or without. */
struct data {
	char *addr;
	uint64_t bytes, span;
	bool has_gaps;
};

static char *byte_at(const struct data *d, uint64_t k)
{
	return d->addr + (d->has_gaps ? k / RUN * STRIDE + k % RUN : k);
}

static struct data data_make(const struct memory *m, uint64_t choice, uint64_t bytes, bool has_gaps)
{
	uint64_t skew =
		choice / BUFFERS % 3 * 1365 + choice % 7; /* a few places: they are used again */
	struct data d = { m->map[choice % BUFFERS] + GUARD + skew, bytes, bytes, has_gaps };

	if (has_gaps)
		d.span = (bytes + RUN - 1) / RUN * STRIDE;
	CHECK(GUARD + skew + d.span + GUARD <= BUFFER_BYTES);
	return d;
}

static char value_of(uint64_t key, uint64_t k)
{
	uint64_t x = (k / 8 + 1) * 0x9e3779b97f4a7c15u + key;

	x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
	return (char)(x >> (k % 8 * 8));
}

static void data_guard(const struct data *d)
{
	memset(d->addr - GUARD, GUARD_BYTE, d->span + 2 * GUARD);
}

/* Bytes [from, from + n) of the packed data become those of `key`, as does every check of them. */
static void data_fill(const struct data *d, uint64_t from, uint64_t n, uint64_t key)
{
	for (uint64_t k = 0; k < n; k++)
		*byte_at(d, from + k) = value_of(key, k);
}

static void data_check(const struct data *d, uint64_t from, uint64_t n, uint64_t key,
		       const char *what)
{
	for (uint64_t k = 0; k < n; k++)
		if (*byte_at(d, from + k) != value_of(key, k))
			unit_fail(__FILE__, __LINE__,
				  "%s: byte %" PRIu64 " of %" PRIu64 " is wrong", what, k, n);
}

static void data_check_guards(const struct data *d, const char *what)
{
	for (const char *p = d->addr - GUARD; p < d->addr; p++)
		if (*p != GUARD_BYTE)
			unit_fail(__FILE__, __LINE__, "%s: a byte %td before the buffer is changed",
				  what, d->addr - p);
	for (const char *p = d->addr + d->span; p < d->addr + d->span + GUARD; p++)
		if (*p != GUARD_BYTE)
			unit_fail(__FILE__, __LINE__, "%s: a byte %td behind the buffer is changed",
				  what, p - d->addr - (ptrdiff_t)d->span);
	for (uint64_t k = 0; d->has_gaps && k + RUN <= d->bytes; k += RUN)
		for (int i = RUN; i < STRIDE; i++)
			if (byte_at(d, k)[i] != GUARD_BYTE)
				unit_fail(__FILE__, __LINE__, "%s: a gap is changed at %" PRIu64,
					  what, k);
}

static int data_pack(void *ctx, uint64_t off, uint64_t len, void *out)
{
	for (uint64_t k = 0; k < len; k++)
		((char *)out)[k] = *byte_at(ctx, off + k);
	return 0;
}

static int data_unpack(void *ctx, uint64_t off, uint64_t len, const void *in)
{
	for (uint64_t k = 0; k < len; k++)
		*byte_at(ctx, off + k) = ((const char *)in)[k];
	return 0;
}

static struct coll_buf rt_buf_of(struct data *d)
{
	struct coll_buf b = { .addr = d->addr, .bytes = d->bytes, .ctx = d };

	if (d->has_gaps) {
		b.pack = data_pack;
		b.unpack = data_unpack;
	}
	return b;
}

/* ---- collectives ------------------------------------------------------------------------- */

static void bcast_once(struct ranks *r, struct rt_comm *c, const struct memory *m, uint64_t bytes,
		       uint64_t *common, uint64_t *own)
{
	int root = (int)ranks_below(common, (uint64_t)r->size);
	uint64_t key = ranks_random(common);
	struct data d = data_make(m, ranks_random(own), bytes, ranks_below(own, 4) == 0);
	struct coll_buf buf = rt_buf_of(&d);
	char what[64];

	snprintf(what, sizeof what, "bcast of %" PRIu64 " from %d, rank %d%s", bytes, root, r->rank,
		 d.has_gaps ? ", gaps" : "");
	data_guard(&d);
	if (r->rank == root)
		data_fill(&d, 0, bytes, key);
	CHECK_EQ(rt_bcast(c, &buf, root, NULL), 0);
	data_check(&d, 0, bytes, key, what);
	data_check_guards(&d, what);
	data_fill(&d, 0, bytes, 1); /* the call is over: nobody may read it any more */
}

static void gather_once(struct ranks *r, struct rt_comm *c, const struct memory *m, uint64_t bytes,
			uint64_t *common, uint64_t *own)
{
	int root = (int)ranks_below(common, (uint64_t)r->size);
	uint64_t key = ranks_random(common), place = ranks_random(own);
	bool is_root = r->rank == root, in_place = is_root && ranks_below(own, 3) == 0;
	struct data s = data_make(m, place, bytes, ranks_below(own, 4) == 0);
	struct data d = data_make(m, place + 1, is_root ? bytes * (uint64_t)r->size : 0,
				  ranks_below(own, 4) == 0);
	struct coll_buf send = rt_buf_of(&s), recv = rt_buf_of(&d);
	char what[64];

	snprintf(what, sizeof what, "gather of %" PRIu64 " to %d, rank %d%s%s", bytes, root,
		 r->rank, s.has_gaps ? ", gaps" : "", d.has_gaps ? ", gaps at root" : "");
	data_guard(&s);
	data_guard(&d);
	data_fill(&s, 0, bytes, key + (uint64_t)r->rank);
	if (in_place)
		data_fill(&d, (uint64_t)root * bytes, bytes, key + (uint64_t)root);
	CHECK_EQ(rt_gather(c, in_place ? NULL : &send, is_root ? &recv : NULL, bytes, root, NULL),
		 0);
	data_check(&s, 0, bytes, key + (uint64_t)r->rank, what);
	data_fill(&s, 0, bytes, 2);
	data_check_guards(&s, what);
	data_check_guards(&d, what);
	for (int q = 0; is_root && q < r->size; q++)
		data_check(&d, (uint64_t)q * bytes, bytes, key + (uint64_t)q, what);
}

/* From a few bytes to max, each magnitude as often as any other; whole pages now and then. */
static uint64_t pick_bytes(uint64_t *state, uint64_t max)
{
	uint64_t bits = 64 - (uint64_t)__builtin_clzll(max), top = 1ull << ranks_below(state, bits);
	uint64_t bytes = base_min_u64(max, top + ranks_below(state, top));

	return ranks_below(state, 4)                    ? bytes
	       : base_round_up(bytes, OS_PAGE) <= max ? base_round_up(bytes, OS_PAGE)
							: bytes;
}

static void play(struct ranks *r)
{
	const struct sequence *q = r->arg;
	uint64_t common = q->seed, own = q->seed * 31 + (uint64_t)r->rank;
	struct rt_comm *c = NULL;
	struct memory m;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	ranks_barrier(r);
	if (q->later)
		ranks_options(q->later);
	memory_make(&m);
	for (int i = 0; i < q->ops; i++) {
		uint64_t bytes = pick_bytes(&common, q->max_bytes);

		if (ranks_below(&own, 8) == 0)
			usleep((useconds_t)ranks_below(&own, 300));
		if (ranks_below(&common, 3))
			bcast_once(r, c, &m, bytes, &common, &own);
		else
			gather_once(r, c, &m, bytes / (uint64_t)r->size + 1, &common, &own);
	}
	rt_comm_destroy(c);
}

static void sequence_of(int ranks, char *const *options, char *const *later, uint64_t seed, int ops,
			uint64_t max_bytes)
{
	const char *other = getenv("RANDOM_SEED");
	struct sequence q = { .seed = seed + (other ? 1000 * strtoull(other, NULL, 0) : 0),
			      .ops = ops,
			      .max_bytes = max_bytes,
			      .later = later };

	ranks_run(ranks, options, play, &q);
}

static void sequence_then(int ranks, char *const *options, char *const *later, uint64_t seed,
			  int ops)
{
	sequence_of(ranks, options, later, seed, ops, 400 << 10);
}

static void sequence(int ranks, char *const *options, uint64_t seed, int ops)
{
	sequence_then(ranks, options, NULL, seed, ops);
}

#define OPTIONS(...) ((char *const[]){ __VA_ARGS__, "SLUICE_TEST=region_adopt_min=4K", NULL })

UNIT_TEST(collectives_are_right_with_buffers_that_get_adopted)
{
	sequence(2, OPTIONS("SLUICE_REGION_ADOPT_AFTER=1"), 1, 60);
	sequence(4, OPTIONS("SLUICE_REGION_ADOPT_AFTER=2"), 2, 40);
	sequence(5, OPTIONS("SLUICE_REGION_ADOPT_AFTER=0"), 3, 30);
}

UNIT_TEST(collectives_are_right_with_buffers_adopted_at_once)
{
	sequence(2, OPTIONS("SLUICE_REGION_KIND=arena"), 4, 60);
	sequence(3, OPTIONS("SLUICE_REGION_KIND=arena", "SLUICE_TEST=xfer_help=off"), 5, 40);
	sequence(3, OPTIONS("SLUICE_REGION_KIND=arena", "SLUICE_TEST=xfer_fragment=4K"), 6, 40);
}

UNIT_TEST(collectives_are_right_by_system_calls)
{
	sequence(2, OPTIONS("SLUICE_REGION_KIND=cma"), 7, 60);
	sequence(4, OPTIONS("SLUICE_REGION_KIND=cma"), 8, 40);
	sequence(3, OPTIONS("SLUICE_REGION_KIND=cma", "SLUICE_TEST=fault=vm_writev:all"), 9, 40);
	sequence(3, OPTIONS("SLUICE_REGION_KIND=cma", "SLUICE_TEST=fault=vm_readv:all"), 10, 40);
}

UNIT_TEST(collectives_are_right_when_staged)
{
	sequence(2, OPTIONS("SLUICE_REGION_KIND=staged"), 11, 60);
	sequence(4, OPTIONS("SLUICE_REGION_KIND=staged"), 12, 40);
	sequence(3,
		 OPTIONS("SLUICE_REGION_KIND=cma", "SLUICE_TEST=fault=vm_readv:all,vm_writev:all"),
		 13, 40);
}

UNIT_TEST(collectives_are_right_when_ways_differ_between_ranks)
{
	sequence(3, OPTIONS("SLUICE_TEST=fault=vm_readv:1,vm_writev:2"), 14, 40);
	sequence(3, OPTIONS("SLUICE_REGION_ADOPT_AFTER=1", "SLUICE_TEST=fault=vm_readv:all"), 15,
		 60);
	sequence(3,
		 OPTIONS("SLUICE_REGION_ADOPT_AFTER=1",
			 "SLUICE_TEST=fault=vm_readv:all,vm_writev:all"),
		 16, 60);
	sequence(4, OPTIONS("SLUICE_REGION_ADOPT_AFTER=1", "SLUICE_TEST=fault=adopt:3"), 17, 40);
	sequence(4, OPTIONS("SLUICE_TEST=fault=adopt:all"), 18, 40);
}

UNIT_TEST(collectives_are_right_when_ranks_spin)
{
	sequence(2, OPTIONS("SLUICE_TEST=node_spin=1000"), 19, 60);
	sequence(3, OPTIONS("SLUICE_TEST=node_spin=20"), 20, 40);
}

/* Nobody wakes up but by the ring of whoever has done what it waits for. */
UNIT_TEST(collectives_are_right_when_ranks_sleep_until_they_are_rung)
{
#define SLEEP "SLUICE_TEST=node_spin=0", "SLUICE_TEST=fault=nap:all"
	const uint64_t large = 1 << 20;

	sequence_of(2, OPTIONS("SLUICE_REGION_KIND=arena", SLEEP), NULL, 51, 40, large);
	sequence_of(4, OPTIONS("SLUICE_REGION_ADOPT_AFTER=1", SLEEP), NULL, 52, 30, large);
	sequence_of(2, OPTIONS("SLUICE_REGION_KIND=cma", SLEEP), NULL, 53, 40, large);
	sequence_of(4, OPTIONS("SLUICE_REGION_KIND=cma", SLEEP), NULL, 54, 30, large);
	sequence_of(2, OPTIONS("SLUICE_REGION_KIND=staged", SLEEP), NULL, 55, 40, large);
	sequence_of(4, OPTIONS("SLUICE_REGION_KIND=staged", SLEEP), NULL, 56, 30, large);
	/* only the sender can move; then only the receiver, until it is refused */
	sequence_of(3, OPTIONS("SLUICE_TEST=region_max=0", SLEEP ",vm_readv:all,vm_writev:all"),
		    NULL, 57, 40, large);
	sequence_of(3, OPTIONS("SLUICE_REGION_KIND=cma", SLEEP ",vm_writev:all"),
		    OPTIONS("SLUICE_REGION_KIND=cma", SLEEP ",vm_copy:all"), 58, 30, large);
#undef SLEEP
}

UNIT_TEST(collectives_are_right_in_pieces)
{
	sequence(2, OPTIONS("SLUICE_REGION_KIND=arena", "SLUICE_TEST=fault=piece:all"), 21, 40);
	sequence(3, OPTIONS("SLUICE_REGION_KIND=cma", "SLUICE_TEST=fault=piece:all"), 22, 40);
	sequence(3, OPTIONS("SLUICE_REGION_KIND=staged", "SLUICE_TEST=fault=piece:all"), 23, 40);
	sequence(4, OPTIONS("SLUICE_REGION_ADOPT_AFTER=1", "SLUICE_TEST=fault=piece:all"), 24, 40);
	sequence(3,
		 OPTIONS("SLUICE_REGION_ADOPT_AFTER=1",
			 "SLUICE_TEST=fault=piece:all,vm_readv:all,vm_writev:all"),
		 25, 40);
}

/* The kernel refuses what it allowed in the trial: always, or to some ranks at some time. */
UNIT_TEST(collectives_are_right_when_system_calls_are_refused_later)
{
	static char *const cma = "SLUICE_REGION_KIND=cma";

	sequence_then(2, OPTIONS(cma), OPTIONS(cma, "SLUICE_TEST=fault=vm_copy:all"), 26, 60);
	sequence_then(4, OPTIONS(cma), OPTIONS(cma, "SLUICE_TEST=fault=vm_copy:all"), 27, 40);
	sequence_then(3, OPTIONS(cma),
		      OPTIONS(cma, "SLUICE_TEST=fault=vm_copy:2,vm_copy:5,vm_copy:6,vm_copy:40"),
		      28, 40);
	sequence_then(
		3, OPTIONS("SLUICE_REGION_ADOPT_AFTER=1"),
		OPTIONS("SLUICE_REGION_ADOPT_AFTER=1", "SLUICE_TEST=fault=vm_copy:all,adopt:2"), 29,
		60);
	sequence_then(3, OPTIONS(cma),
		      OPTIONS(cma, "SLUICE_TEST=xfer_fragment=4K",
			      "SLUICE_TEST=fault=vm_copy:all,piece:all"),
		      30, 40);
}

/* ---- several communicators at once ------------------------------------------------------- */

static void *play_in_thread(void *arg)
{
	play(arg);
	return NULL;
}

/* A program of several threads, each with a communicator of its own, of other members each. */
static void play_at_once(struct ranks *r)
{
	const unsigned everyone = (1u << r->size) - 1,
		       members[] = { 0, everyone, everyone, everyone & ~2u };
	pthread_t threads[RANKS_CHANNELS];
	struct ranks channels[RANKS_CHANNELS];

	for (int k = 1; k < RANKS_CHANNELS; k++) {
		if (!(members[k] >> r->rank & 1))
			continue;
		ranks_channel(r, k, members[k], &channels[k]);
		CHECK_EQ(pthread_create(&threads[k], NULL, play_in_thread, &channels[k]), 0);
	}
	for (int k = 1; k < RANKS_CHANNELS; k++)
		if (members[k] >> r->rank & 1)
			pthread_join(threads[k], NULL);
}

static void sequences_at_once(int ranks, char *const *options, uint64_t seed, int ops)
{
	const char *other = getenv("RANDOM_SEED");
	struct sequence q = { .seed = seed + (other ? 1000 * strtoull(other, NULL, 0) : 0),
			      .ops = ops,
			      .max_bytes = 100 << 10 };

	ranks_run(ranks, options, play_at_once, &q);
}

UNIT_TEST(collectives_are_right_in_several_threads_at_once)
{
#ifdef __SANITIZE_THREAD__
	/* A peer gives a page from one thread's use to another's; what orders them runs in the
	 * peer. */
	unit_skip("the thread sanitizer sees one process only");
#endif
	sequences_at_once(3, OPTIONS("SLUICE_REGION_ADOPT_AFTER=1"), 41, 25);
	sequences_at_once(3, OPTIONS("SLUICE_REGION_KIND=cma"), 42, 25);
	sequences_at_once(3, OPTIONS("SLUICE_REGION_KIND=staged"), 43, 25);
	sequences_at_once(3, OPTIONS("SLUICE_REGION_KIND=arena", "SLUICE_TEST=region_max=2"), 44,
			  25);
}

UNIT_TEST(collectives_are_right_with_many_ranks)
{
	sequence(9, OPTIONS("SLUICE_REGION_ADOPT_AFTER=1"), 45, 12);
	sequence(16, OPTIONS("SLUICE_REGION_KIND=arena"), 46, 8);
}
