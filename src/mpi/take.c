/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wrappers. Checks go from cheap to dear, and each that fails passes the call on with its
 * arguments as they came: what is wrong is then reported by the library, in its own words.
 *
 * Local checks (a datatype that is not committed, a root out of range) come before life_connect(),
 * which is collective; after it only facts that all ranks share decide.
 */
#include <errno.h>
#include <limits.h>

#include "base/base.h"
#include "mpi/abi.h"
#include "mpi/front.h"
#include "mpi/traced.h"
#include "trace/trace.h"

#define NOT_SERVED "Sluice does not serve its communicator (SLUICE_LOG=info tells why)"
#define IS_SMALL "below SLUICE_COLL_THRESHOLD"
#define IS_WRONG "its arguments name nothing that can be moved"

/* ---- checks that collectives share ------------------------------------------------------- */

/* An address that the library would not refuse. With a derived datatype, displacements may be
 * addresses. */
static bool is_address(const void *buffer, const struct types_shape *shape)
{
	return buffer != ABI_IN_PLACE && (buffer || shape->true_lb);
}

/* The communicator's state when it is one that we may serve. Local. False: pass on, or, with *rc
 * set, the library has reported an error already. */
static bool look_at_comm(MPI_Comm comm, int root, struct life_comm **out, int *rc)
{
	struct life_comm *lc;

	*rc = life_comm(comm, &lc);
	if (*rc || !lc || lc->is_inter || lc->size < 2 || root < 0 || root >= lc->size)
		return trace_passed("not inside a group of at least two ranks");
	if (lc->is_asked && !lc->rt)
		return trace_passed(NOT_SERVED);
	*out = lc;
	return true;
}

/* What rt says, as the program is to see it: through the communicator's error handler. */
static int conclude(MPI_Comm comm, int rc)
{
	int code = rc == -EREMOTEIO ? ABI_ERR_TRUNCATE
		   : rc == -ENOMEM  ? ABI_ERR_NO_MEM
				    : ABI_ERR_OTHER;

	if (!rc)
		return 0;
	real.Comm_call_errhandler(comm, code);
	return code;
}

/* ---- broadcast --------------------------------------------------------------------------- */

/* True when the call is done, with its result in *rc. */
static bool take_bcast(void *buffer, MPI_Count count, MPI_Datatype datatype, int root,
		       MPI_Comm comm, const void *site, int *rc)
{
	struct life_comm *lc;
	struct types_shape shape;
	struct pack pack;
	struct rt_buf buf;
	uint64_t bytes;
	int err, fini;

	if (count <= 0 || comm == ABI_COMM_NULL || datatype == ABI_DATATYPE_NULL)
		return trace_passed(IS_WRONG);
	bytes = types_bytes(datatype, count);
	trace_bytes(bytes);
	if (!bytes || bytes < rt_bcast_threshold_bytes)
		return trace_passed(IS_SMALL);
	if (!look_at_comm(comm, root, &lc, rc))
		return *rc;
	if (types_describe(datatype, &shape) || !is_address(buffer, &shape))
		return trace_passed(IS_WRONG);
	if (!life_connect(lc))
		return trace_passed(NOT_SERVED);

	err = pack_init(&pack, buffer, count, datatype, &shape, &buf);
	if (!err)
		err = rt_bcast(lc->rt, &buf, root, site);
	fini = pack_fini(&pack);
	*rc = conclude(comm, err ? err : fini);
	return true;
}

static int library_bcast_c(void *buffer, MPI_Count count, MPI_Datatype datatype, int root,
			   MPI_Comm comm)
{
	MPI_Datatype many;
	int rc;

	if (real.Bcast_c)
		return real.Bcast_c(buffer, count, datatype, root, comm);
	if (count <= INT_MAX)
		return real.Bcast(buffer, count < 0 ? -1 : (int)count, datatype, root, comm);
	rc = types_repeat(count, datatype, &many);
	if (rc)
		return rc;
	rc = real.Bcast(buffer, 1, many, root, comm);
	real.Type_free(&many);
	return rc;
}

static bool is_off(uint64_t threshold_bytes)
{
	return threshold_bytes == UINT64_MAX;
}

/* Kept apart from the wrapper, as are the others of its kind: without locals that have an address,
 * a wrapper passes a small call on by a jump. */
