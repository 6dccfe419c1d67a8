/* SPDX-License-Identifier: BSD-3-Clause */
/* How fast an engine copies, beside this CPU, and what page tables cost while it is open. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/base.h"
#include "check.h"

enum { TURNS = 9, CHANGES = 201 };

const size_t check_speed_bytes[CHECK_SPEEDS] = { 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20 };

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t median(uint64_t *ns, size_t n)
{
	qsort(ns, n, sizeof *ns, by_value);
	return ns[n / 2];
}

int check_speeds(struct engine_chan *ch, struct check_copy *copies, char *memory,
		 struct check_speed out[CHECK_SPEEDS])
{
	struct engine_caps caps;

	ch->ops->caps(ch, &caps);
	for (int i = 0; i < CHECK_SPEEDS; i++) {
		uint64_t by_engine[TURNS], by_cpu[TURNS], used[TURNS];
		size_t bytes = check_speed_bytes[i];
		size_t fragment = caps.piece_bytes ? caps.piece_bytes : 256 << 10;
		char *to = memory + check_speed_bytes[CHECK_SPEEDS - 1];

		for (int turn = 0; turn < TURNS; turn++) {
			uint64_t cpu_us = base_cpu_us(), begin_ns = os_now_ns();
			int rc = check_copy(ch, copies, to, memory, bytes, fragment, bytes);

			if (rc)
				return rc;
			by_engine[turn] = os_now_ns() - begin_ns;
			used[turn] = (base_cpu_us() - cpu_us) * 1000;
			begin_ns = os_now_ns();
			os_copy(to, memory, bytes, os_copy_pick(bytes, bytes));
			by_cpu[turn] = os_now_ns() - begin_ns;
		}
		out[i] = (struct check_speed){ bytes, median(by_engine, TURNS), median(used, TURNS),
					       median(by_cpu, TURNS) };
	}
	return 0;
}

void check_tables(size_t bytes, struct check_tables *out)
{
	uint64_t protect[CHANGES], move[CHANGES];
	char *p = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	*out = (struct check_tables){ 0 };
	if (p == MAP_FAILED)
		return;
	for (int i = 0; i < CHANGES; i++) {
		char *from = i % 2 ? p + bytes : p, *to = i % 2 ? p : p + bytes;
		uint64_t begin_ns = os_now_ns();

		mprotect(from, bytes, PROT_READ);
		mprotect(from, bytes, PROT_READ | PROT_WRITE);
		protect[i] = (os_now_ns() - begin_ns) / 2;
		begin_ns = os_now_ns();
		mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
		move[i] = os_now_ns() - begin_ns;
		*(volatile char *)to = 1;
	}
	munmap(p, 2 * bytes);
	out->mprotect_ns = median(protect, CHANGES);
	out->mremap_ns = median(move, CHANGES);
}
