/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/policy.h"

#include <string.h>

#define PIECE_MAX ((uint64_t)256 << 20)
#define PIECE_MIN ((uint64_t)1 << 20)

#define NEVER UINT64_MAX

#define KIB 1024u

/*
 * From here on no MPI that we have measured was faster, with 2 ranks or more
 * (doc/results-collectives.md): in buffers that are used again; and also in such as are new in each
 * call, whose memory is not mapped yet, with MPICH 5 and Open MPI 5, or with others, as Intel MPI,
 * which combines in shared memory. Below, and where 0 stands, SLUICE_COLL_THRESHOLD decides.
 */
static const struct { uint64_t again, always, always_others;
} wins_from_bytes[RT_KINDS] = {
	[RT_GATHER] = { 0, 0, 128 * KIB },
	[RT_SCATTER] = { 0, 128 * KIB, 128 * KIB },
	[RT_ALLGATHER] = { 128 * KIB, NEVER, NEVER },
	[RT_ALLGATHERV] = { NEVER, NEVER, NEVER }, /* as all counts would have to be added before a
						      small call is passed on */
	[RT_ALLTOALL] = { 128 * KIB, NEVER, NEVER },
	[RT_REDUCE] = { 128 * KIB, NEVER, NEVER },
	[RT_ALLREDUCE] = { 128 * KIB, 256 * KIB, NEVER },
	[RT_REDUCE_SCATTER] = { NEVER, NEVER, NEVER }, /* likewise */
	[RT_REDUCE_SCATTER_BLOCK] = { 128 * KIB, 128 * KIB, NEVER },
	[RT_SCAN] = { 128 * KIB, 256 * KIB, 256 * KIB },
	[RT_EXSCAN] = { 192 * KIB, NEVER, NEVER }, /* of two ranks one message, in some libraries */
};

static int64_t option_of(enum rt_kind kind)
{
	static const int64_t *const options[RT_KINDS] = {
#define X(id, family, is_local) &base_opt.coll_take[BASE_COLL_##family],
		RT_COLLECTIVES(X)
#undef X
	};

	return *options[kind];
}

uint64_t policy_threshold_bytes(enum rt_kind kind)
{
	int64_t option = option_of(kind);

	if (option == BASE_TAKE_OFF)
		return NEVER;
	/* inside a node the libraries' own are as fast */
	if (kind == RT_BARRIER)
		return base_opt.span && option == BASE_TAKE_ON ? 0 : NEVER;
	/* those whose sizes ranks do not share are taken however small they are: only who says so
	 * wants that */
	if (rt_is_local(kind))
		return base_opt.coll_take[BASE_COLL_VECTOR] == BASE_TAKE_ON ? 0 : NEVER;
	if (option == BASE_TAKE_ON)
		return base_opt.coll_threshold_bytes;
	return base_max_u64(wins_from_bytes[kind].again, base_opt.coll_threshold_bytes);
}

uint64_t policy_always_bytes(enum rt_kind kind, enum policy_host host)
{
	if (rt_is_local(kind) || kind == RT_BARRIER || option_of(kind) != BASE_TAKE_AUTO)
		return policy_threshold_bytes(kind);
	return base_max_u64(host == HOST_OTHER ? wins_from_bytes[kind].always_others
					       : wins_from_bytes[kind].always,
			    base_opt.coll_threshold_bytes);
}

/* Open MPI's ranks give the CPU away as soon as they wait; those of others spin, and lose at any
 * size. In SLUICE_COLL_THRESHOLD; always: so many times for each rank. */
