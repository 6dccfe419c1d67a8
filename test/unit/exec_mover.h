/* SPDX-License-Identifier: BSD-3-Clause */
/* A mover that may be killed at any step, played by a rank. */
#ifndef SLUICE_UNIT_EXEC_MOVER_H
#define SLUICE_UNIT_EXEC_MOVER_H

#include <setjmp.h>

#include "exec/exec.h"

enum { DIE_NEVER, DIE_BEFORE_WRITING, DIE_AFTER_WRITING, DIE_IN_UNIT, DIE_AFTER_UNIT, DEATHS };

struct exec_mortal {
	int death, units;      /* how it dies, and at which unit from the end of counting */
	_Atomic uint64_t intent;
	uint64_t claim, bytes; /* what it has written down, and moved */
	bool locked;
	jmp_buf grave;
};
extern struct exec_mortal mover;

/*
 * The mover serves the collective of the run and dies; this rank then reclaims its units.
 * *out_whole: what exec_serve() has returned; false: it died.
 */
void serve_and_die(struct exec_comm *e, struct exec_run *run, int death, int unit,
		   bool *out_whole);

#endif