static int __attribute__((noinline)) large_bcast(void *buffer, int count, MPI_Datatype datatype,
						 int root, MPI_Comm comm, const void *caller)
{
	struct traced t;
	int rc = 0;

	observe_unwound(__builtin_frame_address(0));
	if (!abi_is_ours(caller))
		return real.Bcast(buffer, count, datatype, root, comm);
	if (traced_begin(&t, "MPI_Bcast", caller, datatype, count, rt_bcast_threshold_bytes))
		return traced_end(&t, HOSTED(real.Bcast(buffer, count, datatype, root, comm)));
	if (!is_off(rt_bcast_threshold_bytes)) {
		if (take_bcast(buffer, count, datatype, root, comm, caller, &rc))
			return traced_end(&t, rc);
		base_count(BASE_CTR_BCAST_PASSED, 1);
	}
	return traced_end(&t, HOSTED(real.Bcast(buffer, count, datatype, root, comm)));
}

static int wrap_Bcast(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm)
{
	if (base_likely(types_is_small(datatype, (uint64_t)count, rt_bcast_gate_bytes)))
		return real.Bcast(buffer, count, datatype, root, comm);
	return large_bcast(buffer, count, datatype, root, comm, CALLER());
}

static int large_bcast_c(void *buffer, MPI_Count count, MPI_Datatype datatype, int root,
			 MPI_Comm comm, const void *caller)
{
	struct traced t;
	int rc = 0;

	observe_unwound(__builtin_frame_address(0));
	if (!abi_is_ours(caller))
		return library_bcast_c(buffer, count, datatype, root, comm);
	if (traced_begin(&t, "MPI_Bcast_c", caller, datatype, count, rt_bcast_threshold_bytes))
		return traced_end(&t, HOSTED(library_bcast_c(buffer, count, datatype, root, comm)));
	if (!is_off(rt_bcast_threshold_bytes)) {
		if (take_bcast(buffer, count, datatype, root, comm, caller, &rc))
			return traced_end(&t, rc);
		base_count(BASE_CTR_BCAST_PASSED, 1);
	}
	return traced_end(&t, HOSTED(library_bcast_c(buffer, count, datatype, root, comm)));
}

static int wrap_Bcast_c(void *buffer, MPI_Count count, MPI_Datatype datatype, int root,
			MPI_Comm comm)
{
	if (types_is_small(datatype, (uint64_t)count, rt_bcast_gate_bytes))
		return library_bcast_c(buffer, count, datatype, root, comm);
	return large_bcast_c(buffer, count, datatype, root, comm, CALLER());
}

/* While something is pending, here and below: what overlaps is completed, whoever does the call. */
static int pend_Bcast(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm)
{
	if (abi_is_ours(CALLER()))
		observe_buf(buffer, count, datatype);
	return large_bcast(buffer, count, datatype, root, comm, CALLER());
}

static int pend_Bcast_c(void *buffer, MPI_Count count, MPI_Datatype datatype, int root,
			MPI_Comm comm)
{
	if (abi_is_ours(CALLER()))
		observe_buf(buffer, count, datatype);
	return large_bcast_c(buffer, count, datatype, root, comm, CALLER());
}

/* ---- gather ------------------------------------------------------------------------------ */

/* One side of a gather, as the program gave it. */
struct side {
	const void *buffer;
	MPI_Count count;
	MPI_Datatype datatype;
};

/* Some libraries refuse a send buffer that is the receive buffer, others do as they are told: ask,
 * with one byte. Wrong programs only. */
static bool is_alias_refused(const struct side *send, const struct side *recv)
{
	MPI_Comm helper;
	char byte = 0;
	int rc;

	if (send->buffer != recv->buffer || send->datatype != recv->datatype ||
	    send->count != recv->count || life_helper(&helper))
		return false;
	inside++;
	rc = ON_HELPER_IN_TURN(real.Gather(&byte, 1, ABI_BYTE, &byte, 1, ABI_BYTE, 0, helper));
	inside--;
	return rc;
}

/* Would the library refuse to send from, or receive into, this? Else its shape. */
static bool is_refused(const struct side *side, struct types_shape *shape)
{
	return side->count <= 0 || side->datatype == ABI_DATATYPE_NULL ||
	       types_describe(side->datatype, shape) || !is_address(side->buffer, shape);
}

