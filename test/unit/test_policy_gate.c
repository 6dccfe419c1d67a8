/* SPDX-License-Identifier: BSD-3-Clause */
/* Which calls are admitted: by options, by the figures that the package ships, by size. */
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/gate.h"
#include "tune/tune.h"
#include "unit.h"

#define KIB 1024u
#define MIB (1024u * KIB)

/* As MPI_Get_library_version returns them. */
static const char *const mpis[] = {
	"MPICH Version:      5.0.2\nMPICH Release date: Fri Sep 25 20:45:26 UTC 2026\n"
	"MPICH ABI:          18:2:6\nMPICH Device:       ch4:ucx ofi\n",
	"Open MPI v5.0.11, package: Open MPI builder Distribution, ident: 5.0.11",
	"Intel(R) MPI Library 2021.18.1 for Linux* OS\n"
};
enum { MPICH, OPEN_MPI, OTHER, MPIS };

static struct policy_figures figures[MPIS][COLL_COUNT];
static struct coll_gate gates[MPIS][COLL_FORMS][COLL_COUNT];
static struct policy_options options;

static int set(void *arg, const char *name, const char *value)
{
	return policy_figures_set(arg, name, value);
}

static void load(const char *mpi, struct policy_figures out[COLL_COUNT])
{
	struct tune_result found;

	policy_figures_begin(out);
	tune_load_figures(HOST_MPI_TUNE, mpi, set, out, &found);
	if (found.state != TUNE_IN_FORCE)
		unit_fail(__FILE__, __LINE__, "%s: %s", found.path, found.reason);
}

static void make_gates(bool is_traced)
{
	for (int i = 0; i < MPIS; i++)
		policy_gates(gates[i], &options, figures[i], is_traced);
}

static void begin(void)
{
	options = (struct policy_options){ .threshold_bytes = 64 * KIB };
	for (int i = 0; i < MPIS; i++)
		load(mpis[i], figures[i]);
	make_gates(false);
}

static enum admission blocking(int mpi, enum coll kind, uint64_t bytes)
{
	return policy_admit(&gates[mpi][COLL_BLOCKING][kind], bytes);
}

static enum admission nonblocking(int mpi, enum coll kind, uint64_t bytes)
{
	return policy_admit(&gates[mpi][COLL_NONBLOCKING][kind], bytes);
}

UNIT_TEST(shipped_figures_are_of_the_host_mpi_by_its_version)
{
	static const struct {
		const char *version;
		int like;
	} cases[] = {
		{ "MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n"
		  "MPICH ABI:\t14:2:2\nMPICH Device:\tch4:ucx\n",
		  MPICH },
		{ "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, "
		  "May 26, 2022",
		  OPEN_MPI },
		{ "IBM Spectrum MPI v10.3.1, package: Open MPI builder Distribution", OPEN_MPI },
		{ "MVAPICH2 Version      :\t2.3.7\nMVAPICH2 Release date : x\n"
		  "MVAPICH2 Device       :\tch3:mrail\n",
		  OTHER },
		{ "MVAPICH Version:\t4.0\nMVAPICH Release date:\tx\nMVAPICH ABI:\t14:2:2\n",
		  OTHER },
		{ "MPI VERSION    : CRAY MPICH version 8.1.28 (ANL base 3.4a2)\n", OTHER },
		{ "Intel(R) MPI Library 2019 Update 7 for Linux* OS\n", OTHER },
		{ "", OTHER },
	};
	struct policy_figures found[COLL_COUNT];

	begin();
	for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		load(cases[i].version, found);
		CHECK(!memcmp(found, figures[cases[i].like], sizeof(found)));
		CHECK_EQ(policy_figures_hash(found), policy_figures_hash(figures[cases[i].like]));
	}
	CHECK(policy_figures_hash(figures[MPICH]) != policy_figures_hash(figures[OPEN_MPI]));
}

UNIT_TEST(printed_figures_are_read_alike)
{
	struct policy_figures f[COLL_COUNT];
	char *text = NULL, *line, *rest, *end;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	begin();
	policy_figures_print(figures[MPICH], out);
	fclose(out);
	policy_figures_begin(f);
	for (rest = text; (line = strsep(&rest, "\n")) && *line;) {
		end = strstr(line, " = ");
		*end = '\0';
		CHECK_EQ(policy_figures_set(f, line, end + 3), 0);
	}
	CHECK_EQ(policy_figures_hash(f), policy_figures_hash(figures[MPICH]));
	free(text);
}

