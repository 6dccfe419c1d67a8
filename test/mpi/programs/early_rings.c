/* SPDX-License-Identifier: BSD-3-Clause */
/* io_uring and the kernel's AIO: the kernel finds the buffer of a collective in a structure of its
 * own. */
#include "early.h"

#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <sys/syscall.h>

struct ring {
	int fd;
	struct io_uring_params p;
	char *sq, *cq;
	struct io_uring_sqe *sqes;
	size_t sq_bytes, cq_bytes, sqes_bytes;
};

static bool ring_open(struct ring *r, unsigned flags)
{
	memset(r, 0, sizeof(*r));
	r->p.flags = flags;
	r->fd = (int)syscall(SYS_io_uring_setup, 8, &r->p);
	if (r->fd < 0)
		return false;
	r->sq_bytes = r->p.sq_off.array + r->p.sq_entries * 4;
	r->cq_bytes = r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe);
	r->sqes_bytes = r->p.sq_entries * sizeof(struct io_uring_sqe);
	r->sq = mmap(NULL, r->sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		     IORING_OFF_SQ_RING);
	r->cq = mmap(NULL, r->cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		     IORING_OFF_CQ_RING);
	r->sqes = mmap(NULL, r->sqes_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		       IORING_OFF_SQES);
	return r->sq != MAP_FAILED && r->cq != MAP_FAILED && r->sqes != MAP_FAILED;
}

static void ring_close(struct ring *r)
{
	munmap(r->sq, r->sq_bytes);
	munmap(r->cq, r->cq_bytes);
	munmap(r->sqes, r->sqes_bytes);
	close(r->fd);
}

static _Atomic unsigned *word(char *ring, unsigned offset)
{
	return (_Atomic unsigned *)(ring + offset);
}

/* One operation, waited for; its result. */
static int ring_do(struct ring *r, int op, int fd, void *buf, size_t bytes)
{
	unsigned mask = *word(r->sq, r->p.sq_off.ring_mask);
	unsigned tail = *word(r->sq, r->p.sq_off.tail), head = *word(r->cq, r->p.cq_off.head);
	struct io_uring_sqe *e = &r->sqes[tail & mask];
	struct io_uring_cqe *cqes = (void *)(r->cq + r->p.cq_off.cqes);
	bool polled = r->p.flags & IORING_SETUP_SQPOLL;
	int res;

	memset(e, 0, sizeof(*e));
	e->opcode = (uint8_t)op;
	e->fd = fd;
	e->addr = (uintptr_t)buf;
	e->len = (uint32_t)bytes;
	*word(r->sq, r->p.sq_off.array + 4 * (tail & mask)) = tail & mask;
	atomic_store_explicit(word(r->sq, r->p.sq_off.tail), tail + 1, memory_order_release);
	if (!polled || *word(r->sq, r->p.sq_off.flags) & IORING_SQ_NEED_WAKEUP)
		syscall(SYS_io_uring_enter, r->fd, polled ? 0 : 1, polled ? 0 : 1,
			polled ? IORING_ENTER_SQ_WAKEUP : IORING_ENTER_GETEVENTS, NULL, 0);
	while (atomic_load_explicit(word(r->cq, r->p.cq_off.tail), memory_order_acquire) == head)
		early_sleep_us(50);
	res = cqes[head & *word(r->cq, r->p.cq_off.ring_mask)].res;
	atomic_store_explicit(word(r->cq, r->p.cq_off.head), head + 1, memory_order_release);
	return res;
}

static struct ring ring;

static void moved(struct trial *t, const char *how, long got)
{
	if (got != (long)t->bytes)
		check_fail("trial %d: %s: %ld of %zu bytes: %s", t->index, how, got, t->bytes,
			   got < 0 ? strerror((int)-got) : "");
}

