/* SPDX-License-Identifier: BSD-3-Clause */
/* A child has the memory of the moment of fork, whatever parent, threads and peers write later. */
#include <pthread.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "region_case.h"

enum { BYTES = 1 << 20 };

/* Two pipes: the child does its part when the parent says so. */
struct turn { int to_child[2], to_parent[2]; };

static void turn_open(struct turn *t) { CHECK(!pipe(t->to_child) && !pipe(t->to_parent)); }
static void tell(int fd) { CHECK_EQ(write(fd, "x", 1), 1); }
static void await(int fd) { char c; CHECK_EQ(read(fd, &c, 1), 1); }

static void check_exit(pid_t pid)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

/* Forks a child that runs fn and exits; a failed CHECK makes its status 1. */
static pid_t child(void (*fn)(void *), void *arg)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(20);
		fn(arg);
		fflush(stdout);
		_exit(0);
	}
	CHECK(pid > 0);
	return pid;
}

static void *sleeper(void *arg)
{
	tell(*(int *)arg);
	for (;;)
		pause();
	return NULL;
}

/*
 * Starts a thread and returns when it runs: a thread that still starts may be in the allocator, and
 * ASan's allocator would stay locked in a child.
 */
static void have_threads(void)
{
	pthread_t t;
	int runs[2];

	CHECK_EQ(pipe(runs), 0);
	CHECK_EQ(pthread_create(&t, NULL, sleeper, &runs[1]), 0);
	await(runs[0]);
}

struct snapshot { struct turn turn; char *p; struct region_desc desc; };

static void read_snapshot(void *arg)
{
	struct snapshot *s = arg;

	await(s->turn.to_child[0]);
	CHECK_FILLED(s->p, BYTES, 1);
	CHECK(!is_shared(s->p + PAGE));
	memset(s->p, 0x11, BYTES); /* nobody else's business */
	tell(s->turn.to_parent[1]);
}

static void snapshot_case(bool threads)
{
	struct snapshot s;
	pid_t pid;

	turn_open(&s.turn);
	s.p = pages_get(BYTES);
	fill(s.p, BYTES, 1);
	s.desc = ADOPT(s.p, BYTES);
	if (threads)
		have_threads();
	pid = child(read_snapshot, &s);
	memset(s.p, 0x22, BYTES / 2);
	memset(peer_view(&s.desc), 0x33, BYTES);
	tell(s.turn.to_child[1]);
	await(s.turn.to_parent[0]);
	check_exit(pid);
	for (int i = 0; i < BYTES / 2; i++)
		CHECK(s.p[i] == 0x22);
	check_part_at(__FILE__, __LINE__, s.p, BYTES / 2, BYTES, 1);
	/* adopted again, the child gone */
	fill(s.p, BYTES, 5);
	ADOPT(s.p, BYTES);
	CHECK_FILLED(s.p, BYTES, 5);
}

REGION_TEST(a_child_reads_a_snapshot)
{
	region_begin(NULL, NULL);
	snapshot_case(false);
}

REGION_TEST(a_child_of_a_process_with_threads_reads_a_snapshot)
{
	region_begin(NULL, NULL);
	snapshot_case(true);
}

static void read_later(void *arg)
{
	struct snapshot *s = arg;

	await(s->turn.to_child[0]);
	CHECK_FILLED(s->p, BYTES, 1);
}

/* The parent frees, evicts and reuses memory; the child's contents do not change. */
REGION_TEST(a_child_keeps_its_snapshot_when_the_parent_reuses_the_arena)
{
	struct snapshot s;
	pid_t pid;

	region_begin("SLUICE_TEST=region_pool=0", NULL);
	have_threads();
	turn_open(&s.turn);
	s.p = block_get(BYTES);
	fill(s.p, BYTES, 1);
	ADOPT(s.p, BYTES);
	pid = child(read_later, &s);
	free(s.p);
	for (int i = 0; i < 4; i++) {
		char *q = pages_get(4 * BYTES);

		memset(q, 0x44, 4 * BYTES);
		ADOPT(q, 4 * BYTES);
	}
	tell(s.turn.to_child[1]);
	check_exit(pid);
}

static void grandchild(void *arg)
{
	struct snapshot *s = arg;

	CHECK_FILLED(s->p, BYTES, 2);
	memset(s->p, 0, BYTES);
}

