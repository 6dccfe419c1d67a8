/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/policy.h"

#include <string.h>

#define NEVER UINT64_MAX

#define KIB 1024u

/*
 * From here on no MPI that we have measured was faster, with 2 ranks or more
 * (results/collectives.md): in buffers that are used again; and also in such as are new in each
 * call, whose memory is not mapped yet, with MPICH 5 and Open MPI 5, or with others, as Intel MPI,
 * which combines in shared memory. Below, and where 0 stands, SLUICE_COLL_THRESHOLD decides.
 */
static const struct { uint64_t again, always, always_others;
} wins_from_bytes[COLL_COUNT] = {
	[COLL_GATHER] = { 0, 0, 128 * KIB },
	[COLL_SCATTER] = { 0, 128 * KIB, 128 * KIB },
	[COLL_ALLGATHER] = { 128 * KIB, NEVER, NEVER },
	[COLL_ALLGATHERV] = { NEVER, NEVER, NEVER }, /* as all counts would have to be added before a
						      small call is passed on */
	[COLL_ALLTOALL] = { 128 * KIB, NEVER, NEVER },
	[COLL_REDUCE] = { 128 * KIB, NEVER, NEVER },
	[COLL_ALLREDUCE] = { 128 * KIB, 256 * KIB, NEVER },
	[COLL_REDUCE_SCATTER] = { NEVER, NEVER, NEVER }, /* likewise */
	[COLL_REDUCE_SCATTER_BLOCK] = { 128 * KIB, 128 * KIB, NEVER },
	[COLL_SCAN] = { 128 * KIB, 256 * KIB, 256 * KIB },
	[COLL_EXSCAN] = { 192 * KIB, NEVER, NEVER }, /* of two ranks one message, in some libraries */
};

static int64_t option_of(enum coll kind)
{
	static const int64_t *const options[COLL_COUNT] = {
#define X(id, pattern, family, is_local) &base_opt.coll_take[BASE_FAMILY_##family],
		COLL_LIST(X)
#undef X
	};

	return *options[kind];
}

uint64_t policy_threshold_bytes(enum coll kind)
{
	int64_t option = option_of(kind);

	if (option == BASE_TAKE_OFF)
		return NEVER;
	/* inside a node the libraries' own are as fast */
	if (kind == COLL_BARRIER)
		return base_opt.hier && option == BASE_TAKE_ON ? 0 : NEVER;
	/* those whose sizes ranks do not share are taken however small they are: only who says so
	 * wants that */
	if (coll_is_local(kind))
		return base_opt.coll_take[BASE_FAMILY_VECTOR] == BASE_TAKE_ON ? 0 : NEVER;
	if (option == BASE_TAKE_ON)
		return base_opt.coll_threshold_bytes;
	return base_max_u64(wins_from_bytes[kind].again, base_opt.coll_threshold_bytes);
}

uint64_t policy_always_bytes(enum coll kind, enum policy_host host)
{
	if (coll_is_local(kind) || kind == COLL_BARRIER || option_of(kind) != BASE_TAKE_AUTO)
		return policy_threshold_bytes(kind);
	return base_max_u64(host == HOST_OTHER ? wins_from_bytes[kind].always_others
					       : wins_from_bytes[kind].always,
			    base_opt.coll_threshold_bytes);
}

/* Open MPI's ranks give the CPU away as soon as they wait; those of others spin, and lose at any
 * size. In SLUICE_COLL_THRESHOLD; always: so many times for each rank. */
void policy_crowded_bytes(enum coll kind, enum policy_host host, int ranks, uint64_t *out_again,
			  uint64_t *out_always)
{
	static const struct { uint8_t again, always; } times[COLL_COUNT] = {
		[COLL_BCAST] = { 2, 4 },
		[COLL_GATHER] = { 1, 1 },
		[COLL_SCATTER] = { 2, 1 },
	};
	bool is_larger = host == HOST_OPEN_MPI && option_of(kind) == BASE_TAKE_AUTO;
	uint64_t one = is_larger ? base_opt.coll_threshold_bytes : 0;

	*out_again = times[kind].again * one;
	*out_always = base_max_u64(times[kind].always * one * (uint64_t)ranks, *out_again);
}

