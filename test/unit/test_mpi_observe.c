/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wrappers of calls that could observe a pending operation, over a library and a runtime of our
 * own: datatypes are lists of bytes, and what is completed is written down. Built for the MPICH
 * ABI, whose handles are numbers.
 */
#include <setjmp.h>

#include "message/message.h"
#include "mpi_observe_fakes.h"

/* ---- the model: bytes, one by one -------------------------------------------------------- */

struct model { __int128 lo, hi; };

static void model_elements(struct model *m, __int128 at, MPI_Count n, int t)
{
	for (MPI_Count i = 0; i < n; i++) {
		for (int b = 0; b < types[t].n; b++) {
			__int128 lo = at + i * types[t].extent + types[t].off[b];

			if (!types[t].len[b])
				continue;
			if (m->lo == m->hi)
				m->lo = m->hi = lo;
			m->lo = lo < m->lo ? lo : m->lo;
			m->hi = lo + types[t].len[b] > m->hi ? lo + types[t].len[b] : m->hi;
		}
	}
}

static bool is_range(int i, const struct model *m)
{
	return i < seen.n_ranges && seen.ranges[i].lo == (uintptr_t)m->lo &&
	       seen.ranges[i].hi == (uintptr_t)m->hi;
}

static uint64_t state = 7;

static int pick(int lo, int hi)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return lo + (int)((state >> 33) % (uint64_t)(hi - lo + 1));
}

static void pick_types(void)
{
	for (int t = 3; t < TYPES; t++) {
		struct type *type = &types[t];

		type->n = pick(1, BLOCKS);
		for (int b = 0; b < type->n; b++) {
			type->off[b] = pick(-500, 500);
			type->len[b] = pick(1, 40);
		}
		type->lb = pick(-600, 600);
		type->extent = pick(-2000, 2000);
	}
}

#define AT ((void *)0x100000)

/* ---- extents ----------------------------------------------------------------------------- */

UNIT_TEST(a_buffer_is_completed_by_its_true_extent)
{
	for (int round = 0; round < 2000; round++) {
		struct model m = { 0 };
		int t;
		int n;

		begin();
		pick_types();
		t = pick(0, TYPES - 1);
		n = pick(0, 5);
		model_elements(&m, (uintptr_t)AT, n, t);
		CHECK_EQ(OBSERVER(Send)(AT, n, HANDLE(t), 0, 0, HANDLE(0)), 0);
		CHECK_EQ(seen.n_ranges, m.lo < m.hi);
		CHECK(m.lo == m.hi || is_range(0, &m));
		CHECK(seen.n_calls == 1 && !seen.bad_calls && !seen.depth && !seen.n_all);
	}
}

UNIT_TEST(absolute_displacements_and_large_counts_are_seen)
{
	begin();
	types[3] = (struct type){ 2, { 0x70001000, 0x70009000 }, { 8, 8 }, 0x70001000, 0x8008 };
	OBSERVER(Recv)(NULL, 1, HANDLE(3), 0, 0, 0, NULL);
	CHECK(is_range(0, &(struct model){ 0x70001000, 0x70009008 }));
	begin();
	OBSERVER(Send_c)(AT, (MPI_Count)5 << 40, 0, 0, 0, 0);
	CHECK(is_range(0, &(struct model){ 0x100000, 0x100000 + ((__int128)5 << 40) }));
}

static int asked;
static int size_8(MPI_Datatype type, MPI_Count *size)
{
	*size = 8;
	return 0;
}
static int asked_extent(MPI_Datatype type, MPI_Count *lb, MPI_Count *extent)
{
	asked++;
	return type_extent(type, lb, extent);
}

/* Only where its elements lie, once, as an operation is pending. */
UNIT_TEST(of_a_short_message_little_is_asked)
{
	for (int i = 0; i < 2; i++) {
		begin();
		pick_types();
		host.Type_size_x = size_8;
		host.Type_get_extent_x = asked_extent;
		asked = 0;
		message_gate = i ? 4096 : UINT64_MAX;
		CHECK_EQ(OBSERVER(Send)(AT, 100, HANDLE(1), 0, 0, HANDLE(0)), 0);
		CHECK_EQ(asked, 1);
	}
	message_gate = UINT64_MAX;
}

