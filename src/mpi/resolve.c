/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a trampoline leads. Runs at the first call of each wrapped function only (at each MPI_Init,
 * because a program that has a second MPI library initialises that too). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mpi/front.h"

/* Made by generate.py: MPI_X at 2n, PMPI_X at 2n + 1. Read by the trampolines, written here with
 * release after everything that the wrapper reads. */
extern _Atomic(void *) front_slots[2 * FRONT_WRAPPED_COUNT] __attribute__((visibility("hidden")));

static const struct {
	const char *name;
	bool is_init;
} wrapped[FRONT_WRAPPED_COUNT] = {
#define X(name, is_init) { "PMPI_" #name, is_init },
	FRONT_WRAPPED(X)
#undef X
};

enum state {
	STATE_NEW,
	STATE_ATTACHED, /* one library, known ABI */
	STATE_PLAIN,    /* one library that we do not serve */
	STATE_SEVERAL,  /* every call is looked up anew, by who calls; the first is still served */
};

static struct {
	pthread_mutex_t lock; /* protects the rest */
	enum state state;
	struct front_host host;
	const struct front_abi *abi;
	void *original[2 * FRONT_WRAPPED_COUNT]; /* slots as they were at start, leading here */
} front = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Why nothing will be taken. Options are loaded with the runtime, which will not start now. */
static void stay_out(const char *why)
{
	char problems[512];

	base_options_load(NULL, problems, sizeof(problems));
	if (base_job_rank() <= 0)
		base_log(BASE_LOG_WARN, "mpi", "%s: Sluice stays out", why);
}

static void attach_locked(const void *caller)
{
	struct front_host host = { 0 };
	const struct front_abi *abi = NULL;

	switch (loader_find(&host, &abi)) {
	case FRONT_NONE: /* under a name that we do not know, or not yet loaded */
		if (loader_next("PMPI_Bcast", caller))
			front.state = STATE_PLAIN;
		break;
	case FRONT_SEVERAL:
		front.state = STATE_SEVERAL;
		stay_out("several MPI libraries are loaded");
		break;
	case FRONT_ONE:
		front.state = STATE_PLAIN;
		if (!abi || loader_fill(&host) || abi->attach(&host)) {
			stay_out("this MPI library is of a kind that Sluice does not know");
			break;
		}
		front.state = STATE_ATTACHED;
		front.host = host;
		front.abi = abi;
		break;
	}
}

/* MPI_Init is called: has another library come since? */
static void recheck_locked(void)
{
	struct front_host host;
	const struct front_abi *abi;

	if (front.state == STATE_SEVERAL || loader_find(&host, &abi) != FRONT_SEVERAL)
		return;
	front.state = STATE_SEVERAL;
	if (front.abi)
		base_log(BASE_LOG_WARN, "mpi", "a second MPI library is started: Sluice leaves it alone");
	else
		stay_out("several MPI libraries are loaded");
	for (size_t i = 0; i < BASE_ARRAY_LEN(front.original); i++)
		if (front.original[i])
			atomic_store_explicit(&front_slots[i], front.original[i],
					      memory_order_release);
}

static bool is_in_host(const void *addr)
{
	return (uintptr_t)addr >= front.host.lo && (uintptr_t)addr < front.host.hi;
}

/* Another tool's MPI_X that follows ours in symbol order: it calls PMPI_X, which is ours again. */
static void *next_tool(uint64_t slot)
{
	const char *name = wrapped[slot / 2].name + 1;
	void *next;

	if (slot % 2)
		return NULL;
	next = loader_next(name, NULL);
	if (!next || is_in_host(next) || loader_image_of(next) == loader_image_of(&front))
		return NULL;
	return next;
}

/* Where the call would lead without us. A library that was attached before others came is served
 * on: the other ranks may not have met a second one. */
static void *plain_target(uint64_t slot, const void *caller)
{
	const char *name = wrapped[slot / 2].name + !(slot % 2);
	void *target = loader_next(name, caller);

	if (!target)
		target = narrow_function(wrapped[slot / 2].name + strlen("PMPI_"));
	if (!target) {
		base_log(BASE_LOG_ERROR, "mpi", "%s is in none of the loaded libraries", name);
		abort(); /* what an undefined symbol would have led to */
	}
	if (front.abi && is_in_host(target))
		return front.abi->wrappers[slot / 2];
	return target;
}

static void publish_locked(uint64_t slot, void *target)
{
	if (!front.original[slot])
		front.original[slot] =
			atomic_load_explicit(&front_slots[slot], memory_order_relaxed);
	atomic_store_explicit(&front_slots[slot], target, memory_order_release);
}

void *front_resolve(uint64_t slot, const void *caller)
{
	bool is_init = wrapped[slot / 2].is_init;
	const struct front_abi *abi = NULL;
	void *target = NULL;

	pthread_mutex_lock(&front.lock);
	if (front.state == STATE_NEW)
		attach_locked(caller);
	else if (is_init)
		recheck_locked();
	if (front.state == STATE_ATTACHED) {
		abi = front.abi;
		target = next_tool(slot);
		if (!target)
			target = abi->wrappers[slot / 2];
	} else {
		target = plain_target(slot, caller);
	}
	if (!is_init && (front.state == STATE_ATTACHED || front.state == STATE_PLAIN))
		publish_locked(slot, target);
	pthread_mutex_unlock(&front.lock);

	/* Outside the lock: this calls MPI. */
	if (abi && !is_init)
		abi->start();
	return target;
}