UNIT_TEST(a_line_of_the_figures_that_says_nothing_is_refused)
{
	struct policy_figures f[COLL_COUNT];

	policy_figures_begin(f);
	CHECK_EQ(policy_figures_set(f, "bcast.again", "128K"), 0);
	CHECK_EQ(f[COLL_BCAST].again, 128 * KIB);
	CHECK_EQ(policy_figures_set(f, "ireduce_scatter_block.from", "never"), 0);
	CHECK_EQ(f[COLL_REDUCE_SCATTER_BLOCK].nonblocking.from, UINT64_MAX);
	CHECK_EQ(policy_figures_set(f, "bcast.again", "soon"), -EINVAL);
	CHECK_EQ(policy_figures_set(f, "bcast.soon", "1"), -ENOENT);
	CHECK_EQ(policy_figures_set(f, "bcast.from", "1"), -ENOENT);
	CHECK_EQ(policy_figures_set(f, "ibcast.always", "1"), -ENOENT);
	CHECK_EQ(policy_figures_set(f, "broadcast.again", "1"), -ENOENT);
	CHECK_EQ(policy_figures_set(f, "bcast", "1"), -ENOENT);
}

UNIT_TEST(figures_are_read_in_the_locale_of_the_program)
{
	struct policy_figures f[COLL_COUNT];

	if (!setlocale(LC_ALL, "tr_TR.UTF-8"))
		unit_skip("no Turkish locale, in which tolower('I') is not 'i'");
	policy_figures_begin(f);
	CHECK_EQ(policy_figures_set(f, "ibarrier.from", "1"), 0);
	CHECK_EQ(policy_figures_set(f, "iNEIGHBOR_alltoall.from", "1"), 0);
	setlocale(LC_ALL, "C");
}

UNIT_TEST(without_figures_large_calls_in_reused_buffers_are_admitted)
{
	begin();
	policy_figures_init(figures[OTHER]);
	make_gates(false);
	CHECK_EQ(blocking(OTHER, COLL_BCAST, 255 * KIB), ADMIT_NOT_SMALL);
	CHECK_EQ(blocking(OTHER, COLL_BCAST, 256 * KIB), ADMIT_REUSED);
	CHECK_EQ(blocking(OTHER, COLL_ALLREDUCE, 1 << 30), ADMIT_REUSED);
	CHECK(coll_gate_is_closed(&gates[OTHER][COLL_NONBLOCKING][COLL_BCAST]));
}

UNIT_TEST(blocking_gates_have_the_measured_sizes)
{
	begin();
	for (int i = 0; i < MPIS * COLL_COUNT; i++) {
		enum coll kind = (enum coll)(i % COLL_COUNT);
		const struct coll_gate *g = &gates[i / COLL_COUNT][COLL_BLOCKING][kind];

		CHECK(g->always_from >= g->from && g->gate == g->from);
		if (coll_is_local(kind) || kind == COLL_BARRIER)
			CHECK(coll_gate_is_closed(g));
	}
	CHECK_EQ(blocking(MPICH, COLL_BCAST, 64 * KIB - 1), ADMIT_NOT_SMALL);
	CHECK_EQ(blocking(MPICH, COLL_BCAST, 64 * KIB), ADMIT_ALWAYS);
	CHECK_EQ(blocking(MPICH, COLL_GATHER, 64 * KIB), ADMIT_ALWAYS);
	CHECK_EQ(blocking(OTHER, COLL_GATHER, 64 * KIB), ADMIT_REUSED);
	CHECK_EQ(blocking(OTHER, COLL_GATHER, 128 * KIB), ADMIT_ALWAYS);
	CHECK_EQ(blocking(OTHER, COLL_SCATTER, 127 * KIB), ADMIT_REUSED);
	CHECK_EQ(blocking(OPEN_MPI, COLL_ALLTOALL, 127 * KIB), ADMIT_NOT_SMALL);
	CHECK_EQ(blocking(OPEN_MPI, COLL_ALLTOALL, 1 << 30), ADMIT_REUSED);
	CHECK_EQ(blocking(MPICH, COLL_ALLREDUCE, 256 * KIB), ADMIT_ALWAYS);
	CHECK_EQ(blocking(OTHER, COLL_ALLREDUCE, 256 * KIB), ADMIT_REUSED);
	CHECK_EQ(blocking(OPEN_MPI, COLL_REDUCE_SCATTER_BLOCK, 128 * KIB), ADMIT_ALWAYS);
	CHECK_EQ(blocking(MPICH, COLL_SCAN, 256 * KIB), ADMIT_ALWAYS);
	CHECK_EQ(blocking(MPICH, COLL_EXSCAN, 191 * KIB), ADMIT_NOT_SMALL);
	CHECK_EQ(blocking(MPICH, COLL_EXSCAN, 192 * KIB), ADMIT_REUSED);
	CHECK(coll_gate_is_closed(&gates[MPICH][COLL_BLOCKING][COLL_ALLGATHERV]));
	CHECK(coll_gate_is_closed(&gates[MPICH][COLL_BLOCKING][COLL_REDUCE_SCATTER]));
}

