/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and stop, threads, and the file, which is written in pieces of 64 KiB. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "mpi/front/front.h"
#include "mpi/record/record.h"
#include "os/os.h"

enum { BUFFER_BYTES = 64 << 10 };

/* loader.c names the gates of libsluice.so, which this library does not have. */
void *const gates_mpich[1], *const gates_ompi[1], *const gates_std[1];

static struct {
	_Atomic bool is_on;
	pthread_mutex_t lock;
	int fd;
	struct os_file of_fd;
	pid_t pid;              /* a child of fork() does not record */
	uint64_t start_ns, lost;
	_Atomic uint32_t threads;
	size_t used;
	char buffer[BUFFER_BYTES];
} file = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

static struct host_library library;

static __thread struct {
	bool is_inside, is_known;
	uint16_t index;
	uint64_t returned_ns, computed_ns;
} self;

/* ---- calls ------------------------------------------------------------------------------- */

bool record_enter(void)
{
	uint64_t now;

	if (!atomic_load_explicit(&file.is_on, memory_order_acquire) || self.is_inside)
		return false;
	if (getpid() != file.pid)
		return false;
	if (!self.is_known) {
		self.is_known = true;
		self.index = (uint16_t)atomic_fetch_add_explicit(&file.threads, 1,
								 memory_order_relaxed);
		self.returned_ns = file.start_ns;
	}
	now = os_now_ns();
	self.computed_ns += now - self.returned_ns;
	self.is_inside = true;
	return true;
}

void record_exit(void)
{
	self.returned_ns = os_now_ns();
	self.is_inside = false;
}

static void *late_function(const char *name)
{
	struct host_library found = { 0 };
	const struct front_abi *own;

	return loader_find(&found, &own) == FRONT_ONE ? dlsym(found.handle, name) : NULL;
}

void *record_next(_Atomic(void *) *known, const char *name)
{
	void *next = atomic_load_explicit(known, memory_order_acquire);

	if (next)
		return next;
	next = dlsym(RTLD_NEXT, name);
	/* a function that libsluice.so does not export, of a library that was loaded late */
	if (!next)
		next = late_function(name);
	atomic_store_explicit(known, next, memory_order_release);
	return next;
}

void *record_host_function(const char *name) { return dlsym(library.handle, name); }

void record_lock(void) { pthread_mutex_lock(&file.lock); }
void record_unlock(void) { pthread_mutex_unlock(&file.lock); }

/* ---- the file ---------------------------------------------------------------------------- */

/* Writes nothing when the program has closed the descriptor. Returns: as write(). */
static ssize_t write_out(const char *from, size_t bytes)
{
	if (!os_file_is_at(&file.of_fd, file.fd)) {
		file.fd = -1;
		errno = EBADF;
		return -1;
	}
	return write(file.fd, from, bytes);
}

static void flush(void)
{
	for (size_t at = 0; at < file.used && file.fd >= 0;) {
		ssize_t n = write_out(file.buffer + at, file.used - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			base_log(BASE_LOG_ERROR, "record",
				 "the message file of this rank ends: %m");
			if (file.fd >= 0)
				close(file.fd);
			file.fd = -1;
			atomic_store_explicit(&file.is_on, false, memory_order_relaxed);
		}
		at += n > 0 ? (size_t)n : 0;
	}
	file.used = 0;
}

static void append(const void *data, size_t bytes)
{
	const char *from = data;

	while (bytes) {
		size_t n = base_min_u64(bytes, BUFFER_BYTES - file.used);

		memcpy(file.buffer + file.used, from, n);
		file.used += n;
		from += n;
		bytes -= n;
		if (file.used == BUFFER_BYTES)
			flush();
	}
}

void record_put(struct messages_record *r, const void *payload, size_t bytes)
{
	r->thread = self.index;
	r->computed_ns = self.computed_ns;
	self.computed_ns = 0;
	append(r, sizeof *r);
	append(payload, bytes);
}

void record_lost(void) { file.lost++; }

/* ---- start and stop ---------------------------------------------------------------------- */

static int attach(void)
{
	const struct front_abi *own = NULL;

	if (loader_find(&library, &own) != FRONT_ONE || !own)
		return -ENOSYS;
	if (loader_fill(&library) || abi_attach(own->driver, &library))
		return -ENOSYS;
	return 0;
}

static int open_file(int rank)
{
	char path[4096], problems[256];
	int n;

	base_options_load(NULL, problems, sizeof problems);
	if (!base_opt.trace[0])
		return -ENOENT;
	n = snprintf(path, sizeof path, "%s/rank-%d.%d" MESSAGES_SUFFIX, base_opt.trace, rank,
		     getpid());
	if (n < 0 || (size_t)n >= sizeof path)
		return -ENAMETOOLONG;
	file.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	return file.fd < 0 ? -errno : os_file_of(file.fd, &file.of_fd);
}

void record_start(void)
{
	struct messages_header h = { .version = MESSAGES_VERSION,
				     .record_bytes = sizeof(struct messages_record) };
	int ret;

	memcpy(h.magic, MESSAGES_MAGIC, sizeof(h.magic));
	record_lock();
	if (file.pid) {
		record_unlock();
		return;
	}
	file.pid = getpid();
	ret = attach();
	if (!ret && (host.Comm_rank(abi.comm_world, &h.rank) ||
		     host.Comm_size(abi.comm_world, &h.ranks)))
		ret = -EIO;
	if (!ret)
		ret = open_file(h.rank);
	if (ret) {
		errno = -ret;
		base_log(BASE_LOG_ERROR, "record", "messages are not recorded: %m");
	} else {
		append(&h, sizeof h);
		record_comms_start();
		flush();
		file.start_ns = os_now_ns();
		atomic_store_explicit(&file.is_on, true, memory_order_release);
	}
	record_unlock();
}

void record_stop(void)
{
	struct messages_record end = { .type = MESSAGES_END };
	struct messages_record lost = { .type = MESSAGES_LOST };

	record_lock();
	if (atomic_load_explicit(&file.is_on, memory_order_relaxed)) {
		lost.bytes = file.lost;
		if (lost.bytes)
			record_put(&lost, NULL, 0);
		end.bytes = os_now_ns() - file.start_ns;
		record_put(&end, NULL, 0);
		flush();
		atomic_store_explicit(&file.is_on, false, memory_order_relaxed);
		close(file.fd);
		file.fd = -1;
	}
	record_unlock();
}

/* A program that ends without MPI_Finalize leaves what it had recorded. */
__attribute__((destructor))
static void at_exit(void)
{
	if (file.fd >= 0 && file.pid == getpid() && !pthread_mutex_trylock(&file.lock)) {
		flush();
		record_unlock();
	}
}
