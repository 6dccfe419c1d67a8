/* SPDX-License-Identifier: BSD-3-Clause */
/* The transition table of requests agrees with facts about a request, in every order of events. */
#include <stdbool.h>

#include "mpi/request/state.h"
#include "unit.h"

enum { EVENTS = 8, COMPLETERS_MAX = 3 };

/* Facts about a request; `completing` threads complete the host MPI's request. */
struct facts {
	bool is_prepared, is_active, is_freed, is_discarded;
	int completing;
};

static void end(struct facts *f, bool is_last)
{
	f->is_active = false;
	f->is_discarded = (is_last || f->is_freed) && !f->completing;
	f->completing += !f->is_discarded;
}

/* Applies an event. Returns: false: it cannot happen. */
static bool apply(struct facts *f, enum request_event e)
{
	switch (e) {
	case REQUEST_PREPARE:
		if (f->is_prepared)
			return false;
		f->is_prepared = true;
		return true;
	case REQUEST_START:
		if (f->is_active || f->is_freed)
			return false;
		return f->is_active = f->is_prepared = true;
	case REQUEST_STOP:
		if (!f->is_active || f->is_freed)
			return false;
		f->is_active = false;
		return true;
	case REQUEST_END:
	case REQUEST_END_LAST:
		if (!f->is_active || f->completing == COMPLETERS_MAX ||
		    (e == REQUEST_END_LAST && f->completing))
			return false;
		end(f, e == REQUEST_END_LAST);
		return true;
	case REQUEST_COMPLETED:
		if (!f->completing)
			return false;
		f->completing--;
		f->is_discarded = !f->completing && !f->is_active && f->is_freed;
		return true;
	default:
		if (!f->is_prepared || f->is_freed)
			return false;
		f->is_freed = true;
		f->is_discarded = !f->is_active && !f->completing;
		return true;
	}
}

static void explore(struct facts f, enum request_state state, int events)
{
	CHECK_EQ(request_state_is_active(state), f.is_active);
	CHECK_EQ(state == REQUEST_DISCARDED, f.is_discarded);
	CHECK_EQ(state == REQUEST_NEW, !f.is_prepared);
	for (int e = 0; e < REQUEST_EVENTS && events && !f.is_discarded; e++) {
		struct facts next = f;
		enum request_state to = state;

		if (!apply(&next, (enum request_event)e))
			continue;
		if (e != REQUEST_COMPLETED || !next.completing)
			to = request_next_state(state, (enum request_event)e);
		explore(next, to, events - 1);
	}
}

UNIT_TEST(states_agree_with_facts_in_every_order_of_events)
{
	explore((struct facts){ 0 }, REQUEST_NEW, EVENTS);
}

UNIT_TEST(a_discarded_request_stays_discarded)
{
	for (int e = 0; e < REQUEST_EVENTS; e++)
		CHECK_EQ(request_next_state(REQUEST_DISCARDED, (enum request_event)e),
			 REQUEST_DISCARDED);
}
