/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that use the heap in every way while others describe, release, evict and fork. Each block
 * carries a pattern that its owner checks.
 *
 * Longer: UNIT_REGION_SECONDS=60 test/unit/unit_region threads_use_the_heap, or the suite stress
 */
#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "region/blocks.h"
#include "region/private.h"
#include "region_case.h"

enum { WORKERS = 3, SLOTS = 6, MAX_BYTES = 700 << 10 };

struct worker {
	pthread_t thread;
	unsigned seed;
	_Atomic bool *stop;
	uint64_t turns;
};

struct slot { unsigned char *p; size_t bytes; unsigned char pattern; };

static void slot_check(const struct slot *s, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 509)
		if (s->p[i] != s->pattern) {
			fprintf(stderr, "byte %zu of %zu: %d, not %d\n", i, bytes, s->p[i],
				s->pattern);
			abort();
		}
}

static size_t any_bytes(unsigned *seed)
{
	int kind = rand_r(seed) % 4;

	return kind == 0 ? (size_t)(rand_r(seed) % 5000) + 1
			 : (size_t)(rand_r(seed) % MAX_BYTES) + 1;
}

static void slot_renew(struct slot *s, struct worker *w)
{
	size_t bytes = any_bytes(&w->seed), kept = 0;
	void *aligned = NULL;

	switch (s->p ? rand_r(&w->seed) % 3 : 3) {
	case 0:
		free(s->p);
		s->p = NULL;
		return;
	case 1:
		kept = bytes < s->bytes ? bytes : s->bytes;
		s->p = realloc(s->p, bytes);
		slot_check(s, kept);
		break;
	case 2:
		free(s->p);
		s->p = calloc(1, bytes);
		for (size_t i = 0; i < bytes; i++)
			if (s->p[i])
				abort();
		break;
	default:
		if (posix_memalign(&aligned, 4096, bytes))
			abort();
		s->p = aligned;
	}
	s->bytes = bytes;
	s->pattern = (unsigned char)rand_r(&w->seed);
	memset(s->p, s->pattern, bytes);
}

static void *work(void *arg)
{
	struct slot slots[SLOTS] = { 0 };
	struct worker *w = arg;

	while (!atomic_load(w->stop)) {
		struct slot *s = &slots[rand_r(&w->seed) % SLOTS];
		struct region_desc d = { 0 };

		w->turns++;
		if (s->p && s->bytes > 8192 && rand_r(&w->seed) % 2) {
			/* as MPI does: the buffer is this call's until it is released */
			region_describe(s->p, s->bytes, REGION_FORCE, &d);
			slot_check(s, s->bytes);
			if (d.flags & REGION_DESC_MAPPED)
				peer_view(&d)[0] = (char)(s->pattern + 1);
			region_release(&d);
			if (d.flags & REGION_DESC_MAPPED)
				s->p[d.head]--; /* what the peer wrote has come */
			slot_check(s, s->bytes);
		} else {
			slot_renew(s, w);
		}
	}
	for (int i = 0; i < SLOTS; i++)
		free(slots[i].p);
	return NULL;
}

/* Maps, cuts, moves and discards pages of its own. */
static void *map(void *arg)
{
	struct worker *w = arg;

	while (!atomic_load(w->stop)) {
		unsigned char *p = pages_get(512 * KIB), *q;
		struct region_desc d;

		w->turns++;
		memset(p, 7, 512 * KIB);
		region_describe(p, 512 * KIB, REGION_FORCE, &d);
		region_release(&d);
		switch (rand_r(&w->seed) % 4) {
		case 0:
			madvise(p, 64 * KIB, MADV_DONTNEED);
			if (p[5] || p[64 * KIB] != 7)
				abort();
			break;
		case 1:
			munmap(p + 256 * KIB, 256 * KIB);
			if (p[256 * KIB - 1] != 7)
				abort();
			/* memory above it may belong to another thread by now */
			munmap(p, 256 * KIB);
			continue;
		case 2:
			q = mremap(p, 512 * KIB, MIB, MREMAP_MAYMOVE);
			if (q == MAP_FAILED || q[512 * KIB - 1] != 7 || q[512 * KIB])
				abort();
			munmap(q, MIB);
			continue;
		default:
			mprotect(p, 512 * KIB, PROT_READ);
			if (p[100] != 7)
				abort();
		}
		munmap(p, 512 * KIB);
	}
	return NULL;
}

static double seconds(void)
{
	const char *text = environment("UNIT_REGION_SECONDS");

	return text ? atof(text) : 0.4;
}

/* The C library's heap works in a child that was forked while others allocated; a sanitizer's,
 * whose locks fork leaves as they are, does not. */
