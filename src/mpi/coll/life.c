/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and stop of the runtime, and what is kept with each communicator. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"
#include "mpi/abi/abi.h"
#include "mpi/front/front.h"
#include "mpi/hier.h"
#include "rt/requests.h"

__thread int inside __attribute__((tls_model("initial-exec")));
__thread int scratch_error __attribute__((tls_model("initial-exec")));

static struct {
	pthread_mutex_t lock; /* protects the rest */
	bool is_started, is_stopped;
	bool is_multiple; /* MPI_THREAD_MULTIPLE is provided */
	int stop_keyval, comm_keyval;
	struct comm_state *comms;
	struct comm_state *gone; /* of the library's they still have something */
} life = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* A lock of its own: it is held while a communicator is made, and the library may hold locks of its
 * own when it calls delete_comm(). */
static struct {
	pthread_mutex_t lock;
	bool is_made, is_gone;
	MPI_Comm comm;
	pthread_mutex_t turn; /* held while a thread communicates on comm */
} helper = { .lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_MUTEX_INITIALIZER };

static _Atomic bool has_keyvals; /* release by session_start(), acquire by comm_state() */

static void end_pending(struct comm_state *lc);
static void end_wanting(struct comm_state *lc);
static void tidy(void);
static void free_helper(void);

/* ---- stop -------------------------------------------------------------------------------- */

/* A copy of a communicator starts without our attributes. */
static int copy_none(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
	*flag = 0;
	return 0;
}

static void end_requests(struct comm_state *lc)
{
	if (lc->rt)
		rt_requests_end(lc->rt);
	else if (lc->span && !hier_end(lc->span))
		lc->span = NULL; /* its thread waits inside it for ever */
	if (lc->lanes)
		rt_requests_end(lc->lanes);
}

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF before anything else, also when nobody has
 * intercepted it. Attributes set later than ours are deleted earlier: their owners' last
 * collectives are still served. Those of other communicators may be deleted after us. */
static int delete_stop(MPI_Comm comm, int keyval, void *value, void *extra)
{
	pthread_mutex_lock(&life.lock);
	for (struct comm_state *lc = life.comms; lc; lc = lc->next)
		end_requests(lc);
	pthread_mutex_unlock(&life.lock);
	request_stop_all(); /* requests give back what they hold */
	pthread_mutex_lock(&life.lock);
	for (struct comm_state *lc = life.comms; lc; lc = lc->next) {
		rt_comm_destroy(lc->rt);
		rt_comm_destroy(lc->lanes);
		hier_destroy(lc->span);
		end_pending(lc);
		end_wanting(lc);
		lc->rt = lc->lanes = NULL;
		lc->span = NULL;
		lc->is_asked = lc->is_asked_lanes = true;
	}
	life.is_stopped = true;
	pthread_mutex_unlock(&life.lock);

	tidy();
	free_helper();
	rt_stop();
	return 0;
}

static void unlink_locked(struct comm_state *lc)
{
	for (struct comm_state **at = &life.comms; *at; at = &(*at)->next) {
		if (*at == lc) {
			*at = lc->next;
			break;
		}
	}
}

/* What the library has to be called for waits for tidy(): this may be in the middle of a call of
 * its, with its locks held (MPICH lets go of a communicator in the MPI_Wait that ends the last
 * operation on it). */
static void destroy_comm(struct comm_state *lc)
{
	rt_comm_destroy(lc->rt);
	rt_comm_destroy(lc->lanes);
	hier_close(lc->span);
	lc->rt = lc->lanes = NULL;
	end_wanting(lc);
	pthread_mutex_lock(&life.lock);
	lc->next = life.gone;
	life.gone = lc;
	pthread_mutex_unlock(&life.lock);
}

static void tidy(void)
{
	struct comm_state *gone, *next;

	pthread_mutex_lock(&life.lock);
	gone = life.gone;
	life.gone = NULL;
	pthread_mutex_unlock(&life.lock);
	for (; gone; gone = next) {
		next = gone->next;
		hier_destroy(gone->span);
		end_pending(gone);
		free(gone);
	}
}

