/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that run ahead and use their slots again: src/exec. Each collective is a broadcast from
 * another root. A leaf receives as soon as the root has published, alone; a root looks for each
 * leaf's slot, then waits for its transfer, or finds that the leaf has passed on. Two slots a rank
 * and four ranks, so that a leaf can be a whole turn ahead of a late root.
 * Mutant: NO_PASSED (a sender waits for the slot of its own collective only).
 */
#define RANKS 4
#define SLOTS 2
#define OPS 5
#define AT(rank, op) ((rank) * SLOTS + (op) % SLOTS)
#define ROOT(op) ((op - 1) % RANKS)

byte slot[RANKS * SLOTS]; /* the collective that it holds; 0 while it is rewritten */
byte done[RANKS * SLOTS]; /* the tag of the transfer that is complete there */
byte now[RANKS];          /* ghost: the collective that a rank is in */

inline send_to(r)
{
	if
	:: slot[AT(r, op)] == op -> (done[AT(r, op)] >= op)
#ifndef NO_PASSED
	:: slot[AT(r, op)] > op
#endif
	fi
}

proctype rank(byte me)
{
	byte op = 1, r;
	do
	:: op > OPS -> break
	:: else ->
		now[me] = op;
		slot[AT(me, op)] = 0;
		slot[AT(me, op)] = op;
		if
		:: me == ROOT(op) ->
			r = 0;
			do
			:: r == RANKS -> break
			:: r == me -> r++
			:: r < RANKS && r != me -> send_to(r); r++
			od
		:: else ->
			(slot[AT(ROOT(op), op)] == op);
			/* the root cannot leave before: what it has published is still there */
			assert(now[ROOT(op)] == op);
			done[AT(me, op)] = op
		fi;
		op++
	od;
	now[me] = OPS + 1
}

init { atomic { run rank(0); run rank(1); run rank(2); run rank(3) } }