void policy_crowded_bytes(enum rt_kind kind, enum policy_host host, int ranks, uint64_t *out_again,
			  uint64_t *out_always)
{
	static const struct { uint8_t again, always; } times[RT_KINDS] = {
		[RT_BCAST] = { 2, 4 },
		[RT_GATHER] = { 1, 1 },
		[RT_SCATTER] = { 2, 1 },
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
static const struct policy_window requests_win[][RT_KINDS] = {
	[HOST_OTHER] = { /* Intel MPI */
		[RT_BCAST] = { NEVER, 0, 128 * KIB },
		[RT_GATHER] = { NEVER, 0, 128 * KIB },
		[RT_ALLTOALL] = { NEVER, 0, 128 * KIB },
		[RT_ALLREDUCE] = { NEVER, 0, 128 * KIB },
	},
	[HOST_MPICH] = {
		/* longer than a record of the mailbox, and shorter than what is adopted: by system calls, which lose */
		[RT_BCAST] = { 1, MIB, MIB, .not_from = 8 * KIB + 1, .not_to = 64 * KIB },
		[RT_GATHER] = { 1, 2000, 96 * KIB },
		[RT_SCATTER] = { 1, MIB, MIB, .not_from = 4 * KIB + 1, .not_to = 64 * KIB },
		[RT_ALLGATHER] = { 1, 16 * KIB, 64 * KIB },
		[RT_ALLTOALL] = { 1, 16 * KIB, 128 * KIB, .not_from = 4 * KIB + 1, .not_to = 8 * KIB },
		[RT_REDUCE] = { 1, ALL, NEVER },
		[RT_ALLREDUCE] = { 1, ALL, NEVER },
		[RT_REDUCE_SCATTER_BLOCK] = { 1, ALL, NEVER },
		[RT_SCAN] = { 1, ALL, NEVER },
		[RT_EXSCAN] = { 1, ALL, NEVER },
		[RT_BARRIER] = { 0, ALL, NEVER },
	},
	[HOST_OPEN_MPI] = {
		[RT_BCAST] = { NEVER, 0, 128 * KIB },
		[RT_GATHER] = { NEVER, 0, 128 * KIB },
		[RT_ALLTOALL] = { NEVER, 0, 192 * KIB },
		[RT_REDUCE] = { 128 * KIB, ALL, NEVER },
		[RT_ALLREDUCE] = { 512, ALL, NEVER },
		[RT_REDUCE_SCATTER_BLOCK] = { 8 * KIB, ALL, NEVER },
		[RT_SCAN] = { 8 * KIB, ALL, NEVER },
		[RT_EXSCAN] = { NEVER, 0, 128 * KIB }, /* of two ranks: one message */
	},
};

enum {
	REQUEST_RANKS_MAX = 16
}; /* what is flat costs a look at each rank; more have not been measured */

struct policy_window policy_request_window(enum rt_kind kind, enum policy_host host)
{
	const struct policy_window none = { NEVER, 0, .again = NEVER },
				   *w = &requests_win[host][kind];
	int64_t option = base_opt.coll_take[BASE_COLL_NONBLOCKING];

	if (option == BASE_TAKE_OFF || option_of(kind) == BASE_TAKE_OFF)
		return none;
	if (option == BASE_TAKE_ON)
		return (struct policy_window){ kind == RT_BARRIER ? 0
								  : policy_threshold_bytes(kind),
					       ALL, .again = NEVER };
	return w->to || w->again ? *w : none;
}

bool policy_request_suits(const struct policy_group *g)
{
	return base_opt.coll_take[BASE_COLL_NONBLOCKING] == BASE_TAKE_ON ||
	       (!g->oversubscribed && g->ranks <= REQUEST_RANKS_MAX);
}

/* ---- are buffers used again? ------------------------------------------------------------- */

#define PASS_FIRST                                                                                 \
	4u /* a buffer has earned adoption after three uses (SLUICE_REGION_ADOPT_AFTER) */
/* As long as a program that changes its ways may be served the wrong way: gaining nothing, or
 * losing. */
#define PASS_MAX 64u
#define TAKE_MAX 16u

enum policy_step policy_habit_next(struct policy_habit *h)
{
	if (!h->pass)
		h->pass = h->left = PASS_FIRST;
	if (--h->left)
		return h->is_taken ? HABIT_TAKE : HABIT_PASS;
	return HABIT_ASK;
}

/* Of what has just begun to be taken it is soon known whether that was right. */
void policy_habit_answer(struct policy_habit *h, bool all_use_again)
{
	if (all_use_again)
		h->left = h->take =
			h->is_taken ? (uint16_t)base_min_u64(2u * h->take, TAKE_MAX) : 1;
	else
		h->left = h->pass = (uint16_t)base_min_u64(2u * h->pass, PASS_MAX);
	h->is_taken = all_use_again;
}

void policy_habit_defer(struct policy_habit *h)
{
	h->left = 1;
}

bool policy_prefer_vm(int64_t region_kind, const struct policy_group *g)
{
	uint64_t leaves = g->ranks > 1 ? (uint64_t)g->ranks - 1 : 1;

	if (region_kind == BASE_REGION_STAGED || !g->vm_ns)
		return false;
	/* Staging is a conversation: with a core for each rank it runs at memory speed, without one
	 * each exchange is a switch of processes and one copy by the kernel is better. See doc/adr.
	 */
	if (region_kind == BASE_REGION_CMA || g->oversubscribed)
		return true;
	/* The receiver reads and the sender, shared by all leaves, writes: 1 + 1/leaves copiers
	 * work at the kernel's speed; a staged byte takes the time of one copy, in and out side by
	 * side. */
	return g->vm_ns * leaves <= g->copy_ns * (leaves + 1);
}

int policy_domain(int64_t domains, int rank, int ranks, int memory_node)
{
	return domains ? (int)(rank * domains / ranks) : memory_node;
}

enum region_intent policy_intent(int64_t region_kind, bool is_shared)
{
	if (is_shared)
		return REGION_LOOKUP;
	return region_kind == BASE_REGION_ARENA ? REGION_FORCE : REGION_USE;
}

uint64_t policy_piece_bytes(uint64_t bytes, int parts)
{
	uint64_t max = base_max_u64(PIECE_MAX / (uint64_t)parts, PIECE_MIN);

	return base_min_u64(bytes, max);
}

/* What has to be won: closing and opening cost 30 to 40 us with the worker process, and up to 100
 * with a thread, which has to be woken and interrupts this one (doc/results-early-return.md). In an
 * application that does little between its calls the ranks' other costs count too: 1 MB (75 us)
 * took it 1.08 to 1.12 x the time of blocking calls. A partner that copies alone takes half of
 * copy_ns off this rank, no more. */
#define WORTH_NS 120000u
#define WORTH_THREAD_NS 150000u
#define LATE_NS                                                                                    \
	30000u /* a partner that is later than this is late: as long as leaving costs, mostly */
/* Where ranks share CPUs a partner may only not have had its turn yet, which comes by waiting; as
 * long as a turn takes. (1 MB in an application on one core: 1.11 to 1.19 x the time of blocking
 * calls with 30 us.) */
#define LATE_SHARED_NS 2000000u

void policy_early(const struct policy_early_facts *f, struct policy_early_choice *out)
{
	*out = (struct policy_early_choice){ .how = EARLY_NO };
	if (f->mode == BASE_EARLY_OFF) {
		out->reason = "SLUICE_RT_EARLY is off";
	} else if (f->bytes < f->min_bytes) {
		out->reason = "shorter than SLUICE_RT_EARLY_MIN";
	} else if (!f->guard_is_ready) {
		out->reason = "memory cannot be guarded now";
	} else if (f->mode == BASE_EARLY_ON) {
		out->how = f->wait_us > 0 ? EARLY_LATER : EARLY_NOW;
		out->wait_ns = f->wait_us > 0 ? (uint64_t)f->wait_us * 1000 : 0;
		out->reason = "SLUICE_RT_EARLY is on";
	} else if (!f->site_may_try) {
		out->reason = "the program wanted the data at once the last times";
	} else if (f->has_mover && f->copy_ns >= (f->has_process ? WORTH_NS : WORTH_THREAD_NS)) {
		out->how = EARLY_NOW;
		out->reason = f->has_process ? "the worker process can move the data meanwhile" :
						 "a channel can move the data meanwhile";
	} else if (f->copy_ns >= WORTH_THREAD_NS && f->waited_ns &&
		   f->waited_ns >= f->partner_copy_ns) {
		out->how = EARLY_NOW;
		out->reason = "a partner has waited for so long that it can as well copy alone";
	} else {
		out->how = EARLY_LATER;
		out->wait_ns = f->wait_us >= 0  ? (uint64_t)f->wait_us * 1000
			       : f->shares_cpus ? LATE_SHARED_NS
						: LATE_NS;
		out->reason =
			f->shares_cpus
				? "ranks share CPUs: only when a partner is later than a turn takes"
			: f->has_mover
				? "too short to wake a worker for: only when a partner is late"
				: "no channel or CPU is free: only when a partner is late";
	}
}

uint64_t policy_gain_ns(uint64_t free_ns, uint64_t waited_ns, uint64_t copy_ns)
{
	if (!copy_ns)
		return free_ns;
	return copy_ns > waited_ns ? base_min_u64(free_ns, copy_ns - waited_ns) : 0;
}

bool policy_was_worth(uint64_t free_ns, uint64_t cost_ns) { return free_ns > 2 * cost_ns; }
