/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs without MPI: a few forked processes, and what the runtime otherwise borrows from MPI (an
 * allgather, a minimum) over memory they share.
 *
 *   static void body(struct ranks *r) { ... rt_comm_create(&r->oob, &c) ... CHECK(...) ... }
 *   ranks_run(4, (char *[]){ "SLUICE_REGION_KIND=cma", NULL }, body, NULL);
 *
 * ranks_text holds the stderr of the ranks, and is printed only when a rank fails.
 */
#ifndef SLUICE_UNIT_RANKS_H
#define SLUICE_UNIT_RANKS_H

#include "rt/rt.h"
#include "unit.h"

enum { RANKS_MAX = 16, RANKS_GATHER_BYTES = 4096, RANKS_LIMIT_S = 30 };

struct ranks_shared;
struct ranks {
	int rank, size;
	struct node_oob oob;
	void *arg;
	_Atomic uint64_t *words; /* 64 zeroed words that all ranks share */
	int *pids;               /* by rank */
	struct ranks_shared *shared;
};

extern char ranks_text[16384];

/* Run `body` in n processes with these options; CHECKs that all of them succeed in RANKS_LIMIT_S.
 */
void ranks_run(int n, char *const *options, void (*body)(struct ranks *r), void *arg);
/* ranks_run() for jobs in which ranks die: out_status[n] has exit codes, 128 + signal, or 256 for a
 * rank that had to be ended after the limit. */
void ranks_run_any(int n, char *const *options, void (*body)(struct ranks *r), void *arg,
		   int *out_status);

/* A second job among the ranks whose bits are in `members`, with its own oob and words, for another
 * communicator; each number (1 .. RANKS_CHANNELS - 1) is used for one set of members only. */
enum { RANKS_CHANNELS = 4 };
void ranks_channel(const struct ranks *r, int number, unsigned members, struct ranks *out);
/* Other options for this rank than for the job. */
void ranks_options(char *const *options);

/* node_announce() in all ranks, as of a job whose launcher tells each its number. */
void ranks_announce(struct ranks *r);
void ranks_barrier(struct ranks *r);
/* Like those of MPI, over the ranks of a job; a rank that died is not waited for by anyone: the
 * caller ends (exit code 3) after some seconds. */
int ranks_allgather(void *ctx, const void *in, size_t bytes, void *out);
int ranks_allreduce_min(void *ctx, int64_t in, int64_t *out);

/* A generator that all ranks run in step. */
uint64_t ranks_random(uint64_t *state);
static inline uint64_t ranks_below(uint64_t *state, uint64_t n)
{
	return ranks_random(state) % n;
}

#endif
