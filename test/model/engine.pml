/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sched/: an engine that several processes drive. Rank 0 receives twice, first from anyone, then from rank 2;
 * rank 1 sends one message and rank 2 two, announced: a send ends when its receiver has taken the
 * bytes. Rank 0 and a helper drive rank 0's engine; the helper may die wherever it is. All must
 * end: the messages taken once each, those of rank 2 in order, nobody waiting for ever; or, when
 * the helper died driving, the run failed. Another thread of rank 0 starts a run of its own: runs
 * are counted by who starts them, under the claim, and no two have one number.
 *
 * Each statement is a step of its own; what stands in atomic is one atomic instruction of the code.
 *
 *   NO_CLAIM      drive without having the claim
 *   NO_LOOK       post a receive without looking among the messages that came before
 *   NO_BROKEN     nobody looks whether the holder of the claim lives
 *   NEWEST_FIRST  a message goes to the receive that was posted last
 *   NO_ENDED      the senders are not told
 *   EARLY_NUMBER  a run gets its number from the thread that asks for it, who has no claim
 */
#define HELPER 9
#define OWNER 8

byte claim, sent[3], head[3], ended[3], early[4], early_count;
byte taken[6];           /* by message: 3 * number + sender */
byte first = 255, second = 255; /* which message the receives took; 254: posted */
bool starts, again, broken, dead, done;
byte runs, number = 255, other = 255;
#define HAS_WORK (starts || again || head[1] < sent[1] || head[2] < sent[2])

/* Message m meets the receive from anyone (r == 1) or from rank 2 (r == 2). */
inline meet(r, m)
{
	assert(!taken[m]);
	taken[m] = 1;
	if
	:: r == 1 -> first = m
	:: else -> second = m
	fi;
#ifndef NO_ENDED
	atomic { ended[m % 3] = ended[m % 3] + 1 }
#endif
}

/* Take early message i off the list. */
inline unkeep(i)
{
	do
	:: i + 1 < early_count -> early[i] = early[i + 1]; i = i + 1
	:: else -> break
	od;
	early_count = early_count - 1
}

inline post(r)
{
	k = 0;
#ifndef NO_LOOK
	do
	:: k >= early_count -> break
	:: k < early_count && (r == 1 || early[k] % 3 == 2) -> break
	:: else -> k = k + 1
	od;
#else
	k = early_count;
#endif
	if
	:: k < early_count -> m = early[k]; unkeep(k); meet(r, m)
	:: else ->
		if
		:: r == 1 -> first = 254
		:: else -> second = 254
		fi
	fi
}

inline take(s)
{
	m = 3 * head[s] + s;
	if
#ifdef NEWEST_FIRST
	:: second == 254 && s == 2 -> meet(2, m)
	:: !(second == 254 && s == 2) && first == 254 -> meet(1, m)
	:: !(second == 254 && s == 2) && first != 254 -> early[early_count] = m; early_count = early_count + 1
#else
	:: first == 254 -> meet(1, m)
	:: first != 254 && second == 254 && s == 2 -> meet(2, m)
	:: first != 254 && !(second == 254 && s == 2) -> early[early_count] = m; early_count = early_count + 1
#endif
	fi;
	head[s] = head[s] + 1
}

/* Give a run its number. */
inline give_number(n)
{
	n = runs;
	runs = n + 1;
	assert(number == 255 || number != other)
}

inline step()
{
	if
	:: starts -> starts = false;
#ifndef EARLY_NUMBER
		give_number(number);
#endif
		post(1); post(2)
	:: else -> skip
	fi;
	if
	:: again -> again = false;
#ifndef EARLY_NUMBER
		give_number(other)
#endif
	:: else -> skip
	fi;
	for (s : 1 .. 2) {
		if
		:: head[s] < sent[s] -> take(s)
		:: else -> skip
		fi
	}
	if
	:: first < 6 && second < 6 -> done = true
	:: else -> skip
	fi
}

proctype sender(byte me; byte count)
{
	byte n;

	do
	:: n < count -> sent[me] = sent[me] + 1; n = n + 1 /* one writer */
	:: else -> break
	od;
	/* Two of the three messages are received: a sender waits for its first only, if that is one
	 * of them. */
	(ended[me] > 0 || broken || (done && !taken[me]))
}

active proctype thread()
{
#ifdef EARLY_NUMBER
	give_number(other);
#endif
	again = true
}

active proctype owner()
{
	byte k, m, s;

#ifdef EARLY_NUMBER
	give_number(number);
#endif
	starts = true;
	do
	:: done || broken -> break
#ifdef NO_CLAIM
	:: !done && !broken && HAS_WORK -> step()
#else
	:: atomic { !done && !broken && claim == 0 && HAS_WORK -> claim = OWNER }; step(); claim = 0
#endif
#ifndef NO_BROKEN
	:: claim == HELPER && dead -> broken = true
#endif
	od;
	assert(broken || (first < 6 && second < 6 && second % 3 == 2));
	/* both from rank 2: the receive that was posted first has the first message */
	assert(broken || first % 3 != 2 || first < second)
}

active proctype helper()
{
	byte k, m, s;

	do
	:: done || broken -> break
#ifdef NO_CLAIM
	:: !done && !broken && HAS_WORK -> step()
#else
	:: atomic { !done && !broken && claim == 0 && HAS_WORK -> claim = HELPER };
		if
		:: true -> step(); claim = 0
		:: true -> dead = true; break /* before anything */
		:: true -> step(); dead = true; break /* after all of it */
		fi
#endif
	:: dead = true; break
	od
}

init
{
	run sender(1, 1);
	run sender(2, 2)
}
