/* SPDX-License-Identifier: BSD-3-Clause */
/* Signal handlers on top of region's calls, and other threads that look up without the lock. */
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "region/private.h"
#include "region_case.h"

enum { RW = PROT_READ | PROT_WRITE };

static struct region_desc to_release;
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);

static void *releasing_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	if (to_release
		    .id) { /* as the handler of a system call does, under the lock of this thread */
		CHECK(region_is_locked_here());
		region_release(&to_release);
		to_release.id = 0;
	}
	return real_mmap(addr, bytes, prot, flags, fd, offset);
}

REGION_TEST(a_pin_is_given_back_on_top_of_the_lock)
{
	char *p = pages_get_aligned(MIB, 2 * MIB), *q = pages_get_aligned(MIB, 2 * MIB);

	region_begin(NULL, NULL);
	fill(p, MIB, 1);
	ADOPT(q, MIB);
	region_describe(p, MIB, REGION_FORCE, &to_release);
	CHECK(to_release.id);
	CHECK_EQ(mprotect(p, PAGE, RW), 0); /* ends with its last pin */
	CHECK(is_shared(p));
	real_mmap = region_os.mmap;
	region_os.mmap = releasing_mmap;
	region_return((uintptr_t)q, (uintptr_t)q + MIB);
	CHECK_EQ(to_release.id, 0);
	CHECK(!is_shared(p));
	CHECK_FILLED(p, MIB, 1);
}

enum { PREPARED = 64 };
static struct {
	char *_Atomic p[PREPARED];
	_Atomic int next, ready, failed;
	_Atomic bool stop;
	pthread_t thread;
} interrupts;

/* Signal handlers may unmap and protect memory. */
static void on_signal(int sig)
{
	int err = errno, i = atomic_load(&interrupts.next);
	char *p;

	if (i >= atomic_load(&interrupts.ready))
		return;
	atomic_store(&interrupts.next, i + 1);
	p = atomic_load(&interrupts.p[i]);
	if (i % 2 ? munmap(p, 64 * KIB) : madvise(p, 64 * KIB, MADV_DONTNEED))
		atomic_fetch_add(&interrupts.failed, 1);
	if (region_overlaps((uintptr_t)p, (uintptr_t)p + 64 * KIB))
		atomic_fetch_add(&interrupts.failed, 1);
	errno = err;
}

static void *interrupt(void *arg)
{
	while (!atomic_load(&interrupts.stop)) {
		_Atomic uint32_t nobody = 0;

		pthread_kill(interrupts.thread, SIGUSR1);
		os_futex_wait(&nobody, 0, 30000);
	}
	return arg;
}

REGION_TEST(signal_handlers_may_end_regions_whatever_they_interrupt)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	char *q = pages_get(MIB);
	uint64_t end;
	pthread_t t;

	region_begin(NULL, NULL);
	interrupts.thread = pthread_self();
	sigaction(SIGUSR1, &sa, NULL);
	CHECK_EQ(pthread_create(&t, NULL, interrupt, NULL), 0);
	end = os_now_ns() + 500000000u;
	while (os_now_ns() < end) {
		atomic_store(&interrupts.ready, 0);
		atomic_store(&interrupts.next, 0);
		for (int i = 0; i < PREPARED; i++) {
			char *p = pages_get_aligned(64 * KIB, 64 * KIB);

			ADOPT(p, 64 * KIB);
			atomic_store(&interrupts.p[i], p);
			atomic_store(&interrupts.ready, i + 1);
			adopts(q, MIB);
			region_return((uintptr_t)q, (uintptr_t)q + MIB);
		}
		while (atomic_load(&interrupts.next) < PREPARED)
			adopts(q, MIB);
		CHECK(active() <= 1); /* none of the calls was ignored */
	}
	atomic_store(&interrupts.stop, true);
	pthread_join(t, NULL);
	CHECK_EQ(interrupts.failed, 0);
}

/* ---- on top of the loader ---------------------------------------------------------------- */

/* The loader's locks fail a handler that enters it again (glibc: between lock and owner). */
static _Thread_local int in_loader;
static bool is_loader_interrupted;
static char *unmapped_in_loader;
int __real_dl_iterate_phdr(int (*visit)(struct dl_phdr_info *, size_t, void *), void *arg);
int __wrap_dl_iterate_phdr(int (*visit)(struct dl_phdr_info *, size_t, void *), void *arg);