UNIT_TEST(options_count_more_than_figures)
{
	begin();
	options.modes[BASE_FAMILY_ALLTOALL] = BASE_ADMIT_ON;
	options.modes[BASE_FAMILY_ALLREDUCE] = BASE_ADMIT_OFF;
	options.modes[BASE_FAMILY_BARRIER] = BASE_ADMIT_ON;
	make_gates(false);
	CHECK_EQ(blocking(OTHER, COLL_ALLTOALL, 64 * KIB), ADMIT_ALWAYS);
	CHECK(coll_gate_is_closed(&gates[MPICH][COLL_BLOCKING][COLL_ALLTOALLV]));
	CHECK(coll_gate_is_closed(&gates[MPICH][COLL_BLOCKING][COLL_ALLREDUCE]));
	CHECK(coll_gate_is_closed(&gates[MPICH][COLL_NONBLOCKING][COLL_ALLREDUCE]));
	CHECK(coll_gate_is_closed(&gates[MPICH][COLL_BLOCKING][COLL_BARRIER]));
	options.modes[BASE_FAMILY_VECTOR] = BASE_ADMIT_ON;
	options.hier = true;
	options.threshold_bytes = 1;
	make_gates(false);
	CHECK_EQ(blocking(MPICH, COLL_ALLTOALLV, 0), ADMIT_ALWAYS);
	CHECK_EQ(blocking(MPICH, COLL_BARRIER, 0), ADMIT_ALWAYS);
	CHECK_EQ(blocking(MPICH, COLL_BCAST, 1), ADMIT_ALWAYS);
	CHECK_EQ(blocking(MPICH, COLL_ALLGATHER, 1), ADMIT_NOT_SMALL); /* figures count still */
}

UNIT_TEST(traced_calls_are_all_checked)
{
	begin();
	make_gates(true);
	for (int kind = 0; kind < COLL_COUNT; kind++) {
		CHECK_EQ(gates[MPICH][COLL_BLOCKING][kind].gate,
			 kind == COLL_BARRIER ? UINT64_MAX : 0);
		CHECK(!coll_gate_passes(&gates[MPICH][COLL_NONBLOCKING][kind], 9 * KIB));
	}
	make_gates(false);
	CHECK(coll_gate_passes(&gates[MPICH][COLL_NONBLOCKING][COLL_BCAST], 9 * KIB));
	policy_gates_close(gates[MPICH], false);
	CHECK(coll_gate_passes(&gates[MPICH][COLL_BLOCKING][COLL_BCAST], 1 << 30));
}

UNIT_TEST(calls_must_be_larger_where_ranks_share_cpus_and_open_mpi_yields_them)
{
	uint64_t again, always;

	begin();
	for (int i = 0; i < COLL_COUNT * MPIS; i++) {
		enum coll kind = (enum coll)(i / MPIS);

		policy_crowded(&options, &figures[i % MPIS][kind], kind, 1 + i % 7, &again,
			       &always);
		CHECK(again <= always && (!always || i % MPIS == OPEN_MPI));
	}
	policy_crowded(&options, &figures[OPEN_MPI][COLL_BCAST], COLL_BCAST, 4, &again, &always);
	CHECK_EQ(again, 128 * KIB);
	CHECK_EQ(always, MIB);
	options.modes[BASE_FAMILY_BCAST] = BASE_ADMIT_ON;
	policy_crowded(&options, &figures[OPEN_MPI][COLL_BCAST], COLL_BCAST, 4, &again, &always);
	CHECK_EQ(always, 0);
}