static void adopting_child(void *arg)
{
	struct snapshot *s = arg;

	CHECK_FILLED(s->p, BYTES, 1);
	/* a child may have an arena of its own, and children */
	CHECK_EQ(region_init(), 0);
	ADOPT(s->p, BYTES);
	CHECK_FILLED(s->p, BYTES, 1);
	fill(s->p, BYTES, 2);
	check_exit(child(grandchild, s));
	CHECK_FILLED(s->p, BYTES, 2);
	CHECK(is_anonymous(s->p + PAGE) || !is_shared(s->p + PAGE));
	ADOPT(s->p, BYTES);
	check_exit(child(grandchild, s));
	CHECK_FILLED(s->p, BYTES, 2);
}

REGION_TEST(children_of_children_read_their_parents_memory)
{
	struct snapshot s;

	region_begin(NULL, NULL);
	have_threads();
	s.p = pages_get(BYTES);
	fill(s.p, BYTES, 1);
	ADOPT(s.p, BYTES);
	check_exit(child(adopting_child, &s));
	CHECK_FILLED(s.p, BYTES, 1);
}

static void freeing_child(void *arg)
{
	struct snapshot *s = arg;
	char *p;

	CHECK_EQ(madvise((void *)base_round_up((uintptr_t)s->p, PAGE), BYTES / 2, MADV_DONTNEED),
		 0);
	CHECK_ZERO((char *)base_round_up((uintptr_t)s->p, PAGE), BYTES / 2);
	free(s->p);
	p = calloc(1, BYTES);
	CHECK_ZERO(p, BYTES);
	CHECK_EQ(region_arena_fd(), -1);
	CHECK(region_arena_base() == NULL);
}

REGION_TEST(a_child_frees_and_discards_its_copy)
{
	struct snapshot s;
	pid_t pid;

	region_begin(NULL, NULL);
	have_threads();
	s.p = block_get(BYTES);
	fill(s.p, BYTES, 1);
	ADOPT(s.p, BYTES);
	pid = child(freeing_child, &s);
	/* the offsets of the child's pages are used by others meanwhile */
	free(s.p);
	s.p = pages_get(BYTES);
	memset(s.p, 0x55, BYTES);
	ADOPT(s.p, BYTES);
	check_exit(pid);
}

static void read_pinned(void *arg)
{
	struct snapshot *s = arg;

	tell(s->turn.to_parent[1]);
	read_snapshot(arg);
}

/* Memory that a transfer of another thread is using cannot be made private in the parent. */
REGION_TEST(a_child_gets_a_private_copy_of_pinned_memory)
{
	struct snapshot s;
	struct region_desc d;
	pid_t pid;

	region_begin(NULL, NULL);
	have_threads();
	turn_open(&s.turn);
	s.p = pages_get(BYTES);
	fill(s.p, BYTES, 1);
	region_describe(s.p, BYTES, REGION_FORCE, &d);
	CHECK(d.flags & REGION_DESC_MAPPED);
	pid = child(read_pinned, &s);
	await(s.turn.to_parent[0]); /* it copies right after the fork */
	memset(s.p, 0x66, BYTES);
	CHECK_EQ(peer_view(&d)[9], 0x66); /* the transfer goes on */
	region_release(&d);
	tell(s.turn.to_child[1]);
	await(s.turn.to_parent[0]);
	check_exit(pid);
	for (int i = 0; i < BYTES; i++)
		CHECK(s.p[i] == 0x66);
	CHECK_EQ(munmap(s.p, BYTES), 0);
}

static struct turn slow;

static void child_is_slow(void)
{
	if (slow.to_child[0])
		await(slow.to_child[0]);
}

static void read_first(void *arg) { CHECK_FILLED(arg, BYTES, 1); }

/* The parent continues before the child has copied pinned regions. */
REGION_TEST(a_slow_child_still_finds_what_was_pinned)
{
	struct region_desc d;
	char *p = block_get(BYTES);
	pid_t pid;

	pthread_atfork(NULL, NULL, child_is_slow); /* runs before ours */
	region_begin("SLUICE_TEST=region_pool=0", NULL);
	turn_open(&slow);
	fill(p, BYTES, 1);
	region_describe(p, BYTES, REGION_FORCE, &d);
	pid = child(read_first, p);
	region_release(&d);
	free(p);
	for (int i = 0; i < 4; i++)
		reuse_the_arena(BYTES);
	tell(slow.to_child[1]);
	check_exit(pid);
}

