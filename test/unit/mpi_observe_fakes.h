/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For test_mpi_observe.c: a runtime that writes down what it is told, and a library whose datatypes
 * are lists of bytes. Defines what the wrappers are linked with, so that it is included once.
 */
#ifndef SLUICE_UNIT_MPI_OBSERVE_FAKES_H
#define SLUICE_UNIT_MPI_OBSERVE_FAKES_H

#include <stdatomic.h>

#include "mpi/abi/abi.h"
#include "mpi/front/front.h"
#include "mpi/front/observe.h"
#include "mpi/request/request.h"
#include "unit.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "collectives.h"
#define SLUICE_ABI_TYPES_GIVEN
#include "mpi/abi/mpich.h"
#include "mpi/front/gate.h"
#pragma GCC diagnostic pop

/* ---- the runtime: writes down what it is told -------------------------------------------- */

_Atomic uint32_t rt_pending, rt_intercept_refs;
bool rt_on = true;

static struct {
	struct {
		uintptr_t lo, hi;
	} ranges[64];
	int n_ranges, n_all, n_reaps, depth, n_calls, n_looks, bad_calls;
	uintptr_t kept_out_lo, kept_out_hi;
} seen;

void rt_complete_range(const void *addr, uint64_t bytes)
{
	seen.ranges[seen.n_ranges].lo = (uintptr_t)addr;
	seen.ranges[seen.n_ranges++].hi = (uintptr_t)addr + bytes;
}

void rt_complete_all(void)
{
	seen.n_all++;
}

void rt_reap(void)
{
	seen.n_reaps++;
}

void rt_host_begin(void)
{
	seen.depth++;
}

void rt_host_end(void)
{
	seen.depth--;
}

void rt_memory_keep_out(const void *addr, uint64_t bytes)
{
	seen.kept_out_lo = (uintptr_t)addr;
	seen.kept_out_hi = (uintptr_t)addr + bytes;
}

void *narrow_function(const char *name)
{
	return NULL;
}

/* ---- the library ------------------------------------------------------------------------- */

struct abi abi;
struct host_functions host;
__thread int bypass __attribute__((tls_model("initial-exec")));

/* request.c is not under test. */
#define PASSED(name, args, call) \
	int request_##name args { return host.name call; }
PASSED(Wait, (void *r, MPI_Status *s), (r, s))
PASSED(Waitany, (int n, void *r, int *i, MPI_Status *s), (n, r, i, s))
PASSED(Waitall, (int n, void *r, MPI_Status *s), (n, r, s))
PASSED(Waitsome, (int n, void *r, int *c, int i[], MPI_Status *s), (n, r, c, i, s))
PASSED(Test, (void *r, int *f, MPI_Status *s), (r, f, s))
PASSED(Testany, (int n, void *r, int *i, int *f, MPI_Status *s), (n, r, i, f, s))
PASSED(Testall, (int n, void *r, int *f, MPI_Status *s), (n, r, f, s))
PASSED(Testsome, (int n, void *r, int *c, int i[], MPI_Status *s), (n, r, c, i, s))
PASSED(Request_get_status, (MPI_Request r, int *f, MPI_Status *s), (r, f, s))
PASSED(Request_get_status_any, (int n, const void *r, int *i, int *f, MPI_Status *s),
	(n, r, i, f, s))
PASSED(Request_get_status_all, (int n, const void *r, int *f, MPI_Status *s), (n, r, f, s))
PASSED(Request_get_status_some, (int n, const void *r, int *c, int i[], MPI_Status *s),
	(n, r, c, i, s))
PASSED(Request_free, (void *r), (r))
PASSED(Cancel, (void *r), (r))
PASSED(Start, (void *r), (r))
PASSED(Startall, (int n, void *r), (n, r))
_Atomic uint32_t request_persistent_count;
void comm_state_sync(MPI_Comm comm) { (void)comm; }
int comm_state_find(MPI_Comm comm, struct comm_state **out) { return -1; }
bool session_is_thread_multiple(void) { return false; }

/* Nor what take.c would take: all of it is passed on, and it is counted what would have been looked
 * at. */
struct coll_gate rt_gates[COLL_FORMS][COLL_COUNT];
bool coll_execute(struct coll_args *args, int *rc) { *rc = 0; return false; }
int coll_passed(const struct coll_args *args, int rc) { return rc; }
int request_passed(const struct coll_args *args, const void *request, int rc) { return rc; }
bool request_begin(struct coll_args *args, void *request, int *rc)
{
	*rc = 0;
	return seen.n_looks++, false;
}
bool request_init(const struct coll_args *args, void *request, int *rc)
{
	*rc = 0;
	return false;
}

