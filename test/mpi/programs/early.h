/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Actions of a program right after a collective whose data may still be moving. Every rank does an
 * action on its own buffer: broadcasts and gathers with either rank as root, with nobody late
 * or one of them, in buffers of several sizes, alignments and kinds of memory. Each knows every
 * byte that it must see: `want` is a private copy, kept in step by actions that write.
 *
 *   want filled -> senders' buffers filled, canaries beside them -> barrier -> [delay] ->
 * collective
 *   -> action -> buffer == want, canaries as they were
 *
 * HARNESS_TRIALS: how many a behaviour makes. HARNESS_LOOK: report how many buffers were out of
 * reach when the collective had returned ("note NAME: rank R: 5 of 12").
 */
#ifndef EARLY_H
#define EARLY_H

#include "adopt.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
	PAGE = 4096,
	CANARY = 150,
	MOST = 8 << 20,
	SHAPES = 4,
	COMBINATIONS = 12,
	STATIC_BYTES = 1300007
};

struct trial {
	char *buf;      /* what took part in the collective */
	char *want;     /* what it must hold */
	size_t bytes;
	size_t piece;   /* the first so many bytes end with the only zero among them */
	bool receiver;  /* or sender */
	bool gather;
	bool no_room;   /* for canaries: the buffer is a whole block of the heap */
	bool gone;      /* the action gave the buffer away: nothing is left to look at */
	int root, late; /* late: rank that comes late, -1 none */
	bool in_place;  /* a gather's root has its own part where it belongs */
	int index, shape;
	void *block;    /* fresh buffers: what to free or unmap */
	size_t block_bytes;
	uint64_t random; /* this rank's own */
};

typedef void (*trial_fn)(struct trial *t);

enum trial_flags {
	FRESH_HEAP = 1, /* a malloc()ed block of its own, freed by the action or after it */
	FRESH_MAP = 2,  /* pages of its own, from mmap() */
	NEVER_EARLY = 4,
	WHOLE_BLOCK = 8, /* like FRESH_HEAP, and nothing else in the block */
};

static struct {
	char *whole, *spare; /* the collective's data; a root's own contribution to a gather */
	char *at[SHAPES];
	unsigned long looked, guarded;
} early;

static char early_static[STATIC_BYTES + 3 * PAGE] __attribute__((aligned(4096)));

static const size_t shape_bytes[SHAPES] = { 4 << 20, 600000, (8 << 20) - 3 * PAGE - 123,
					    STATIC_BYTES };

static inline size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline void *early_map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		MPI_Abort(MPI_COMM_WORLD, 3);
	return p;
}

/* The buffers that all behaviours share: canaries fit on both sides. */
static inline void early_begin(void)
{
	if (early.whole)
		return;
	early.whole = check_alloc(MOST);
	early.spare = check_alloc(MOST);
	early.at[0] = (char *)early_map(shape_bytes[0] + 2 * PAGE) + PAGE;
	early.at[1] = (char *)check_alloc(shape_bytes[1] + 2 * CANARY) + CANARY;
	early.at[2] =
		(char *)early_map(shape_bytes[2] + 4 * PAGE) + PAGE + 1001 + 1234 * rank % PAGE;
	early.at[3] = early_static + PAGE + 333 * rank;
}

static inline uint64_t early_random(struct trial *t, uint64_t below)
{
	return check_random(&t->random) % below;
}

