/* SPDX-License-Identifier: BSD-3-Clause */
#include "guard_case.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { TIME_LIMIT_S = 20 };

static const char *kind_wanted;
static struct owner *owners; /* of this process, which ends with its test */

const char *guard_case_kind(void) { return kind_wanted; }

unsigned char load(const void *p) { return *(const volatile unsigned char *)p; }
void store(void *p, unsigned char c) { *(volatile unsigned char *)p = c; }

unsigned char owner_byte(size_t offset)
{
	return (unsigned char)(offset * 7 + offset / PAGE * 13 + 1);
}

static void copy_pages(struct owner *o, uintptr_t start, uintptr_t end)
{
	for (uintptr_t a = start; a < end; a++)
		o->arena[a - (uintptr_t)o->p] = (char)owner_byte(a - (uintptr_t)o->p);
}

static void hold(void *arg)
{
	struct owner *o = arg;

	atomic_fetch_add(&o->held, 1);
}

static void wait_while_closed(struct owner *o)
{
	guard_wait_begin();
	atomic_fetch_add(&o->waiting, 1);
	while (atomic_load(&o->closed) && !guard_wait_interrupted())
		usleep(100);
	atomic_fetch_sub(&o->waiting, 1);
	guard_wait_end();
}

static void touched(void *arg, uintptr_t addr, size_t bytes, bool write)
{
	struct owner *o = arg;
	uintptr_t start = o->r.start, end = o->r.end;

	atomic_fetch_add(&o->touches, 1);
	atomic_store(&o->last, addr);
	atomic_store(&o->last_bytes, bytes);
	atomic_store(&o->last_write, write);
	if (o->has_cancel_point)
		pthread_testcancel();
	if (atomic_load(&o->closed))
		wait_while_closed(o);
	if (atomic_load(&o->closed)) {
		atomic_fetch_sub(&o->held, 1);
		return;
	}
	if (o->by_page && (!o->all_after || o->touches < o->all_after)) {
		start = addr / PAGE * PAGE;
		end = (addr + bytes + PAGE - 1) / PAGE * PAGE;
	}
	if (o->r.access == GUARD_NO_ACCESS)
		copy_pages(o, start, end);
	guard_release(&o->r, start, end);
	errno = EBADF; /* of whatever it called */
	atomic_fetch_sub(&o->held, 1);
}

static void complete_all(void)
{
	/* may not be called while an owner is closed */
	for (struct owner *o = owners; o; o = o->next) {
		if (!guard_is_armed(&o->r))
			continue;
		if (o->r.access == GUARD_NO_ACCESS)
			copy_pages(o, o->r.start, o->r.end);
		guard_release(&o->r, o->r.start, o->r.end);
	}
}

static const struct guard_ops ops = { .hold = hold,
				      .touched = touched,
				      .complete_all = complete_all };

bool guard_case_has_other_threads(void)
{
	struct stat st;

	return !stat("/proc/self/task", &st) && st.st_nlink > 3;
}

struct run { const char *kind; void (*before)(void), (*body)(void); };

int guard_case_init(const char *kind, const char *more)
{
	char option[64], problems[256],
		*env[] = { option, (char[]){ "SLUICE_REGION_ARENA=1G" }, (char *)more, NULL };
	int ret;

	snprintf(option, sizeof option, "SLUICE_GUARD_KIND=%s", kind);
	if (base_options_load(env, problems, sizeof problems))
		unit_fail(__FILE__, __LINE__, "%s", problems);
	ret = guard_init(&ops);
	if (!ret)
		guard_is_ready(); /* once before the first range; some have threads that are not */
	return ret;
}

static void run_here(void *arg)
{
	struct run *run = arg;

	alarm(TIME_LIMIT_S); /* a deadlock is a failure, not a hang */
	kind_wanted = run->kind;
	if (run->before)
		run->before();
	if (guard_case_init(run->kind, NULL))
		unit_skip(guard_reason());
	CHECK_STR(guard_kind_name(), run->kind);
	if (!guard_is_ready() && guard_case_has_other_threads())
		unit_skip("a thread that a sanitizer made cannot be protected");
	CHECK(guard_is_ready());
	run->body();
}

void guard_case_run(const char *kind, void (*before)(void), void (*body)(void))
{
	struct run run = { kind, before, body };

	CHECK_EQ(unit_fork(run_here, &run), 0);
}