int __wrap_dl_iterate_phdr(int (*visit)(struct dl_phdr_info *, size_t, void *), void *arg)
{
	int ret;

	CHECK(!is_loader_interrupted || !in_loader);
	in_loader++;
	if (is_loader_interrupted)
		raise(SIGUSR1);
	ret = __real_dl_iterate_phdr(visit, arg);
	in_loader--;
	return ret;
}

static void unmap_in_loader(int sig)
{
	if (in_loader && unmapped_in_loader) {
		char *p = unmapped_in_loader;

		unmapped_in_loader = NULL;
		munmap(p, MIB);
		CHECK(!region_overlaps((uintptr_t)p, (uintptr_t)p + MIB));
	}
}

REGION_TEST(a_handler_that_interrupts_the_loader_may_end_regions)
{
	struct sigaction sa = { .sa_handler = unmap_in_loader };
	char *p = pages_get(MIB), *q = pages_get(MIB);

	region_begin(NULL, NULL);
	ADOPT(p, MIB);
	unmapped_in_loader = p;
	sigaction(SIGUSR1, &sa, NULL);
	is_loader_interrupted = true;
	ADOPT(q, MIB);
	is_loader_interrupted = false;
	CHECK(!unmapped_in_loader);
}

REGION_TEST(the_lock_leaves_the_signal_mask_as_it_was)
{
	sigset_t before, after, mine;
	char *p = pages_get(MIB);

	region_begin(NULL, NULL);
	sigemptyset(&mine);
	sigaddset(&mine, SIGUSR2);
	for (int i = 0; i < 2; i++) {
		pthread_sigmask(SIG_SETMASK, NULL, &before);
		ADOPT(p, MIB);
		CHECK_EQ(mprotect(p, PAGE, RW), 0);
		pthread_sigmask(SIG_SETMASK, NULL, &after);
		CHECK(!memcmp(&before, &after, 8));
		pthread_sigmask(SIG_BLOCK, &mine, NULL);
	}
	CHECK(sigismember(&after, SIGUSR2) == 1);
}

/* ---- look-ups without the lock, ends with it --------------------------------------------- */

enum { USERS = 3 };
static struct { char *p; _Atomic bool stop; _Atomic uint64_t mapped; } shared_use;

static void *use_own_part(void *arg)
{
	size_t at = (size_t)(uintptr_t)arg * 64 * KIB;
	char *mine = shared_use.p + at;

	for (unsigned char i = 0; !atomic_load(&shared_use.stop); i++) {
		struct region_desc d;

		region_describe(mine, 64 * KIB, REGION_USE, &d);
		if (d.flags & REGION_DESC_MAPPED) {
			((volatile char *)peer_view(&d))[i] = (char)i;
			if (((volatile char *)mine)[i] != (char)i)
				abort(); /* private although in use */
			atomic_fetch_add(&shared_use.mapped, 1);
		}
		region_release(&d);
	}
	return NULL;
}

REGION_TEST(what_is_in_use_stays_shared_however_it_ends)
{
	pthread_t t[USERS];
	uint64_t end, rounds = 0;

	region_begin("SLUICE_TEST=region_adopt_min=1M", NULL);
	shared_use.p = pages_get_aligned(MIB, 2 * MIB);
	for (uintptr_t i = 0; i < USERS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, use_own_part, (void *)i), 0);
	end = os_now_ns() + 500000000u;
	/* longer where the users have not had a CPU */
	for (; os_now_ns() < end || (!shared_use.mapped && os_now_ns() < end + 9500000000u);
	     rounds++) {
		adopts(shared_use.p, MIB);
		if (rounds % 2)
			usleep(200);
		region_return((uintptr_t)shared_use.p + MIB / 2, (uintptr_t)shared_use.p + MIB);
	}
	atomic_store(&shared_use.stop, true);
	for (int i = 0; i < USERS; i++)
		pthread_join(t[i], NULL);
	CHECK(rounds > 0 && shared_use.mapped > 0);
	region_return((uintptr_t)shared_use.p, (uintptr_t)shared_use.p + MIB);
	CHECK(!is_shared(shared_use.p));
}

/* ---- under others' locks ----------------------------------------------------------------- */

static int unmap_in_callback(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	char *p = pages_get(64 * KIB);

	adopts(p, 64 * KIB);
	munmap(p, 64 * KIB);
	return 0;
}

