/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by requests.c and request_*.c. */
#ifndef SLUICE_RT_REQUEST_H
#define SLUICE_RT_REQUEST_H

#include "rt/private.h"
#include "rt/requests.h"

/* A buffer of the program while a request uses it. */
struct request_side {
	struct region_extent scratch; /* bytes 0: it is the program's memory */
	struct region_desc desc;
	char *addr; /* NULL: there is none */
};

enum request_state { REQUEST_IDLE, REQUEST_QUEUED, REQUEST_ACTIVE, REQUEST_DONE };

/* Its state, result, run and next change under the lock of its communicator, then of the list of
 * done ones. */
struct rt_request {
	struct rt_comm *comm;
	const struct coll_call *call;
	void *owner;
	struct request_side send, recv;
	struct policy_reuse *reuse;      /* that is told whether others have its memory mapped, or NULL */
	struct goal_block *block; /* its schedule; NULL: it combines */
	uint64_t *starts;         /* of what is combined and scattered */
	struct exec_run *run;     /* while it is active */
	int lane;                 /* it is started again and again, in this lane; -1: once */
	uint64_t turn;            /* of it, the last that was started */
	bool is_small;            /* it goes over the mailbox: none of the three above, but */
	uint64_t number;          /* of its collective there, */
	struct mailbox_read read;
	struct mailbox_reduce reduce;
	char *image; /* and its result, where that is not made in the program's memory */
	char *message;            /* what it brings, packed, where that was queued */
	uint32_t message_bytes;
	uint64_t traced_op;       /* for the trace: its number */
	enum request_state state;
	int result;
	struct rt_request *next;
};

/* It has this number: what is traced now is its call, if that goes on. */
static inline void request_is_number(struct rt_request *r, uint64_t op)
{
	r->traced_op = op;
	if (trace_is_on() && r->comm->requests.in_call == r)
		trace_op(node_id(r->comm->group), op, node_rank(r->comm->group),
			 node_size(r->comm->group));
}

/* ---- requests.c: communicators that have requests ---------------------------------------- */

uint32_t requests_busy_count(void);
/* The i-th, which stays until requests_busy_put(); NULL: there are not so many. */
struct rt_comm *requests_busy_get(int i);
void requests_busy_put(struct rt_comm *c);
/* Nothing has moved for long: do the ranks live? */
void requests_check_peers(struct rt_comm *c);

/* ---- request_lanes.c --------------------------------------------------------------------- */

/* It is started once more: its lane's next turn. */
void request_next_turn(struct rt_request *r);
uint64_t request_number(const struct rt_request *r); /* for exec: of this turn; 0: it has no lane */
void request_leave_lane(struct rt_request *r);

/* ---- request_schedule.c ------------------------------------------------------------------ */

/* Makes r->block, or r->starts. 0 or -errno. */
int request_schedule(struct rt_request *r);
void request_unschedule(struct rt_request *r);
/* What is combined, for exec_begin(). */
void request_reduce(const struct rt_request *r, struct exec_reduce *out);
bool request_is_reduce(const struct rt_request *r);
bool request_is_scattered(
	const struct rt_request *r); /* each rank gets a part of what is combined */
bool request_is_exchange(const struct rt_request *r);
bool request_is_allgather(const struct rt_request *r);

/* ---- request_memory.c -------------------------------------------------------------------- */

/* Pins or copies what the call names. 0 or -errno; request_close() in any case. */
int request_open(struct rt_request *r);
/* How it is described, for the trace. */
enum trace_region request_region(const struct rt_request *r);
/* is_good: the program gets what it receives. 0 or -errno. */
int request_close(struct rt_request *r, bool is_good);

/* ---- request_small.c --------------------------------------------------------------------- */

/* Is it short? The same answer on all ranks. */
bool request_is_small(const struct rt_comm *c, const struct coll_call *call);
/* 0: what others need of this rank is there for them; -EBUSY: no room at the moment; -errno. */
int request_small_begin(struct rt_request *r);
/* It is queued: others that publish it in its turn need not call the MPI library. 0 or -errno. */
int request_small_keep(struct rt_request *r);
/* Does it compute with a function of the program's? Not to be stepped in threads of ours. */
bool request_small_calls_program(const struct rt_request *r);
/* 1: the result is there; 0: not yet; -errno. */
int request_small_step(struct rt_request *r);
int request_small_close(struct rt_request *r, bool is_good); /* as request_close() */
/* It has not moved for long: 0, or -errno (reported) when it never will. */
int request_small_check(const struct rt_request *r);

#endif
