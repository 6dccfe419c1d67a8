/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and stop of the runtime, and the state of each communicator. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"
#include "mpi/coll/comm_state.h"

static struct {
	/* Protects all other fields but has_progress_request. Recursive: delete_stop() makes the
	 * host MPI progress, which may call delete_comm(). */
	pthread_mutex_t lock;
	bool is_started, is_stopped;
	bool is_multiple; /* MPI_THREAD_MULTIPLE is provided */
	int stop_keyval, comm_keyval;
	bool has_progress_request; /* set at the start and at the end */
	MPI_Request progress_request; /* never completes; a test makes the host MPI progress */
	struct comm_state *comms;
	struct comm_state *freed; /* states that still hold objects of the host MPI */
} session = { .lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP };

const struct multinode_ops *multinode;

static _Atomic bool has_keyvals; /* release by session_start(), acquire by comm_state_get() */

static void begin_progress(void);
static void end_progress(void);
static void cancel_connect(struct comm_state *cs);
static void tidy(void);

/* ---- stop -------------------------------------------------------------------------------- */

/* A copy of a communicator starts without the attributes of Sluice. */
static int copy_none(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
	*flag = 0;
	return 0;
}

static void end_requests(struct comm_state *cs)
{
	if (cs->rt)
		rt_requests_end(cs->rt);
	else if (cs->multinode && !multinode->end(cs->multinode))
		cs->multinode = NULL; /* the thread never leaves the state */
	if (cs->lanes)
		rt_requests_end(cs->lanes);
}

/* MPI_Finalize first deletes the attributes of MPI_COMM_SELF, also when no tool intercepts
 * MPI_Finalize. The host MPI deletes later attributes earlier, so Sluice still executes the last
 * collectives of their owners. Attributes of other communicators may be deleted after this one. */
static int delete_stop(MPI_Comm comm, int keyval, void *value, void *extra)
{
	pthread_mutex_lock(&session.lock);
	for (struct comm_state *cs = session.comms; cs; cs = cs->next)
		end_requests(cs);
	pthread_mutex_unlock(&session.lock);
	request_stop_all(); /* requests free their resources */
	pthread_mutex_lock(&session.lock);
	for (struct comm_state *cs = session.comms; cs; cs = cs->next) {
		rt_comm_destroy(cs->rt);
		rt_comm_destroy(cs->lanes);
		if (cs->multinode)
			multinode->destroy(cs->multinode);
		cancel_connect(cs);
		cs->rt = cs->lanes = NULL;
		cs->multinode = NULL;
		cs->is_decided = cs->is_lanes_decided = true;
	}
	session.is_stopped = true;
	pthread_mutex_unlock(&session.lock);

	tidy();
	end_progress();
	scratch_free();
	rt_stop();
	return 0;
}

static void unlink_locked(struct comm_state *cs)
{
	for (struct comm_state **at = &session.comms; *at; at = &(*at)->next) {
		if (*at == cs) {
			*at = cs->next;
			break;
		}
	}
}

/* tidy() makes the calls of the host MPI later: this callback may run inside the host MPI, with
 * its locks held (MPICH frees a communicator in the MPI_Wait that completes its last operation). */
static void destroy_comm(struct comm_state *cs)
{
	rt_comm_destroy(cs->rt);
	rt_comm_destroy(cs->lanes);
	if (cs->multinode)
		multinode->close(cs->multinode);
	cs->rt = cs->lanes = NULL;
	cancel_connect(cs);
	pthread_mutex_lock(&session.lock);
	cs->next = session.freed;
	session.freed = cs;
	pthread_mutex_unlock(&session.lock);
}

static void tidy(void)
{
	struct comm_state *freed, *next;

	pthread_mutex_lock(&session.lock);
	freed = session.freed;
	session.freed = NULL;
	pthread_mutex_unlock(&session.lock);
	for (; freed; freed = next) {
		next = freed->next;
		if (freed->multinode)
			multinode->destroy(freed->multinode);
		free(freed);
	}
}

static _Atomic uint32_t deletions; /* handles of freed communicators are used again */