static void *iterate(void *arg)
{
	while (!atomic_load((_Atomic bool *)arg))
		dl_iterate_phdr(unmap_in_callback, NULL);
	return arg;
}

/* The loader holds its lock around callbacks, and region takes it to find static data. */
REGION_TEST(callbacks_of_the_loader_may_change_memory)
{
	_Atomic bool stop = false;
	uint64_t end;
	pthread_t t;

	region_begin(NULL, NULL);
	CHECK_EQ(pthread_create(&t, NULL, iterate, (void *)&stop), 0);
	end = os_now_ns() + 300000000u;
	while (os_now_ns() < end) {
		char *p = pages_get(64 * KIB);

		adopts(p, 64 * KIB);
		munmap(p, 64 * KIB);
	}
	atomic_store(&stop, true);
	pthread_join(t, NULL);
	CHECK_EQ(active(), 0);
}

static char *early_block;

static void free_early(void)
{
	alarm(20);
	free(early_block);
	early_block = NULL;
}

static struct { _Atomic int wanted, held; } elsewhere;

static void turn(_Atomic int *what, int to)
{
	while (atomic_load(what) != to)
		sched_yield();
}

/* Holds the lock from the last handler before the fork to the first after it. */
static void *hold_the_lock(void *arg)
{
	for (int i = 0; i < 5; i++) {
		turn(&elsewhere.wanted, 1);
		region_lock();
		atomic_store(&elsewhere.held, 1);
		turn(&elsewhere.wanted, 0);
		region_unlock();
		atomic_store(&elsewhere.held, 0);
	}
	return arg;
}

static void lock_elsewhere(void)
{
	turn(&elsewhere.held, 0);
	atomic_store(&elsewhere.wanted, 1);
	turn(&elsewhere.held, 1);
}

static void unlock_elsewhere(void) { atomic_store(&elsewhere.wanted, 0); }

/* Another thread held the lock when the process forked, and does not exist in the child. */
REGION_TEST(handlers_that_run_first_in_a_child_may_free)
{
	pthread_t t;

	if (!HEAP_AFTER_FORK)
		unit_skip("the heap is locked there");
	pthread_atfork(lock_elsewhere, unlock_elsewhere, free_early); /* around ours */
	region_begin(NULL, NULL);
	CHECK_EQ(pthread_create(&t, NULL, hold_the_lock, NULL), 0);
	for (int i = 0; i < 5; i++) {
		int status;
		pid_t pid;

		early_block = block_get(MIB);
		ADOPT(early_block, MIB);
		pid = fork();
		if (!pid) {
			alarm(20);
			free(block_get(MIB));
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
		free(early_block);
	}
	pthread_join(t, NULL);
}

/* ---- threads of ours --------------------------------------------------------------------- */

static void *own(void *arg)
{
	_Atomic uint32_t *told = arg;

	region_own_thread();
	region_own_thread(); /* counts once */
	atomic_store(told, 1);
	os_futex_wake(told, 1);
	while (atomic_load(told) == 1)
		os_futex_wait(told, 1, 100000000);
	return arg;
}

static void *wait_for(void *arg)
{
	while (atomic_load((_Atomic uint32_t *)arg) < 2)
		usleep(1000);
	return arg;
}

/* While there are no other threads: any thread that can write to the program's memory counts. */
REGION_TEST(threads_of_ours_leave_a_program_without_threads_what_it_is)
{
	_Atomic uint32_t told = 0;
	char *p = pages_get(MIB);
	pthread_t ours, other;

	region_begin(NULL, NULL);
	CHECK(table_is_alone());
	CHECK_EQ(pthread_create(&ours, NULL, own, &told), 0);
	while (!atomic_load(&told))
		os_futex_wait(&told, 0, 100000000);
	CHECK(table_is_alone());
	ADOPT(p, MIB);
	if (!fork())
		_exit(0);
	CHECK(is_anonymous(p)); /* not what is left of it for writers */
	CHECK_EQ(pthread_create(&other, NULL, wait_for, &told), 0);
	CHECK(!table_is_alone());
	atomic_store(&told, 2);
	os_futex_wake(&told, 1);
	pthread_join(ours, NULL);
	pthread_join(other, NULL);
	for (int i = 0; i < 10000 && !table_is_alone(); i++)
		usleep(1000); /* a joined thread stays in /proc for a moment */
	CHECK(table_is_alone());
}