static bool count_one(const struct os_vma *v, void *arg)
{
	uintptr_t start, end;

	guard_shadows(&start, &end);
	if (v->end <= start || v->start >= end)
		++*(int *)arg;
	return true;
}

static bool is_asleep(const char *tid)
{
	char path[300], state = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/self/task/%s/stat", tid);
	f = fopen(path, "r");
	if (!f)
		return true; /* it has ended */
	CHECK_EQ(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
	fclose(f);
	return state == 'S';
}

static bool others_are_asleep(void)
{
	DIR *d = opendir("/proc/self/task");
	bool asleep = true;
	struct dirent *e;

	CHECK(d);
	while (asleep && (e = readdir(d)))
		asleep = e->d_name[0] == '.' || atoi(e->d_name) == gettid() || is_asleep(e->d_name);
	closedir(d);
	return asleep;
}

/* A new thread maps memory of its own (with a sanitizer an alternate stack), which would change the
 * count of mappings. */
static void let_threads_begin(void)
{
	for (int seen = 0; seen < 3; seen++) {
		if (!others_are_asleep())
			seen = -1;
		usleep(200);
	}
}

int guard_case_mappings(void)
{
	int n = 0;

	let_threads_begin();
	CHECK_EQ(os_vma_each(count_one, &n), 0);
	return n;
}

/* The default action, also where a sanitizer's runtime has installed a handler. */
static void default_action(void) { signal(SIGSEGV, SIG_DFL); }

void guard_case_dies(const char *kind, void (*body)(void))
{
	struct run run = { kind, default_action, body };
	int status = unit_fork(run_here, &run);

	CHECK(status == 128 + SIGSEGV || status == 0); /* 0: skipped, bodies do not return */
}

void owner_open(struct owner *o, size_t pages, size_t at)
{
	size_t bytes = (pages + 2) * PAGE, room = bytes + 2 * OS_HUGE + at * PAGE;
	char *raw;

	memset(o, 0, sizeof *o);
	o->next = owners;
	owners = o;
	o->pages = pages;
	o->r.arg = o;
	o->fd = memfd_create("guard", MFD_CLOEXEC);
	CHECK(o->fd >= 0);
	CHECK_EQ(ftruncate(o->fd, (off_t)(bytes + OS_HUGE + at * PAGE)), 0);
	raw = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(raw != MAP_FAILED);
	/* a page of the file before it: also where `at` is 0 */
	o->p = (char *)base_round_up((uintptr_t)raw + 1, OS_HUGE) + at * PAGE;
	CHECK(mmap(o->p - PAGE, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, o->fd,
		   (off_t)(OS_HUGE + at * PAGE - PAGE)) == o->p - PAGE);
	o->arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, o->fd,
			(off_t)(OS_HUGE + at * PAGE - PAGE));
	CHECK(o->arena != MAP_FAILED);
	o->arena += PAGE;
	memset(o->p - PAGE, 0xEE, bytes);
}

void owner_arm(struct owner *o, size_t first, size_t n, enum guard_access access)
{
	int ret;

	o->r.start = (uintptr_t)o->p + first * PAGE;
	o->r.end = o->r.start + n * PAGE;
	o->r.access = access;
	ret = guard_arm(&o->r);
	for (int i = 0; ret == -EAGAIN && i < 2000;
	     i++) { /* another thread has armed before, and has to answer the signal */
		if (!guard_is_ready())
			usleep(1000);
		ret = guard_arm(&o->r);
	}
	CHECK_EQ(ret, 0);
}

void owner_finish(struct owner *o)
{
	if (o->r.access == GUARD_NO_ACCESS)
		copy_pages(o, o->r.start, o->r.end);
}

void owner_settle(struct owner *o)
{
	while (atomic_load(&o->held))
		usleep(10);
}

bool owner_release_all(struct owner *o) { return guard_release(&o->r, o->r.start, o->r.end); }

void check_owner_at(const char *file, int line, const struct owner *o, size_t first, size_t n)
{
	for (size_t i = first * PAGE; i < (first + n) * PAGE; i++)
		if ((unsigned char)o->p[i] != owner_byte(i))
			unit_fail(file, line, "byte %zu is %#x, not %#x", i, (unsigned char)o->p[i],
				  owner_byte(i));
}
