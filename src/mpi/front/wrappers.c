/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrappers of collectives (made from functions.table), of start and of windows, and the table of
 * all wrappers. */
#include <limits.h>

#include "base/base.h"
#include "mpi/front/front.h"
#include "mpi/front/observe.h"
#include "mpi/coll/coll_op.h"
#include "hier/hier.h"
#include "message/message.h"

#include "collectives.h"

/* ---- start, windows ---------------------------------------------------------------------- */

#define VERSION_BYTES 8192 /* the largest MPI_MAX_LIBRARY_VERSION_STRING of any host MPI */

/* Reports the host MPI's version string, which selects the measured values. MPI allows the
 * question before MPI_Init. */
static void announce(void)
{
	int (*version)(char *, int *) = front_library_function("PMPI_Get_library_version");
	static char text[VERSION_BYTES];
	int length = 0;

	if (!version || version(text, &length))
		text[0] = '\0';
	rt_announce(abi.is_started_by_pmix, text);
	idle_prepare(text);
}

/* rc: the result of the host MPI's MPI_Init. Returns: rc. */
static int started(int rc)
{
	if (!rc) {
		idle_start();
		session_start();
		hier_bootstrap();
	}
	return rc;
}

static int wrap_Init(int *argc, char ***argv)
{
	announce();
	return started(host.Init(argc, argv));
}

static int wrap_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	announce();
	return started(host.Init_thread(argc, argv, required, provided));
}

/* Other ranks access the memory of a window: completes the pending operations there, and
 * prevents later ones. */
static void keep_out(const void *base, MPI_Aint size)
{
	if (size <= 0)
		return;
	if (rt_has_pending())
		observe_bytes(base, size);
	rt_memory_keep_out(base, (uint64_t)size);
}

static int wrap_Win_create(void *base, MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
			   void *win)
{
	keep_out(base, size);
	return host.Win_create(base, size, disp_unit, info, comm, win);
}

static int wrap_Win_create_c(void *base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info,
			     MPI_Comm comm, void *win)
{
	keep_out(base, size);
	if (host.Win_create_c)
		return host.Win_create_c(base, size, disp_unit, info, comm, win);
	return host.Win_create(base, size, disp_unit > INT_MAX ? -1 : (int)disp_unit, info, comm,
			       win);
}

static int wrap_Win_attach(MPI_Win win, void *base, MPI_Aint size)
{
	keep_out(base, size);
	return host.Win_attach(win, base, size);
}

/* A session may provide MPI_THREAD_MULTIPLE where MPI_Query_thread says less (Open MPI). */
static int wrap_Session_init(MPI_Info info, MPI_Errhandler errhandler, void *session)
{
	message_copy_no_more();
	rt_expect_threads();
	return host.Session_init(info, errhandler, session);
}

/* The program's handler may leave any call by longjmp(), also one that has to withdraw copies. */
static int wrap_Comm_create_errhandler(MPI_Comm_errhandler_function *fn, void *errhandler)
{
	message_copy_no_more();
	return host.Comm_create_errhandler(fn, errhandler);
}

/* ---- table of wrappers --------------------------------------------------------------------- */

#define X(name)                                                                                    \
	_Static_assert(                                                                            \
		__builtin_types_compatible_p(__typeof__(&wrap_##name), __typeof__(host.name)),     \
		"wrap_" #name " is not as functions.table says");
FRONT_WRITTEN(X)
#undef X

int front_lacking(void)
{
	host.Comm_call_errhandler(abi.comm_world, abi.err_other);
	return abi.err_other;
}

/* The written wrappers run while nothing is pending, or handle pending operations themselves.
 * Collectives enter through the gates of their ABI while nothing is pending. */
const struct front_way front_wrapped[FRONT_WRAPPED_COUNT] = {
#define X(name) { (void *)wrap_##name, (void *)wrap_##name },
	FRONT_WRITTEN(X)
#undef X
#define X(name) { NULL, (void *)pend_##name },
	FRONT_COLLECTIVES(X)
#undef X
};