static int delete_comm(MPI_Comm comm, int keyval, void *value, void *extra)
{
	struct comm_state *cs = value;
	bool is_held;

	atomic_fetch_add_explicit(&deletions, 1, memory_order_release);
	pthread_mutex_lock(&session.lock);
	is_held = cs->refs;
	cs->is_freed = true;
	if (!is_held)
		unlink_locked(cs);
	pthread_mutex_unlock(&session.lock);
	if (!is_held)
		destroy_comm(cs);
	return 0;
}

void comm_state_ref(struct comm_state *cs)
{
	pthread_mutex_lock(&session.lock);
	cs->refs++;
	pthread_mutex_unlock(&session.lock);
}

void comm_state_unref(struct comm_state *cs)
{
	bool is_last;

	pthread_mutex_lock(&session.lock);
	is_last = !--cs->refs && cs->is_freed;
	if (is_last)
		unlink_locked(cs);
	pthread_mutex_unlock(&session.lock);
	if (is_last)
		destroy_comm(cs);
}

/* ---- start ------------------------------------------------------------------------------- */

static bool is_initialized(void)
{
	int initialized = 0, finalized = 0;

	return !host.Initialized(&initialized) && initialized && !host.Finalized(&finalized) &&
	       !finalized;
}

static int create_keyvals_locked(void)
{
	if (host.Comm_create_keyval(copy_none, delete_stop, &session.stop_keyval, NULL) ||
	    host.Comm_create_keyval(copy_none, delete_comm, &session.comm_keyval, NULL) ||
	    host.Comm_set_attr(abi.comm_self, session.stop_keyval, &session))
		return -EIO;
	begin_progress();
	atomic_store_explicit(&has_keyvals, true, memory_order_release);
	return 0;
}

/* A program that uses only MPI sessions has no MPI_COMM_WORLD, so Sluice cannot tell its members
 * from other processes and stays out: see are_all_with_us(). */
void session_start(void)
{
	int rank = -1, size = -1, provided = -1;

	pthread_mutex_lock(&session.lock);
	bypass++;
	if (!session.is_started && !session.is_stopped && is_initialized()) {
		session.is_started = true;
		host.Comm_rank(abi.comm_world, &rank);
		host.Comm_size(abi.comm_world, &size);
		session.is_multiple = !host.Query_thread(&provided) &&
				   provided == abi.thread_multiple;
		if (rt_start(rank, size) && create_keyvals_locked())
			rt_stop();
	}
	bypass--;
	pthread_mutex_unlock(&session.lock);
}

/* ---- communicators ----------------------------------------------------------------------- */

static int raise_no_memory(MPI_Comm comm)
{
	host.Comm_call_errhandler(comm, abi.err_no_mem);
	return abi.err_no_mem;
}

static int create_comm(MPI_Comm comm, struct comm_state **out)
{
	int inter = 0, rank = 0, size = 0, rc;
	struct comm_state *cs;

	tidy();
	rc = host.Comm_test_inter(comm, &inter);
	if (!rc)
		rc = host.Comm_rank(comm, &rank);
	if (!rc)
		rc = host.Comm_size(comm, &size);
	if (rc)
		return rc;
	cs = calloc(1, sizeof(*cs) + (size_t)size * sizeof(cs->words[0]));
	if (!cs)
		return raise_no_memory(comm);
	rc = host.Comm_set_attr(comm, session.comm_keyval, cs);
	if (rc) {
		free(cs);
		return rc;
	}
	*cs = (struct comm_state){ .comm = comm, .rank = rank, .size = size, .is_inter = inter };
	pthread_mutex_lock(&session.lock);
	cs->is_decided = cs->is_lanes_decided = session.is_stopped;
	cs->next = session.comms;
	session.comms = cs;
	pthread_mutex_unlock(&session.lock);
	*out = cs;
	return 0;
}

int comm_state_get(MPI_Comm comm, struct comm_state **out)
{
	void *value = NULL;
	int found = 0, rc;

	*out = NULL;
	if (!atomic_load_explicit(&has_keyvals, memory_order_acquire))
		return 0;
	bypass++;
	rc = host.Comm_get_attr(comm, session.comm_keyval, &value, &found);
	if (!rc && found)
		*out = value;
	else if (!rc)
		rc = create_comm(comm, out);
	bypass--;
	return rc;
}

