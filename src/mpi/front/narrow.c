/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_X_c for host MPIs without such functions, by means of their MPI_X. A program that looks up
 * MPI_Send_c finds Sluice's, which must work with every host MPI.
 *
 * Handles are integers in some ABIs and pointers in others. Both use the same registers and stack
 * slots, and pass through unchanged as uintptr_t.
 */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mpi/front/front.h"

enum {
	ERR_COUNT = 2,          /* MPI_ERR_COUNT in all ABIs, see ABI_ERR_COUNT */
	NARROW_ALL_RANKS = INT_MIN, /* as a root: the argument is significant on every rank */
	LISTS_MAX = 4,    /* counts and displacements, sent and received */
	LISTS_HELD = 4096, /* lists of nonblocking calls; the oldest is freed first */
};

struct narrow_call {
	uintptr_t comm;
	bool is_later;          /* nonblocking: the host MPI may read the lists after the call */
	int failed;             /* an MPI error code */
	int n;
	int *lists[LISTS_MAX];
};

#define CALLER() __builtin_return_address(0)

/* Looks the host MPI's own function up once; with several MPI libraries, for each caller. */
static void *narrow_base(struct narrow_call *call, _Atomic(void *) *known, const char *name,
			 const void *caller)
{
	void *function = atomic_load_explicit(known, memory_order_relaxed);

	if (base_likely(function))
		return function;
	function = front_library_function(name);
	atomic_store_explicit(known, function, memory_order_relaxed);
	if (!function)
		function = loader_next(name, caller);
	if (!function)
		call->failed = ERR_COUNT;
	return function;
}

/* Returns: whether the arguments of this buffer are significant. MPI_IN_PLACE is 1 or -1. */
static bool is_significant(struct narrow_call *call, const void *at, int root)
{
	if ((uintptr_t)at + 1 <= 2 && at)
		return false;
	return root == NARROW_ALL_RANKS || front_is_root(call->comm, root);
}

static int narrow_int(struct narrow_call *call, const void *at, int root, int64_t value)
{
	if (value < 0)
		return -1;
	if (value <= INT_MAX)
		return (int)value;
	if (is_significant(call, at, root))
		call->failed = ERR_COUNT;
	return 0;
}

/* Keeps a list, and frees the oldest one. */
static void hold_list(int *list)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static int *held[LISTS_HELD];
	static unsigned next;
	int *oldest;

	pthread_mutex_lock(&lock);
	oldest = held[next];
	held[next] = list;
	next = (next + 1) % LISTS_HELD;
	pthread_mutex_unlock(&lock);
	free(oldest);
}

static int *narrow_list(struct narrow_call *call, const void *at, int root, const int64_t *wide,
			enum members which)
{
	int n = -1, *list;

	if (call->failed || !wide || !is_significant(call, at, root))
		return NULL;
	n = front_count(call->comm, which);
	list = n < 0 ? NULL : malloc(((size_t)n + 1) * sizeof(*list));
	if (!list) {
		call->failed = ERR_COUNT;
		return NULL;
	}
	for (int i = 0; i < n; i++) {
		if (wide[i] != (int)wide[i])
			call->failed = ERR_COUNT;
		list[i] = (int)wide[i];
	}
	call->lists[call->n++] = list;
	return list;
}

static int narrow_end(struct narrow_call *call, int rc)
{
	for (int i = 0; i < call->n; i++) {
		if (call->is_later && !rc)
			hold_list(call->lists[i]);
		else
			free(call->lists[i]);
	}
	return rc;
}

#include "narrow.h"

void *narrow_function(const char *name)
{
	static const struct {
		const char *name;
		void *function;
	} all[] = {
#define X(name) { #name, (void *)narrow_##name },
		NARROW_FUNCTIONS(X)
#undef X
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(all); i++)
		if (!strcmp(all[i].name, name))
			return all[i].function;
	return NULL;
}