static int delete_comm(MPI_Comm comm, int keyval, void *value, void *extra)
{
	struct comm_state *lc = value;
	bool is_held;

	pthread_mutex_lock(&life.lock);
	is_held = lc->refs;
	lc->is_gone = true;
	if (!is_held)
		unlink_locked(lc);
	pthread_mutex_unlock(&life.lock);
	if (!is_held)
		destroy_comm(lc);
	return 0;
}

void comm_state_ref(struct comm_state *lc)
{
	pthread_mutex_lock(&life.lock);
	lc->refs++;
	pthread_mutex_unlock(&life.lock);
}

void comm_state_unref(struct comm_state *lc)
{
	bool is_last;

	pthread_mutex_lock(&life.lock);
	is_last = !--lc->refs && lc->is_gone;
	if (is_last)
		unlink_locked(lc);
	pthread_mutex_unlock(&life.lock);
	if (is_last)
		destroy_comm(lc);
}

/* ---- start ------------------------------------------------------------------------------- */

static bool is_world_there(void)
{
	int initialized = 0, finalized = 0;

	return !real.Initialized(&initialized) && initialized && !real.Finalized(&finalized) &&
	       !finalized;
}

static int create_keyvals_locked(void)
{
	if (real.Comm_create_keyval(copy_none, delete_stop, &life.stop_keyval, NULL) ||
	    real.Comm_create_keyval(copy_none, delete_comm, &life.comm_keyval, NULL) ||
	    real.Comm_set_attr(ABI_COMM_SELF, life.stop_keyval, &life))
		return -EIO;
	atomic_store_explicit(&has_keyvals, true, memory_order_release);
	return 0;
}

/* A program that uses sessions only has no world whose members could be told from others: it is
 * left alone, see are_all_with_us(). */
void session_start(void)
{
	int rank = -1, provided = -1;

	pthread_mutex_lock(&life.lock);
	inside++;
	if (!life.is_started && !life.is_stopped && is_world_there()) {
		life.is_started = true;
		real.Comm_rank(ABI_COMM_WORLD, &rank);
		life.is_multiple = !real.Query_thread(&provided) &&
				   provided == ABI_THREAD_MULTIPLE;
		if (rt_start(rank) && create_keyvals_locked())
			rt_stop();
	}
	inside--;
	pthread_mutex_unlock(&life.lock);
}

/* ---- communicators ----------------------------------------------------------------------- */

static int raise_no_memory(MPI_Comm comm)
{
	real.Comm_call_errhandler(comm, ABI_ERR_NO_MEM);
	return ABI_ERR_NO_MEM;
}

static int create_comm(MPI_Comm comm, struct comm_state **out)
{
	int inter = 0, rank = 0, size = 0, rc;
	struct comm_state *lc;

	tidy();
	rc = real.Comm_test_inter(comm, &inter);
	if (!rc)
		rc = real.Comm_rank(comm, &rank);
	if (!rc)
		rc = real.Comm_size(comm, &size);
	if (rc)
		return rc;
	lc = calloc(1, sizeof(*lc) + (size_t)size * sizeof(lc->words[0]));
	if (!lc)
		return raise_no_memory(comm);
	rc = real.Comm_set_attr(comm, life.comm_keyval, lc);
	if (rc) {
		free(lc);
		return rc;
	}
	*lc = (struct comm_state){ .comm = comm, .rank = rank, .size = size, .is_inter = inter };
	pthread_mutex_lock(&life.lock);
	lc->is_asked = lc->is_asked_lanes = life.is_stopped;
	lc->next = life.comms;
	life.comms = lc;
	pthread_mutex_unlock(&life.lock);
	*out = lc;
	return 0;
}

int comm_state(MPI_Comm comm, struct comm_state **out)
{
	void *value = NULL;
	int found = 0, rc;

	*out = NULL;
	if (!atomic_load_explicit(&has_keyvals, memory_order_acquire))
		return 0;
	inside++;
	rc = real.Comm_get_attr(comm, life.comm_keyval, &value, &found);
	if (!rc && found)
		*out = value;
	else if (!rc)
		rc = create_comm(comm, out);
	inside--;
	return rc;
}

/* Processes that came later (MPI_Comm_spawn, MPI_Comm_connect) may run without Sluice. Whoever
 * looks at a communicator with such members sees some that are not of its own world. */
