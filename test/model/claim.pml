/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transfer that is claimed fragment by fragment, in two collectives that use it one after the
 * other: src/xfer/protocol.c. Each atomic operation is a step. Mutants: BLIND_CLAIM (a claim does
 * not compare), NO_TAG (nor look whose the cursor is), REOPEN_EARLY (the receiver waits for claims
 * only), DONE_LAST (the cursor is opened before the count).
 */
#define MOVERS 2
#define COLLECTIVES 2
#define FRAGMENTS(tag) (tag + 1) /* two, then three */
#define TOTAL(tag) (FRAGMENTS(tag) + 1)
#define MAX 4

byte cursor_tag, cursor, done_tag, done, published;
/* ghosts */
byte open_tag, held, copied[MAX], completed;

inline claim(tag, i)
{
	byte seen_tag, seen;
	i = MAX;
	atomic { seen_tag = cursor_tag; seen = cursor; }
	do
#ifdef NO_TAG
	:: seen < FRAGMENTS(tag) ->
#else
	:: seen_tag == tag && seen < FRAGMENTS(tag) ->
#endif
		atomic {
			if
#ifdef BLIND_CLAIM
			:: true -> cursor = seen + 1; i = seen; break
#else
			:: cursor_tag == seen_tag && cursor == seen -> cursor++; i = seen; break
			:: else -> seen_tag = cursor_tag; seen = cursor
#endif
			fi
		}
	:: else -> break
	od
}

inline complete(tag)
{
	d_step {
		done++;
		if
		:: done == TOTAL(tag) -> completed++
		:: else
		fi
	}
}

inline copy(tag, i)
{
	d_step {
		assert(open_tag == tag); /* or it belongs to another collective */
		assert(i < FRAGMENTS(tag) && copied[i] == 0);
		held++;
	}
	d_step { copied[i]++; held-- }
}

inline move_all(tag)
{
	byte i;
	do
	:: claim(tag, i);
		if
		:: i == MAX -> break
		:: else -> copy(tag, i); complete(tag)
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
	d_step { cursor_tag = tag; cursor = 0 }
	d_step { done_tag = tag; done = 0 }
#else
	d_step { done_tag = tag; done = 0 }
	d_step { cursor_tag = tag; cursor = 0 }
#endif
	published = tag
}

active proctype receiver()
{
	byte tag = 1, k;
	do
	:: tag > COLLECTIVES -> break
	:: else ->
		open(tag);
		complete(tag); /* the edges */
		move_all(tag);
#ifdef REOPEN_EARLY
		(cursor == FRAGMENTS(tag));
#else
		(done_tag == tag && done == TOTAL(tag));
#endif
		d_step {
			k = 0;
			do
			:: k < FRAGMENTS(tag) -> assert(copied[k] == 1); k++
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
	byte tag = 1;
	do
	:: tag > COLLECTIVES -> break
	:: else ->
#ifndef DONE_LAST /* shows with movers only that do not wait for the slot */
		(published >= tag);
#endif
		move_all(tag);
		tag++
	od
}