/* A mapping that left the table: moved by a raw system call. */
REGION_TEST(a_child_does_not_share_what_was_moved_behind_our_back)
{
	struct snapshot s;
	char *other = pages_get(BYTES);
	pid_t pid;

	region_begin(NULL, NULL);
	turn_open(&s.turn);
	s.p = pages_get(BYTES);
	fill(s.p, BYTES, 1);
	ADOPT(s.p, BYTES);
	ADOPT(pages_get(BYTES), BYTES);
	CHECK(syscall(SYS_mremap, s.p, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, other) ==
	      (long)other);
	s.p = other;
	have_threads();
	pid = child(read_snapshot, &s);
	memset(s.p, 0x77, BYTES);
	tell(s.turn.to_child[1]);
	await(s.turn.to_parent[0]);
	check_exit(pid);
	CHECK_EQ(s.p[5], 0x77);
}

/* ---- no store of any thread is lost while memory is adopted or returned ------------------ */

/* Copying so many bytes takes longer than a writing thread is likely to be preempted. */
enum { WRITERS = 2, WRITTEN = 8 << 20, WORDS = WRITTEN / 8 };

struct writer {
	pthread_t thread;
	uint64_t *base; /* this thread writes words i * WRITERS + rank */
	int rank;
	_Atomic bool stop;
	_Atomic uint64_t rounds, lost;
};

/* Writes a word and reads it a little later; no other thread writes it. */
static void *write_and_check(void *arg)
{
	struct writer *w = arg;
	uint64_t round = 0;

	while (!atomic_load(&w->stop)) {
		round++;
		for (int i = w->rank; i < WORDS; i += WRITERS * 61) {
			uint64_t was = ((volatile uint64_t *)w->base)[i];

			if (was != round - 1)
				atomic_fetch_add(&w->lost, 1);
			((volatile uint64_t *)w->base)[i] = round;
		}
		atomic_store(&w->rounds, round);
	}
	return NULL;
}

static void writers_start(struct writer *w, uint64_t *base)
{
	memset(base, 0, WRITTEN);
	for (int i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){ .base = base, .rank = i };
		CHECK_EQ(pthread_create(&w[i].thread, NULL, write_and_check, &w[i]), 0);
	}
}

static void writers_stop(struct writer *w)
{
	for (int i = 0; i < WRITERS; i++) {
		atomic_store(&w[i].stop, true);
		pthread_join(w[i].thread, NULL);
		CHECK_EQ(w[i].lost, 0);
		CHECK(w[i].rounds > 0);
	}
}

static void writers_wait(struct writer *w, int rounds)
{
	for (int i = 0; i < WRITERS; i++) {
		uint64_t from = w[i].rounds;

		while (w[i].rounds < from + (uint64_t)rounds)
			sched_yield();
	}
}

static void nothing(void *arg) { }

REGION_TEST(no_write_is_lost_when_memory_is_kept)
{
	uint64_t *base = pages_get(WRITTEN);
	struct writer w[WRITERS];

	region_begin(NULL, NULL);
	for (int i = 0; i < 8; i++) {
		ADOPT(base, WRITTEN);
		writers_start(w, base);
		writers_wait(w, 2);
		region_return((uintptr_t)base, (uintptr_t)base + WRITTEN);
		writers_wait(w, 2);
		writers_stop(w);
	}
}

/* A thread that moves or shrinks a part of a region has only that part to itself. */
REGION_TEST(no_write_is_lost_when_another_part_moves)
{
	struct writer w[WRITERS];

	region_begin(NULL, NULL);
	for (int i = 0; i < 8; i++) {
		char *p = pages_get(BYTES + WRITTEN), *q;

		fill(p, BYTES, 1);
		ADOPT(p, BYTES + WRITTEN);
		writers_start(w, (uint64_t *)(p + BYTES));
		writers_wait(w, 2);
		q = mremap(p, BYTES, i % 2 ? BYTES / 2 : 2 * BYTES, MREMAP_MAYMOVE);
		CHECK(q != MAP_FAILED);
		check_part_at(__FILE__, __LINE__, q, 0, BYTES / 2, 1);
		writers_wait(w, 2);
		writers_stop(w);
		munmap(p, BYTES + WRITTEN);
	}
}

REGION_TEST(no_write_is_lost_while_forking)
{
	uint64_t *base = pages_get(WRITTEN);
	struct writer w[WRITERS];

	region_begin(NULL, NULL);
	for (int i = 0; i < 10; i++) {
		pid_t pid;

		ADOPT(base, WRITTEN);
		writers_start(w, base);
		writers_wait(w, 2);
		pid = child(nothing, NULL);
		writers_wait(w, 2);
		writers_stop(w);
		check_exit(pid);
	}
}