static bool are_all_with_us(struct comm_state *lc)
{
	size_t n = (size_t)lc->size;
	int *ranks = (int *)lc->words; /* two a rank */
	MPI_Group group, world;
	bool all = false;

	for (size_t i = 0; i < n; i++)
		ranks[i] = (int)i;
	if (real.Comm_group(lc->comm, &group))
		return false;
	if (real.Comm_group(ABI_COMM_WORLD, &world))
		goto free_group;
	all = !real.Group_translate_ranks(group, lc->size, ranks, world, ranks + n);
	for (size_t i = 0; all && i < n; i++)
		all = ranks[n + i] != ABI_UNDEFINED;
	all = all && rt_are_all_here(ranks + n, lc->size);
	real.Group_free(&world);
free_group:
	real.Group_free(&group);
	return all;
}

static int oob_allgather(void *ctx, const void *in, size_t bytes, void *out)
{
	const struct comm_state *lc = ctx;
	int rc;

	if (bytes > INT_MAX)
		return -E2BIG;
	inside++;
	rc = real.Allgather(in, (int)bytes, ABI_BYTE, out, (int)bytes, ABI_BYTE, lc->comm);
	inside--;
	return rc ? -EIO : 0;
}

static int oob_allreduce_min(void *ctx, int64_t in, int64_t *out)
{
	struct comm_state *lc = ctx;
	int64_t min = in;
	int rc;

	rc = oob_allgather(ctx, &in, sizeof(in), lc->words);
	for (int i = 0; !rc && i < lc->size; i++)
		if (lc->words[i] < min)
			min = lc->words[i];
	if (!rc)
		*out = min;
	return rc;
}

int comm_state_agree(struct comm_state *lc, int64_t mine, int64_t *out)
{
	return oob_allreduce_min(lc, mine, out);
}

bool session_is_thread_multiple(void)
{
	return life.is_multiple;
}

/* ---- the library's progress -------------------------------------------------------------- */

/*
 * A rank that waits in a collective owes the library its progress: a peer may be on its way here
 * only after a message of ours has been taken. Testing a request that is not complete is the one
 * call that makes every library progress on all its messages (MPI_Iprobe does not: MPICH looks only
 * where such a message could come from); a generalized request is one that no message can complete.
 */
static int query_pending(void *extra, MPI_Status *status) { return 0; }
static int free_pending(void *extra) { return 0; }
static int cancel_pending(void *extra, int complete) { return 0; }

void comm_state_progress(struct comm_state *lc)
{
	int flag;

	inside++;
	real.Test(&lc->pending, &flag, ABI_STATUS_IGNORE);
	inside--;
}

static void oob_progress(void *ctx)
{
	comm_state_progress(ctx);
}

static void begin_pending(struct comm_state *lc)
{
	lc->has_pending = !real.Grequest_start(query_pending, free_pending, cancel_pending, NULL,
					       &lc->pending);
}

static void end_pending(struct comm_state *lc)
{
	if (!lc->has_pending)
		return;
	lc->has_pending = false;
	inside++;
	real.Grequest_complete(lc->pending);
	real.Request_free(&lc->pending);
	inside--;
}

/* ---- communicators, served --------------------------------------------------------------- */

/* All ranks have a topology, or none. 0 or -errno. */
static int agree_on_neighbours(struct comm_state *lc)
{
	int64_t fit = 0;
	int kind, rc = 0;

	if (lc->rt && !real.Topo_test(lc->comm, &kind) && kind != ABI_UNDEFINED)
		rc = oob_allreduce_min(lc, topology_is_served(lc->comm, lc->size), &fit);
	lc->has_neighbours = fit;
	return rc;
}

struct rt_oob comm_state_oob(struct comm_state *lc)
{
	return (struct rt_oob){
		.ctx = lc,
		.rank = lc->rank,
		.size = lc->size,
		.allgather = oob_allgather,
		.allreduce_min = oob_allreduce_min,
		.progress = lc->has_pending ? oob_progress : NULL,
		.thread_multiple = life.is_multiple,
	};
}