UNIT_TEST(nonblocking_gates_have_the_measured_sizes)
{
	begin();
	for (int kind = 0; kind < COLL_COUNT; kind++) {
		const struct coll_gate *g = &gates[OTHER][COLL_NONBLOCKING][kind];

		CHECK(g->always_from == UINT64_MAX && g->from >= 128 * KIB);
		if (!coll_is_local((enum coll)kind)) /* otherwise ranks share no size */
			continue;
		for (int mpi = 0; mpi < MPIS; mpi++)
			CHECK(coll_gate_is_closed(&gates[mpi][COLL_NONBLOCKING][kind]));
	}
	CHECK_EQ(nonblocking(MPICH, COLL_ALLREDUCE, 0), ADMIT_NOT_SMALL);
	CHECK_EQ(nonblocking(MPICH, COLL_ALLREDUCE, 1), ADMIT_ALWAYS);
	CHECK_EQ(nonblocking(MPICH, COLL_BARRIER, 0), ADMIT_ALWAYS);
	CHECK_EQ(nonblocking(OPEN_MPI, COLL_ALLREDUCE, 511), ADMIT_NOT_SMALL);
	CHECK_EQ(nonblocking(OPEN_MPI, COLL_ALLREDUCE, 512), ADMIT_ALWAYS);
	CHECK_EQ(nonblocking(OPEN_MPI, COLL_BCAST, 127 * KIB), ADMIT_NOT_SMALL);
	CHECK_EQ(nonblocking(OPEN_MPI, COLL_BCAST, 128 * KIB), ADMIT_REUSED);
	CHECK_EQ(nonblocking(MPICH, COLL_BCAST, 8 * KIB), ADMIT_ALWAYS);
	CHECK_EQ(nonblocking(MPICH, COLL_BCAST, 8 * KIB + 1), ADMIT_NOT);
	CHECK_EQ(nonblocking(MPICH, COLL_BCAST, 64 * KIB - 1), ADMIT_NOT);
	CHECK_EQ(nonblocking(MPICH, COLL_BCAST, 64 * KIB), ADMIT_ALWAYS);
	CHECK_EQ(nonblocking(MPICH, COLL_BCAST, MIB), ADMIT_ALWAYS);
	CHECK_EQ(nonblocking(MPICH, COLL_BCAST, MIB + 1), ADMIT_REUSED);
	CHECK_EQ(nonblocking(MPICH, COLL_ALLTOALL, 4 * KIB + 1), ADMIT_NOT);
	CHECK_EQ(nonblocking(MPICH, COLL_ALLTOALL, 8 * KIB), ADMIT_ALWAYS);
	CHECK_EQ(nonblocking(MPICH, COLL_ALLTOALL, 16 * KIB + 1), ADMIT_NOT);
	CHECK_EQ(nonblocking(MPICH, COLL_ALLTOALL, 128 * KIB), ADMIT_REUSED);
	CHECK_EQ(nonblocking(MPICH, COLL_GATHER, 2000), ADMIT_ALWAYS);
	CHECK_EQ(nonblocking(MPICH, COLL_GATHER, 2001), ADMIT_NOT);
	CHECK_EQ(nonblocking(MPICH, COLL_GATHER, 96 * KIB), ADMIT_REUSED);
	CHECK_EQ(nonblocking(OPEN_MPI, COLL_SCAN, 8 * KIB), ADMIT_ALWAYS);
}

UNIT_TEST(nonblocking_calls_are_as_blocking_ones_where_an_option_asks)
{
	begin();
	options.modes[BASE_FAMILY_NONBLOCKING] = BASE_ADMIT_ON;
	make_gates(false);
	CHECK_EQ(nonblocking(OTHER, COLL_BCAST, 64 * KIB), ADMIT_ALWAYS);
	CHECK_EQ(nonblocking(OTHER, COLL_BARRIER, 0), ADMIT_ALWAYS);
	options.modes[BASE_FAMILY_BARRIER] = BASE_ADMIT_OFF;
	make_gates(false);
	CHECK(coll_gate_is_closed(&gates[MPICH][COLL_NONBLOCKING][COLL_BARRIER]));
	options.modes[BASE_FAMILY_NONBLOCKING] = BASE_ADMIT_OFF;
	make_gates(false);
	for (int kind = 0; kind < COLL_COUNT; kind++)
		CHECK(coll_gate_is_closed(&gates[MPICH][COLL_NONBLOCKING][kind]));
}