REGION_TEST(no_write_is_lost_when_a_region_is_evicted)
{
	struct writer w[WRITERS];

	region_begin("SLUICE_TEST=region_max=2", NULL);
	have_threads();
	for (int i = 0; i < 10; i++) {
		uint64_t *base = pages_get(WRITTEN);
		char *other[2] = { pages_get(BYTES), pages_get(BYTES) };

		ADOPT(base, WRITTEN);
		writers_start(w, base);
		writers_wait(w, 2);
		ADOPT(other[0], BYTES);
		ADOPT(other[1], BYTES);
		CHECK(!is_adopted(base, WRITTEN));
		writers_wait(w, 2);
		writers_stop(w);
		munmap(base, WRITTEN);
		munmap(other[0], BYTES);
		munmap(other[1], BYTES);
	}
}

/* ---- other ways to have children --------------------------------------------------------- */

REGION_TEST(spawned_and_vforked_children_leave_regions_alone)
{
	char *argv[] = { "true", NULL }, *p = pages_get(BYTES);
	pid_t pid;

	region_begin(NULL, NULL);
	fill(p, BYTES, 1);
	ADOPT(p, BYTES);
	CHECK_EQ(posix_spawnp(&pid, "true", NULL, NULL, argv, NULL), 0);
	check_exit(pid);
	CHECK(is_adopted(p, BYTES));
	pid = vfork();
	if (!pid) {
		execvp("true", argv);
		_exit(1);
	}
	check_exit(pid);
	CHECK(is_adopted(p, BYTES));
	CHECK_EQ(system("true"), 0);
	CHECK(is_adopted(p, BYTES));
	CHECK_FILLED(p, BYTES, 1);
}

static void exec_child(void *arg)
{
	execlp("true", "true", NULL);
}

REGION_TEST(fork_and_exec_leave_the_parent_its_memory)
{
	char *p = block_get(BYTES);

	region_begin(NULL, NULL);
	for (int i = 0; i < 5; i++) {
		fill(p, BYTES, (unsigned)i);
		ADOPT(p, BYTES);
		check_exit(child(exec_child, NULL));
		CHECK_FILLED(p, BYTES, (unsigned)i);
	}
}

static void exit_child(void *arg)
{
	free(arg);
	exit(0);
}

REGION_TEST(children_may_leave_by_exit)
{
	char *p = block_get(BYTES);

	region_begin(NULL, NULL);
	have_threads();
	fill(p, BYTES, 1);
	ADOPT(p, BYTES);
	check_exit(child(exit_child, p));
	CHECK_FILLED(p, BYTES, 1);
}

/* ---- fork while other threads work ------------------------------------------------------- */

struct churn { _Atomic bool stop; _Atomic uint64_t rounds; };

static void *churn_blocks(void *arg)
{
	struct churn *c = arg;

	while (!atomic_load(&c->stop)) {
		char *p = malloc(300 * KIB);
		struct region_desc d;

		memset(p, 0x21, 300 * KIB);
		region_describe(p, 300 * KIB, REGION_FORCE, &d);
		for (int i = 0; i < 300; i++)
			if (p[(size_t)i * KIB] != 0x21)
				abort();
		region_release(&d);
		free(p);
		atomic_fetch_add(&c->rounds, 1);
	}
	return NULL;
}

static void churned_child(void *arg)
{
	for (int i = 0; i < 10 && HEAP_AFTER_FORK; i++) {
		char *p = malloc(200 * KIB);

		memset(p, i, 200 * KIB);
		free(p);
	}
}

REGION_TEST(forking_while_others_adopt_and_free_ends)
{
	struct churn c[2] = { 0 };
	pthread_t t[2];
	char *p = pages_get(BYTES);

	region_begin("SLUICE_TEST=region_max=4", NULL);
	fill(p, BYTES, 1);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, churn_blocks, &c[i]), 0);
	for (int i = 0; i < 25; i++) {
		adopts(p, BYTES);
		check_exit(child(churned_child, NULL));
		CHECK_FILLED(p, BYTES, 1);
	}
	for (int i = 0; i < 2; i++) {
		atomic_store(&c[i].stop, true);
		pthread_join(t[i], NULL);
		CHECK(c[i].rounds > 0);
	}
}
