/* SPDX-License-Identifier: BSD-3-Clause */
/* The target of each trampoline. Runs at the first call of each wrapped function only (at each
 * MPI_Init, because a program with a second MPI library initialises that one too). */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mpi/coll/comm_state.h"
#include "mpi/front/front.h"
#include "rt/early.h"

enum { SLOTS = 2 * FRONT_EXPORTED_COUNT };

/* Targets, made by generate.py: MPI_X at 2n, PMPI_X at 2n + 1; SLOTS further the targets while
 * an operation is pending. Trampolines read them; this file writes them with release after all
 * data that the wrapper reads. */
extern _Atomic(void *) front_slots[2 * SLOTS] __attribute__((visibility("hidden")));

static const struct {
	const char *name;
	bool is_init;
	bool needs_runtime;
} exported[FRONT_EXPORTED_COUNT] = {
#define X(name, is_init) { "PMPI_" #name, is_init, !is_init },
	FRONT_WRAPPED(X)
#undef X
#define X(name) { "PMPI_" #name, false, false },
	FRONT_OBSERVED(X)
#undef X
};

enum state {
	STATE_NEW,
	STATE_ATTACHED, /* one library, known ABI */
	STATE_PLAIN,    /* one library that Sluice does not serve */
	STATE_SEVERAL,  /* each call is resolved by its caller; Sluice still serves the first
			   library */
};

static struct {
	pthread_mutex_t lock; /* protects all other fields */
	enum state state;
	struct host_library library;
	const struct front_abi *abi; /* ABI of the host MPI; NULL: Sluice serves none */
	void *original[SLOTS]; /* slots at start, which lead to the resolver */
} front = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Reports why Sluice stays out. Loads the options, because the runtime will not start. */
static void stay_out(const char *why)
{
	char problems[512];

	base_options_load(NULL, problems, sizeof(problems));
	if (base_job_rank() <= 0)
		base_log(BASE_LOG_WARN, "mpi", "%s: Sluice stays out", why);
}

static void attach_locked(const void *caller)
{
	struct host_library library = { 0 };
	const struct front_abi *own = NULL;

	switch (loader_find(&library, &own)) {
	case FRONT_NONE: /* a library with an unknown name, or not loaded yet */
		if (loader_next("PMPI_Bcast", caller))
			front.state = STATE_PLAIN;
		break;
	case FRONT_SEVERAL:
		front.state = STATE_SEVERAL;
		stay_out("several MPI libraries are loaded");
		break;
	case FRONT_ONE:
		front.state = STATE_PLAIN;
		if (!own || loader_fill(&library) || abi_attach(own->driver, &library)) {
			stay_out("this MPI library has an unknown ABI");
			break;
		}
		front.state = STATE_ATTACHED;
		front.library = library;
		front.abi = own;
		break;
	}
}

static void set_locked(uint64_t slot, struct front_way way)
{
	atomic_store_explicit(&front_slots[slot], way.plain, memory_order_release);
	atomic_store_explicit(&front_slots[SLOTS + slot], way.pending, memory_order_release);
}

/* Context: MPI_Init; another library may have been loaded since. */
static void recheck_locked(void)
{
	struct host_library library;
	const struct front_abi *own;

	if (front.state == STATE_SEVERAL || loader_find(&library, &own) != FRONT_SEVERAL)
		return;
	front.state = STATE_SEVERAL;
	if (front.abi)
		base_log(BASE_LOG_WARN, "mpi",
			 "a second MPI library is started: Sluice leaves it alone");
	else
		stay_out("several MPI libraries are loaded");
	for (size_t i = 0; i < BASE_ARRAY_LEN(front.original); i++)
		if (front.original[i])
			set_locked(i, (struct front_way){ front.original[i], front.original[i] });
}

static bool is_in_library(const void *addr)
{
	return (uintptr_t)addr >= front.library.lo && (uintptr_t)addr < front.library.hi;
}

/* Returns: another tool's MPI_X that follows ours in symbol order; that one calls PMPI_X, which
 * is ours again. */
static void *next_tool(uint64_t slot)
{
	const char *name = exported[slot / 2].name + 1;
	void *next;

	if (slot % 2)
		return NULL;
	next = loader_next(name, NULL);
	if (!next || is_in_library(next) || loader_image_of(next) == loader_image_of(&front))
		return NULL;
	return next;
}

/* A program that looks a function up by name finds ours. It may have a fallback, so it gets an
 * error that it can handle instead of an abort. */
static struct front_way lacking_way(uint64_t slot)
{
	void *lacking = (void *)front_lacking;