UNIT_TEST(what_cannot_be_known_completes_everything)
{
	begin();
	OBSERVER(Send)(AT, 1, HANDLE(0x0c000000), 0, 0, 0);
	CHECK_EQ(seen.n_all, 1);
	begin();
	TAKE(Allgather)(AT, 1, 0, AT, 1, 0, HANDLE(0x04000000));
	CHECK_EQ(seen.n_all, 1);
	begin(); /* no topology */
	TAKE(Neighbor_allgather)(AT, 1, 0, AT, 1, 0, 0);
	CHECK_EQ(seen.n_all, 1);
	begin();
	TAKE(Alltoallv)(AT, NULL, NULL, 0, (void *)-1, NULL, NULL, 0, 0);
	CHECK_EQ(seen.n_all, 1);
	begin();
	OBSERVER(Send_c)(AT, INT64_MAX, HANDLE(2), 0, 0, 0); /* below address 0 */
	CHECK_EQ(seen.n_all, 1);
	CHECK_EQ(seen.n_calls, 1);
}

UNIT_TEST(both_buffers_of_an_exchange_are_completed)
{
	begin();
	OBSERVER(Sendrecv)(AT, 10, 0, 0, 0, (char *)AT + 100, 20, 0, 0, 0, 0, NULL);
	CHECK_EQ(seen.n_ranges, 2);
	CHECK(is_range(0, &(struct model){ 0x100000, 0x10000a }));
	CHECK(is_range(1, &(struct model){ 0x100064, 0x100078 }));
	begin();
	OBSERVER(Compare_and_swap)(AT, (char *)AT + 100, (char *)AT + 200, 0, 0, 0, 0);
	CHECK_EQ(seen.n_ranges, 3);
}

/* ---- collectives ------------------------------------------------------------------------- */

UNIT_TEST(counts_and_displacements_of_all_members_are_seen)
{
	for (int round = 0; round < 1000; round++) {
		int counts[SIZE], displs[SIZE];
		MPI_Count wide_counts[SIZE];
		MPI_Aint wide_displs[SIZE];
		struct model m = { 0 };
		int t;

		begin();
		pick_types();
		t = pick(0, TYPES - 1);
		for (int i = 0; i < SIZE; i++) {
			wide_counts[i] = counts[i] = pick(0, 3);
			wide_displs[i] = displs[i] = pick(-20, 20);
			model_elements(&m, (uintptr_t)AT + (__int128)displs[i] * types[t].extent,
				       counts[i], t);
		}
		TAKE(Allgatherv)((void *)-1, 0, 0, AT, counts, displs, HANDLE(t), HANDLE(0));
		TAKE(Allgatherv_c)
		((void *)-1, 0, 0, AT, wide_counts, wide_displs, HANDLE(t), HANDLE(0));
		CHECK(seen.n_calls == 2 && !seen.n_all);
		CHECK_EQ(seen.n_ranges, m.lo < m.hi ? 2 : 0);
		CHECK(m.lo == m.hi || (is_range(0, &m) && is_range(1, &m)));
	}
}

UNIT_TEST(displacements_in_bytes_go_with_types_of_their_own)
{
	for (int round = 0; round < 1000; round++) {
		int counts[SIZE], displs[SIZE];
		int own[SIZE]; /* handles of the MPICH ABI */
		struct model m = { 0 };

		begin();
		pick_types();
		for (int i = 0; i < SIZE; i++) {
			counts[i] = pick(0, 3);
			displs[i] = pick(-5000, 5000);
			own[i] = counts[i] ? pick(0, TYPES - 1) : 0x0c000000;
			model_elements(&m, (uintptr_t)AT + displs[i], counts[i], own[i]);
		}
		TAKE(Alltoallw)((void *)-1, NULL, NULL, NULL, AT, counts, displs, own, 0);
		CHECK(seen.n_calls == 1 && !seen.n_all);
		CHECK_EQ(seen.n_ranges, m.lo < m.hi);
		CHECK(m.lo == m.hi || is_range(0, &m));
	}
}

