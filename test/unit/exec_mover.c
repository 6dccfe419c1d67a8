/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "exec_mover.h"

struct exec_mortal mover;

static void die_if(int death)
{
	if (mover.death == death && !mover.units--)
		longjmp(mover.grave, 1);
}

static void mover_lock(void *arg)
{
	(void)arg;
	/* between two units it holds nothing: the last has ended */
	mover.locked = true;
}

static void mover_unlock(void *arg)
{
	(void)arg;
	mover.locked = false;
	die_if(DIE_IN_UNIT);
}

static void mover_began(void *arg, uint64_t name, uint64_t bytes)
{
	(void)arg;
	(void)bytes;
	die_if(DIE_BEFORE_WRITING);
	mover.claim = name;
	die_if(DIE_AFTER_WRITING);
}

static void mover_ended(void *arg, uint64_t bytes)
{
	(void)arg;
	die_if(DIE_AFTER_UNIT);
	mover.claim = 0;
	mover.bytes += bytes;
}

void serve_and_die(struct exec_comm *e, struct exec_run *run, int death, int unit,
		   bool *out_whole)
{
	static const _Atomic bool never;
	const struct exec_mover m = { .group = 1,
				      .intent = &mover.intent,
				      .lock = mover_lock,
				      .unlock = mover_unlock,
				      .began = mover_began,
				      .ended = mover_ended,
				      .stop = &never };
	uint64_t intent;

	memset(&mover, 0, sizeof mover);
	mover.death = death;
	mover.units = unit;
	*out_whole = false;
	if (!setjmp(mover.grave))
		*out_whole = exec_serve(e, exec_tag(run), &m);
	intent = atomic_load(&mover.intent);
	if (intent && intent != mover.claim)
		exec_reclaim(e, intent, true);
	if (mover.claim)
		exec_reclaim(e, mover.claim, false);
}