static inline void early_sleep_us(long us)
{
	struct timespec ts = { us / 1000000, us % 1000000 * 1000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

static inline double early_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Late ranks sleep or compute. */
static inline void early_delay(struct trial *t)
{
	long us = 300 + (long)early_random(t, 2200);
	double until = early_now() + 1e-6 * (double)us;

	if (t->late != rank)
		return;
	if (early_random(t, 2))
		early_sleep_us(us);
	while (early_now() < until)
		;
}

static inline void early_collective(struct trial *t, MPI_Comm comm)
{
	size_t piece = t->piece;

	if (!t->gather) {
		EXPECT(!MPI_Bcast(t->buf, (int)t->bytes, MPI_BYTE, t->root, comm));
		return;
	}
	if (rank != t->root)
		EXPECT(!MPI_Gather(t->buf, (int)piece, MPI_BYTE, NULL, 0, MPI_BYTE, t->root, comm));
	else if (t->in_place)
		EXPECT(!MPI_Gather(MPI_IN_PLACE, 0, MPI_BYTE, t->buf, (int)piece, MPI_BYTE, t->root,
				   comm));
	else
		EXPECT(!MPI_Gather(early.spare, (int)piece, MPI_BYTE, t->buf, (int)piece, MPI_BYTE,
				   t->root, comm));
}

static inline void set_canaries(struct trial *t, int c)
{
	if (t->no_room)
		return;
	memset(t->buf - CANARY, c, CANARY);
	memset(t->buf + t->bytes, c + 1, CANARY);
}

static inline void early_canaries(struct trial *t, int c)
{
	for (int i = 0; i < CANARY && !t->no_room; i++)
		if ((uint8_t)t->buf[-1 - i] != (uint8_t)c ||
		    (uint8_t)t->buf[t->bytes + (size_t)i] != (uint8_t)(c + 1)) {
			check_fail("trial %d: a byte %d beside the buffer has changed", t->index,
				   i + 1);
			return;
		}
}

/* Checks the contents; names the trial to repeat on failure. */
static inline bool early_same(struct trial *t, const void *got, const void *want, size_t bytes,
			      const char *what)
{
	const uint8_t *g = got, *w = want;
	size_t i = 0;

	if (!memcmp(got, want, bytes))
		return true;
	while (i < bytes && g[i] == w[i])
		i++;
	check_fail("trial %d (%s, root %d, late %d, %s, %zu bytes at %p): %s: byte %zu of %zu is "
		   "%02x, "
		   "not %02x",
		   t->index, t->gather ? "gather" : "broadcast", t->root, t->late,
		   t->receiver ? "receiver" : "sender", t->bytes, (void *)t->buf, what, i, bytes,
		   g[i], w[i]);
	return false;
}

static inline void early_place(struct trial *t, unsigned flags)
{
	if (flags & (FRESH_HEAP | WHOLE_BLOCK)) {
		t->no_room = flags & WHOLE_BLOCK;
		t->block_bytes = t->bytes + (t->no_room ? 0 : 2 * CANARY);
		t->block = check_alloc(t->block_bytes);
		t->buf = (char *)t->block + (t->no_room ? 0 : CANARY);
	} else if (flags & FRESH_MAP) {
		t->block_bytes = (t->bytes + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
		t->block = early_map(t->block_bytes);
		t->buf = (char *)t->block + PAGE;
	} else {
		t->buf = early.at[t->shape];
	}
}

/* The bytes of the collective, and which of them are this rank's. */
static inline void early_data(struct trial *t, trial_fn prepare)
{
	size_t whole = shape_bytes[t->shape];

	t->piece = t->gather ? whole / (size_t)size : whole;
	check_fill(early.whole, whole, check_seed(t->index, t->root + 100 * t->gather));
	for (size_t at = 0; at + t->piece <= whole; at += t->piece) {
		early.whole[at + t->piece - 1] = 0;
		t->want = early.whole + at;
		if (prepare)
			prepare(t);
	}
	t->receiver = t->gather == (rank == t->root);
	t->want = early.whole;
	t->bytes = t->gather ? t->piece * (size_t)size : whole;
	memcpy(early.spare, early.whole + (size_t)rank * t->piece * t->gather, t->piece);
	if (t->gather && !t->receiver) {
		t->want = early.whole + (size_t)rank * t->piece;
		t->bytes = t->piece;
	}
}

static inline void early_before(struct trial *t)
{
	for (int i = 0; i < 2; i++) /* so that its memory is adopted */
		early_collective(t, MPI_COMM_WORLD);
	memset(t->buf, 0xa5, t->bytes);
	if (!t->receiver)
		memcpy(t->buf, t->want, t->bytes);
	else if (t->gather && t->in_place)
		memcpy(t->buf + (size_t)rank * t->piece, early.spare, t->piece);
	set_canaries(t, t->index);
}

/* Out of reach: adopted memory is not there now or not to be written, or userfaultfd watches it. */
static inline bool early_is_guarded(const void *addr)
{
	unsigned long start, end, at = (unsigned long)addr;
	char text[600], rights[8] = "";
	FILE *f = fopen("/proc/self/smaps", "r");
	bool guarded = false, inside = false;

	while (f && fgets(text, sizeof(text), f)) {
		if (sscanf(text, "%lx-%lx %7s", &start, &end, rights) == 3) {
			inside = at >= start && at < end;
			guarded |= inside && strncmp(rights, "rw", 2);
		} else if (inside && !strncmp(text, "VmFlags:", 8)) {
			guarded |=
				strstr(text, " um") || strstr(text, " uw") || strstr(text, " ui");
		}
	}
	if (f)
		fclose(f);
	return guarded;
}

static inline void early_trial(struct trial *t, trial_fn prepare, trial_fn act, unsigned flags)
{
	early_data(t, prepare);
	early_place(t, flags);
	early_before(t);
	MPI_Barrier(MPI_COMM_WORLD);
	early_delay(t);
	early_collective(t, MPI_COMM_WORLD);
	early.looked++;
	if (check_env("HARNESS_LOOK", 0))
		early.guarded += early_is_guarded(t->buf + t->bytes / 2);
	act(t);
	if (!t->gone) {
		early_same(t, t->buf, t->want, t->bytes, "at the end");
		early_canaries(t, t->index);
	}
	if (flags & (FRESH_HEAP | WHOLE_BLOCK) && !t->gone)
		free(t->block);
	if (flags & FRESH_MAP && !t->gone)
		munmap(t->block, t->block_bytes);
}

/* All combinations of who sends, who is late and what the memory is like; two or more ranks. */
static inline void early_trials_with(trial_fn act, trial_fn prepare, unsigned flags)
{
	long trials = check_env("HARNESS_TRIALS", COMBINATIONS);
	long first = check_env("HARNESS_FIRST", 0);

	early_begin();
	early.looked = early.guarded = 0;
	for (long i = first; i < first + trials; i++) {
		int c = (int)(i * 5 % COMBINATIONS); /* so that few are of all kinds, too */
		struct trial t = {
			.index = (int)i,
			.gather = c / 6,
			.root = c / 3 % 2 ? size - 1 : 0,
			.late = c % 3 == 0 ? -1 : c % 3 == 1 ? 0 : size - 1,
			.shape = (int)(i + i / COMBINATIONS) % SHAPES,
			.random = check_seed((uint64_t)i, (uint64_t)rank + 77),
		};

		t.in_place = (i + i / COMBINATIONS) % 2;
		early_trial(&t, prepare, act, flags);
	}
	if (check_env("HARNESS_LOOK", 0) && !(flags & NEVER_EARLY))
		check_note("%lu of %lu", early.guarded, early.looked);
}

static inline void early_trials(trial_fn act)
{
	early_trials_with(act, NULL, 0);
}

/* Several things in one trial, each of them the first one in some trial. */
static inline void early_each(struct trial *t, const trial_fn *things, int count)
{
	int first = t->index + t->index / COMBINATIONS;

	for (int i = 0; i < count; i++)
		things[(first + i) % count](t);
}
#define EARLY_EACH(t, things) early_each(t, things, (int)(sizeof(things) / sizeof((things)[0])))

/* A place in the buffer, another for each `nr` below 40, aligned and far from others. */
static inline void *early_at(struct trial *t, int nr)
{
	return (void *)(((uintptr_t)t->buf + t->bytes / 41 * (size_t)(nr + 1) + 15) &
			~(uintptr_t)15);
}

/* The contents at this moment become the expected contents. */
static inline void early_keep(struct trial *t, const void *at, size_t bytes)
{
	memcpy(t->want + ((const char *)at - t->buf), at, bytes);
}

/* The bytes that are to be at a place in the buffer. */
static inline char *early_want(struct trial *t, const void *at)
{
	return t->want + ((const char *)at - t->buf);
}

#endif
