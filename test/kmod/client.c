/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Uses /dev/sluice without Sluice: each rule of uapi/sluice_kmod.h once, then at random.
 *
 *   client rules          one line a rule; exit status 1 at the first that is broken
 *   client cancel         prints how many copies came back cancelled (a slow device is loaded)
 *   client hang           a device that never ends can be retired
 *   client stuck          one that cannot be stopped, either, is waited for, and keeps its pages
 *   client nodes          prints the NUMA nodes of the channels; copies between memory of all nodes
 *   client random N [K [D]]  N children that copy, unmap, fork and are killed; seeds from K on;
 *                         D: no two copies write one cache line: DMA_API_DEBUG complains of it
 *   client fails          each call, and each of its allocations refused in turn
 *   client none           there is no channel
 *   client stat           waits until nothing is open, prints counters; fails unless pins = unpins
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "client.h"

/* ---- rules -------------------------------------------------------------------------------- */

static void rule_copies(void)
{
	struct client c = attach();
	char *a = memory(4 * MIB, -1), *b = memory(4 * MIB, -1);

	for (int i = 0; i < 40; i++) {
		size_t from = (size_t)rand() % PAGE, to = (size_t)rand() % PAGE;
		size_t bytes = 1 + (size_t)rand() % (3 * MIB);

		if (i % 2) {
			from &= ~63ul;
			to &= ~63ul;
		}
		fill(a + from, bytes, (unsigned)i);
		memset(b, 0x55, 4 * MIB);
		CHECK(!copy(&c, b + to, a + from, bytes));
		CHECK(!memcmp(b + to, a + from, bytes));
		CHECK(!to || b[to - 1] == 0x55);
		CHECK(b[to + bytes] == 0x55);
	}
	munmap(a, 4 * MIB);
	munmap(b, 4 * MIB);
	end(&c);
}

static void rule_refuses(void)
{
	struct sluice_attach again = { 0 };
	struct sluice_entry e = { .slot = 0, .op = 7 };
	struct sluice_enter enter = { .entries = (uintptr_t)&e, .count = 1 };
	struct client c = attach();
	char *a = memory(MIB, -1), *r;

	CHECK(ioctl(c.fd, SLUICE_IOC_ATTACH, &again) && errno == EBUSY);
	CHECK(ioctl(c.fd, SLUICE_IOC_ENTER, &enter) && errno == EINVAL && !enter.accepted);
	CHECK(submit(&c, SLUICE_SLOTS, a, a, 1) == -EINVAL);
	CHECK(submit(&c, 0, a, a, 0) == -EINVAL);
	CHECK(submit(&c, 0, a, a, c.attach.max_bytes + 1) == -EINVAL);
	CHECK(submit(&c, 0, (void *)-PAGE, a, 2 * PAGE) == -EINVAL);
	CHECK(copy(&c, a, NULL, PAGE) == -EFAULT);
	CHECK(copy(&c, (void *)0xffffffff81000000ul, a, PAGE) == -EFAULT);
	CHECK(copy(&c, a, (void *)0xffffffff81000000ul, PAGE) == -EFAULT);
	r = memory(PAGE, -1);
	CHECK(!mprotect(r, PAGE, PROT_READ));
	CHECK(copy(&c, r, a, PAGE) == -EFAULT); /* no right to write */
	CHECK(!copy(&c, a, r, PAGE));
	e = (struct sluice_entry){ .op = SLUICE_OP_COPY,
				   .src = (uintptr_t)a,
				   .dst = (uintptr_t)a,
				   .bytes = 1,
				   .zero = { 1 } };
	CHECK(ioctl(c.fd, SLUICE_IOC_ENTER, &enter) && errno == EINVAL);
	CHECK(ioctl(c.fd, 0x1234) && errno == ENOTTY);
	CHECK(!ioctl(c.fd, SLUICE_IOC_RETIRE));
	CHECK(submit(&c, 0, a, a, 1) == -ESHUTDOWN);
	munmap(a, MIB);
	munmap(r, PAGE);
	end(&c);
}

