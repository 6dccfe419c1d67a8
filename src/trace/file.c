/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mapped file and its chunks. A store to a mapped page for which the disk has no space kills
 * the process. So a call that can fail allocates the blocks of each chunk before anything is
 * written.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sluice/sluice.h"
#include "trace/private.h"

struct trace_file trace_file = { .fd = -1 };

void file_read_clocks(uint64_t *out_ticks, uint64_t *out_ns)
{
	uint64_t shortest = UINT64_MAX;

	for (int i = 0; i < 3; i++) { /* the thread may lose its CPU between the two reads */
		uint64_t ticks = trace_ticks(), ns = os_now_ns(), after = trace_ticks();

		if (after - ticks >= shortest)
			continue;
		shortest = after - ticks;
		*out_ticks = ticks + (after - ticks) / 2;
		*out_ns = ns;
	}
}

/* For file systems that cannot allocate blocks. */
static int fill_with_zeros(uint64_t at, uint64_t bytes)
{
	static const char zeros[4096];

	for (uint64_t end = at + bytes; at < end;) {
		long n = syscall(SYS_pwrite64, trace_file.fd, zeros,
				 base_min_u64(sizeof zeros, end - at), at);

		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? (uint64_t)n : 0;
	}
	return 0;
}

static int allocate(uint64_t at, uint64_t bytes)
{
	long rc;

	if (!os_file_is_at(&trace_file.file, trace_file.fd)) /* the program has closed it */
		return -EBADF;
	do {
		rc = base_fault("trace_full") ? (errno = ENOSPC, -1) :
						syscall(SYS_fallocate, trace_file.fd, 0, at, bytes);
	} while (rc && errno == EINTR);
	if (!rc)
		return 0;
	return errno == EOPNOTSUPP || errno == ENOSYS ? fill_with_zeros(at, bytes) : -errno;
}

static void start_chunk(struct trace_chunk *c, enum trace_chunk_kind kind, uint32_t thread,
			uint32_t turn)
{
	c->thread = thread;
	c->turn = turn;
	c->next = 0;
	file_read_clocks(&c->ticks, &c->ns);
	syscall(SYS_prctl, PR_GET_NAME, c->name, 0, 0, 0);
	atomic_store_explicit(&c->kind, (uint32_t)kind, memory_order_release);
}

uint32_t file_claim_chunk(enum trace_chunk_kind kind, uint32_t thread, uint32_t turn)
{
	struct trace_header *h = file_header();
	uint32_t i, error = 0;
	int ret;

	if (atomic_load_explicit(&h->error, memory_order_relaxed) ||
	    atomic_load_explicit(&h->chunk_next, memory_order_relaxed) >= h->chunk_cap)
		return 0;
	i = atomic_fetch_add_explicit(&h->chunk_next, 1, memory_order_relaxed);
	if (i >= h->chunk_cap)
		return 0;
	ret = allocate(TRACE_HEADER_BYTES + (uint64_t)i * TRACE_CHUNK_BYTES, TRACE_CHUNK_BYTES);
	if (ret) {
		if (atomic_compare_exchange_strong_explicit(&h->error, &error, (uint32_t)-ret,
							    memory_order_relaxed,
							    memory_order_relaxed))
			base_log(BASE_LOG_ERROR, "trace", "%s: the trace of this rank ends here",
				 ret == -ENOSPC   ? "no space is left on the disk"
				 : ret == -EDQUOT ? "the disk quota is used up"
				 : ret == -EBADF  ? "the program has closed its file"
						  : "its file cannot grow");
		return 0;
	}
	os_populate(file_chunk(i), TRACE_CHUNK_BYTES);
	start_chunk(file_chunk(i), kind, thread, turn);
	return i + 1;
}

static uint32_t repeats_in(const struct trace_repeats *r)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < TRACE_REPEATS_PER_RECORD; i++)
		n += atomic_load_explicit(&r->each[i], memory_order_relaxed) != 0;
	return n;
}

static uint32_t records_in(struct trace_chunk *c)
{
	const struct trace_record *r = chunk_records(c);
	uint32_t n = 0;

	for (uint32_t i = 0; i < TRACE_RECORDS_PER_CHUNK; i++) {
		uint8_t type = atomic_load_explicit(&r[i].type, memory_order_relaxed);

		if (type == TRACE_REPEATS)
			n += repeats_in((const struct trace_repeats *)&r[i]);
		else
			n += type != TRACE_NOTHING && type != TRACE_TEMPLATE;
	}
	return n;
}

void file_renew_chunk(struct trace_chunk *c, uint32_t turn)
{
	atomic_fetch_add_explicit(&file_header()->overwritten, records_in(c), memory_order_relaxed);
	atomic_store_explicit(&c->kind, TRACE_CHUNK_FREE, memory_order_relaxed);
	memset(chunk_records(c), 0, TRACE_CHUNK_BYTES - sizeof *c);
	start_chunk(c, TRACE_CHUNK_RECORDS, c->thread, turn);
}

/* ---- opening ----------------------------------------------------------------------------- */

static void describe_process(struct trace_header *h)
{
	struct timespec now;
	ssize_t n = readlink("/proc/self/exe", h->program, sizeof h->program - 1);

	h->program[n > 0 ? n : 0] = 0;
	gethostname(h->host, sizeof h->host - 1);
	snprintf(h->made_by, sizeof h->made_by, "sluice " SLUICE_VERSION);
	clock_gettime(CLOCK_REALTIME, &now);
	h->start_realtime_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	file_read_clocks(&h->start_ticks, &h->start_ns);
}

static int create(const char *path)
{
	uint64_t chunks = (base_opt.trace_limit_bytes - TRACE_HEADER_BYTES) / TRACE_CHUNK_BYTES;
	uint64_t bytes = TRACE_HEADER_BYTES + chunks * TRACE_CHUNK_BYTES;
	struct trace_header *h;
	void *base;
	int ret;

	trace_file.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (trace_file.fd < 0)
		return -errno;
	ret = os_file_of(trace_file.fd, &trace_file.file);
	if (!ret)
		ret = ftruncate(trace_file.fd, (off_t)bytes) ? -errno :
		      allocate(0, TRACE_HEADER_BYTES);
	if (ret)
		goto remove;
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, trace_file.fd, 0);
	if (base == MAP_FAILED) {
		ret = -errno;
		goto remove;
	}
	trace_file.base = base;
	madvise(base, bytes, MADV_DONTFORK); /* a child does not trace */
	h = base;
	h->version = TRACE_VERSION;
	h->header_bytes = TRACE_HEADER_BYTES;
	h->chunk_cap = (uint32_t)chunks;
	h->pid = getpid();
	return 0;
remove:
	unlink(path);
	close(trace_file.fd);
	trace_file.fd = -1;
	return ret;
}

int file_open(int rank)
{
	char path[4096];
	int n, ret;

	if (rank >= 0)
		n = snprintf(path, sizeof path, "%s/rank-%d.%d.sluice", base_opt.trace, rank,
			     getpid());
	else
		n = snprintf(path, sizeof path, "%s/process.%d.sluice", base_opt.trace, getpid());
	ret = n < 0 || (size_t)n >= sizeof path ? -ENAMETOOLONG : create(path);
	if (ret) {
		errno = -ret;
		base_log(BASE_LOG_ERROR, "trace", "cannot write %s: %m; nothing is traced", path);
		return ret;
	}
	file_header()->rank = rank;
	describe_process(file_header());
	memcpy(file_header()->magic, TRACE_MAGIC, sizeof file_header()->magic);
	return 0;
}
