/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wrappers of calls that could show an operation which has been returned from and is still
 * pending. They are entered only while there is one (trampolines.py). What the call names is
 * completed first, by true extents: an overlap too many costs time, one too few a wrong result. So
 * whatever is in doubt completes everything.
 *
 * Nothing here judges arguments. What is wrong with them the library will say.
 */
#include "base/base.h"
#include "mpi/abi/abi.h"
#include "mpi/front/front.h"

/* Bytes of the program's memory that a call names; nothing while lo >= hi. */
struct span {
	uintptr_t lo, hi;
	bool is_unknown;
};

/* Addresses as the library sees them: signed, far from the ends of what can be. */
#define FAR ((__int128)1 << 62)

static void hier_add(struct span *span, __int128 lo, __int128 hi)
{
	if (lo >= hi)
		return;
	if (lo < 0 || hi > FAR) {
		span->is_unknown = true;
		return;
	}
	if (span->lo >= span->hi || (uintptr_t)lo < span->lo)
		span->lo = (uintptr_t)lo;
	if ((uintptr_t)hi > span->hi)
		span->hi = (uintptr_t)hi;
}

static void complete(const struct span *span)
{
	if (span->is_unknown)
		rt_complete_all();
	else if (span->lo < span->hi)
		rt_complete_range((const void *)span->lo, span->hi - span->lo);
}

struct layout {
	MPI_Count lb, extent;           /* from one element to the next */
	MPI_Count true_lb, true_extent; /* where its bytes are */
};

static bool layout_of(MPI_Datatype datatype, struct layout *out)
{
	return datatype != ABI_DATATYPE_NULL &&
	       !real.Type_get_extent_x(datatype, &out->lb, &out->extent) &&
	       !real.Type_get_true_extent_x(datatype, &out->true_lb, &out->true_extent);
}

/* n elements that begin `offset` bytes after `at`. Extents may be negative. */
static void add_elements(struct span *span, const void *at, __int128 offset, __int128 n,
			 const struct layout *layout)
{
	__int128 first = (__int128)(intptr_t)at + offset + layout->true_lb;
	__int128 last = first + (n - 1) * layout->extent;

	if (n > 0 && layout->true_extent > 0)
		hier_add(span, first < last ? first : last,
			 (first < last ? last : first) + layout->true_extent);
}

static void add_buf(struct span *span, const void *at, __int128 n, MPI_Datatype datatype)
{
	struct layout layout;

	if (n <= 0 || at == ABI_IN_PLACE)
		return;
	if (layout_of(datatype, &layout))
		add_elements(span, at, 0, n, &layout);
	else
		span->is_unknown = true;
}

void observe_all(void)
{
	rt_complete_all();
}

static void observe_reap(void)
{
	rt_reap();
}

void observe_buf(const void *at, MPI_Count count, MPI_Datatype datatype)
{
	struct span span = { 0 };

	add_buf(&span, at, count, datatype);
	complete(&span);
}

void observe_bytes(const void *at, MPI_Count bytes)
{
	if (bytes > 0)
		rt_complete_range(at, (uint64_t)bytes);
}

/* ---- calls of the library's ---------------------------------------------------------------- */

/* Where this thread's calls of the library were made, the innermost last. Beyond the last place
 * they are only counted. On another stack (coroutines) one may be taken for left too early: then
 * the library's system calls are looked at, which costs time only. */
static __thread struct {
	int n;
	const void *frames[4];
} hosted __attribute__((tls_model("initial-exec")));

void host_call_unwind(const void *frame)
{
	while (hosted.n && hosted.n <= (int)BASE_ARRAY_LEN(hosted.frames) &&
	       hosted.frames[hosted.n - 1] <= frame) {
		hosted.n--;
		rt_host_end();
	}
}

void host_call_begin_at(const void *frame)
{
	host_call_unwind(frame);
	if (hosted.n < (int)BASE_ARRAY_LEN(hosted.frames))
		hosted.frames[hosted.n] = frame;
	hosted.n++;
	rt_host_begin();
}

int host_call_end_at(int rc)
{
	if (hosted.n) {
		hosted.n--;
		rt_host_end();
	}
	return rc;
}

/* ---- who takes part ------------------------------------------------------------------------ */

static int neighbours(MPI_Comm comm, enum front_who who)
{
	int kind, rank, n, sources, targets, weighted;

	if (real.Topo_test(comm, &kind))
		return -1;
	if (kind == ABI_CART)
		return real.Cartdim_get(comm, &n) ? -1 : 2 * n;
	if (kind == ABI_GRAPH)
		return real.Comm_rank(comm, &rank) || real.Graph_neighbors_count(comm, rank, &n)
			       ? -1
			       : n;
	if (kind != ABI_DIST_GRAPH ||
	    real.Dist_graph_neighbors_count(comm, &sources, &targets, &weighted))
		return -1;
	return who == FRONT_SOURCES ? sources : targets;
}