	base_log(BASE_LOG_ERROR, "mpi", "%s is called, which this MPI library does not have",
		 exported[slot / 2].name + 1);
	return (struct front_way){ lacking, lacking };
}

/* Returns: the target in the host MPI. */
static struct front_way served_way(uint64_t slot)
{
	uint64_t i = slot / 2;
	void *own = front.library.functions[i];
	struct front_way way;

	if (i < FRONT_WRAPPED_COUNT) {
		way = front_wrapped[i];
		if (i >= FRONT_WRITTEN_COUNT)
			way.plain = front.abi->gates[i - FRONT_WRITTEN_COUNT];
		return way;
	}
	if (!own)
		own = narrow_function(exported[i].name + strlen("PMPI_"));
	if (!own)
		return lacking_way(slot);
	way = observe_ways[i - FRONT_WRAPPED_COUNT];
	if (!way.plain)
		way.plain = own;
	return way;
}

/* Returns: the target without Sluice. Sluice goes on to serve a library that it attached before
 * others were loaded: the other ranks may not have loaded a second one. */
static struct front_way plain_way(uint64_t slot, const void *caller)
{
	const char *name = exported[slot / 2].name + !(slot % 2);
	void *target = loader_next(name, caller);

	if (target && front.abi && is_in_library(target))
		return served_way(slot);
	if (!target)
		target = narrow_function(exported[slot / 2].name + strlen("PMPI_"));
	if (!target) {
		base_log(BASE_LOG_ERROR, "mpi", "%s is in none of the loaded libraries", name);
		abort(); /* as for an undefined symbol */
	}
	return (struct front_way){ target, target };
}

/*
 * Cached targets of each call site while several libraries are loaded, because every message would
 * pay microseconds for the look-up. A call site keeps its library: another MPI_Init
 * follows before a new object at the same address calls MPI.
 */
static struct {
	const void *caller;
	uint64_t slot;
	struct front_way way;
} places[1024];

static struct front_way plain_way_again_locked(uint64_t slot, const void *caller)
{
	uint64_t hash = ((uintptr_t)caller ^ slot << 40) * 0x9e3779b97f4a7c15u;
	uint64_t i = hash >> 40 & (BASE_ARRAY_LEN(places) - 1);

	if (places[i].caller != caller || places[i].slot != slot) {
		places[i].way = plain_way(slot, caller);
		places[i].caller = caller;
		places[i].slot = slot;
	}
	return places[i].way;
}

static struct front_way attached_way(uint64_t slot)
{
	void *tool = next_tool(slot);
	struct front_way way = { tool, tool };

	if (!tool)
		way = served_way(slot);
	return way;
}

static void publish_locked(uint64_t slot, struct front_way way)
{
	if (!front.original[slot])
		front.original[slot] =
			atomic_load_explicit(&front_slots[slot], memory_order_relaxed);
	set_locked(slot, way);
}

void *front_resolve(uint64_t slot, const void *caller)
{
	bool is_init = exported[slot / 2].is_init;
	bool is_served = false;
	struct front_way way;

	pthread_mutex_lock(&front.lock);
	if (front.state == STATE_NEW)
		attach_locked(caller);
	else if (is_init)
		recheck_locked();
	if (is_init)
		memset(places, 0, sizeof(places));
	if (front.state == STATE_ATTACHED) {
		is_served = true;
		way = attached_way(slot);
	} else {
		way = plain_way_again_locked(slot, caller);
	}
	if (!is_init && (front.state == STATE_ATTACHED || front.state == STATE_PLAIN))
		publish_locked(slot, way);
	pthread_mutex_unlock(&front.lock);

	/* Outside the lock: session_start() calls MPI. */
	if (is_served && exported[slot / 2].needs_runtime)
		session_start();
	return rt_is_intercepting() ? way.pending : way.plain;
}

/* ---- for narrow.c ------------------------------------------------------------------------- */

static bool is_attached(void)
{
	bool is;

	pthread_mutex_lock(&front.lock);
	is = front.state == STATE_ATTACHED;
	pthread_mutex_unlock(&front.lock);
	return is;
}

void *front_library_function(const char *name)
{
	return is_attached() ? dlsym(front.library.handle, name) : NULL;
}

void *front_library_handle(void) { return is_attached() ? front.library.handle : NULL; }

int front_count(uintptr_t comm, enum members which)
{
	return is_attached() ? members_count((MPI_Comm)(comm & abi.handle_mask), which) : -1;
}

bool front_is_root(uintptr_t comm, int root)
{
	return !is_attached() || members_is_root(root, (MPI_Comm)(comm & abi.handle_mask));
}
