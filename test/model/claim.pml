/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transfer whose units are claimed bit by bit, in two collectives that use it one after the other:
 * src/xfer/protocol.c. Each atomic operation is a step. The last unit are the edges: anybody's. Movers
 * begin where they like, and may give a unit back once they have written some of it.
 * Mutants: BLIND_CLAIM (a claim does not compare), NO_TAG (nor look whose the bits are), REOPEN_EARLY
 * (the receiver waits for claims only), DONE_LAST (the claims are opened before what is done),
 * NO_EDGES (the total leaves out the edges), UNCLAIM_EARLY (a unit is given back while it is written).
 */
#define MOVERS 2
#define COLLECTIVES 2
#define UNITS(tag) (tag + 1) /* a fragment and the edges, then two */
#ifdef NO_EDGES
#define TOTAL(tag) ((1 << tag) - 1)
#else
#define TOTAL(tag) ((1 << UNITS(tag)) - 1)
#endif
#define ALL(tag) ((1 << UNITS(tag)) - 1)
#define MAX 3

byte taken_tag, taken, done_tag, done, published;
/* ghosts */
byte open_tag, held, owner[MAX], copied[MAX], completed;

inline claim(tag, i)
{
	byte seen_tag, seen;
	i = MAX;
	atomic { seen_tag = taken_tag; seen = taken; }
	do
#ifdef NO_TAG
	:: (seen & ALL(tag)) != ALL(tag) ->
#else
	:: seen_tag == tag && (seen & ALL(tag)) != ALL(tag) ->
#endif
		atomic {
			/* any free unit: movers begin at different ones */
			if
			:: !(seen & 1) -> i = 0
			:: UNITS(tag) > 1 && !(seen & 2) -> i = 1
			:: UNITS(tag) > 2 && !(seen & 4) -> i = 2
			fi;
			if
#ifdef BLIND_CLAIM
			:: true -> taken = seen | (1 << i); break
#else
			:: taken_tag == seen_tag && taken == seen -> taken = taken | (1 << i); break
			:: else -> seen_tag = taken_tag; seen = taken; i = MAX
#endif
			fi
		}
	:: else -> break
	od
}

inline complete(tag, i)
{
	d_step {
		if
		:: (done & TOTAL(tag)) != TOTAL(tag) && ((done | (1 << i)) & TOTAL(tag)) == TOTAL(tag) ->
			completed++
		:: else
		fi;
		done = done | (1 << i)
	}
}

inline begin_copy(tag, i)
{
	d_step {
		assert(open_tag == tag); /* or it belongs to another collective */
		assert(i < UNITS(tag) && copied[i] == 0 && owner[i] == 0);
		owner[i]++;
		held++;
	}
}

inline let_go(i) { d_step { owner[i]--; held-- } }

inline give_back(i)
{
#ifdef UNCLAIM_EARLY
	taken = taken & (7 - (1 << i));
	let_go(i)
#else
	let_go(i);
	taken = taken & (7 - (1 << i))
#endif
}

inline move_all(tag, gives)
{
	byte i;
	do
	:: claim(tag, i);
		if
		:: i == MAX -> break
		:: i != MAX ->
			begin_copy(tag, i);
			if
			:: gives > 0 -> gives--; give_back(i)
			:: d_step { copied[i]++; owner[i]--; held-- }; complete(tag, i)
			fi
		fi
	od
}

inline open(tag)
{
	d_step {
		assert(held == 0);
		open_tag = tag;
		copied[0] = 0; copied[1] = 0; copied[2] = 0;
		completed = 0;
	}
#ifdef DONE_LAST
	d_step { taken_tag = tag; taken = 0 }
	d_step { done_tag = tag; done = 0 }
#else
	d_step { done_tag = tag; done = 0 }
	d_step { taken_tag = tag; taken = 0 }
#endif
	published = tag
}

active proctype receiver()
{
	byte tag = 1, k, gives = 0;
	do
	:: tag > COLLECTIVES -> break
	:: else ->
		open(tag);
		/* again and again: a unit may come back when all were taken */
		do
#ifdef REOPEN_EARLY
		:: (taken & ALL(tag)) == ALL(tag) -> break
#else
		:: done_tag == tag && (done & TOTAL(tag)) == TOTAL(tag) -> break
#endif
		:: (taken & ALL(tag)) != ALL(tag) -> move_all(tag, gives)
		od;
		k = 0;
		d_step {
			do
			:: k < UNITS(tag) -> assert(copied[k] == 1); k++
			:: else -> break
			od;
			assert(completed == 1);
			tag++
		}
	od
}

/* Starts with any collective, as late as it likes, and does not mind that it is over. */
active [MOVERS] proctype mover()
{
	byte tag = 1, gives;
	do
	:: tag > COLLECTIVES -> break
	:: else ->
#ifndef DONE_LAST /* shows with movers only that do not wait for the slot */
		(published >= tag);
#endif
		gives = 1;
		move_all(tag, gives);
		tag++
	od
}
