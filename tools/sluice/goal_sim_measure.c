/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the model's parameters: two processes, pinned to two CPUs, exchange messages through a
 * ring of slots in shared memory, as ranks exchange short ones. After Culler et al., "Assessing
 * fast network interfaces" (1996): o from sends and receives that wait for nothing, g from a
 * stream, L from the rest of a round trip. Per byte: O from copies into the ring that wait for
 * nothing, G from a stream of large pieces.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "goal/local.h"
#include "goal_sim.h"

/* Rounds are short, so that in some of them both processes run although the machine is busy. */
enum { SLOTS = 64, PIECES = 8, ROUNDS = 201, TRIPS = 24, STREAM = 512, BURST = SLOTS };
#define LIMIT_NS 4e9 /* then no further round begins */
#define PIECE_BYTES (64u << 10)
#define STREAM_PIECES 32
#define REDUCE_BYTES (1u << 20)

/* full: number of the message, released by the sender and acquired by the receiver; empty: the
 * other way. */
struct slot {
	BASE_ALIGNED_LINE _Atomic uint32_t full;
	uint32_t value;
	BASE_ALIGNED_LINE _Atomic uint32_t empty;
};
struct way {
	struct slot slots[SLOTS], pieces[PIECES];
	_Alignas(4096) char data[PIECES][PIECE_BYTES];
};
struct shared {
	struct way way[2];
	BASE_ALIGNED_LINE _Atomic uint32_t
		arrived[2]; /* steps that each side has begun; release, acquire by the other */
	double received_ns; /* written by the second side: receives that wait for nothing */
	bool is_done;       /* written by the first side */
};
struct side {
	struct shared *s;
	int me;
	uint32_t steps, sent, got, pieces_sent, pieces_got;
	pid_t other; /* 0: this is the parent */
	bool is_alone;
	char *local;
};

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Waits until *at has reached `target`. Yields, so that two processes can share a CPU. */
static void wait_for(struct side *p, _Atomic uint32_t *at, uint32_t target)
{
	for (uint32_t spins = 1;
	     (int32_t)(atomic_load_explicit(at, memory_order_acquire) - target) < 0; spins++) {
		if (p->is_alone || spins % 4096 == 0)
			sched_yield();
		if (spins % (1u << 20) == 0 && p->other &&
		    waitpid(p->other, NULL, WNOHANG) == p->other) {
			p->other = -1;
			return;
		}
	}
}

static void together(struct side *p)
{
	p->steps++;
	/* pairs with wait_for() of the other side */
	atomic_store_explicit(&p->s->arrived[p->me], p->steps, memory_order_release);
	wait_for(p, &p->s->arrived[!p->me], p->steps);
}

static void send_one(struct side *p)
{
	struct slot *slot = &p->s->way[p->me].slots[p->sent % SLOTS];

	wait_for(p, &slot->empty, p->sent / SLOTS);
	slot->value = p->sent;
	/* pairs with wait_for() in receive_one() */
	atomic_store_explicit(&slot->full, p->sent / SLOTS + 1, memory_order_release);
	p->sent++;
}

static uint32_t receive_one(struct side *p)
{
	struct slot *slot = &p->s->way[!p->me].slots[p->got % SLOTS];
	uint32_t value;

	wait_for(p, &slot->full, p->got / SLOTS + 1);
	value = slot->value;
	/* pairs with wait_for() in send_one() */
	atomic_store_explicit(&slot->empty, p->got / SLOTS + 1, memory_order_release);
	p->got++;
	return value;
}

static void send_piece(struct side *p)
{
	uint32_t at = p->pieces_sent % PIECES;
	struct way *w = &p->s->way[p->me];

	wait_for(p, &w->pieces[at].empty, p->pieces_sent / PIECES);
	memcpy(w->data[at], p->local + at * PIECE_BYTES, PIECE_BYTES);
	/* pairs with wait_for() in receive_piece() */
	atomic_store_explicit(&w->pieces[at].full, p->pieces_sent / PIECES + 1,
			      memory_order_release);
	p->pieces_sent++;
}

static void receive_piece(struct side *p)
{
	uint32_t at = p->pieces_got % PIECES;
	struct way *w = &p->s->way[!p->me];

	wait_for(p, &w->pieces[at].full, p->pieces_got / PIECES + 1);
	memcpy(p->local + at * PIECE_BYTES, w->data[at], PIECE_BYTES);
	/* pairs with wait_for() in send_piece() */
	atomic_store_explicit(&w->pieces[at].empty, p->pieces_got / PIECES + 1,
			      memory_order_release);
	p->pieces_got++;
}

/* ---- one round; both sides take the same steps ------------------------------------------- */

struct round {
	double trip_ns, overhead_ns, gap_ns, overhead_byte_ns, gap_byte_ns, local_byte_ns;
};

static double round_trip(struct side *p)
{
	double begin;

	together(p);
	begin = now_ns();
	for (int i = 0; i < TRIPS; i++) {
		if (p->me)
			receive_one(p);
		send_one(p);
		if (!p->me)
			receive_one(p);
	}
	return (now_ns() - begin) / TRIPS;
}

/* Sends with an empty slot, receives with a full one. */
static double overhead(struct side *p)
{
	double begin;

	together(p);
	begin = now_ns();
	for (int i = 0; i < BURST && !p->me; i++)
		send_one(p);
	if (!p->me)
		begin = (now_ns() - begin) / BURST;
	together(p);
	if (p->me) {
		begin = now_ns();
		for (int i = 0; i < BURST; i++)
			receive_one(p);
		p->s->received_ns = (now_ns() - begin) / BURST;
	}
	together(p);
	return (begin + p->s->received_ns) / 2;
}