UNIT_TEST(only_the_root_looks_at_what_is_the_roots)
{
	void *volatile nowhere = (void *)8;

	begin();
	TAKE(Gatherv)(AT, 8, 0, nowhere, nowhere, nowhere, HANDLE(999), RANK + 1, 0);
	CHECK(seen.n_ranges == 1 && !seen.n_all);
	begin();
	TAKE(Igather)(AT, 8, 0, (char *)AT + 100, 8, 0, RANK, 0, NULL);
	CHECK_EQ(seen.n_ranges, 2);
	CHECK(is_range(1, &(struct model){ 0x100064, 0x100064 + 8 * SIZE }));
	begin();
	TAKE(Scatter)(AT, 8, 0, (void *)-1, 8, 0, RANK, 0);
	CHECK(is_range(0, &(struct model){ 0x100000, 0x100000 + 8 * SIZE }) && seen.n_ranges == 1);
	begin(); /* the members of the other group */
	TAKE(Scatter)(AT, 8, 0, (void *)-1, 8, 0, abi.root, HANDLE(INTER));
	CHECK(is_range(0, &(struct model){ 0x100000, 0x100000 + 8 * (SIZE + 2) }));
	begin();
	TAKE(Reduce)(AT, (void *)8, 8, 0, 0, RANK, HANDLE(INTER));
	CHECK_EQ(seen.n_ranges, 1);
}

UNIT_TEST(neighbours_are_counted_by_topology)
{
	int counts[] = { 1, 1, 1, 1 };
	MPI_Aint displs[] = { 0, 10, 20, 1000 };
	int own[] = { 0, 0, 0, 0 };

	begin();
	TAKE(Neighbor_alltoall)(AT, 5, 0, (char *)AT + 100, 5, 0, HANDLE(CART));
	CHECK(is_range(0, &(struct model){ 0x100000, 0x100000 + 20 }));
	CHECK(is_range(1, &(struct model){ 0x100064, 0x100064 + 20 }));
	begin();
	TAKE(Neighbor_alltoallw)(AT, counts, displs, own, AT, counts, displs, own, HANDLE(DIST));
	CHECK(is_range(0, &(struct model){ 0x100000, 0x100000 + 21 }));
	CHECK(is_range(1, &(struct model){ 0x100000, 0x100000 + 1 }));
}

UNIT_TEST(reductions_with_counts_name_their_sum)
{
	int counts[] = { 4, 0, 6 };

	begin();
	TAKE(Reduce_scatter)(AT, (void *)-1, counts, 0, 0, 0);
	CHECK(is_range(0, &(struct model){ 0x100000, 0x10000a }) && seen.n_ranges == 1);
}

/* ---- requests ---------------------------------------------------------------------------- */

static int next_request;

static int send_init(const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
		     MPI_Comm comm, void *request)
{
	*(int *)request = next_request;
	return 0;
}

UNIT_TEST(a_persistent_request_completes_its_buffer_when_it_is_started)
{
	enum { MANY = 5000 };
	static int requests[MANY];

	begin();
	host.Send_init = send_init;
	for (int i = 0; i < MANY; i++) {
		next_request = 0x4c000000 + 64 * i;
		CHECK_EQ(OBSERVER(Send_init)((char *)AT + 16 * i, 8, 0, 0, 0, 0, &requests[i]), 0);
	}
	CHECK_EQ(seen.n_ranges, 0);
	for (int i = 0; i < MANY; i++) {
		seen.n_ranges = 0;
		OBSERVER(Start)(&requests[i]);
		CHECK(is_range(0, &(struct model){ 0x100000 + 16 * i, 0x100008 + 16 * i }));
	}
	for (int i = 0; i < MANY; i += 2)
		OBSERVER(Request_free)(&requests[i]);
	CHECK_EQ(seen.n_all, 0);
	for (int i = 0; i < MANY; i++) {
		seen.n_ranges = 0;
		OBSERVER(Startall)(1, &requests[i]);
		CHECK_EQ(seen.n_ranges, i % 2);
		CHECK_EQ(seen.n_all, i / 2 + 1);
	}
	for (int i = 1; i < MANY; i += 2)
		OBSERVER(Request_free)(&requests[i]);
}

