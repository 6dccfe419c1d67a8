/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dsa_model.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define QUIET __attribute__((no_sanitize("thread", "address", "undefined")))

enum { PAGE = 4096, PAGES = 256, NOOP = 0, MEMMOVE = 3, FLAGS = 1 << 2 | 1 << 3 | 1 << 8 };
enum { ENDED_WELL = 1, PAGE_FAULT = 3, WRITE_FAULT = 0x83, HARDWARE_ERROR = 0x1a };
enum { OF_OTHERS = 0xfffff }; /* pasid of descriptors of other processes */

struct desc {
	uint32_t pasid, flags_and_opcode;
	uint64_t record, src, dst;
	uint32_t bytes;
	uint16_t interrupt, none;
	uint8_t rest[24];
};
struct record {
	uint8_t status, result;
	uint16_t none;
	uint32_t bytes;
	uint64_t fault_address, rest[2];
};

static struct { _Atomic uint64_t fault, status, hang, rate, others; } settings;
static _Atomic uint64_t taken, executed, copied, foreign;
static _Atomic int is_busy;
static int out, pagemap, follows, of_others = -1;

uint64_t dsa_model_descriptors(void) { return executed; }
uint64_t dsa_model_bytes(void) { return copied; }
uint64_t dsa_model_of_others(void) { return foreign; }

/* Other processes submit, too, as many at a time as the queue accepts. */
static void submit_of_others(uint64_t n)
{
	struct desc d = { .pasid = OF_OTHERS };

	for (uint64_t i = 0; i < n; i++)
		if (write(of_others, &d, sizeof d) != sizeof d)
			return;
}

void dsa_model_set(const char *text)
{
	uint64_t fault = 0, status = 0, hang = 0, rate = 0, others = 0;

	for (const char *at = text; at && *at; at = strchr(at, ','), at += at && *at == ',') {
		const char *value = strchr(at, '=');

		if (!value)
			abort();
		*(*at == 'f'   ? &fault
		  : *at == 's' ? &status
		  : *at == 'h' ? &hang
		  : *at == 'o' ? &others
			       : &rate) = strtoull(value + 1, NULL, 10);
		if (!strchr(at, ','))
			break;
	}
	settings.fault = fault;
	settings.status = status;
	settings.hang = hang;
	settings.rate = rate;
	settings.others = others;
	taken = executed = copied = foreign = 0;
	if (others)
		submit_of_others(UINT64_MAX); /* the queue is full when the first copy comes */
}

/* ---- memory ------------------------------------------------------------------------------ */

/* Returns: how many of the bytes at `at` are present before the first page that is not. */
static uint64_t present_bytes(uint64_t at, uint64_t bytes)
{
	uint64_t entries[PAGES], end = at + bytes;

	for (uint64_t page = at / PAGE; page * PAGE < end; page += PAGES) {
		if (pread(pagemap, entries, sizeof entries, (off_t)(page * 8)) < 8)
			abort();
		for (uint64_t i = 0; i < PAGES && (page + i) * PAGE < end; i++)
			if (!(entries[i] >> 63))
				return (page + i) * PAGE > at ? (page + i) * PAGE - at : 0;
	}
	return bytes;
}

/* A device is no thread: sanitizers follow it through no lock. */
QUIET static void copy(uint64_t dst, uint64_t src, uint64_t bytes)
{
#ifdef __x86_64__
	__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes) : : "memory");
#else
	while (bytes--)
		*(volatile char *)(uintptr_t)dst++ = *(volatile char *)(uintptr_t)src++;
#endif
}

/* The status is the last byte that becomes visible. */
QUIET static void finish(const struct desc *d, uint8_t status, uint64_t bytes,
			 uint64_t fault_address)
{
	volatile struct record *r = (struct record *)(uintptr_t)d->record;

	r->bytes = (uint32_t)bytes;
	r->fault_address = fault_address;
	__atomic_store_n(&r->status, status, __ATOMIC_RELEASE);
}

/* ---- execution --------------------------------------------------------------------------- */

static void check(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "dsa_model: a descriptor is wrong: %s\n", what);
	abort();
}

static void check_desc(const struct desc *d)
{
	uint32_t flags = d->flags_and_opcode & 0xffffff, opcode = d->flags_and_opcode >> 24;
	uint8_t none[24] = { 0 };

	check(!d->pasid, "pasid and priv are the kernel's");
	check(opcode == MEMMOVE, "opcode");
	check(!(flags & ~(uint32_t)FLAGS) && flags & 1 << 2, "flags");
	check(d->record && d->record % 32 == 0, "the record is not aligned");
	check(present_bytes(d->record, sizeof(struct record)) == sizeof(struct record),
	      "the page of the record is not present");
	check(d->bytes > 0 && d->bytes <= 2u << 20, "bytes");
	check(!d->interrupt && !d->none && !memcmp(d->rest, none, sizeof none), "reserved bytes");
	check(d->src && d->dst, "addresses");
}