/* A handle by value as a program of the MPICH ABI may pass it: the upper half is undefined. */
#define HANDLE(n) ((void *)(uintptr_t)(0xdeadbeef00000000 | (uint32_t)(n)))

enum { BLOCKS = 4, TYPES = 16, RANK = 1, SIZE = 3, INTER = 100, CART = 101, DIST = 102 };

/* Element i has blocks at i * extent + off. */
static struct type {
	int n;
	MPI_Count off[BLOCKS], len[BLOCKS], lb, extent;
} types[TYPES];

static int type_extent(MPI_Datatype t, MPI_Count *lb, MPI_Count *extent)
{
	*lb = types[(uintptr_t)t].lb;
	*extent = types[(uintptr_t)t].extent;
	return 0;
}

static int type_true_extent(MPI_Datatype t, MPI_Count *lb, MPI_Count *extent)
{
	MPI_Count lo = INT64_MAX, hi = INT64_MIN;

	for (int b = 0; b < types[(uintptr_t)t].n; b++) {
		MPI_Count end = types[(uintptr_t)t].off[b] + types[(uintptr_t)t].len[b];

		lo = types[(uintptr_t)t].off[b] < lo ? types[(uintptr_t)t].off[b] : lo;
		hi = end > hi ? end : hi;
	}
	*lb = types[(uintptr_t)t].n ? lo : 0;
	*extent = types[(uintptr_t)t].n ? hi - lo : 0;
	return 0;
}

static int comm_rank(MPI_Comm comm, int *rank)
{
	*rank = RANK;
	return 0;
}

static int comm_size(MPI_Comm comm, int *size)
{
	*size = SIZE;
	return 0;
}

static int comm_remote_size(MPI_Comm comm, int *size)
{
	*size = SIZE + 2;
	return 0;
}

static int comm_test_inter(MPI_Comm comm, int *flag)
{
	*flag = comm == (MPI_Comm)INTER;
	return 0;
}

static int topo_test(MPI_Comm comm, int *kind)
{
	*kind = comm == (MPI_Comm)CART   ? abi.cart
		: comm == (MPI_Comm)DIST ? abi.dist_graph
					 : abi.undefined;
	return 0;
}

static int cartdim_get(MPI_Comm comm, int *n)
{
	*n = 2;
	return 0;
}

static int dist_graph_neighbors_count(MPI_Comm comm, int *sources, int *targets, int *weighted)
{
	*sources = 1;
	*targets = 3;
	return 0;
}

/* Stands for every other function of the host MPI, and counts its calls. */
static int right(void)
{
	seen.n_calls++;
	seen.bad_calls += seen.depth != (rt_has_pending() ? 1 : 0);
	return 0;
}

static int wrong(void)
{
	seen.bad_calls++;
	return 0;
}

static void set_functions(int (*function)(void))
{
	void **all = (void **)&host;

	for (size_t i = 0; i < FRONT_REAL_COUNT; i++)
		all[i] = (void *)function;
	host.Type_get_extent_x = type_extent;
	host.Type_get_true_extent_x = type_true_extent;
	host.Comm_rank = comm_rank;
	host.Comm_size = comm_size;
	host.Comm_remote_size = comm_remote_size;
	host.Comm_test_inter = comm_test_inter;
	host.Topo_test = topo_test;
	host.Cartdim_get = cartdim_get;
	host.Dist_graph_neighbors_count = dist_graph_neighbors_count;
}

/* Type 0 is a byte, type 1 has nothing, type 2 goes backwards; the others are random. */
static void begin(void)
{
	abi_mpich(&abi, NULL);
	set_functions(right);
	memset(&seen, 0, sizeof(seen));
	memset(types, 0, sizeof(types));
	types[0] = (struct type){ 1, { 0 }, { 1 }, 0, 1 };
	types[1].extent = 16;
	types[2] = (struct type){ 1, { 4 }, { 8 }, 0, -32 };
	atomic_store_explicit(&rt_pending, 1, memory_order_relaxed);
}

enum {
#define X(name) OBSERVED_##name,
	FRONT_OBSERVED(X)
#undef X
};

/* While something is pending, by a caller that is the program. */
#define OBSERVER(name) ((__typeof__(host.name))observe_ways[OBSERVED_##name].pending)
/* OBSERVER() for calls that Sluice may admit. */
#define TAKE(name) pend_##name

#endif