static void use_heap_in_child(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	char *p = malloc(300 * KIB);

	memset(p, 1, 300 * KIB);
	free(p);
#endif
}

REGION_TEST(threads_use_the_heap_while_others_adopt_evict_and_fork)
{
	struct worker w[WORKERS + 1];
	_Atomic bool stop = false;
	uint64_t end;
	int forks = 0;

	region_begin("SLUICE_TEST=region_max=6", "SLUICE_REGION_ARENA=2G", NULL);
	alarm((unsigned)seconds() + 60);
	for (int i = 0; i <= WORKERS; i++) {
		w[i] = (struct worker){ .seed = (unsigned)i + 1, .stop = &stop };
		CHECK_EQ(pthread_create(&w[i].thread, NULL, i < WORKERS ? work : map, &w[i]), 0);
	}
	end = os_now_ns() + (uint64_t)(seconds() * 1e9);
	while (os_now_ns() < end) {
		int status;
		pid_t pid = fork();

		if (!pid) {
			alarm(60);
			use_heap_in_child();
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
		region_return(0, UINTPTR_MAX);
		malloc_trim(0);
		usleep(2000);
		forks++;
	}
	atomic_store(&stop, true);
	for (int i = 0; i <= WORKERS; i++) {
		pthread_join(w[i].thread, NULL);
		CHECK(w[i].turns > 0);
	}
	CHECK(forks > 0);
	CHECK_EQ(active(), 0);
	CHECK(base_counters[BASE_CTR_ADOPTED] > 0);
}

struct toggled {
	char *page;
	_Atomic bool stop;
};

static void *toggle_page(void *arg)
{
	struct toggled *t = arg;

	while (!atomic_load(&t->stop)) {
		/* past the hooks: the page lies in no region */
		syscall(SYS_mprotect, t->page, OS_PAGE, PROT_NONE);
		syscall(SYS_mprotect, t->page, OS_PAGE, PROT_READ | PROT_WRITE);
	}
	return NULL;
}

/* The header of a block could lie below a page-aligned buffer, in memory of another thread. */
REGION_TEST(another_thread_unmaps_the_page_below_a_buffer)
{
	struct toggled t = { 0 };
	pthread_t thread;
	char *p;

	region_begin(NULL, NULL);
	if (!blocks_are_known)
		unit_skip("this allocator has no blocks with headers");
	p = pages_get(2 * MIB) + MIB;
	t.page = p - OS_PAGE;
	fill(p, MIB, 1);
	CHECK_EQ(pthread_create(&thread, NULL, toggle_page, &t), 0);
	for (int i = 0; i < 60; i++) {
		adopts(p, MIB); /* not while it looks like a stack above its guard page */
		region_return((uintptr_t)p, (uintptr_t)p + MIB);
	}
	atomic_store(&t.stop, true);
	pthread_join(thread, NULL);
	ADOPT(p, MIB);
	CHECK_FILLED(p, MIB, 1);
}

/* free() and munmap() are no cancellation points. */
static void *free_when_cancelled(void *arg)
{
	pthread_cancel(pthread_self());
	free(arg);
	atomic_fetch_add(&base_counters[0], 1);
	pthread_testcancel();
	return NULL;
}

REGION_TEST(free_is_no_cancellation_point)
{
	char *p = block_get(MIB);
	pthread_t t;

	region_begin("SLUICE_TEST=region_pool=0", NULL);
	ADOPT(p, MIB);
	base_counters[0] = 0;
	CHECK_EQ(pthread_create(&t, NULL, free_when_cancelled, p), 0);
	pthread_join(t, NULL);
	CHECK_EQ(base_counters[0], 1);
	CHECK(adopts(pages_get(MIB), MIB));
}

/* ---- tools that stand behind our hooks --------------------------------------------------- */

static void handler_prepare(void)
{
	free(malloc(MIB)); /* handlers of others use the heap */
}

static void *handler_thread(void *arg)
{
	for (int i = 0; i < 200 && !atomic_load((_Atomic bool *)arg); i++) {
		char *p = malloc(200 * KIB);

		memset(p, 1, 200 * KIB);
		adopts(p, 200 * KIB);
		free(p);
	}
	return NULL;
}

static pthread_mutex_t others_lock = PTHREAD_MUTEX_INITIALIZER;
static void others_prepare(void) { pthread_mutex_lock(&others_lock); }
static void others_parent(void) { pthread_mutex_unlock(&others_lock); }

/* Frees adopted memory under a lock that a fork handler of the same library takes. */
static void *others_thread(void *arg)
{
	while (!atomic_load((_Atomic bool *)arg)) {
		char *p = malloc(200 * KIB);

		memset(p, 1, 200 * KIB);
		adopts(p, 200 * KIB);
		pthread_mutex_lock(&others_lock);
		free(p);
		pthread_mutex_unlock(&others_lock);
	}
	return NULL;
}

REGION_TEST(fork_handlers_of_others_may_free_and_wait)
{
	_Atomic bool stop = false;
	pthread_t t[2];

	/* one registered before ours, which runs after it, and one after */
	pthread_atfork(others_prepare, others_parent, others_parent);
	region_begin(NULL, NULL);
	pthread_atfork(handler_prepare, handler_prepare, handler_prepare);
	CHECK_EQ(pthread_create(&t[0], NULL, handler_thread, (void *)&stop), 0);
	CHECK_EQ(pthread_create(&t[1], NULL, others_thread, (void *)&stop), 0);
	for (int i = 0; i < 20; i++) {
		int status;
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
	}
	atomic_store(&stop, true);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
}

/* Network libraries interpose mmap too: their hooks are called, and region's mappings reach them.
 * */
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);

