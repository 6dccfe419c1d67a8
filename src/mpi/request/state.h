/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * States of a request of mpi/request. All changes happen under the lock of the table of requests;
 * before request_enter() the request belongs to one thread.
 *
 *   state        PREPARE  START     STOP       END          END_LAST  COMPLETED FREE
 *   NEW          INACTIVE ACTIVE
 *   INACTIVE              ACTIVE                                                DISCARDED
 *   ACTIVE                          INACTIVE   COMPLETING   DISCARDED           ACTIVE_F
 *   COMPLETING            RESTARTED                                   INACTIVE  COMPLETING_F
 *   RESTARTED                       COMPLETING COMPLETING             ACTIVE    RESTARTED_F
 *   ACTIVE_F                                   DISCARDED    DISCARDED
 *   COMPLETING_F                                                      DISCARDED
 *   RESTARTED_F                                COMPLETING_F           ACTIVE_F
 *
 * An empty field: the event changes nothing. Whoever makes a request DISCARDED discards it.
 */
#ifndef SLUICE_MPI_REQUEST_STATE_H
#define SLUICE_MPI_REQUEST_STATE_H

#include <stdbool.h>

enum request_state {
	REQUEST_NEW,          /* its buffers are not prepared */
	REQUEST_INACTIVE,     /* prepared; or nonblocking, and failed with an error that the program
				 has not got yet */
	REQUEST_COMPLETING,   /* ended; threads complete the host MPI's request */
	REQUEST_COMPLETING_F, /* and the program has freed it */
	REQUEST_DISCARDED,    /* no other thread finds it */
	/* active from here on */
	REQUEST_ACTIVE,
	REQUEST_ACTIVE_F,
	REQUEST_RESTARTED,    /* a thread still completes the turn before (persistent) */
	REQUEST_RESTARTED_F,
	REQUEST_STATES
};

enum request_event {
	REQUEST_PREPARE,
	REQUEST_START,
	REQUEST_STOP,      /* the host MPI's request could not be started */
	REQUEST_END,       /* the collective has ended */
	REQUEST_END_LAST,  /* as END; the host MPI's request alone is left to complete */
	REQUEST_COMPLETED, /* no thread completes the host MPI's request any more */
	REQUEST_FREE,      /* the program frees it, or gets the error of a nonblocking one */
	REQUEST_EVENTS
};

static inline enum request_state request_next_state(enum request_state s, enum request_event e)
{
	/* REQUEST_NEW, which no event leads to: unchanged */
	static const unsigned char next[REQUEST_STATES][REQUEST_EVENTS] = {
		[REQUEST_NEW] = { [REQUEST_PREPARE] = REQUEST_INACTIVE,
				  [REQUEST_START] = REQUEST_ACTIVE },
		[REQUEST_INACTIVE] = { [REQUEST_START] = REQUEST_ACTIVE,
				       [REQUEST_FREE] = REQUEST_DISCARDED },
		[REQUEST_ACTIVE] = { [REQUEST_STOP] = REQUEST_INACTIVE,
				     [REQUEST_END] = REQUEST_COMPLETING,
				     [REQUEST_END_LAST] = REQUEST_DISCARDED,
				     [REQUEST_FREE] = REQUEST_ACTIVE_F },
		[REQUEST_COMPLETING] = { [REQUEST_START] = REQUEST_RESTARTED,
					 [REQUEST_COMPLETED] = REQUEST_INACTIVE,
					 [REQUEST_FREE] = REQUEST_COMPLETING_F },
		[REQUEST_RESTARTED] = { [REQUEST_STOP] = REQUEST_COMPLETING,
					[REQUEST_END] = REQUEST_COMPLETING,
					[REQUEST_COMPLETED] = REQUEST_ACTIVE,
					[REQUEST_FREE] = REQUEST_RESTARTED_F },
		[REQUEST_ACTIVE_F] = { [REQUEST_END] = REQUEST_DISCARDED,
				       [REQUEST_END_LAST] = REQUEST_DISCARDED },
		[REQUEST_COMPLETING_F] = { [REQUEST_COMPLETED] = REQUEST_DISCARDED },
		[REQUEST_RESTARTED_F] = { [REQUEST_END] = REQUEST_COMPLETING_F,
					  [REQUEST_COMPLETED] = REQUEST_ACTIVE_F },
	};

	return next[s][e] ? (enum request_state)next[s][e] : s;
}

static inline bool request_state_is_active(enum request_state s) { return s >= REQUEST_ACTIVE; }

#endif