static void by_ring(struct trial *t)
{
	int fd = memfd_create("ring", 0);
	char *got = check_alloc(t->bytes);

	moved(t, "IORING_OP_WRITE", ring_do(&ring, IORING_OP_WRITE, fd, t->buf, t->bytes));
	EXPECT(pread(fd, got, t->bytes, 0) == (ssize_t)t->bytes);
	early_same(t, got, t->want, t->bytes, "written by io_uring");
	check_fill(t->want, t->bytes, check_seed(70, t->index));
	EXPECT(pwrite(fd, t->want, t->bytes, 0) == (ssize_t)t->bytes);
	moved(t, "IORING_OP_READ", ring_do(&ring, IORING_OP_READ, fd, t->buf, t->bytes));
	free(got);
	close(fd);
}

static void by_ring_into(struct trial *t)
{
	int fd = memfd_create("ring", 0);

	check_fill(t->want, t->bytes, check_seed(71, t->index));
	EXPECT(pwrite(fd, t->want, t->bytes, 0) == (ssize_t)t->bytes);
	moved(t, "IORING_OP_READ", ring_do(&ring, IORING_OP_READ, fd, t->buf, t->bytes));
	close(fd);
}

/* All ranks have one, or none. */
static bool all_have(bool mine)
{
	int have = mine, all;

	MPI_Allreduce(&have, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	if (!all)
		check_skip("the kernel does not offer it");
	return all;
}

BEHAVIOUR(io_uring, 2)
{
	bool mine = ring_open(&ring, 0);

	if (all_have(mine)) {
		early_trials(by_ring);
		early_trials(by_ring_into);
	}
	if (mine)
		ring_close(&ring);
}

/* A kernel thread looks for work, without any system call of the program: userfaultfd only. */
BEHAVIOUR(io_uring_polled_by_the_kernel, 2)
{
	bool mine;

	if (!check_env("HARNESS_FOREIGN", 1)) {
		check_skip("this guard cannot see what a kernel thread does");
		return;
	}
	mine = ring_open(&ring, IORING_SETUP_SQPOLL);
	if (all_have(mine)) {
		early_trials(by_ring);
		early_trials(by_ring_into);
	}
	if (mine)
		ring_close(&ring);
}

static aio_context_t context;

static void by_aio(struct trial *t)
{
	struct iocb one = { .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = 0,
			    .aio_buf = (uintptr_t)t->buf, .aio_nbytes = t->bytes }, *list = &one;
	char *got = check_alloc(t->bytes);
	int fd = memfd_create("aio", 0);
	struct io_event event;

	one.aio_fildes = (uint32_t)fd;
	EXPECT(syscall(SYS_io_submit, context, 1, &list) == 1);
	EXPECT(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1);
	moved(t, "IOCB_CMD_PWRITE", (long)event.res);
	EXPECT(pread(fd, got, t->bytes, 0) == (ssize_t)t->bytes);
	early_same(t, got, t->want, t->bytes, "written by AIO");
	free(got);
	close(fd);
}

static void by_aio_into(struct trial *t)
{
	struct iocb one = { .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uintptr_t)t->buf,
			    .aio_nbytes = t->bytes }, *list = &one;
	int fd = memfd_create("aio", 0);
	struct io_event event;

	check_fill(t->want, t->bytes, check_seed(72, t->index));
	EXPECT(pwrite(fd, t->want, t->bytes, 0) == (ssize_t)t->bytes);
	one.aio_fildes = (uint32_t)fd;
	EXPECT(syscall(SYS_io_submit, context, 1, &list) == 1);
	EXPECT(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1);
	moved(t, "IOCB_CMD_PREAD", (long)event.res);
	close(fd);
}

BEHAVIOUR(kernel_aio, 2)
{
	bool mine = !syscall(SYS_io_setup, 8, &context);

	if (all_have(mine)) {
		early_trials(by_aio);
		early_trials(by_aio_into);
	}
	if (mine)
		syscall(SYS_io_destroy, context);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
