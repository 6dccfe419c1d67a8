/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * endpoints/: two ranks, which two workers run in turn. The monitor gives the queue from one worker to
 * the other, and a worker that watches takes it: src/endpoints/switch.c, switch.S and monitor.c. Nobody
 * uses the stack of a rank that another uses, and no rank is forgotten. Each rank leaves home once and
 * ends there: enough for each mutant.
 *
 *   RELEASE_EARLY    the scheduler is free while its worker is on the stack of a rank in the queue
 *   POST_ON_STACK    a rank without the queue offers itself before its worker has left its stack
 *   GIVE_BUSY        the monitor gives the queue away while its owner is inside the scheduler
 *   TAKE_BUSY        a worker that watches takes the queue while its owner is inside the scheduler
 *   SLEEP_UNCHECKED  a worker does not look at the inbox once more before it sleeps
 *   SLEEP_RELEASED   it releases the queue before it looks: another owner may be the one to wake
 */
#define NONE 2 /* no rank */
#define HOME 3 /* uses a stack: 0 nobody, 1 and 2 the workers */
#define TIMES 1
#define GIFTS 1
#define TAKES 1

byte gifts, takes, owner = 1, user[2], current[3] = NONE;
bool busy, asleep, at_home[2] = true;
bool in_inbox[2], in_queue[2], in_futex[3], unused[3];

#ifdef TAKE_BUSY
#define MAY_TAKE (owner != id)
#else
#define MAY_TAKE (owner != id && !busy)
#endif
#define HAS_READY (in_inbox[0] || in_inbox[1] || in_queue[0] || in_queue[1])

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
		busy = busy || got;
		unused[id] = unused[id] && !got
	}
}

inline sleep_if_empty()
{
#ifdef SLEEP_RELEASED
	busy = false;
#endif
	asleep = true;
	if
#ifndef SLEEP_UNCHECKED
	:: in_inbox[0] || in_inbox[1] ->
		asleep = false;
		wake();
		busy = false
	:: !in_inbox[0] && !in_inbox[1] ->
#else
	:: true ->
#endif
#ifndef SLEEP_RELEASED
		busy = false;
#endif
		do
		:: d_step { asleep -> in_futex[id] = true }
end_sleep:		!in_futex[id]
		:: !asleep -> break
		od
	fi
}

/* Takes the queue, or is given it. Once all changes are used up nobody watches. */
inline await_ownership()
{
	if
	:: owner == id
	:: d_step { owner != id -> unused[id] = true };
end_spare:	if
		:: owner == id
		:: d_step { takes < TAKES && HAS_READY && unused[id] && MAY_TAKE ->
				unused[id] = false; owner = id; busy = false; takes++ }
		fi
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
		await_ownership();
		goto loop
	:: got
	fi;
	atomic { drain(); pop(next) };
	if
	:: next == NONE ->
		sleep_if_empty();
		goto loop
	:: next != NONE
	fi;
	d_step { mine = next; current[id] = mine };
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
			d_step { user[mine] = 0; current[id] = NONE };
			post(mine);
			goto loop
#endif
		:: got
		fi;
		atomic { drain(); pop(next) };
		if
		:: next == NONE -> busy = false
		:: next != NONE ->
			d_step { in_queue[mine] = true; current[id] = next };
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
		d_step { user[mine] = 0; current[id] = NONE };
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
		d_step { at_home[rank] = false; user[rank] = 0 };
		post(rank);
		times++
	:: else -> break
	od;
	at_home[rank];
	use(rank, HOME)
}

proctype monitor()
{
	byte from;

end:	do
	:: gifts < GIFTS ->
		from = owner;
end_idle:	current[from] != NONE;
		if
		:: d_step { unused[3 - from] -> unused[3 - from] = false };
			if
#ifdef GIVE_BUSY
			:: d_step { owner == from -> owner = 3 - from; busy = false }
#else
			:: d_step { owner == from && !busy -> owner = 3 - from }
#endif
			:: else -> unused[3 - from] = true
			fi
		:: true
		fi;
		gifts++
	:: else -> break
	od
}

init { atomic { run worker(1); run worker(2); run home(0); run home(1); run monitor() } }