static void rule_fork(void)
{
	struct client c = attach();
	char *a = memory(MIB, -1);
	int status;

	CHECK(!copy(&c, a + PAGE, a, PAGE));
	if (!fork()) {
		struct sluice_info info;

		_exit(!(submit(&c, 1, a, a, 1) == -EPERM && ioctl(c.fd, SLUICE_IOC_INFO, &info) &&
			errno == EPERM &&
			mmap(NULL, SLUICE_RECORDS_BYTES, PROT_READ, MAP_SHARED, c.fd, 0) ==
				MAP_FAILED));
	}
	CHECK(wait(&status) > 0 && !status);
	fill(a, PAGE, 3); /* after a fork the parent's page is still the one that is pinned, or is
			     pinned anew */
	CHECK(!copy(&c, a + PAGE, a, PAGE) && !memcmp(a, a + PAGE, PAGE));
	munmap(a, MIB);
	end(&c);
}

/* A cached pin must not outlive its mapping. */
static void rule_stale(void)
{
	int fd = memfd_create("stale", MFD_CLOEXEC);
	struct client c = attach();
	struct sluice_stat before = stat_now(), after;
	char *a, *b = memory(MIB, -1);

	CHECK(!ftruncate(fd, MIB));
	a = memory(MIB, fd);
	fill(a, MIB, 1);
	CHECK(!copy(&c, b, a, MIB) && !memcmp(a, b, MIB));
	CHECK(!copy(&c, b, a, MIB));
	after = stat_now();
	CHECK(after.pins - before.pins == 2 * MIB / PAGE && after.hits - before.hits == 2);
	CHECK(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB));
	fill(a, MIB, 2); /* other pages */
	CHECK(!copy(&c, b, a, MIB) && !memcmp(a, b, MIB));
	munmap(a, MIB);
	a = mmap(a, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	fill(a, MIB, 3);
	CHECK(!copy(&c, b, a, MIB) && !memcmp(a, b, MIB));
	CHECK(mremap(a, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, b) == b);
	CHECK(copy(&c, b, a, MIB) == -EFAULT);
	CHECK(!ioctl(c.fd, SLUICE_IOC_DROP, &(struct sluice_drop){ 0, ~0ull }));
	close(fd);
	munmap(b, MIB);
	end(&c);
}

static void rule_memlock(void)
{
	struct rlimit small = { 65536, 65536 };
	int status;

	if (!fork()) {
		struct client c;
		char *a = memory(MIB, -1);

		CHECK(!setrlimit(RLIMIT_MEMLOCK, &small));
		CHECK(!chmod("/dev/sluice", 0666) && !setresuid(65534, 65534, 65534));
		c = attach();
		CHECK(copy(&c, a, a + 512 * 1024, 512 * 1024) == -ENOMEM);
		for (size_t i = 0; i < 20; i++) /* pins that nobody needs make room */
			CHECK(!copy(&c, a + i * 4 * PAGE, a + MIB / 2 + i * 4 * PAGE, 4 * PAGE));
		end(&c);
		_exit(0);
	}
	CHECK(wait(&status) > 0 && !status);
}

/* The mapping goes while the device reads and writes it. */
static void rule_unmap(void)
{
	struct client c = attach();

	for (int round = 0; round < 20; round++) {
		/* no two copies write one place: DMA_API_DEBUG complains of it */
		char *a = memory(MIB, -1), *b = memory(8 * MIB, -1);

		for (unsigned slot = 0; slot < 8; slot++)
			CHECK(!submit(&c, slot, b + slot * MIB, a, MIB));
		munmap(b, 8 * MIB);
		munmap(a, MIB);
		for (unsigned slot = 0; slot < 8; slot++)
			CHECK(!wait_for(&c, slot));
	}
	end(&c);
}

static int rules(void)
{
	static const struct {
		const char *name;
		void (*check)(void);
	} all[] = {
		{ "copies", rule_copies }, { "refuses", rule_refuses }, { "fork", rule_fork },
		{ "stale", rule_stale },   { "memlock", rule_memlock }, { "unmap", rule_unmap },
	};

	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		all[i].check();
		printf("CLIENT rule %s holds\n", all[i].name);
		fflush(stdout);
	}
	return 0;
}