int members_count(uintptr_t handle, enum front_who who)
{
	MPI_Comm comm = (MPI_Comm)handle;
	int inter, n;

	if (comm == ABI_COMM_NULL)
		return -1;
	if (who == FRONT_SOURCES || who == FRONT_TARGETS)
		return neighbours(comm, who);
	if (real.Comm_test_inter(comm, &inter))
		return -1;
	if (inter && who == FRONT_PEERS)
		return real.Comm_remote_size(comm, &n) ? -1 : n;
	return real.Comm_size(comm, &n) ? -1 : n;
}

/* A communicator that is none is the root's as well: what is in doubt counts. */
bool members_is_root(int root, MPI_Comm comm)
{
	int inter, rank;

	if (comm == ABI_COMM_NULL || real.Comm_test_inter(comm, &inter))
		return true;
	if (inter)
		return root == ABI_ROOT;
	return real.Comm_rank(comm, &rank) || rank == root;
}

void observe_each(const void *at, MPI_Count count, MPI_Datatype datatype, MPI_Comm comm,
		  enum front_who who)
{
	struct span span = { 0 };
	int n;

	if (count <= 0 || at == ABI_IN_PLACE)
		return;
	n = members_count((uintptr_t)comm, who);
	if (n < 0)
		span.is_unknown = true;
	else
		add_buf(&span, at, (__int128)count * n, datatype);
	complete(&span);
}

/* ---- one count for each -------------------------------------------------------------------- */

/* How many, with the arguments that belong to them; -1 when everything must be completed. */
static int count_all(const void *at, struct list a, struct list b, MPI_Comm comm,
		     enum front_who who)
{
	int n;

	if (at == ABI_IN_PLACE)
		return 0;
	n = members_count((uintptr_t)comm, who);
	return n > 0 && (!a.at || !b.at) ? -1 : n;
}

void observe_part(const void *at, struct list counts, struct list displs,
			 MPI_Datatype datatype, MPI_Comm comm, enum front_who who)
{
	int n = count_all(at, counts, displs, comm, who);
	struct span span = { .is_unknown = n < 0 };
	struct layout layout;

	if (n > 0 && !layout_of(datatype, &layout))
		span.is_unknown = true;
	for (int i = 0; i < n && !span.is_unknown; i++)
		add_elements(&span, at, (__int128)list_get(displs, i) * layout.extent,
			     list_get(counts, i), &layout);
	complete(&span);
}

void observe_parts(const void *at, struct list counts, struct list displs,
			  const MPI_Datatype *datatypes, MPI_Comm comm, enum front_who who)
{
	int n = count_all(at, counts, displs, comm, who);
	struct span span = { .is_unknown = n < 0 || (n > 0 && !datatypes) };
	struct layout layout;

	for (int i = 0; i < n && !span.is_unknown; i++) {
		if (list_get(counts, i) <= 0)
			continue;
		if (layout_of(datatypes[i], &layout))
			add_elements(&span, at, list_get(displs, i), list_get(counts, i), &layout);
		else
			span.is_unknown = true;
	}
	complete(&span);
}

void observe_sum(const void *at, struct list counts, MPI_Datatype datatype, MPI_Comm comm,
			enum front_who who)
{
	int n = count_all(at, counts, counts, comm, who);
	struct span span = { .is_unknown = n < 0 };
	__int128 sum = 0;

	for (int i = 0; i < n; i++)
		sum += list_get(counts, i);
	add_buf(&span, at, sum, datatype);
	complete(&span);
}

/* ---- requests, windows ------------------------------------------------------------------- */

static void observe_keep(MPI_Request request, const void *at, MPI_Count count,
			 MPI_Datatype datatype)
{
	struct span span = { 0 };

	if (!rt_is_on())
		return;
	add_buf(&span, at, count, datatype);
	if (span.is_unknown)
		persistent_buf_drop((uintptr_t)request);
	else
		persistent_buf_set((uintptr_t)request, span.lo, span.hi - span.lo);
}

static void observe_drop(MPI_Request request)
{
	persistent_buf_drop((uintptr_t)request);
}

static void observe_start(int n, const MPI_Request *requests)
{
	uintptr_t start;
	uint64_t bytes;

	for (int i = 0; i < n; i++) {
		if (!requests || !persistent_buf_get((uintptr_t)requests[i], &start, &bytes)) {
			rt_complete_all();
			return;
		}
		if (bytes)
			rt_complete_range((const void *)start, bytes);
	}
}

/* MPI_Win_allocate gave this. Its owner may be written to without any call of its own. */
static void observe_made(const void *out_base, MPI_Count bytes)
{
	if (out_base && bytes > 0)
		rt_memory_keep_out(*(void *const *)out_base, (uint64_t)bytes);
}

/* ---- the wrappers ------------------------------------------------------------------------ */

#include "look.h"
