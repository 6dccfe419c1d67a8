/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random programs of a few ranks, and what they must leave in memory: a program is a list of steps
 * in an order in which it could be executed one step after the other. Each rank's schedule are its
 * ends of the steps, with requirements wherever two of them touch the same memory, so that every
 * order which the schedules allow gives the same bytes.
 */
#ifndef SLUICE_UNIT_SCHED_PROGRAM_H
#define SLUICE_UNIT_SCHED_PROGRAM_H

#include "sched_case.h"

enum { PROGRAM_STEPS = 60, PROGRAM_CELLS = 12, PROGRAM_RANKS = 9, PROGRAM_TAGS = 2 };

enum step_kind { STEP_MESSAGE, STEP_COPY, STEP_ADD, STEP_MAX, STEP_WAIT, STEP_KINDS };

/* Memory is cut into cells of `cell` bytes: the first half in scratch, the others in the program's
 * buffer. */
struct step {
	enum step_kind kind;
	uint8_t rank, peer;          /* where; message: from rank to peer */
	uint8_t from, from2, to;     /* cells */
	uint8_t tag, pieces_out, pieces_in; /* message: number of pieces of the lists; 0: no list */
	bool any_source;
	uint32_t bytes;              /* STEP_WAIT: nanoseconds during which `to` is not touched */
};

struct program {
	int ranks, steps;
	uint32_t cell;
	struct step step[PROGRAM_STEPS];
};

void program_random(struct program *p, uint64_t *random);
/* Rank's schedule: mem 0 and buffer 0 hold PROGRAM_CELLS / 2 cells each. */
void program_plan(const struct program *p, int rank, struct plan *out);
/* memory[rank]: all its cells, before; replaced by the expected contents. */
void program_execute(const struct program *p, unsigned char **memory);
void program_print(const struct program *p);

#endif
