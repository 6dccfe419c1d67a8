/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by requests.c, request_schedule.c and request_memory.c. */
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

/* Its state, result, run and next change under the lock of its communicator, then of the list of done ones. */
struct rt_request {
	struct rt_comm *comm;
	const struct rt_call *call;
	void *owner;
	struct request_side send, recv;
	struct goal_block *block; /* its schedule, made at the first start */
	struct exec_run *run;     /* while it is active */
	enum request_state state;
	int result;
	struct rt_request *next;
};

/* ---- request_schedule.c --------------------------------------------------------------------------------- */

/* Makes r->block. 0 or -errno. */
int request_schedule(struct rt_request *r);
bool request_is_exchange(const struct rt_request *r);
bool request_is_allgather(const struct rt_request *r);

/* ---- request_memory.c ----------------------------------------------------------------------------------- */

/* Pins or copies what the call names. 0 or -errno; request_close() in any case. */
int request_open(struct rt_request *r);
/* is_good: the program gets what it receives. 0 or -errno. */
int request_close(struct rt_request *r, bool is_good);


#endif