struct gather {
	struct side send, recv; /* send is not looked at when in_place, recv only at the root */
	struct types_shape send_shape, recv_shape;
	struct life_comm *lc;
	uint64_t bytes; /* per rank */
	int root;
	const void *site;
	bool is_root, in_place;
	bool is_odd; /* the root's own part does not fit its place: a wrong program */
};

/* All that is local. False: pass on, or, with *rc set, the library has reported an error. */
static bool check_gather(struct gather *g, MPI_Comm comm, int *rc)
{
	const struct side *counts = &g->send;

	if (comm == ABI_COMM_NULL)
		return trace_passed(IS_WRONG);
	if (!look_at_comm(comm, g->root, &g->lc, rc))
		return false;
	g->is_root = g->lc->rank == g->root;
	g->in_place = g->is_root && g->send.buffer == ABI_IN_PLACE;
	if (g->is_root)
		counts = &g->recv;
	if (counts->count <= 0 || counts->datatype == ABI_DATATYPE_NULL)
		return trace_passed(IS_WRONG);
	g->bytes = types_bytes(counts->datatype, counts->count);
	trace_bytes(g->bytes);
	if (!g->bytes || g->bytes < rt_gather_threshold_bytes ||
	    g->bytes > INT64_MAX / (uint64_t)g->lc->size)
		return trace_passed(IS_SMALL);
	if (!g->is_root)
		return !is_refused(&g->send, &g->send_shape);
	if (is_refused(&g->recv, &g->recv_shape))
		return false;
	if (g->in_place)
		return true;
	if (g->send.count < 0 || g->send.datatype == ABI_DATATYPE_NULL)
		return false;
	g->is_odd = types_bytes(g->send.datatype, g->send.count) != g->bytes;
	return g->is_odd ||
	       (!is_refused(&g->send, &g->send_shape) && !is_alias_refused(&g->send, &g->recv));
}

static int gather_leaf(const struct gather *g)
{
	struct pack pack;
	struct rt_buf buf;
	int err, fini;

	err = pack_init(&pack, (void *)g->send.buffer, g->send.count, g->send.datatype,
			&g->send_shape, &buf);
	if (!err)
		err = rt_gather(g->lc->rt, &buf, NULL, g->bytes, g->root, g->site);
	fini = pack_fini(&pack);
	return err ? err : fini;
}

static int gather_root(const struct gather *g)
{
	bool has_send = !g->in_place && !g->is_odd;
	struct pack packs[2] = { 0 };
	struct rt_buf send, recv;
	int err = 0, fini;

	if (has_send)
		err = pack_init(&packs[0], (void *)g->send.buffer, g->send.count, g->send.datatype,
				&g->send_shape, &send);
	if (!err)
		err = pack_init(&packs[1], (void *)g->recv.buffer, g->lc->size * g->recv.count,
				g->recv.datatype, &g->recv_shape, &recv);
	if (!err)
		err = rt_gather(g->lc->rt, has_send ? &send : NULL, &recv, g->bytes, g->root,
				g->site);
	fini = pack_fini(&packs[1]);
	pack_fini(&packs[0]);
	return err ? err : fini;
}

static int library_gather_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
			    void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root,
			    MPI_Comm comm);

/* The others are served; the library puts the root's part, and says what it thinks of it. */
static int gather_odd(const struct gather *g, MPI_Comm comm)
{
	MPI_Count at = g->root * g->recv.count * g->recv_shape.extent;
	MPI_Comm helper;
	int rc;

	if (life_helper(&helper))
		return conclude(comm, -EIO);
	inside++;
	rc = ON_HELPER_IN_TURN(library_gather_c(g->send.buffer, g->send.count, g->send.datatype,
						(char *)g->recv.buffer + at, g->recv.count,
						g->recv.datatype, 0, helper));
	inside--;
	if (rc)
		real.Comm_call_errhandler(comm, rc);
	return rc;
}

/* True when the call is done, with its result in *rc. */
static bool take_gather(const struct side *send, const struct side *recv, int root, MPI_Comm comm,
			const void *site, int *rc)
{
	struct gather g = { .send = *send, .recv = *recv, .root = root, .site = site };
	int err;

	if (!check_gather(&g, comm, rc))
		return trace_passed(IS_WRONG) || *rc;
	if (!life_connect(g.lc))
		return trace_passed(NOT_SERVED);
	err = g.is_root ? gather_root(&g) : gather_leaf(&g);
	*rc = !err && g.is_odd ? gather_odd(&g, comm) : conclude(comm, err);
	return true;
}