enum policy_host policy_host_of(const char *library_version)
{
	return strstr(library_version, "MPICH Version") && !strstr(library_version, "Intel")
		       ? HOST_MPICH
	       : strstr(library_version, "Open MPI") ? HOST_OPEN_MPI
						     : HOST_OTHER;
}

/* ---- nonblocking ------------------------------------------------------------------------- */

#define MIB (1024u * KIB)
#define ALL UINT64_MAX

/*
 * Where the whole of a call and its wait took no longer than the library's own, with 2 ranks, in
 * buffers that are used again and in such as are new in each call, and where in the former only
 * (doc/adr/0026-short-nonblocking-collectives.md). Kinds that are not named: nowhere.
 */
static const struct policy_window requests_win[][COLL_COUNT] = {
	[HOST_OTHER] = { /* Intel MPI */
		[COLL_BCAST] = { NEVER, 0, 128 * KIB },
		[COLL_GATHER] = { NEVER, 0, 128 * KIB },
		[COLL_ALLTOALL] = { NEVER, 0, 128 * KIB },
		[COLL_ALLREDUCE] = { NEVER, 0, 128 * KIB },
	},
	[HOST_MPICH] = {
		/* longer than a record of the mailbox, and shorter than what is adopted: by system calls, which lose */
		[COLL_BCAST] = { 1, MIB, MIB, .not_from = 8 * KIB + 1, .not_to = 64 * KIB },
		[COLL_GATHER] = { 1, 2000, 96 * KIB },
		[COLL_SCATTER] = { 1, MIB, MIB, .not_from = 4 * KIB + 1, .not_to = 64 * KIB },
		[COLL_ALLGATHER] = { 1, 16 * KIB, 64 * KIB },
		[COLL_ALLTOALL] = { 1, 16 * KIB, 128 * KIB, .not_from = 4 * KIB + 1, .not_to = 8 * KIB },
		[COLL_REDUCE] = { 1, ALL, NEVER },
		[COLL_ALLREDUCE] = { 1, ALL, NEVER },
		[COLL_REDUCE_SCATTER_BLOCK] = { 1, ALL, NEVER },
		[COLL_SCAN] = { 1, ALL, NEVER },
		[COLL_EXSCAN] = { 1, ALL, NEVER },
		[COLL_BARRIER] = { 0, ALL, NEVER },
	},
	[HOST_OPEN_MPI] = {
		[COLL_BCAST] = { NEVER, 0, 128 * KIB },
		[COLL_GATHER] = { NEVER, 0, 128 * KIB },
		[COLL_ALLTOALL] = { NEVER, 0, 192 * KIB },
		[COLL_REDUCE] = { 128 * KIB, ALL, NEVER },
		[COLL_ALLREDUCE] = { 512, ALL, NEVER },
		[COLL_REDUCE_SCATTER_BLOCK] = { 8 * KIB, ALL, NEVER },
		[COLL_SCAN] = { 8 * KIB, ALL, NEVER },
		[COLL_EXSCAN] = { NEVER, 0, 128 * KIB }, /* of two ranks: one message */
	},
};

enum {
	REQUEST_RANKS_MAX = 16
}; /* what is flat costs a look at each rank; more have not been measured */

struct policy_window policy_request_window(enum coll kind, enum policy_host host)
{
	const struct policy_window none = { NEVER, 0, .again = NEVER },
				   *w = &requests_win[host][kind];
	int64_t option = base_opt.coll_take[BASE_FAMILY_NONBLOCKING];

	if (option == BASE_TAKE_OFF || option_of(kind) == BASE_TAKE_OFF)
		return none;
	if (option == BASE_TAKE_ON)
		return (struct policy_window){ kind == COLL_BARRIER ? 0
								  : policy_threshold_bytes(kind),
					       ALL, .again = NEVER };
	return w->to || w->again ? *w : none;
}

bool policy_request_suits(const struct policy_group *g)
{
	return base_opt.coll_take[BASE_FAMILY_NONBLOCKING] == BASE_TAKE_ON ||
	       (!g->oversubscribed && g->ranks <= REQUEST_RANKS_MAX);
}