static double stream(struct side *p)
{
	double begin;

	together(p);
	begin = now_ns();
	for (int i = 0; i < STREAM; i++) {
		if (p->me)
			receive_one(p);
		else
			send_one(p);
	}
	together(p);
	return (now_ns() - begin) / STREAM;
}

static double copy_overhead(struct side *p)
{
	double begin, end;

	together(p);
	begin = now_ns();
	for (int i = 0; i < PIECES && !p->me; i++)
		send_piece(p);
	end = now_ns();
	together(p);
	for (int i = 0; i < PIECES && p->me; i++)
		receive_piece(p);
	together(p);
	return (end - begin) / PIECES / PIECE_BYTES;
}

static double copy_stream(struct side *p)
{
	double begin;

	together(p);
	begin = now_ns();
	for (int i = 0; i < STREAM_PIECES; i++) {
		if (p->me)
			receive_piece(p);
		else
			send_piece(p);
	}
	together(p);
	return (now_ns() - begin) / STREAM_PIECES / PIECE_BYTES;
}

static double reduce(struct side *p)
{
	double begin;

	together(p);
	begin = now_ns();
	if (!p->me)
		goal_local(GOAL_ISA_BASE, GOAL_ADD, GOAL_F32, p->local, p->local,
			   p->local + REDUCE_BYTES, REDUCE_BYTES);
	return (now_ns() - begin) / REDUCE_BYTES;
}

static void run_round(struct side *p, struct round *r)
{
	r->trip_ns = round_trip(p);
	r->overhead_ns = overhead(p);
	r->gap_ns = stream(p);
	r->overhead_byte_ns = copy_overhead(p);
	r->gap_byte_ns = copy_stream(p);
	r->local_byte_ns = reduce(p);
}

/* ---- two processes ----------------------------------------------------------------------- */

static bool pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof set, &set) == 0;
}

/* Returns: the first two CPUs that this process may use; the same twice when there is one. */
static int choose_cpus(int cpus[2], cpu_set_t *before)
{
	int found = 0;

	if (sched_getaffinity(0, sizeof *before, before))
		return -errno;
	for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
		if (CPU_ISSET(cpu, before))
			cpus[found++] = cpu;
	if (found == 1)
		cpus[1] = cpus[0];
	return found ? 0 : -ENODEV;
}

static _Noreturn void second_side(struct side *p, int cpu)
{
	struct round r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin(cpu);
	for (;;) {
		together(p);
		if (p->s->is_done)
			_exit(0);
		run_round(p, &r);
	}
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* value: which member of a round. */
static struct goal_measured summary(const struct round *rounds, unsigned count, size_t value)
{
	double sorted[ROUNDS];

	for (unsigned i = 0; i < count; i++)
		memcpy(&sorted[i], (const char *)&rounds[i] + value, sizeof sorted[i]);
	qsort(sorted, count, sizeof *sorted, by_size);
	return (struct goal_measured){ sorted[count / 10], sorted[count / 2],
				       sorted[count * 9 / 10] };
}

static void summarise(struct round *rounds, unsigned count, struct goal_measure *out)
{
	for (unsigned i = 0; i < count; i++) {
		struct round *r = &rounds[i];

		/* a round trip is 2 (o + L + o) */
		r->trip_ns = r->trip_ns / 2 - 2 * r->overhead_ns;
		r->trip_ns = r->trip_ns > 0 ? r->trip_ns : 0;
	}
	out->latency_ns = summary(rounds, count, offsetof(struct round, trip_ns));
	out->overhead_ns = summary(rounds, count, offsetof(struct round, overhead_ns));
	out->gap_ns = summary(rounds, count, offsetof(struct round, gap_ns));
	out->gap_byte_ns = summary(rounds, count, offsetof(struct round, gap_byte_ns));
	out->overhead_byte_ns = summary(rounds, count, offsetof(struct round, overhead_byte_ns));
	out->local_byte_ns = summary(rounds, count, offsetof(struct round, local_byte_ns));
	out->rounds = count;
}

static int measure(struct side *p, struct goal_measure *out)
{
	struct round *rounds = calloc(ROUNDS, sizeof *rounds);
	struct side other = *p;
	unsigned count = 0;
	double begin = now_ns();

	if (!rounds)
		return -ENOMEM;
	other.me = 1;
	p->other = fork();
	if (p->other < 0) {
		free(rounds);
		return -errno;
	}
	if (!p->other)
		second_side(&other, out->cpus[1]);
	pin(out->cpus[0]);
	while (p->other > 0 && !p->s->is_done) {
		together(p);
		run_round(p, &rounds[count++]);
		p->s->is_done = count == ROUNDS || now_ns() - begin > LIMIT_NS;
	}
	together(p);
	if (p->other > 0) {
		waitpid(p->other, NULL, 0);
		summarise(rounds, count, out);
	}
	free(rounds);
	return p->other > 0 ? 0 : -ECHILD;
}

int goal_measure(struct goal_measure *out)
{
	struct side p = { .me = 0 };
	cpu_set_t before;
	int ret = choose_cpus(out->cpus, &before);

	if (ret)
		return ret;
	p.s = mmap(NULL, sizeof *p.s, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (p.s == MAP_FAILED)
		return -errno;
	p.local = calloc(1, base_max_u64(2 * REDUCE_BYTES, PIECES * PIECE_BYTES));
	p.is_alone = out->cpus[0] == out->cpus[1];
	ret = p.local ? measure(&p, out) : -ENOMEM;
	sched_setaffinity(0, sizeof before, &before);
	free(p.local);
	munmap(p.s, sizeof *p.s);
	return ret;
}
