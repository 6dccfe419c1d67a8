/* SPDX-License-Identifier: BSD-3-Clause */
/* Helpers of the tests of message/. */
#ifndef SLUICE_TEST_UNIT_MESSAGE_CASE_H
#define SLUICE_TEST_UNIT_MESSAGE_CASE_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "message/message.h"
#include "node/node.h"
#include "ranks.h"
#include "region/region.h"

#define OPTIONS(...) ((char *const[]){ __VA_ARGS__, NULL })
enum { MIB = 1 << 20 };

static int real_calls;

static inline ssize_t count_real(pid_t pid, const struct iovec *l, unsigned long n,
				 const struct iovec *r, unsigned long m, unsigned long flags)
{
	real_calls++;
	return process_vm_readv(pid, l, n, r, m, flags);
}

static inline ssize_t read_vectors(int pid, const struct iovec *l, int n, const struct iovec *r,
				   int m)
{
	struct message_read call = { .pid = pid, .local = l, .locals = (unsigned)n, .remote = r,
				     .remotes = (unsigned)m, .real = count_real };

	return message_read(&call);
}

static inline ssize_t read_one(int pid, void *to, uintptr_t from, size_t bytes)
{
	struct iovec l = { to, bytes }, r = { (void *)from, bytes };

	return read_vectors(pid, &l, 1, &r, 1);
}

/* Rank 0 owns memory and tells its address; the others read. */
static inline void announce_only(struct ranks *r)
{
	ranks_announce(r);
	message_begin();
	ranks_barrier(r);
}

/* The job has had messages: peers are known, and copies get pages. */
static inline void announce(struct ranks *r)
{
	announce_only(r);
	for (int i = 0; i < r->size; i++)
		node_header_of(r->pids[i], true);
	if (base_opt.region_adopt_after < 0)
		atomic_store(&node_header_self()->private_bytes, 1 << 30);
	ranks_barrier(r);
}

static inline uint8_t byte_at(size_t i) { return (uint8_t)(i * 7 + i / 251); }

static inline char *pages(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	for (size_t i = 0; i < bytes; i++)
		p[i] = (char)byte_at(i);
	return p;
}

static inline bool is_mapped(const void *p, size_t bytes)
{
	struct region_desc d;
	bool is;

	region_describe(p, bytes, REGION_FORCE, &d);
	is = d.flags & REGION_DESC_MAPPED;
	region_release(&d);
	return is;
}

/* So that the copies of this process pay, whatever reads of this machine take. */
static inline void price_kernel(uint32_t ps)
{
	struct node_header *h = node_header_self();

	for (size_t i = 0; i < BASE_ARRAY_LEN(h->kernel_ps); i++)
		atomic_store(&h->kernel_ps[i], ps);
}

static inline void tell(struct ranks *r, const void *p)
{
	atomic_store(&r->words[0], (uintptr_t)p);
}

/* As announce(). Returns: the address of a MiB of rank 0. */
static inline char *announce_mib(struct ranks *r)
{
	announce(r);
	if (!r->rank)
		tell(r, pages(MIB));
	ranks_barrier(r);
	return (char *)atomic_load(&r->words[0]);
}

#endif