int comm_state_find(MPI_Comm comm, struct comm_state **out)
{
	static __thread struct {
		MPI_Comm comm;
		uint32_t deletions;
		struct comm_state *state;
	} last;
	uint32_t now = atomic_load_explicit(&deletions, memory_order_acquire);
	int rc = 0;

	if (last.comm != comm || last.deletions != now || !last.state) {
		last.comm = comm;
		last.deletions = now;
		rc = comm_state_get(comm, &last.state);
	}
	*out = rc ? NULL : last.state;
	return rc;
}

/* Processes that joined later (MPI_Comm_spawn, MPI_Comm_connect) may run without Sluice. A rank
 * of a communicator with such members finds members outside its own world. */
static bool are_all_with_us(struct comm_state *cs)
{
	size_t n = (size_t)cs->size;
	int *ranks = (int *)cs->words; /* two entries a rank */
	MPI_Group group = NULL, world = NULL;
	bool all = false;

	for (size_t i = 0; i < n; i++)
		ranks[i] = (int)i;
	if (host.Comm_group(cs->comm, &group))
		return false;
	if (host.Comm_group(abi.comm_world, &world))
		goto free_group;
	all = !host.Group_translate_ranks(group, cs->size, ranks, world, ranks + n);
	for (size_t i = 0; all && i < n; i++)
		all = ranks[n + i] != abi.undefined;
	all = all && rt_are_all_present(ranks + n, cs->size);
	host.Group_free(&world);
free_group:
	host.Group_free(&group);
	return all;
}

static int oob_allgather(void *ctx, const void *in, size_t bytes, void *out)
{
	const struct comm_state *cs = ctx;
	int n = (int)bytes;

	if (bytes > INT_MAX)
		return -E2BIG;
	return BYPASS(host.Allgather(in, n, abi.byte, out, n, abi.byte, cs->comm)) ? -EIO : 0;
}

static int oob_allreduce_min(void *ctx, int64_t in, int64_t *out)
{
	struct comm_state *cs = ctx;
	int64_t min = in;
	int rc;

	rc = oob_allgather(ctx, &in, sizeof(in), cs->words);
	for (int i = 0; !rc && i < cs->size; i++)
		if (cs->words[i] < min)
			min = cs->words[i];
	if (!rc)
		*out = min;
	return rc;
}

int comm_state_agree(struct comm_state *cs, int64_t mine, int64_t *out)
{
	return oob_allreduce_min(cs, mine, out);
}

int comm_state_ask(struct comm_state *cs, int64_t mine, int64_t *out)
{
	return are_all_with_us(cs) ? comm_state_agree(cs, mine, out) : -ENOTSUP;
}

bool session_is_thread_multiple(void)
{
	return session.is_multiple;
}

bool session_may_have_threads(void)
{
	return session.is_multiple ||
	       atomic_load_explicit(&rt_expects_threads, memory_order_relaxed);
}

/* ---- progress of the host MPI ------------------------------------------------------------- */

/*
 * A rank that waits in a collective must make the host MPI progress: a peer may reach the
 * collective only after this rank has received its message. In every host MPI, testing an
 * incomplete request progresses all messages (MPI_Iprobe does not: MPICH polls only where such a
 * message could arrive). No message completes a generalized request. It belongs to no communicator,
 * as the test may free any: see delete_comm().
 */
static int query_pending(void *extra, MPI_Status *status) { return 0; }
static int free_pending(void *extra) { return 0; }
static int cancel_pending(void *extra, int complete) { return 0; }

void comm_state_progress(void *unused)
{
	int flag;

	if (session.has_progress_request)
		BYPASS(host.Test(&session.progress_request, &flag, abi.status_ignore));
}

static void begin_progress(void)
{
	session.has_progress_request = !host.Grequest_start(
		query_pending, free_pending, cancel_pending, NULL, &session.progress_request);
}