/* Whether this rank is the root takes longer to find out than these two look-ups. Elsewhere the
 * receiving side means nothing; if it looks large, the long way comes to the right result. */
static inline bool gather_is_small(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
				   MPI_Count recvcount, MPI_Datatype recvtype)
{
	uint64_t threshold = rt_gather_gate_bytes;

	return (types_is_small(sendtype, (uint64_t)sendcount, threshold) || !sendcount ||
		sendbuf == ABI_IN_PLACE) &&
	       (!recvcount || types_is_small(recvtype, (uint64_t)recvcount, threshold));
}

static int library_gather_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
			    void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root,
			    MPI_Comm comm)
{
	MPI_Datatype send = sendtype, recv = recvtype;
	int scount = sendcount < 0 ? -1 : (int)sendcount,
	    rcount = recvcount < 0 ? -1 : (int)recvcount;
	int rc = 0;

	if (real.Gather_c)
		return real.Gather_c(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
				     root, comm);
	if (sendcount > INT_MAX) {
		rc = types_repeat(sendcount, sendtype, &send);
		scount = 1;
	}
	if (!rc && recvcount > INT_MAX) {
		rc = types_repeat(recvcount, recvtype, &recv);
		rcount = 1;
	}
	if (!rc)
		rc = real.Gather(sendbuf, scount, send, recvbuf, rcount, recv, root, comm);
	if (send != sendtype)
		real.Type_free(&send);
	if (recv != recvtype)
		real.Type_free(&recv);
	return rc;
}

/* What a rank gives to it; where that is in place, what it gets of itself. */
static bool traced_gather(struct traced *t, const char *name, const void *caller,
			  const struct side *send, const struct side *recv)
{
	const struct side *own = send->buffer == ABI_IN_PLACE ? recv : send;

	return traced_begin(t, name, caller, own->datatype, own->count, rt_gather_threshold_bytes);
}

static int __attribute__((noinline))
large_gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
	     int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, const void *caller)
{
	struct side send = { sendbuf, sendcount, sendtype },
		    recv = { recvbuf, recvcount, recvtype };
	struct traced t;
	int rc = 0;

	observe_unwound(__builtin_frame_address(0));
	if (!abi_is_ours(caller))
		return real.Gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,
				   comm);
	if (!traced_gather(&t, "MPI_Gather", caller, &send, &recv) &&
	    !is_off(rt_gather_threshold_bytes)) {
		if (take_gather(&send, &recv, root, comm, caller, &rc))
			return traced_end(&t, rc);
		base_count(BASE_CTR_GATHER_PASSED, 1);
	}
	rc = HOSTED(real.Gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,
				comm));
	return traced_end(&t, rc);
}

static int wrap_Gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
		       int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm)
{
	if (base_likely(gather_is_small(sendbuf, sendcount, sendtype, recvcount, recvtype)))
		return real.Gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,
				   comm);
	return large_gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm,
			    CALLER());
}

static int large_gather_c(const struct side *send, const struct side *recv, int root, MPI_Comm comm,
			  const void *caller)
{
	bool is_ours = abi_is_ours(caller);
	struct traced t = { 0 };
	int rc = 0;

	observe_unwound(__builtin_frame_address(0));
	if (is_ours && !traced_gather(&t, "MPI_Gather_c", caller, send, recv) &&
	    !is_off(rt_gather_threshold_bytes)) {
		if (take_gather(send, recv, root, comm, caller, &rc))
			return traced_end(&t, rc);
		base_count(BASE_CTR_GATHER_PASSED, 1);
	}
	rc = HOSTED(library_gather_c(send->buffer, send->count, send->datatype,
				     (void *)recv->buffer, recv->count, recv->datatype, root, comm));
	return traced_end(&t, rc);
}

static int wrap_Gather_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
			 void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root,
			 MPI_Comm comm)
{
	struct side send = { sendbuf, sendcount, sendtype },
		    recv = { recvbuf, recvcount, recvtype };

	if (gather_is_small(sendbuf, sendcount, sendtype, recvcount, recvtype))
		return library_gather_c(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
					root, comm);
	return large_gather_c(&send, &recv, root, comm, CALLER());
}

