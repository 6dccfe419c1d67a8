/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/policy.h"
#include "unit.h"

UNIT_TEST(policy_takes_what_wins_in_used_buffers_only_when_they_are_used_again)
{
	const enum policy_host hosts[] = { HOST_OTHER, HOST_MPICH, HOST_OPEN_MPI };

	for (int i = 0; i < COLL_COUNT * 3; i++) {
		enum coll kind = (enum coll)(i / 3);
		uint64_t least = policy_threshold_bytes(kind),
			 always = policy_always_bytes(kind, hosts[i % 3]);

		CHECK(always >= least && always <= policy_always_bytes(kind, HOST_OTHER));
		if (coll_is_local(kind))
			CHECK_EQ(always, least);
	}
	CHECK(policy_always_bytes(COLL_ALLTOALL, HOST_MPICH) > policy_threshold_bytes(COLL_ALLTOALL));
	CHECK(policy_always_bytes(COLL_ALLREDUCE, HOST_MPICH) <
	      policy_always_bytes(COLL_ALLREDUCE, HOST_OTHER));
	CHECK_EQ(policy_always_bytes(COLL_BCAST, HOST_OTHER), policy_threshold_bytes(COLL_BCAST));
	base_opt.coll_take[BASE_FAMILY_ALLTOALL] = BASE_TAKE_ON;
	CHECK_EQ(policy_always_bytes(COLL_ALLTOALL, HOST_OTHER), base_opt.coll_threshold_bytes);
	base_opt.coll_take[BASE_FAMILY_ALLTOALL] = BASE_TAKE_OFF;
	CHECK_EQ(policy_always_bytes(COLL_ALLTOALL, HOST_MPICH), UINT64_MAX);
	base_opt.coll_take[BASE_FAMILY_ALLTOALL] = BASE_TAKE_AUTO;
}

UNIT_TEST(policy_knows_a_host_mpi_by_what_it_says)
{
	CHECK_EQ(policy_host_of("MPICH Version:      5.0.2\nMPICH Release date: ..."), HOST_MPICH);
	CHECK_EQ(policy_host_of("Open MPI v5.0.11, package: ..."), HOST_OPEN_MPI);
	CHECK_EQ(policy_host_of("Intel(R) MPI Library 2021.18 for Linux* OS\n"), HOST_OTHER);
	CHECK_EQ(policy_host_of("MVAPICH Version      :\t4.0"), HOST_OTHER);
	CHECK_EQ(policy_host_of(""), HOST_OTHER);
}

UNIT_TEST(policy_wants_larger_calls_where_ranks_share_cpus_and_open_mpi_yields_them)
{
	const enum policy_host hosts[] = { HOST_OTHER, HOST_MPICH, HOST_OPEN_MPI };
	uint64_t again, always, before = base_opt.coll_threshold_bytes;

	base_opt.coll_threshold_bytes = 64 << 10;
	for (int i = 0; i < COLL_COUNT * 3; i++) {
		policy_crowded_bytes((enum coll)(i / 3), hosts[i % 3], 1 + i % 7, &again,
				     &always);
		CHECK(again <= always && (!always || hosts[i % 3] == HOST_OPEN_MPI));
	}
	policy_crowded_bytes(COLL_BCAST, HOST_OPEN_MPI, 4, &again, &always);
	CHECK_EQ(again, 128 << 10);
	CHECK_EQ(always, 1 << 20);
	base_opt.coll_take[BASE_FAMILY_BCAST] = BASE_TAKE_ON;
	policy_crowded_bytes(COLL_BCAST, HOST_OPEN_MPI, 4, &again, &always);
	CHECK_EQ(always, 0);
	base_opt.coll_take[BASE_FAMILY_BCAST] = BASE_TAKE_AUTO;
	base_opt.coll_threshold_bytes = before;
}

static uint64_t from_of(enum coll kind, enum policy_host host)
{
	return policy_request_window(kind, host).from;
}

UNIT_TEST(policy_takes_nonblocking_collectives_where_they_win_or_as_it_is_told)
{
	int64_t *nonblocking = &base_opt.coll_take[BASE_FAMILY_NONBLOCKING], before = *nonblocking;

	*nonblocking = BASE_TAKE_AUTO;
	for (int kind = 0; kind < COLL_COUNT; kind++) {
		CHECK_EQ(from_of(kind, HOST_OTHER), UINT64_MAX);
		CHECK(policy_request_window(kind, HOST_OTHER).again >= 128 << 10);
		if (coll_is_local(kind)) /* whose sizes ranks do not share */
			CHECK(from_of(kind, HOST_MPICH) == UINT64_MAX &&
			      from_of(kind, HOST_OPEN_MPI) == UINT64_MAX);
	}
	CHECK_EQ(from_of(COLL_ALLREDUCE, HOST_MPICH), 1);
	CHECK_EQ(from_of(COLL_ALLREDUCE, HOST_OPEN_MPI), 512);
	CHECK_EQ(from_of(COLL_BCAST, HOST_OPEN_MPI), UINT64_MAX);
	CHECK(policy_request_window(COLL_ALLTOALL, HOST_MPICH).to < 64 << 10);
	CHECK_EQ(policy_request_window(COLL_ALLTOALL, HOST_MPICH).again, 128 << 10);
	CHECK_EQ(policy_request_window(COLL_ALLTOALL, HOST_MPICH).not_from, (4 << 10) + 1);
	CHECK_EQ(policy_request_window(COLL_ALLTOALL, HOST_MPICH).not_to, 8 << 10);
	CHECK_EQ(policy_request_window(COLL_BCAST, HOST_OPEN_MPI).again, 128 << 10);
	CHECK_EQ(policy_request_window(COLL_BCAST, HOST_MPICH).not_from, (8 << 10) + 1);
	CHECK_EQ(policy_request_window(COLL_BCAST, HOST_MPICH).not_to, 64 << 10);
	CHECK_EQ(policy_request_window(COLL_ALLTOALLV, HOST_OPEN_MPI).again, UINT64_MAX);
	*nonblocking = BASE_TAKE_ON;
	CHECK_EQ(from_of(COLL_BCAST, HOST_OTHER), policy_threshold_bytes(COLL_BCAST));
	CHECK_EQ(from_of(COLL_BARRIER, HOST_OTHER), 0);
	base_opt.coll_take[BASE_FAMILY_BARRIER] = BASE_TAKE_OFF;
	CHECK_EQ(from_of(COLL_BARRIER, HOST_MPICH), UINT64_MAX);
	base_opt.coll_take[BASE_FAMILY_BARRIER] = BASE_TAKE_AUTO;
	*nonblocking = BASE_TAKE_OFF;
	for (int kind = 0; kind < COLL_COUNT; kind++)
		CHECK(from_of(kind, HOST_MPICH) == UINT64_MAX &&
		      policy_request_window(kind, HOST_MPICH).again == UINT64_MAX);
	*nonblocking = before;
}

UNIT_TEST(policy_takes_requests_of_few_ranks_with_a_core_each_or_as_it_is_told)
{
	struct policy_group g = { .ranks = 2 };

	CHECK(policy_request_suits(&g));
	g.ranks = 17;
	CHECK(!policy_request_suits(&g));
	g = (struct policy_group){ .ranks = 2, .oversubscribed = true };
	CHECK(!policy_request_suits(&g));
	base_opt.coll_take[BASE_FAMILY_NONBLOCKING] = BASE_TAKE_ON;
	CHECK(policy_request_suits(&g));
	base_opt.coll_take[BASE_FAMILY_NONBLOCKING] = BASE_TAKE_AUTO;
}