static void end_progress(void)
{
	if (!session.has_progress_request)
		return;
	session.has_progress_request = false;
	bypass++;
	host.Grequest_complete(session.progress_request);
	host.Request_free(&session.progress_request);
	bypass--;
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* The ranks agree whether all have a topology. Returns: 0 or -errno. */
static int agree_on_neighbours(struct comm_state *cs)
{
	int64_t fit = 0;
	int kind, rc = 0;

	if (cs->rt && !host.Topo_test(cs->comm, &kind) && kind != abi.undefined)
		rc = oob_allreduce_min(cs, topology_is_served(cs->comm, cs->size), &fit);
	cs->has_neighbours = fit;
	return rc;
}

struct node_oob comm_state_oob(struct comm_state *cs)
{
	return (struct node_oob){
		.ctx = cs,
		.rank = cs->rank,
		.size = cs->size,
		.allgather = oob_allgather,
		.allreduce_min = oob_allreduce_min,
		.progress = comm_state_progress,
		.thread_multiple = session.is_multiple,
	};
}

/* For each rank: the first communicator of a process, and the least that is believed (ADR 35). */
#define PRICE_NS       500000u
#define PRICE_LEAST_NS 100000u
static _Atomic uint64_t price_ns = PRICE_NS;

uint64_t comm_state_price_ns(const struct comm_state *cs)
{
	return atomic_load_explicit(&price_ns, memory_order_relaxed) * (uint64_t)cs->size;
}

/* Waiting for a late rank is no price, so the least time counts. */
static void note_price(uint64_t ns_a_rank)
{
	uint64_t last = atomic_load_explicit(&price_ns, memory_order_relaxed);

	atomic_store_explicit(&price_ns,
			      base_max_u64(base_min_u64(last, ns_a_rank), PRICE_LEAST_NS),
			      memory_order_relaxed);
}

bool comm_state_connect(struct comm_state *cs)
{
	struct node_oob oob;
	uint64_t begin_ns;

	if (cs->is_decided)
		return cs->rt;
	begin_ns = os_now_ns();
	bypass++;
	if (multinode && multinode->spans(cs)) {
		cs->multinode = multinode->create(cs);
	} else if (are_all_with_us(cs)) {
		oob = comm_state_oob(cs);
		if (rt_comm_create(&oob, &cs->rt) || agree_on_neighbours(cs))
			cs->rt = NULL;
	}
	cs->is_decided = true;
	bypass--;
	if (cs->rt)
		note_price((os_now_ns() - begin_ns) / (uint64_t)cs->size);
	return cs->rt;
}

bool comm_state_connect_lanes(struct comm_state *cs)
{
	struct node_oob oob = comm_state_oob(cs);

	if (!cs->is_lanes_decided && cs->rt) {
		bypass++;
		if (rt_comm_create_lanes(&oob, &cs->lanes))
			cs->lanes = NULL;
		bypass--;
	}
	cs->is_lanes_decided = true;
	return cs->lanes;
}

bool comm_state_is_freed(struct comm_state *cs)
{
	bool is;

	pthread_mutex_lock(&session.lock);
	is = cs->is_freed;
	pthread_mutex_unlock(&session.lock);
	return is;
}

/* ---- credit of nonblocking calls ------------------------------------------------------------ */

bool comm_state_pay(struct comm_state *cs, enum coll kind, uint64_t bytes)
{
	cs->connect_credit += policy_connect_credit(&rt_options, kind, bytes, cs->size);
	return cs->connect_credit > policy_connect_threshold(&rt_options) || base_fault("connect");
}

void comm_state_add_credit(struct comm_state *cs, enum coll kind, uint64_t bytes)
{
	pthread_mutex_lock(&session.lock);
	if (!cs->is_connect_due && !cs->is_decided) {
		cs->is_connect_due = comm_state_pay(cs, kind, bytes);
		if (cs->is_connect_due)
			rt_sync_ref();
	}
	pthread_mutex_unlock(&session.lock);
}

static void cancel_connect(struct comm_state *cs)
{
	if (cs->is_connect_due)
		rt_sync_unref();
	cs->is_connect_due = false;
}

void comm_state_sync(MPI_Comm comm)
{
	struct comm_state *cs;

	if (!rt_is_syncing() || comm == abi.comm_null || comm_state_get(comm, &cs) || !cs)
		return;
	if (cs->rt && rt_requests_disagree(cs->rt))
		rt_requests_agree(cs->rt);
	if (!cs->is_connect_due)
		return;
	comm_state_connect(cs);
	pthread_mutex_lock(&session.lock);
	cancel_connect(cs);
	pthread_mutex_unlock(&session.lock);
}