/* ---- random ------------------------------------------------------------------------------- */

enum { SLOT_BYTES = MIB / SLUICE_SLOTS };

static void random_child(unsigned seed, int is_disjoint)
{
	char *buf[4], *own = memory(MIB, -1);
	struct client c;

	srand(seed);
	c = attach();
	for (int i = 0; i < 4; i++)
		buf[i] = memory(MIB, -1);
	for (int i = 0; i < 200; i++) {
		char *a = buf[rand() % 4], *b = buf[rand() % 4];
		unsigned slot = (unsigned)rand() % SLUICE_SLOTS;
		size_t bytes = 1 + (size_t)rand() % (MIB / 2), at = (size_t)rand() % (MIB / 2);

		if (is_disjoint)
			submit(&c, slot, own + slot * SLOT_BYTES + (unsigned)i % 64, b + at,
			       1 + bytes % (SLOT_BYTES - 128));
		else
			submit(&c, slot, a + MIB / 2 - at, b + at, bytes);
		switch (rand() % 12) {
		case 0:
			a = buf[rand() % 4];
			mmap(a, MIB, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			break;
		case 1:
			madvise(buf[rand() % 4] + at / PAGE * PAGE, MIB / 4, MADV_DONTNEED);
			break;
		case 2:
			if (!fork()) {
				memset(a, 1, MIB);
				_exit(0);
			}
			break;
		case 3:
			if (rand() % 2)
				ioctl(c.fd, SLUICE_IOC_STAT, &(struct sluice_stat){ 0 });
			else
				cancel_slots(&c, slot, rand() % SLUICE_SLOTS);
			break;
		case 4:
			mprotect(a, MIB, PROT_READ);
			mprotect(a, MIB, PROT_READ | PROT_WRITE);
			break;
		case 5:
			memset(b, seed, MIB);
			break;
		}
	}
	if (seed % 5 == 0)
		ioctl(c.fd, SLUICE_IOC_RETIRE);
	if (seed % 7 == 0)
		execl("/bin/true", "true", NULL);
	_exit(0);
}

/* Every second child from `first` on. Returns: how many were killed. */
static int kill_children(int first, int end, int is_disjoint)
{
	int killed = 0;

	for (int i = first; i < end; i += 2) {
		pid_t pid = fork();
		int status;

		if (!pid)
			random_child((unsigned)i + 1, is_disjoint);
		if (i % 16) {
			usleep((unsigned)(i * 7919 % 60000));
			kill(pid, SIGKILL);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		CHECK(!WIFSIGNALED(status) || WTERMSIG(status) == SIGKILL);
	}
	return killed;
}

/* Two children live at a time, and copy by one channel. */
static int random_kills(int count, int first, int is_disjoint)
{
	volatile int *killed = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				    -1, 0);
	pid_t pid;
	int status;

	CHECK(killed != MAP_FAILED);
	pid = fork();
	if (!pid) {
		killed[1] = kill_children(first + 1, first + count, is_disjoint);
		_exit(0);
	}
	killed[0] = kill_children(first, first + count, is_disjoint);
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	printf("CLIENT random: %d of %d children killed\n", killed[0] + killed[1], count);
	return 0;
}

/* ---- refused allocations ------------------------------------------------------------------ */

/* Sets which allocation, or copy from or to this program, fails next. Returns: what was left; the
 * reading of it may have been the next one. */
static int fail_nth(int n)
{
	static int fd = -1;
	char text[16] = "";
	int left;

	if (fd < 0)
		fd = open("/proc/thread-self/fail-nth", O_RDWR);
	left = pread(fd, text, sizeof text - 1, 0) > 0 ? atoi(text) : 1;
	snprintf(text, sizeof text, "%d", n);
	while (pwrite(fd, text, strlen(text), 0) <= 0)
		CHECK(errno == EFAULT); /* what was left was 2 */
	return left;
}

/* Returns: 0 or -errno. */
static int try_open(struct client *c, char *a)
{
	void *p;

	(void)a;
	*c = (struct client){ .fd = open("/dev/sluice", O_RDWR | O_CLOEXEC) };
	if (c->fd < 0)
		return -errno;
	p = ioctl(c->fd, SLUICE_IOC_ATTACH, &c->attach)
		    ? MAP_FAILED
		    : mmap(NULL, SLUICE_RECORDS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd,
			   0);
	if (p == MAP_FAILED) {
		int rc = -errno;

		close(c->fd);
		return rc;
	}
	c->records = p;
	return 0;
}

static int try_copy(struct client *c, char *a) { return submit(c, 0, a + MIB, a, MIB); }
static int try_info(struct client *c, char *a)
{
	struct sluice_info info;

	(void)a;
	return ioctl(c->fd, SLUICE_IOC_INFO, &info) ? -errno : 0;
}

/* Returns: how many of the call's allocations were refused. */
static int refuse_each(int (*call)(struct client *, char *), struct client *c)
{
	for (int n = 1;; n++) {
		char *a = memory(2 * MIB, -1);
		int rc, left, opens = call == try_open;

		CHECK(n < 1000);
		fill(a, MIB, (unsigned)n);
		fail_nth(n);
		rc = call(c, a);
		left = fail_nth(0);
		if (!rc && call == try_copy) {
			rc = wait_for(c, 0);
			CHECK(rc || !memcmp(a, a + MIB, MIB));
		}
		if (!rc && opens)
			end(c);
		if (rc)
			errno = -rc; /* for the message */
		CHECK(!rc || (!left && (rc == -ENOMEM || rc == -EFAULT || rc == -EAGAIN ||
					rc == -ENFILE || (opens && rc == -EINVAL))));
		CHECK(opens || !copy(c, a + MIB, a, MIB));
		munmap(a, 2 * MIB);
		if (left)
			return n - 1;
	}
}

static int fails(void)
{
	int opens = 0, copies, infos;
	struct client c;

	for (int i = 0; i < 10; i++) /* the channels may still be those of the open before */
		opens += refuse_each(try_open, &c);
	c = attach();
	copies = refuse_each(try_copy, &c);
	infos = refuse_each(try_info, &c);
	end(&c);
	printf("CLIENT fails: %d of open, %d of copies, %d of info\n", opens, copies, infos);
	return !(opens > 0 && copies > 0 && infos > 0);
}

/* ---- counters ----------------------------------------------------------------------------- */

static int print_stat(void)
{
	struct sluice_stat s = stat_now();

	for (int i = 0; i < 200 && (s.contexts > 1 || s.pins != s.unpins); i++) {
		usleep(50000);
		s = stat_now();
	}
#define P(name) printf(#name "=%llu ", (unsigned long long)s.name)
	printf("STAT ");
	P(pins), P(unpins), P(regions), P(hits), P(stale), P(evicted), P(enters), P(copies),
		P(cancelled);
	P(descriptors), P(callbacks), P(dma_bytes), P(cpu_bytes), P(contexts), P(runs), P(messages),
		P(onload_bytes);
	printf("\n");
	return s.pins != s.unpins || s.contexts > 1;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "rules"))
		return rules();
	if (!strcmp(what, "cancel"))
		return client_cancel();
	if (!strcmp(what, "hang"))
		return client_hang();
	if (!strcmp(what, "stuck"))
		return client_stuck();
	if (!strcmp(what, "nodes"))
		return client_nodes();
	if (!strcmp(what, "random") && argc > 2)
		return random_kills(atoi(argv[2]), argc > 3 ? atoi(argv[3]) : 0, argc > 4);
	if (!strcmp(what, "fails"))
		return fails();
	if (!strcmp(what, "none")) {
		struct sluice_info info;

		CHECK(!ioctl(open_device(), SLUICE_IOC_INFO, &info) && !info.channels);
		return 0;
	}
	if (!strcmp(what, "stat"))
		return print_stat();
	return 2;
}