UNIT_TEST(requests_of_few_ranks_with_a_core_each_are_admitted)
{
	uint64_t threshold;

	begin();
	CHECK(policy_admits_requests(&options, 2, false));
	CHECK(!policy_admits_requests(&options, 17, false));
	CHECK(!policy_admits_requests(&options, 2, true));
	threshold = policy_connect_threshold(&options);
	CHECK(256 * policy_connect_credit(&options, COLL_BCAST, 1, 2) <= threshold);
	CHECK(257 * policy_connect_credit(&options, COLL_BCAST, 1, 2) > threshold);
	CHECK(policy_connect_credit(&options, COLL_BCAST, 1 << 30, 2) > threshold);
	CHECK_EQ(policy_connect_credit(&options, COLL_ALLTOALLV, 1 << 30, 2),
		 policy_connect_credit(&options, COLL_BCAST, 1, 2));
	options.modes[BASE_FAMILY_NONBLOCKING] = BASE_ADMIT_ON;
	CHECK(policy_admits_requests(&options, 2, true));
	CHECK_EQ(policy_connect_threshold(&options), 0);
}

UNIT_TEST(where_trials_decide_connecting_costs_a_small_part_of_the_calls_before)
{
	uint64_t alltoall;

	begin();
	options.measures = true;
	alltoall = policy_connect_credit(&options, COLL_ALLTOALL, MIB, 4);
	CHECK(policy_connect_threshold(&options) >= 20 * 1000000);
	/* a megabyte to each of three takes more than 0.1 ms, and 1000 short calls less than 10 */
	CHECK(alltoall > 100000 && alltoall < 1000000);
	CHECK(alltoall > 2 * policy_connect_credit(&options, COLL_BCAST, MIB, 4));
	CHECK(1000 * policy_connect_credit(&options, COLL_BCAST, 8, 4) < 10000000);
	CHECK(policy_connect_pays(60000000, 3000000));
	CHECK(!policy_connect_pays(59999999, 3000000));
}

UNIT_TEST(short_calls_are_admitted_where_ranks_take_turns)
{
	begin();
	make_gates(false);
	CHECK(coll_gate_is_closed(&gates[MPICH][COLL_BLOCKING][COLL_BARRIER]));
	options.switches = true;
	options.modes[BASE_FAMILY_REDUCE] = BASE_ADMIT_OFF;
	make_gates(false);
	for (enum coll kind = 0; kind < COLL_COUNT; kind++) {
		const struct coll_gate *g = &gates[MPICH][COLL_BLOCKING][kind];
		bool is_asked = coll_family(kind) != BASE_FAMILY_REDUCE && !coll_is_local(kind) &&
				kind < COLL_NEIGHBOR_ALLGATHER && kind != COLL_ALLGATHERV &&
				kind != COLL_REDUCE_SCATTER;

		CHECK_EQ(coll_gate_is_short(g, 8), is_asked);
		CHECK(!coll_gate_is_short(g, 64 * KIB));
		CHECK(!is_asked || !coll_gate_passes(g, 8));
		CHECK(!coll_gate_is_short(&gates[MPICH][COLL_NONBLOCKING][kind], 8));
	}
	CHECK(!coll_gate_is_closed(&gates[MPICH][COLL_BLOCKING][COLL_BARRIER]));
	CHECK_EQ(blocking(MPICH, COLL_BCAST, 16 * KIB), ADMIT_NOT_SMALL);
	options.modes[coll_family(COLL_BCAST)] = BASE_ADMIT_ON;
	options.threshold_bytes = KIB;
	make_gates(false);
	CHECK_EQ(gates[MPICH][COLL_BLOCKING][COLL_BCAST].short_end, KIB);
}

