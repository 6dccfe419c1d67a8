/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that sleeps and one that rings it: src/node/wait.c, on a machine that keeps a store back
 * for any time (total store order). No sleep has a limit here: a lost wake-up is a deadlock.
 * Mutants: NO_FENCE_SLEEPER, NO_FENCE_RINGER, RING_FIRST, NO_LAST_LOOK.
 */
#define ITEMS 3

byte item;      /* what was published, as memory has it */
bool sleeping;
byte bell;
bool asleep;    /* in the futex */
/* stores that are not yet in memory */
bool item_kept, sleeping_kept, sleeping_value;
byte item_value;

/* A store lands at any time; also the next store to the same place waits for the one before. */
active proctype memory()
{
end:	do
	:: atomic { item_kept -> item = item_value; item_kept = false }
	:: atomic { sleeping_kept -> sleeping = sleeping_value; sleeping_kept = false }
	od
}

inline store_sleeping(value)
{
	atomic { !sleeping_kept -> sleeping_value = value; sleeping_kept = true }
}

inline store_item(value) { atomic { !item_kept -> item_value = value; item_kept = true } }

active proctype sleeper()
{
	byte seen = 0, heard;
	bool armed = false;
	do
	:: seen == ITEMS -> break
	:: else ->
		if
		:: item != seen ->
			seen = item;
			if
			:: armed -> store_sleeping(false); armed = false
			:: else
			fi
		:: item == seen && !armed ->
			heard = bell;
			store_sleeping(true);
#ifndef NO_FENCE_SLEEPER
			(!sleeping_kept);
#endif
			armed = true;
#ifdef NO_LAST_LOOK
			goto sleep
#endif
		:: item == seen && armed ->
#ifdef NO_LAST_LOOK
sleep:
#endif
			atomic {
				if
				:: bell == heard -> asleep = true
				:: else
				fi
			};
			(!asleep);
			store_sleeping(false);
			armed = false
		fi
	od
}

inline ring()
{
#ifndef NO_FENCE_RINGER
	(!item_kept);
#endif
	if
	:: sleeping -> atomic { bell++; }; atomic { asleep = false }
	:: else
	fi
}

active proctype ringer()
{
	byte n = 0;
	do
	:: n == ITEMS -> break
	:: else ->
		n++;
#ifdef RING_FIRST
		ring();
		store_item(n)
#else
		store_item(n);
		ring()
#endif
	od
}