UNIT_TEST(a_request_that_is_used_again_names_its_new_buffer)
{
	int r;

	begin();
	host.Send_init = send_init;
	next_request = 77;
	OBSERVER(Send_init)(AT, 8, 0, 0, 0, 0, &r);
	OBSERVER(Send_init)((char *)AT + 100, 8, 0, 0, 0, 0, &r);
	OBSERVER(Start)(&r);
	CHECK(seen.n_ranges == 1 && is_range(0, &(struct model){ 0x100064, 0x10006c }));
	OBSERVER(Send_init)
	(AT, 8, HANDLE(0x0c000000), 0, 0, 0, &r); /* whatever it is, it is not known */
	OBSERVER(Start)(&r);
	CHECK_EQ(seen.n_all, 1);
	OBSERVER(Request_free)(&r);
}

UNIT_TEST(a_request_of_nothing_completes_nothing)
{
	int r;

	begin();
	host.Send_init = send_init;
	next_request = 78;
	OBSERVER(Send_init)(AT, 0, 0, 0, 0, 0, &r);
	OBSERVER(Start)(&r);
	CHECK(!seen.n_ranges && !seen.n_all);
	OBSERVER(Request_free)(&r);
}

/* ---- all of them ------------------------------------------------------------------------- */

typedef int any(long, long, long, long, long, long, long, long, long, long, long, long, long, long);

static int call_any(int i, bool pending)
{
	const struct front_way *way = &observe_ways[i];

	return ((any *)(pending ? way->pending : way->plain))(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
							      0);
}

static bool writes_request(int i)
{
	static const char *const names[] = {
#define X(name) #name,
		FRONT_OBSERVED(X)
#undef X
	};

	return strstr(names[i], "_init");
}

UNIT_TEST(each_function_leads_to_its_own_and_is_hosted)
{
	for (int i = 0; i < FRONT_OBSERVED_COUNT; i++) {
		begin();
		if (writes_request(i))
			continue;
		set_functions(wrong);
		((void **)&host)[FRONT_WRAPPED_COUNT + i] = (void *)right;
		CHECK_EQ(call_any(i, true), 0);
		CHECK(seen.n_calls == 1 && !seen.bad_calls && !seen.depth);
	}
}

UNIT_TEST(calls_of_the_librarys_own_complete_nothing)
{
	for (int i = 0; i < FRONT_OBSERVED_COUNT; i++) {
		begin();
		if (writes_request(i))
			continue;
		atomic_store_explicit(&rt_pending, 0, memory_order_relaxed);
		bypass = 1;
		CHECK_EQ(call_any(i, true), 0);
		bypass = 0;
		CHECK(seen.n_calls == 1 && !seen.n_all && !seen.n_ranges && !seen.n_reaps);
	}
	begin();
	abi.caller.bytes = UINTPTR_MAX;
	TAKE(Barrier)(0);
	abi.caller.bytes = 0;
	CHECK(seen.n_calls == 1 && !seen.n_all);
}

static jmp_buf back;

static int leave(void)
{
	longjmp(back, 1);
}

/* As an error handler may: the next call knows that this one is over. */
UNIT_TEST(a_call_that_is_left_by_longjmp_is_over)
{
	for (volatile int i = 0; i < 10; i++) {
		begin();
		if (!setjmp(back)) {
			host.Recv = (__typeof__(host.Recv))(void *)leave;
			OBSERVER(Recv)(AT, 1, 0, 0, 0, 0, NULL);
		}
		CHECK_EQ(seen.depth, 1);
		if (i % 2)
			host_bracket_unwind(__builtin_frame_address(0));
		CHECK_EQ(seen.depth, !(i % 2));
		OBSERVER(Send)(AT, 1, 0, 0, 0, 0);
		CHECK(seen.n_calls == 1 && !seen.bad_calls && !seen.depth);
	}
}

