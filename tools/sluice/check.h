/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check: the data of `sluice check`.
 *
 *   check.c          a program
 *   check_engine.c   a copy engine: copies, and compares every byte
 *   check_copy.c     one copy of it, waited for
 *   check_speed.c    its times; bench/engine_bench.c has more of them
 */
#ifndef SLUICE_TOOL_CHECK_H
#define SLUICE_TOOL_CHECK_H

#include "engine/engine.h"

/* Checks a copy engine, and prints what was found. Returns: an exit code. */
int check_engine(const struct engine_ops *ops, bool json);

/* A copy, or the part of a longer one. */
struct check_copy {
	struct engine_copy c;
	_Atomic int ends;
	int result;
};

/* Posts a part of a transfer of `total` bytes. Returns: as engine_post(). */
int check_post(struct engine_chan *ch, struct check_copy *c, char *dst, const char *src,
	       size_t bytes, size_t total);
/* Waits for n copies. Returns: 0 or -ETIME, after which the channel is retired. */
int check_wait(struct engine_chan *ch, struct check_copy *copies, size_t n);
/* Returns: 0, or the result of the first of n ended copies that failed. */
int check_result(const struct check_copy *copies, size_t n);
/*
 * Copies bytes by a channel, in fragments of at most `fragment` bytes, and waits. copies: [depth]
 * of the channel; total: bytes of the transfer, for the engine's choice. Returns: 0; the result of
 * a copy that failed; -ETIME: it did not end in seconds, and the channel is retired.
 */
int check_copy(struct engine_chan *ch, struct check_copy *copies, char *dst, const char *src,
	       size_t bytes, size_t fragment, size_t total);

/* Times of one length, in ns: the median of several. */
struct check_speed {
	uint64_t bytes, engine_ns, cpu_ns, memcpy_ns;
};
/* The cost of a change of page tables, which a device with the process's page tables follows: the
 * median of several. */
struct check_tables {
	uint64_t mprotect_ns, mremap_ns;
};

enum { CHECK_SPEEDS = 5 };
/* Returns: 0 or -errno. memory: of the largest length, twice. */
int check_speeds(struct engine_chan *ch, struct check_copy *copies, char *memory,
		 struct check_speed out[CHECK_SPEEDS]);
extern const size_t check_speed_bytes[CHECK_SPEEDS];
void check_tables(size_t bytes, struct check_tables *out);

#endif
