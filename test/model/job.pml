/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sched/: a job's record is used for one piece of work after the other, with more or fewer units each.
 * Who drives writes it while helpers that are late by any number of steps look at it:
 * src/goal/sched/job.c and move.c. A claim is one step here;
 * test_xfer_protocol.c checks the claim itself.
 *
 *   UNITS_OF_ANY  how many units there are is believed without looking whose number it is
 *   REOPEN_EARLY  the record is used again when all units are claimed, not done
 *   OPEN_FIRST    units are opened before the work is written
 */
#define JOBS 3
#define UNITS(tag) (tag == 2 -> 2 : 1) /* one, two, one again */
#define BITS(tag) ((1 << UNITS(tag)) - 1)

byte taken_tag, taken, done;
byte brief_tag, brief_units; /* one word */
byte work_a, work_b;         /* two of many: each written by itself */

inline open(tag)
{
#ifdef OPEN_FIRST
	d_step { brief_tag = tag; brief_units = UNITS(tag) }
	done = 0;
	d_step { taken_tag = tag; taken = 0 }
#endif
	work_a = tag;
	work_b = tag;
#ifndef OPEN_FIRST
	d_step { brief_tag = tag; brief_units = UNITS(tag) }
	done = 0;
	d_step { taken_tag = tag; taken = 0 }
#endif
}

active proctype driver()
{
	byte tag = 1;

	do
	:: tag > JOBS -> break
	:: else ->
		open(tag);
#ifdef REOPEN_EARLY
		(taken == BITS(tag));
#else
		(done == BITS(tag));
#endif
		tag++
	od
}

active [2] proctype mover()
{
	byte word_tag, word, tag, units, a, b, unit;

	do
	:: taken_tag == JOBS && taken == BITS(JOBS) -> break
	:: taken_tag > 0 ->
		d_step { word_tag = taken_tag; word = taken }
		d_step { tag = brief_tag; units = brief_units }
#ifdef UNITS_OF_ANY
		tag = word_tag;
#endif
		unit = 255;
		atomic {
			if
			:: taken_tag == tag && tag == word_tag && units > 0 && !(taken & 1) -> unit = 0
			:: taken_tag == tag && tag == word_tag && units > 1 && !(taken & 2) -> unit = 1
			:: else
			fi;
			if
			:: unit < 255 -> taken = taken | (1 << unit)
			:: else
			fi
		}
		if
		:: unit < 255 ->
			assert(unit < UNITS(tag)); /* or it is a unit of no work, or of another's */
			a = work_a;
			b = work_b;
			assert(a == tag && b == tag);
			done = done | (1 << unit)
		:: else
		fi
	od
}