static void *watching_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	char *note = malloc(64 * KIB);

	memset(note, 1, 64 * KIB);
	note = realloc(note, 128 * KIB);
	free(note);
	munmap(pages_get(64 * KIB), 64 * KIB);
	return real_mmap(addr, bytes, prot, flags, fd, offset);
}

REGION_TEST(tools_that_watch_mmap_may_use_the_heap)
{
	char *low = pages_get(MIB), *p = block_get(MIB), *high = block_get(MIB);

	region_begin("SLUICE_TEST=region_max=2", NULL);
	real_mmap = region_os.mmap;
	region_os.mmap = watching_mmap;
	for (unsigned i = 0; i < 5; i++) {
		fill(p, MIB, i);
		ADOPT(low, MIB);
		ADOPT(p, MIB);
		ADOPT(high, MIB);
		region_return((uintptr_t)p, (uintptr_t)p + MIB);
		CHECK_FILLED(p, MIB, i);
		madvise(low, 64 * KIB, MADV_DONTNEED);
	}
	free(p);
	free(high);
	munmap(low, MIB);
	CHECK_EQ(active(), 0);
}

/* ---- other allocators -------------------------------------------------------------------- */

static void run_under(const char *const *libraries)
{
	char self[512], preload[600];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	bool any = false;

	CHECK(n > 0);
	self[n] = 0;
	for (; *libraries; libraries++) {
		int status;
		pid_t pid;

		if (access(*libraries, R_OK))
			continue;
		any = true;
		snprintf(preload, sizeof preload, "LD_PRELOAD=%s", *libraries);
		pid = fork();
		if (!pid) {
			char *argv[] = { self, "heap_works_with_any_allocator", NULL };
			char *env[] = { preload, NULL };

			execve(self, argv, env);
			_exit(127);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (status)
			unit_fail(__FILE__, __LINE__, "the heap does not work with %s", *libraries);
	}
	if (!any)
		unit_skip("no other allocator is installed");
}

REGION_TEST(the_heap_works_with_any_allocator)
{
	struct worker w = { .seed = 7 };
	_Atomic bool stop = false;

	region_begin("SLUICE_TEST=region_max=6", NULL);
	CHECK(!environment("LD_PRELOAD") || !blocks_are_known); /* headers are glibc's own */
	w.stop = &stop;
	CHECK_EQ(pthread_create(&w.thread, NULL, work, &w), 0);
	for (int i = 0; i < 5; i++) {
		static const size_t sizes[] = { 20 << 10, 100 << 10, 1 << 20, 5 << 20 };

		for (size_t k = 0; k < BASE_ARRAY_LEN(sizes); k++) {
			char *p = malloc(sizes[k]), *same = malloc(sizes[k]);

			fill(p, sizes[k], 1);
			ADOPT(p, sizes[k]);
			CHECK_FILLED(p, sizes[k], 1);
			p = realloc(p, sizes[k] + sizes[k] / 2);
			CHECK_FILLED(p, sizes[k], 1);
			ADOPT(p, sizes[k]);
			free(p);
			free(same);
			p = calloc(1, sizes[k]);
			CHECK_ZERO(p, sizes[k]);
			free(p);
		}
	}
	atomic_store(&stop, true);
	pthread_join(w.thread, NULL);
}

UNIT_TEST(other_allocators_work_below_ours)
{
	static const char *const libraries[] = {
		"/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
		"/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
		"/usr/lib/aarch64-linux-gnu/libjemalloc.so.2",
		NULL,
	};

	run_under(libraries);
}
