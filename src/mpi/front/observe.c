/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wrappers of functions that could observe a detached operation while it is pending. The program
 * enters them only then (trampolines.py). A wrapper first completes the operations that overlap
 * the memory that the call names, by true extents. One overlap too many costs time, one too few
 * gives a wrong result, so in doubt a wrapper completes every operation.
 *
 * The wrappers do not validate arguments. The host MPI reports invalid ones.
 */
#include "base/base.h"
#include "message/message.h"
#include "mpi/coll/comm_state.h"
#include "mpi/front/front.h"
#include "mpi/front/observe.h"
#include "mpi/request/persistent_bufs.h"

/* Bytes of the program's memory that a call names; nothing while lo >= hi. */
struct range {
	uintptr_t lo, hi;
	bool is_unknown;
};

/* Addresses as the host MPI computes them: signed. FAR lies outside the address space. */
#define FAR ((__int128)1 << 62)

static void add_range(struct range *range, __int128 lo, __int128 hi)
{
	if (lo >= hi)
		return;
	if (lo < 0 || hi > FAR) {
		range->is_unknown = true;
		return;
	}
	if (range->lo >= range->hi || (uintptr_t)lo < range->lo)
		range->lo = (uintptr_t)lo;
	if ((uintptr_t)hi > range->hi)
		range->hi = (uintptr_t)hi;
}

static void complete(const struct range *range)
{
	if (range->is_unknown)
		rt_complete_all();
	else if (range->lo < range->hi)
		rt_complete_range((const void *)range->lo, range->hi - range->lo);
}

struct footprint {
	MPI_Count lb, extent;           /* from one element to the next */
	MPI_Count true_lb, true_extent; /* the bytes of one element */
};

static bool footprint_of(MPI_Datatype datatype, struct footprint *out)
{
	return datatype != abi.datatype_null &&
	       !host.Type_get_extent_x(datatype, &out->lb, &out->extent) &&
	       !host.Type_get_true_extent_x(datatype, &out->true_lb, &out->true_extent);
}

/* Adds n elements from `offset` bytes after `at`. Extents may be negative. */
static void add_elements(struct range *range, const void *at, __int128 offset, __int128 n,
			 const struct footprint *footprint)
{
	__int128 first = (__int128)(intptr_t)at + offset + footprint->true_lb;
	__int128 last = first + (n - 1) * footprint->extent;

	if (n > 0 && footprint->true_extent > 0)
		add_range(range, first < last ? first : last,
			 (first < last ? last : first) + footprint->true_extent);
}

static void add_buf(struct range *range, const void *at, __int128 n, MPI_Datatype datatype)
{
	struct footprint footprint;

	if (n <= 0 || at == abi.in_place)
		return;
	if (footprint_of(datatype, &footprint))
		add_elements(range, at, 0, n, &footprint);
	else
		range->is_unknown = true;
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
	struct range range = { 0 };

	add_buf(&range, at, count, datatype);
	complete(&range);
}

void observe_bytes(const void *at, MPI_Count bytes)
{
	if (bytes > 0)
		rt_complete_range(at, (uint64_t)bytes);
}

void observe_each(const void *at, MPI_Count count, MPI_Datatype datatype, MPI_Comm comm,
		  enum members which)
{
	struct range range = { 0 };
	int n;

	if (count <= 0 || at == abi.in_place)
		return;
	n = members_count(comm, which);
	if (n < 0)
		range.is_unknown = true;
	else
		add_buf(&range, at, (__int128)count * n, datatype);
	complete(&range);
}

/* ---- one count for each --------------------------------------------------------------------- */

/* Returns: number of counts, with their arguments; -1 when every operation must complete. */
static int count_all(const void *at, struct list a, struct list b, MPI_Comm comm,
		     enum members which)
{
	int n;

	if (at == abi.in_place)
		return 0;
	n = members_count(comm, which);
	return n > 0 && (!a.at || !b.at) ? -1 : n;
}

void observe_part(const void *at, struct list counts, struct list displs,
			 MPI_Datatype datatype, MPI_Comm comm, enum members which)
{
	int n = count_all(at, counts, displs, comm, which);
	struct range range = { .is_unknown = n < 0 };
	struct footprint footprint;

	if (n > 0 && !footprint_of(datatype, &footprint))
		range.is_unknown = true;
	for (int i = 0; i < n && !range.is_unknown; i++)
		add_elements(&range, at, (__int128)list_get(displs, i) * footprint.extent,
			     list_get(counts, i), &footprint);
	complete(&range);
}

