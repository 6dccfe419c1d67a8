/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * endpoints/: two ranks, which two workers run in turn, and the monitor, which gives the queue from
 * one worker to the other: src/endpoints/switch.c, switch.S and monitor.c. Nobody uses the stack of a
 * rank that another uses, and no rank is forgotten. Rank 0 leaves home twice, rank 1 once; both end at home.
 *
 *   RELEASE_EARLY    the scheduler is free while its worker is on the stack of a rank in the queue
 *   POST_ON_STACK    a rank without the queue offers itself before its worker has left its stack
 *   GIVE_BUSY        the monitor gives the queue away while its owner is inside the scheduler
 *   SLEEP_UNCHECKED  a worker does not look at the inbox once more before it sleeps
 *   GIVE_ONLY        the monitor does not wake the new owner, which sleeps as it had the queue before
 *   CLEAR_ONLY       a worker that does not sleep after all wakes nobody: not the new owner
 */
#define NONE 2 /* no rank */
#define HOME 3 /* uses a stack: 0 nobody, 1 and 2 the workers */
#define TIMES (2 - rank) /* enough for each mutant, and a fifth of the states of 2 and 2 */
#define GIFTS 2

byte owner = 1, user[2], current[3] = NONE;
bool busy, asleep, at_home[2] = true;
bool in_inbox[2], in_queue[2], in_futex[3];

inline use(r, who) { d_step { assert(user[r] == 0); user[r] = who } }
inline wake() { d_step { in_futex[1] = false; in_futex[2] = false } }

inline post(r)
{
	d_step { assert(!in_inbox[r] && !in_queue[r]); in_inbox[r] = true }
	if
	:: asleep -> asleep = false; wake()
	:: else
	fi
}

inline drain()
{
	d_step {
		in_queue[0] = in_queue[0] || in_inbox[0];
		in_queue[1] = in_queue[1] || in_inbox[1];
		in_inbox[0] = false;
		in_inbox[1] = false
	}
}

inline pop(r)
{
	if
	:: in_queue[0] -> in_queue[0] = false; r = 0
	:: in_queue[1] -> in_queue[1] = false; r = 1
	:: !in_queue[0] && !in_queue[1] -> r = NONE
	fi
}

inline enter(got)
{
	d_step {
		got = owner == id && !busy;
		busy = busy || got
	}
}

inline sleep_if_empty()
{
	asleep = true;
	if
#ifndef SLEEP_UNCHECKED
	:: in_inbox[0] || in_inbox[1] || in_queue[0] || in_queue[1] ->
		asleep = false;
#ifndef CLEAR_ONLY
		wake()
#endif
	:: !in_inbox[0] && !in_inbox[1] && !in_queue[0] && !in_queue[1] ->
#else
	:: true ->
#endif
		do
		:: d_step { asleep -> in_futex[id] = true }
end_sleep:		!in_futex[id]
		:: !asleep -> break
		od
	fi
}

proctype worker(byte id)
{
	byte mine = NONE, next = NONE;
	bool got;

loop:	current[id] = NONE;
	enter(got);
	if
	:: !got ->
end_spare:	owner == id;
		goto loop
	:: got
	fi;
	drain();
	pop(next);
	if
	:: next == NONE ->
		busy = false;
		sleep_if_empty();
		goto loop
	:: next != NONE
	fi;
	mine = next;
	current[id] = mine;
	use(mine, id);
	busy = false;
	do
	:: /* the rank yields */
		enter(got);
		if
		:: !got ->
#ifdef POST_ON_STACK
			post(mine);
			user[mine] = 0;
			goto loop
#else
			user[mine] = 0;
			current[id] = NONE;
			post(mine);
			goto loop
#endif
		:: got
		fi;
		drain();
		pop(next);
		if
		:: next == NONE -> busy = false
		:: next != NONE ->
			in_queue[mine] = true;
			current[id] = next;
#ifdef RELEASE_EARLY
			busy = false;
			user[mine] = 0;
			use(next, id);
#else
			user[mine] = 0;
			use(next, id);
			busy = false;
#endif
			mine = next
		fi
	:: /* a system call: its home executes it */
		user[mine] = 0;
		current[id] = NONE;
		at_home[mine] = true;
		goto loop
	od
}

proctype home(byte rank)
{
	byte times = 0;

	do
	:: times < TIMES ->
		at_home[rank];
		use(rank, HOME);
		at_home[rank] = false;
		user[rank] = 0;
		post(rank);
		times++
	:: else -> break
	od;
	at_home[rank];
	use(rank, HOME)
}

proctype monitor()
{
	byte gifts = 0, from;

end:	do
	:: gifts < GIFTS ->
		from = owner;
end_idle:	current[from] != NONE;
		if
#ifdef GIVE_BUSY
		:: d_step { owner == from -> owner = 3 - from; busy = false }
#else
		:: d_step { owner == from && !busy -> owner = 3 - from }
#endif
#ifndef GIVE_ONLY
			asleep = false;
			wake()
#endif
		:: true
		fi;
		gifts++
	:: else -> break
	od
}

init { atomic { run worker(1); run worker(2); run home(0); run home(1); run monitor() } }