bool comm_state_connect(struct comm_state *lc)
{
	struct rt_oob oob;

	if (lc->is_asked)
		return lc->rt;
	inside++;
	if (hier_spans(lc)) {
		begin_pending(lc);
		lc->span = hier_create(lc);
	} else if (are_all_with_us(lc)) {
		begin_pending(lc);
		oob = comm_state_oob(lc);
		if (rt_comm_create(&oob, &lc->rt) || agree_on_neighbours(lc))
			lc->rt = NULL;
	}
	if (!lc->rt && !lc->span)
		end_pending(lc);
	lc->is_asked = true;
	inside--;
	return lc->rt;
}

bool comm_state_connect_lanes(struct comm_state *lc)
{
	struct rt_oob oob = comm_state_oob(lc);

	if (!lc->is_asked_lanes && lc->rt) {
		inside++;
		if (rt_comm_create_lanes(&oob, &lc->lanes))
			lc->lanes = NULL;
		inside--;
	}
	lc->is_asked_lanes = true;
	return lc->lanes;
}

bool comm_state_is_freed(struct comm_state *lc)
{
	bool is;

	pthread_mutex_lock(&life.lock);
	is = lc->is_gone;
	pthread_mutex_unlock(&life.lock);
	return is;
}

/* ---- requests that want it ---------------------------------------------------------------- */

void comm_state_add_credit(struct comm_state *lc, uint32_t wish)
{
	pthread_mutex_lock(&life.lock);
	if (!lc->is_wanted && !lc->is_asked) {
		lc->wishes += wish;
		lc->is_wanted = lc->wishes > rt_connect_threshold();
		if (lc->is_wanted)
			rt_watch();
	}
	pthread_mutex_unlock(&life.lock);
}

static void end_wanting(struct comm_state *lc)
{
	if (lc->is_wanted)
		rt_unwatch();
	lc->is_wanted = false;
}

void comm_state_sync(MPI_Comm comm)
{
	struct comm_state *lc;

	if (comm == ABI_COMM_NULL || comm_state(comm, &lc) || !lc)
		return;
	if (lc->rt && rt_requests_disagree(lc->rt))
		rt_requests_agree(lc->rt);
	if (!lc->is_wanted)
		return;
	comm_state_connect(lc);
	pthread_mutex_lock(&life.lock);
	end_wanting(lc);
	pthread_mutex_unlock(&life.lock);
}

/* ---- the helper -------------------------------------------------------------------------- */

static void note_error(MPI_Comm *comm, int *code, ...)
{
	scratch_error = *code;
}

static int make_helper_locked(void)
{
	enum { TAG = 0x51c }; /* nobody else's for this call on MPI_COMM_SELF */
	MPI_Errhandler errhandler;
	MPI_Group group;
	int rc;

	if (real.Comm_group(ABI_COMM_SELF, &group))
		return -EIO;
	/* unlike MPI_Comm_dup: copies no attributes, and other threads may use MPI_COMM_SELF */
	rc = real.Comm_create_group(ABI_COMM_SELF, group, TAG, &helper.comm);
	real.Group_free(&group);
	if (rc)
		return -EIO;
	if (real.Comm_create_errhandler(note_error, &errhandler)) {
		real.Comm_free(&helper.comm);
		return -EIO;
	}
	real.Comm_set_errhandler(helper.comm, errhandler);
	real.Errhandler_free(&errhandler);
	helper.is_made = true;
	return 0;
}

int scratch_comm(MPI_Comm *out)
{
	int rc = 0;

	pthread_mutex_lock(&helper.lock);
	inside++;
	if (helper.is_gone)
		rc = -ESHUTDOWN;
	else if (!helper.is_made)
		rc = make_helper_locked();
	*out = helper.comm;
	inside--;
	pthread_mutex_unlock(&helper.lock);
	return rc;
}

void scratch_lock(void)
{
	pthread_mutex_lock(&helper.turn);
}

int scratch_unlock(int rc)
{
	pthread_mutex_unlock(&helper.turn);
	return rc;
}

static void free_helper(void)
{
	pthread_mutex_lock(&helper.lock);
	inside++;
	if (helper.is_made)
		real.Comm_free(&helper.comm);
	helper.is_made = false;
	helper.is_gone = true;
	inside--;
	pthread_mutex_unlock(&helper.lock);
}
