/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that run ahead and use their slots again: src/exec. Each collective is a broadcast from
 * another root. A leaf's transfer can be moved by the leaf, as soon as the root has published, or by the
 * root, as soon as the leaf has; a rank ends a collective when it finds its transfers done, or its peer
 * in a later one. Two slots a rank and four ranks, so that a rank can be a whole turn ahead of a late one.
 * Mutants: NO_PASSED, NO_PASSED_LEAF (a sender, a receiver waits for the slot of its own collective
 * only), ROOT_WAITS_NOT (a root leaves when it has met its leaves).
 */
#define RANKS 4
#if !defined(SLOTS)
#define SLOTS 2
#endif
#define OPS 5
#define AT(rank, op) ((rank) * SLOTS + (op) % SLOTS)
#define ROOT(op) ((op - 1) % RANKS)

byte slot[RANKS * SLOTS]; /* the collective that it holds; 0 while it is rewritten */
byte done[RANKS * SLOTS]; /* the tag of the transfer that is complete there */
byte now[RANKS];          /* ghost: the collective that a rank is in */

inline send_to(r)
{
	if
#ifdef ROOT_WAITS_NOT
	:: slot[AT(r, op)] == op
#else
	:: slot[AT(r, op)] == op -> (done[AT(r, op)] >= op)
#endif
	:: atomic { slot[AT(r, op)] == op && done[AT(r, op)] < op -> done[AT(r, op)] = op } /* a claim */
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
			if
			:: atomic { slot[AT(ROOT(op), op)] == op && done[AT(me, op)] < op ->
				/* a claim: while it is held the root stays, and what it has published */
				assert(now[ROOT(op)] == op);
				done[AT(me, op)] = op
			   }
			:: done[AT(me, op)] >= op && slot[AT(ROOT(op), op)] == op
#ifndef NO_PASSED_LEAF
			:: slot[AT(ROOT(op), op)] > op -> assert(done[AT(me, op)] >= op)
#endif
			fi
		fi;
		op++
	od;
	now[me] = OPS + 1
}

init { atomic { run rank(0); run rank(1); run rank(2); run rank(3) } }