void observe_parts(const void *at, struct list counts, struct list displs,
			  const void *datatypes, MPI_Comm comm, enum members which)
{
	int n = count_all(at, counts, displs, comm, which);
	struct range range = { .is_unknown = n < 0 || (n > 0 && !datatypes) };
	struct footprint footprint;

	for (int i = 0; i < n && !range.is_unknown; i++) {
		if (list_get(counts, i) <= 0)
			continue;
		if (footprint_of(abi_handle_get(datatypes, i), &footprint))
			add_elements(&range, at, list_get(displs, i), list_get(counts, i),
				     &footprint);
		else
			range.is_unknown = true;
	}
	complete(&range);
}

void observe_sum(const void *at, struct list counts, MPI_Datatype datatype, MPI_Comm comm,
			enum members which)
{
	int n = count_all(at, counts, counts, comm, which);
	struct range range = { .is_unknown = n < 0 };
	__int128 sum = 0;

	for (int i = 0; i < n; i++)
		sum += list_get(counts, i);
	add_buf(&range, at, sum, datatype);
	complete(&range);
}

/* ---- requests, windows ------------------------------------------------------------------- */

static void observe_keep(const void *request, bool is_sent, const void *at, MPI_Count count,
			 MPI_Datatype datatype)
{
	uintptr_t handle = (uintptr_t)abi_handle_get(request, 0);
	struct range range = { 0 };

	if (!rt_is_on())
		return;
	add_buf(&range, at, count, datatype);
	if (range.is_unknown)
		persistent_buf_drop(handle);
	else
		persistent_buf_set(handle, range.lo, range.hi - range.lo,
				   is_sent ? types_bytes(datatype, count) : 0);
}

/* Elements that the host MPI may let peers read where they lie. Returns: NULL or the copy that is
 * offered. */
static struct snapshot *send_elements(const void *at, MPI_Count count, MPI_Datatype datatype,
				      enum message_copy copy)
{
	struct range range = { 0 };
	uint64_t bytes, used;

	if (message_gate == UINT64_MAX)
		return NULL;
	/* learns the size of a predefined datatype, so that the next short ones are passed on */
	used = types_bytes(datatype, count);
	if (used < message_gate)
		return NULL;
	add_buf(&range, at, count, datatype);
	if (range.lo >= range.hi || range.is_unknown)
		return NULL;
	bytes = range.hi - range.lo;
	if (used != bytes && abi.packs_gaps)
		return NULL;
	return message_send((const void *)range.lo, bytes, used, copy);
}

static void observe_send(const void *at, MPI_Count count, MPI_Datatype datatype)
{
	send_elements(at, count, datatype, MESSAGE_UNCOPIED);
}

/* A send that returns after it has been read. */
static struct snapshot *observe_blocking_send(const void *at, MPI_Count count,
					      MPI_Datatype datatype, int dest)
{
	return send_elements(at, count, datatype, dest >= 0 ? MESSAGE_BLOCKING : MESSAGE_UNCOPIED);
}

/* ---- nonblocking sends ------------------------------------------------------------------- */

static struct snapshot *observe_posted_send(const void *at, MPI_Count count,
					    MPI_Datatype datatype, int dest)
{
	return send_elements(at, count, datatype,
			     dest >= 0 && !session_is_thread_multiple() ? MESSAGE_POSTED :
									  MESSAGE_UNCOPIED);
}

static void posted(struct snapshot *s, uintptr_t handle, bool is_persistent)
{
	if (!message_has_posted())
		rt_intercept_ref();
	message_posted(s, handle, is_persistent);
}

/* The host MPI has started a send. Returns: rc. */
static int observe_posted(struct snapshot *s, int rc, const void *request)
{
	void *handle = s && !rc ? abi_handle_get(request, 0) : NULL;

	if (!s)
		return rc;
	if (rc || handle == (void *)abi.request_null) { /* it has failed, or is complete */
		message_not_posted(s);
		return rc;
	}
	posted(s, (uintptr_t)handle, false);
	return rc;
}

/* Returns: the sends among the requests. *twice: those whose handle is there more than once, as a
 * host MPI may give one handle to several sends that are complete. */