static void observe_gather(const struct side *send, const struct side *recv, int root, MPI_Comm comm)
{
	observe_buf(send->buffer, send->count, send->datatype);
	if (observe_is_root(root, comm))
		observe_each(recv->buffer, recv->count, recv->datatype, comm, FRONT_PEERS);
}

static int pend_Gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
		       int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm)
{
	struct side send = { sendbuf, sendcount, sendtype },
		    recv = { recvbuf, recvcount, recvtype };

	if (abi_is_ours(CALLER()))
		observe_gather(&send, &recv, root, comm);
	return large_gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm,
			    CALLER());
}

static int pend_Gather_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
			 void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root,
			 MPI_Comm comm)
{
	struct side send = { sendbuf, sendcount, sendtype },
		    recv = { recvbuf, recvcount, recvtype };

	if (abi_is_ours(CALLER()))
		observe_gather(&send, &recv, root, comm);
	return large_gather_c(&send, &recv, root, comm, CALLER());
}

/* ---- start, windows ---------------------------------------------------------------------- */

#ifdef SLUICE_ABI_OMPI
#define IS_STARTED_BY_PMIX true
#else
#define IS_STARTED_BY_PMIX false /* first choice only: MPICH can be */
#endif
#define VERSION_BYTES 8192 /* the largest MPI_MAX_LIBRARY_VERSION_STRING there is */

/* Its name leads to what was measured with it. Asking is allowed before MPI_Init. */
static void announce(void)
{
	int (*version)(char *, int *) = front_library_function("PMPI_Get_library_version");
	static char text[VERSION_BYTES];
	int length = 0;

	if (!version || version(text, &length))
		text[0] = '\0';
	rt_announce(IS_STARTED_BY_PMIX, text);
}

static int wrap_Init(int *argc, char ***argv)
{
	int rc;

	announce();
	rc = real.Init(argc, argv);

	if (!rc)
		life_start();
	return rc;
}

static int wrap_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	int rc;

	announce();
	rc = real.Init_thread(argc, argv, required, provided);

	if (!rc)
		life_start();
	return rc;
}

/* A window's memory is anybody's: what is pending there ends now, and nothing will be. */
static void keep_out(const void *base, MPI_Aint size)
{
	if (size <= 0)
		return;
	if (rt_has_pending())
		observe_bytes(base, size);
	rt_memory_keep_out(base, (uint64_t)size);
}

static int wrap_Win_create(void *base, MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
			   MPI_Win *win)
{
	keep_out(base, size);
	return real.Win_create(base, size, disp_unit, info, comm, win);
}

static int wrap_Win_create_c(void *base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info,
			     MPI_Comm comm, MPI_Win *win)
{
	keep_out(base, size);
	if (real.Win_create_c)
		return real.Win_create_c(base, size, disp_unit, info, comm, win);
	return real.Win_create(base, size, disp_unit > INT_MAX ? -1 : (int)disp_unit, info, comm,
			       win);
}

static int wrap_Win_attach(MPI_Win win, void *base, MPI_Aint size)
{
	keep_out(base, size);
	return real.Win_attach(win, base, size);
}

/* ---- the face ---------------------------------------------------------------------------- */

#define X(name, is_init)                                                                           \
	_Static_assert(                                                                            \
		__builtin_types_compatible_p(__typeof__(&wrap_##name), __typeof__(real.name)),     \
		"wrap_" #name " is not as functions.table says");
FRONT_WRAPPED(X)
#undef X

static int lacking(void)
{
	real.Comm_call_errhandler(ABI_COMM_WORLD, ABI_ERR_OTHER);
	return ABI_ERR_OTHER;
}

static bool is_root(uintptr_t comm, int root)
{
	return observe_is_root(root, (MPI_Comm)comm);
}

/* Nothing can be pending yet, or they see to it themselves. */
#define pend_Init         wrap_Init
#define pend_Init_thread  wrap_Init_thread
#define pend_Win_create   wrap_Win_create
#define pend_Win_create_c wrap_Win_create_c
#define pend_Win_attach   wrap_Win_attach

const struct front_abi ABI_NAME(front_abi) = {
	.attach = attach_library,
	.start = life_start,
	.count = observe_count,
	.is_root = is_root,
	.lacking = lacking,
	.wrapped = {
#define X(name, is_init) { (void *)wrap_##name, (void *)pend_##name },
		FRONT_WRAPPED(X)
#undef X
	},
	.look = look_ways,
};