static void pass_time(uint64_t bytes)
{
	uint64_t ns = settings.rate ? bytes * 1000 / settings.rate : 0;
	struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	if (ns)
		nanosleep(&t, NULL);
}

static void execute(const struct desc *d)
{
	uint64_t n = ++taken, readable, writable, bytes, hang = settings.hang;
	int faults = settings.fault && n % settings.fault == 0;

	if (hang && n >= hang)
		return; /* until the device is reset, which close() is taken for */
	check_desc(d);
	pass_time(d->bytes);
	readable = present_bytes(d->src, d->bytes);
	writable = present_bytes(d->dst, d->bytes);
	bytes = readable < writable ? readable : writable;
	if (faults && bytes > d->bytes / 2)
		readable = bytes = d->bytes / 2;
	copy(d->dst, d->src, bytes);
	copied += bytes;
	executed++;
	if (n == settings.status)
		finish(d, HARDWARE_ERROR, 0, 0);
	else if (bytes == d->bytes)
		finish(d, ENDED_WELL, bytes, 0);
	else if (bytes == readable)
		finish(d, PAGE_FAULT, bytes, d->src + bytes);
	else
		finish(d, WRITE_FAULT, bytes, d->dst + bytes);
}

static void *device(void *arg)
{
	int in = (int)(intptr_t)arg;
	struct pollfd p = { .fd = in, .events = POLLIN };
	struct desc d;

	for (;;) {
		if (poll(&p, 1, -1) < 0) {
			if (errno != EINTR) /* after SIGCONT, where the process is dispatched */
				return NULL;
			continue;
		}
		is_busy = 1; /* before the pipe is empty: see close() */
		if (read(in, &d, sizeof d) != sizeof d)
			return NULL;
		if (d.pasid == OF_OTHERS) {
			foreign++;
			pass_time(2048);
		} else {
			submit_of_others(settings.others);
			execute(&d);
		}
		is_busy = 0;
	}
	return NULL;
}

/* ---- the queue --------------------------------------------------------------------------- */

static void start(void)
{
	sigset_t all, before;
	int ends[2];
	pthread_t t;

	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (pagemap < 0 || pipe2(ends, O_CLOEXEC) || fcntl(ends[1], F_SETPIPE_SZ, PAGE) < 0)
		abort();
	if (dup3(ends[1], DSA_MODEL_FD, O_CLOEXEC) < 0) {
		if (errno != EBADF)
			abort();
		/* RLIMIT_NOFILE is lower: the device is not there */
		syscall(SYS_close, ends[0]);
		syscall(SYS_close, ends[1]);
		syscall(SYS_close, pagemap);
		out = 0;
		return;
	}
	syscall(SYS_close, ends[1]);
	if (of_others >= 0)
		syscall(SYS_close, of_others);
	of_others = open("/proc/self/fd/900", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (of_others < 0)
		abort();
	out = ends[0];
	is_busy = 0;
	if (settings.others)
		submit_of_others(UINT64_MAX);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&t, NULL, device, (void *)(intptr_t)out))
		abort();
	pthread_detach(t);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void start_in_child(void)
{
	if (!follows) {
		out = 0; /* close() waits in the process that has opened the queue */
		return;
	}
	syscall(SYS_close, out);
	syscall(SYS_close, pagemap);
	start();
}

void dsa_model_start(int follow)
{
	follows = follow;
	pthread_atfork(NULL, NULL, start_in_child);
	start();
}

/* The kernel drains what a process has submitted before the queue is closed. */
__attribute__((visibility("default"))) int close(int fd)
{
	struct stat closed, queue;
	int waiting = 1;

	if (out && fd != DSA_MODEL_FD && !fstat(fd, &closed) && !fstat(DSA_MODEL_FD, &queue) &&
	    closed.st_dev == queue.st_dev && closed.st_ino == queue.st_ino)
		while (waiting || is_busy)
			if (ioctl(out, FIONREAD, &waiting))
				break;
	return (int)syscall(SYS_close, fd);
}

#ifdef DSA_MODEL_PRELOADED
__attribute__((constructor)) static void start_at_load(void)
{
	if (!getenv("DSA_MODEL"))
		return;
	dsa_model_set(getenv("DSA_MODEL"));
	dsa_model_start(getenv("DSA_MODEL_FOLLOWS") != NULL);
}
#endif