UNIT_TEST(trials_try_shorter_calls_than_the_figures_admit)
{
	begin();
	options.measures = true;
	make_gates(false);
	CHECK_EQ(blocking(MPICH, COLL_ALLTOALL, 16 * KIB - 1), ADMIT_NOT_SMALL);
	CHECK_EQ(blocking(MPICH, COLL_ALLTOALL, 16 * KIB), ADMIT_REUSED);
	CHECK_EQ(blocking(MPICH, COLL_REDUCE_SCATTER, 32 * KIB), ADMIT_REUSED);
	CHECK_EQ(blocking(MPICH, COLL_BCAST, 32 * KIB - 1), ADMIT_NOT_SMALL);
	CHECK_EQ(blocking(MPICH, COLL_BCAST, 64 * KIB - 1), ADMIT_REUSED);
	CHECK_EQ(blocking(MPICH, COLL_BCAST, 64 * KIB), ADMIT_ALWAYS);
	options.modes[BASE_FAMILY_BCAST] = BASE_ADMIT_ON;
	make_gates(false);
	CHECK_EQ(blocking(MPICH, COLL_BCAST, 64 * KIB - 1), ADMIT_NOT_SMALL);
}

UNIT_TEST(over_nodes_large_broadcasts_and_reductions_are_admitted)
{
	begin();
	CHECK(policy_admits_hier(&options, COLL_BCAST, MIB));
	CHECK(!policy_admits_hier(&options, COLL_BCAST, MIB - 1));
	CHECK(!policy_admits_hier(&options, COLL_ALLTOALL, 1));
	CHECK(!policy_admits_hier(&options, COLL_SCAN, MIB));
	for (int i = 0; i < BASE_FAMILY_COUNT; i++)
		options.modes[i] = BASE_ADMIT_ON;
	CHECK(policy_admits_hier(&options, COLL_BCAST, 1));
	CHECK(policy_admits_hier(&options, COLL_ALLTOALL, 64 * KIB));
	CHECK(!policy_admits_hier(&options, COLL_ALLTOALL, 64 * KIB + 1));
	CHECK(!policy_admits_hier(&options, COLL_SCAN, MIB));
	CHECK(policy_admits_hier(&options, COLL_BARRIER, 0));
}

UNIT_TEST(trials_decide_about_large_nonblocking_calls)
{
	begin();
	options.measures = true;
	make_gates(false);
	for (int mpi = 0; mpi < MPIS; mpi++) {
		CHECK_EQ(gates[mpi][COLL_NONBLOCKING][COLL_ALLTOALL].measured_from, 64 * KIB);
		CHECK(nonblocking(mpi, COLL_ALLTOALL, 64 * KIB) >= ADMIT_REUSED);
		CHECK(nonblocking(mpi, COLL_ALLTOALL, 64 * MIB) >= ADMIT_REUSED);
		CHECK(nonblocking(mpi, COLL_ALLTOALLV, MIB) < ADMIT_REUSED);
	}
	/* below, the figures decide */
	CHECK_EQ(nonblocking(MPICH, COLL_ALLTOALL, 4 * KIB), ADMIT_ALWAYS);
	CHECK(nonblocking(MPICH, COLL_ALLTOALL, 5 * KIB) < ADMIT_REUSED);
	CHECK(nonblocking(MPICH, COLL_ALLTOALL, 20 * KIB) < ADMIT_REUSED);
	CHECK(nonblocking(OTHER, COLL_ALLREDUCE, 20 * KIB) < ADMIT_REUSED);
	CHECK_EQ(nonblocking(OPEN_MPI, COLL_ALLREDUCE, 20 * KIB), ADMIT_ALWAYS);
	CHECK(policy_figures_admit(&gates[MPICH][COLL_NONBLOCKING][COLL_ALLTOALL], 128 * KIB));
	CHECK(!policy_figures_admit(&gates[MPICH][COLL_NONBLOCKING][COLL_ALLTOALL], 64 * KIB));
	CHECK(!policy_figures_admit(&gates[OTHER][COLL_NONBLOCKING][COLL_SCAN], MIB));
	options.modes[BASE_FAMILY_NONBLOCKING] = BASE_ADMIT_ON;
	make_gates(false);
	CHECK_EQ(gates[MPICH][COLL_NONBLOCKING][COLL_ALLTOALL].measured_from, UINT64_MAX);
}