UNIT_TEST(synchronisation_completes_everything)
{
	begin();
	TAKE(Barrier)(0);
	TAKE(Ibarrier)(0, NULL);
	OBSERVER(Win_fence)(0, 0);
	OBSERVER(Win_unlock)(0, 0);
	OBSERVER(File_write_at)(NULL, 0, AT, 1, 0, NULL);
	OBSERVER(File_read_ordered_end)(NULL, AT, NULL);
	OBSERVER(Comm_free)(NULL);
	OBSERVER(Comm_disconnect)(NULL);
	OBSERVER(Abort)(0, 0);
	OBSERVER(Finalize)();
	OBSERVER(Session_finalize)(NULL);
	OBSERVER(Pready)(0, 0);
	CHECK_EQ(seen.n_all, 12);
	CHECK(!seen.n_ranges && !seen.n_reaps);
}

UNIT_TEST(waiting_for_others_only_retires)
{
	begin();
	OBSERVER(Wait)(NULL, NULL);
	OBSERVER(Testsome)(0, NULL, NULL, NULL, NULL);
	OBSERVER(Probe)(0, 0, 0, NULL);
	CHECK_EQ(seen.n_reaps, 3);
	CHECK(!seen.n_all && !seen.n_ranges);
}

static int win_allocate(MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void *baseptr,
			void *win)
{
	*(void **)baseptr = AT;
	return 0;
}

UNIT_TEST(memory_of_a_window_is_kept_out)
{
	void *base;

	begin();
	host.Win_allocate = win_allocate;
	OBSERVER(Win_allocate)(4096, 1, 0, 0, &base, NULL);
	CHECK(seen.kept_out_lo == 0x100000 && seen.kept_out_hi == 0x101000);
	CHECK_EQ(seen.n_all, 1);
}

/* ---- what nobody looks at ---------------------------------------------------------------- */

enum { A_BYTE = 0x4c000101, A_DOUBLE = 0x4c00080b, DERIVED = 3 };

/* Is a gather's call with these bytes on either side looked at, while something is pending and
 * while nothing is? */
static int looks(int send, int recv, int handle)
{
	MPI_Datatype type = HANDLE(handle);
	int n = handle == A_DOUBLE ? 8 : 1, before;

	atomic_store_explicit(&rt_pending, 0, memory_order_relaxed);
	seen.n_looks = 0;
	wrap_Igather(AT, send / n, type, AT, recv / n, type, 0, 0, NULL);
	before = seen.n_looks;
	pend_Igather(AT, send / n, type, AT, recv / n, type, 0, 0, NULL);
	CHECK_EQ(seen.n_looks, 2 * before);
	return before;
}

UNIT_TEST(what_no_rank_takes_is_not_looked_at)
{
	static const struct { int bytes, is_looked_at;
	} sizes[] = {
		{ 0, 0 },    { 8, 0 },    { 56, 0 },   { 64, 1 },   { 992, 1 },
		{ 1000, 0 }, { 3000, 0 }, { 4992, 0 }, { 5000, 1 }, { 1 << 20, 1 },
	};

	begin();
	rt_gates[COLL_NONBLOCKING][COLL_GATHER] =
		(struct coll_gate){ .gate = 64, .from = 64, .to = UINT64_MAX,
				    .holes = { { 1000, 3000 }, { 3000, 5000 } },
				    .always_from = 64 };
	for (size_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
		CHECK_EQ(looks(sizes[i].bytes, sizes[i].bytes, A_BYTE), sizes[i].is_looked_at);
		CHECK_EQ(looks(sizes[i].bytes, sizes[i].bytes, A_DOUBLE), sizes[i].is_looked_at);
		/* which side counts is known at the root only */
		CHECK_EQ(looks(sizes[i].bytes, 2000, A_BYTE), sizes[i].is_looked_at);
		CHECK_EQ(looks(2000, sizes[i].bytes, A_BYTE), sizes[i].is_looked_at);
		CHECK_EQ(looks(sizes[i].bytes, 500, A_BYTE), 1);
		CHECK_EQ(looks(sizes[i].bytes, sizes[i].bytes, DERIVED), !!sizes[i].bytes);
	}
	rt_gates[COLL_NONBLOCKING][COLL_GATHER] = (struct coll_gate)COLL_GATE_CLOSED;
	CHECK(!looks(1 << 20, 1 << 20, A_BYTE));
	rt_gates[COLL_NONBLOCKING][COLL_GATHER] = (struct coll_gate){ 0 };
	CHECK(looks(8, 8, A_BYTE));
}