static uint64_t listed(int count, const void *requests, uint64_t *twice)
{
	uint64_t found = 0;

	for (int i = 0; requests && i < count; i++) {
		uint64_t named = message_listed((uintptr_t)abi_handle_get(requests, i));

		*twice |= found & named;
		found |= named;
	}
	return found;
}

static void end_sends(uint64_t sends, uint64_t remaining)
{
	if (base_unlikely(sends) && message_completed(sends, remaining))
		rt_intercept_unref();
}

/* A call begins that may complete these requests. Returns: their sends. */
static uint64_t observe_listed(int count, const void *requests)
{
	uint64_t twice = 0, sends;

	if (base_likely(!message_has_posted()))
		return 0;
	sends = listed(count, requests, &twice);
	end_sends(twice, 0); /* nobody could tell which of them the call completes */
	return sends & ~twice;
}

/* It has ended. Returns: rc. */
static int observe_completed(uint64_t sends, int count, const void *requests, int rc)
{
	uint64_t twice = 0;

	if (base_unlikely(sends))
		end_sends(sends, rc ? 0 : listed(count, requests, &twice));
	return rc;
}

/* A call begins that ends these requests, or tells whether they are complete. */
static void observe_ending(int count, const void *requests)
{
	end_sends(observe_listed(count, requests), 0);
}

/* The program is about to start persistent requests. */
static void observe_starting(int n, const void *requests)
{
	bool may_copy = !session_is_thread_multiple();
	uint64_t bytes, sent;
	struct snapshot *s;
	uintptr_t start;

	for (int i = 0; i < n && requests && message_gate != UINT64_MAX; i++) {
		uintptr_t handle = (uintptr_t)abi_handle_get(requests, i);

		if (!persistent_buf_get(handle, &start, &bytes, &sent) || sent < message_gate)
			continue;
		s = message_send((const void *)start, bytes, sent,
				 may_copy ? MESSAGE_POSTED : MESSAGE_UNCOPIED);
		if (s)
			posted(s, handle, true);
	}
}

/* It has started them. Returns: rc. */
static int observe_started(int n, const void *requests, int rc)
{
	if (rc)
		observe_ending(n, requests);
	return rc;
}

static void observe_drop(const void *request)
{
	persistent_buf_drop((uintptr_t)abi_handle_get(request, 0));
}

static void observe_start(int n, const void *requests)
{
	uintptr_t start;
	uint64_t bytes, sent;

	for (int i = 0; i < n; i++) {
		if (!requests || !persistent_buf_get((uintptr_t)abi_handle_get(requests, i), &start,
						     &bytes, &sent)) {
			rt_complete_all();
			return;
		}
		if (bytes)
			rt_complete_range((const void *)start, bytes);
	}
}

/* Excludes memory of MPI_Win_allocate: other ranks may write it without a call of its owner. */
static void observe_made(const void *out_base, MPI_Count bytes)
{
	if (out_base && bytes > 0)
		rt_memory_keep_out(*(void *const *)out_base, (uint64_t)bytes);
}

/* ---- polite probes: the Probe of some host MPIs has no idle rounds ------------------------- */

static int wait_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status)
{
	int flag = 0, rc = 0;

	if (wait_mode() != WAIT_POLITE)
		return host.Probe(source, tag, comm, status);
	for (;; wait_round()) {
		rc = host.Iprobe(source, tag, comm, &flag, status);
		if (rc || flag)
			return rc;
	}
}

static int wait_Mprobe(int source, int tag, MPI_Comm comm, void *message, MPI_Status *status)
{
	int flag = 0, rc = 0;

	if (wait_mode() != WAIT_POLITE)
		return host.Mprobe(source, tag, comm, message, status);
	for (;; wait_round()) {
		rc = host.Improbe(source, tag, comm, &flag, message, status);
		if (rc || flag)
			return rc;
	}
}

/* ---- the wrappers ------------------------------------------------------------------------ */

/* Around the call of a function without terms. Returns: is it in the host MPI's bracket? */
__attribute__((noinline)) static bool untermed_begin(const void *frame)
{
	bool is_hosted = rt_has_pending();

	if (is_hosted)
		host_bracket_begin(frame);
	wait_common_begin();
	return is_hosted;
}

__attribute__((noinline)) static int untermed_end(bool is_hosted, int rc)
{
	wait_call_end_for(rc, WAIT_ALL);
	return is_hosted ? host_bracket_end(rc) : rc;
}

#include "observers.h"
