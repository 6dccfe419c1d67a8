/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of options. */
#include "base/internal.h"

/* Values before base_options_load(): Sluice is off, and the log prints errors. */
struct base_options base_opt = {
	.log_level = BASE_LOG_ERROR,
	.decide = "table",
	.dsa_root = "",
	.node_name = "",
	.tune_file = "",
	.stats = "",
	.trace = "",
	.goal_profile = "",
	.fault = "",
	.engine = "",
	.engine_cpus = "",
	.engine_fault = "",
};

static const char *const region_kinds[] = { "auto", "arena", "cma", "staged", NULL };
static const char *const copy_kernels[] = { "auto", "plain", "movsb", "nontemporal", "interleaved",
					    NULL };
static const char *const messages_words[] = { "off", "auto", NULL };
static const char *const early_words[] = { "auto", "on", "off", NULL };
static const char *const admit_words[] = { "auto", "on", "off", NULL };
static const char *const sums_words[] = { "fixed", "host", "any", NULL };
static const char *const wait_words[] = { "auto", "spin", "polite", NULL };
static const char *const endpoints_words[] = { "core", "l3", NULL };
static const char *const switch_words[] = { "kernel", "user", NULL };
static const char *const guard_kinds[] = { "auto", "uffd", "mremap", "mprotect", "none", NULL };
static const char *const worker_kinds[] = { "auto", "process", "thread", NULL };
/* The engines of engine/registry.c, and two words more; a test compares both lists. */
static const char *const engine_words[] = { "auto", "none", "dsa", "kmod", "sw", "fault", NULL };
static const char *const log_levels[] = { "none", "error", "warn", "info", "debug", NULL };

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)
#define TIB ((int64_t)1 << 40)

/* Each row begins with name, member of base_opt, default; GROUP is the group of the rows below it.
 * Flags: SHARED (ranks must agree), TUNED (a tune file may set it). */
#define SHARED .shared = true
#define TUNED  .is_tunable = true
#define LOCAL  .shared = false
#define ROW(n, t, v, d) .name = n, .type = t, .group = GROUP, .value = v, .dflt = d
#define BOOL(n, v, d, h, ...) \
	{ ROW(n, BASE_OPT_BOOL, &base_opt.v, d), .max = 1, .unit = "", .help = h, __VA_ARGS__ }
#define BYTES(n, v, d, lo, hi, h, ...) \
	{ ROW(n, BASE_OPT_BYTES, &base_opt.v, d), .min = lo, .max = hi, .unit = "bytes", \
	  .help = h, __VA_ARGS__ }
#define INT(n, v, d, lo, hi, u, h, ...) \
	{ ROW(n, BASE_OPT_INT, &base_opt.v, d), .min = lo, .max = hi, .unit = u, .help = h, \
	  __VA_ARGS__ }
#define ENUM(n, v, d, c, h, ...) \
	{ ROW(n, BASE_OPT_ENUM, &base_opt.v, d), .choices = c, .max = BASE_ARRAY_LEN(c) - 2, \
	  .unit = "", .help = h, __VA_ARGS__ }
#define STRING(n, v, d, h, ...) \
	{ ROW(n, BASE_OPT_STRING, &base_opt.v, d), .unit = "", .help = h, __VA_ARGS__ }
#define LIST(n, m, d, h, ...) \
	{ ROW(n, BASE_OPT_LIST, NULL, d), .members = m, .unit = "", .help = h, __VA_ARGS__ }
#define COLL(n, v, what) ENUM(n, coll_modes[BASE_FAMILY_##v], "auto", admit_words, what, SHARED)

struct base_option base_option_table[] = {
#define GROUP BASE_GROUP_USE
	BOOL("SLUICE", enabled, "on",
	     "Whether Sluice takes part at all; off runs the program plain", SHARED),
	LIST("SLUICE_COLL", BASE_GROUP_COLL, "auto",
	     "Which collectives Sluice executes; auto, those that are then faster", LOCAL),
	BYTES("SLUICE_COLL_THRESHOLD", coll_threshold_bytes, "64K", 1, INT64_MAX,
	      "Collectives that move fewer bytes per rank go to the host MPI; trials begin at "
	      "half of it, those of alltoall and allreduce at a quarter",
	      SHARED, TUNED),
	STRING("SLUICE_DECIDE", decide, "measure",
	       "What decides between Sluice and the host MPI: measure, times of the calls, and "
	       "measure:FILE keeps the results; table, figures of this kind of MPI; or FILE",
	       SHARED),
	ENUM("SLUICE_SUMS", sums, "fixed", sums_words,
	     "Reductions whose last bits depend on the order of ranks: fixed, equal calls of a run "
	     "give equal bits; host, the host MPI executes them; any, bits may change", SHARED),
	ENUM("SLUICE_MESSAGES", messages, "auto", messages_words,
	     "Whether large messages inside a node are copied from mapped memory of the sender "
	     "where the host MPI would read them by a system call", SHARED),
	ENUM("SLUICE_EARLY", early, "auto", early_words,
	     "Whether calls return while data is moving; auto does where it pays, on wherever it "
	     "can", TUNED),
	BYTES("SLUICE_EARLY_MIN", early_min_bytes, "512K", 0, INT64_MAX,
	      "Calls that move fewer bytes per rank complete before they return", TUNED),
	BOOL("SLUICE_FAULT_PROGRESS", fault_progress, "on",
	     "Whether a touch of guarded memory that waits long lets the host MPI progress, inside "
	     "the fault handler; off: calls return early only when all partners have come", LOCAL),
	ENUM("SLUICE_WAIT", wait, "auto", wait_words,
	     "Whether blocked ranks give their CPUs away: polite, after some microseconds; spin, "
	     "as the host MPI does; auto, polite where a node has more ranks than CPUs", LOCAL),
	INT("SLUICE_ENDPOINTS", endpoints, "off", 1, 64, "ranks",
	    "How many ranks of a node share an address space; core, as many as there are for each "
	    "CPU of the job; l3, for each last-level cache",
	    LOCAL, .choices = endpoints_words),
	ENUM("SLUICE_ENDPOINTS_SWITCH", endpoints_switch, "kernel", switch_words,
	     "Who gives the processor to ranks of one address space: the kernel; or user, a rank "
	     "that waits, which is for more ranks than CPUs", SHARED),
	BOOL("SLUICE_HIER", hier, "off",
	     "Whether communicators over several nodes are served; on says that every rank of the "
	     "job runs Sluice", SHARED),
#undef GROUP
#define GROUP BASE_GROUP_MEMORY
	ENUM("SLUICE_REGION_KIND", region_kind, "auto", region_kinds,
	     "How peers reach a buffer; auto takes the best that works between them", SHARED),
	INT("SLUICE_REGION_ADOPT_AFTER", region_adopt_after, "-1", -1, 1000000, "uses",
	    "Uses of a buffer before its memory is adopted; -1 decides by what adopting costs and "
	    "saves",
	    TUNED),
	BYTES("SLUICE_REGION_ARENA", region_arena_bytes, "64G", 64 * MIB, 4 * TIB,
	      "Address space in which a rank offers memory to its peers", SHARED),
	ENUM("SLUICE_GUARD_KIND", guard_kind, "auto", guard_kinds,
	     "How memory is guarded after an early return; auto takes the best that works here",
	     TUNED),
#undef GROUP
#define GROUP BASE_GROUP_MOVERS
	{ ROW("SLUICE_ENGINE", BASE_OPT_STRING, &base_opt.engine, "auto"), .choices = engine_words,
	  .unit = "",
	  .help = "Copy engine that moves data behind the program; auto takes the best that "
		  "works",
	  TUNED },
	LIST("SLUICE_WORKERS", BASE_GROUP_WORKERS, "auto",
	     "Software workers of a process, and the CPUs on which they run; auto, as many as CPUs "
	     "are unused, at most 4, on CPUs that the job leaves free", TUNED),
	ENUM("SLUICE_WORKER_KIND", worker_kind, "auto", worker_kinds,
	     "Whether software workers are a process of the job or threads of each rank", TUNED),
#undef GROUP
#define GROUP BASE_GROUP_OUTPUT
	ENUM("SLUICE_LOG", log_level, "error", log_levels, "Messages written to stderr", LOCAL),
	STRING("SLUICE_STATS", stats, "",
	       "Where counters go at the end: - for one table on stderr, else a file prefix",
	       LOCAL),
	STRING("SLUICE_TRACE", trace, "",
	       "Folder for the trace of each process, which sluice trace sets; empty for none",
	       LOCAL),
	BYTES("SLUICE_TRACE_LIMIT", trace_limit_bytes, "64M", MIB, TIB,
	      "Longest trace of a process; beyond it new records replace the oldest", LOCAL),
	STRING("SLUICE_TUNE", tune_file, "",
	       "Tune file, as sluice tune writes it; empty for the one of this machine, none for "
	       "none", LOCAL),
	LIST("SLUICE_TEST", BASE_GROUP_TEST, "",
	     "Tuning values and injected failures, for tests and sluice tune", LOCAL),
#undef GROUP
#define GROUP BASE_GROUP_GOAL
	INT("SLUICE_GOAL_TIMEOUT", goal_timeout_ms, "0", 0, 86400000, "ms",
	    "After so long without progress a GOAL run fails and tells what it waits for; 0: "
	    "never", LOCAL),
	BOOL("SLUICE_GOAL_THREAD", goal_thread, "on",
	     "A thread of the process goes on with started GOAL schedules while the program "
	     "computes", LOCAL),
	STRING("SLUICE_GOAL_PROFILE", goal_profile, "",
	       "Prefix of the files for the times of each GOAL operation; empty for none", LOCAL),
#undef GROUP
#define GROUP BASE_GROUP_COLL
	COLL("bcast", BCAST, "Broadcasts"),
	COLL("gather", GATHER, "Gathers"),
	COLL("scatter", SCATTER, "Scatters"),
	COLL("allgather", ALLGATHER, "Allgathers"),
	COLL("alltoall", ALLTOALL, "All-to-alls"),
	COLL("reduce", REDUCE, "Reductions to a root"),
	COLL("allreduce", ALLREDUCE, "Reductions to all"),
	COLL("reduce_scatter", REDUCE_SCATTER, "Reductions whose result is scattered"),
	COLL("scan", SCAN, "Prefix reductions"),
	COLL("neighbor", NEIGHBOR, "Exchanges with neighbours"),
	COLL("barrier", BARRIER, "Nonblocking barriers; on, those over several nodes too"),
	COLL("vector", VECTOR,
	     "The collectives of these kinds whose sizes ranks do not share, whatever their size"),
	COLL("nonblocking", NONBLOCKING,
	     "Nonblocking collectives; on, as the blocking ones of their kinds"),
	BOOL("device", device, "off",
	     "Collectives on memory of GPUs, by copies of the GPUs inside a node; experimental: "
	     "tried on one kind of GPU", SHARED),
#undef GROUP
#define GROUP BASE_GROUP_WORKERS
	INT("workers", engine_workers, "-1", -1, 48, "threads",
	    "Software workers of a process; -1, as many as CPUs are unused, at most 4", TUNED),
	STRING("worker_cpus", engine_cpus, "",
	       "CPUs on which workers run, like 1,4-7; empty for those that the job leaves free",
	       LOCAL),
#undef GROUP
#define GROUP BASE_GROUP_TUNE
	INT("early_wait", early_wait_us, "-1", -1, 60000000, "us",
	    "How long a call waits for a late partner before it returns early; -1 decides by size",
	    TUNED),
	BYTES("hier_segment", hier_segment_bytes, "0", 0, GIB,
	      "Bytes that cross the network at a time while others move inside the nodes; 0 "
	      "decides by free cores", SHARED, TUNED),
	BYTES("region_adopt_min", region_adopt_min_bytes, "8K", 0, INT64_MAX,
	      "Smaller buffers are not adopted", TUNED),
	INT("region_max", region_max, "1024", 0, 16384, "regions",
	    "Most buffers adopted at a time; 0 adopts none", TUNED),
	BYTES("region_pool", region_pool_bytes, "64M", 0, 4 * TIB,
	      "Populated memory kept for the next adoption; at most 1/64 of a rank's memory, or "
	      "1/128 of its part of a cgroup's limit", TUNED),
	BOOL("region_huge", region_huge, "on", "Whether adopted memory is collapsed to huge pages",
	     TUNED),
	BOOL("region_whole", region_whole, "on",
	     "Whether the edge pages of large blocks of malloc are adopted with their buffers",
	     TUNED),
	BYTES("xfer_fragment", xfer_fragment_bytes, "0", 0, GIB,
	      "Bytes that one mover claims at a time; 0 chooses by size", SHARED, TUNED),
	ENUM("xfer_copy", xfer_copy, "auto", copy_kernels, "Copy kernel; auto chooses by size",
	     TUNED),
	BYTES("xfer_past_cache", xfer_past_cache_bytes, "0", 0, INT64_MAX,
	      "Transfers from this size on are copied past the caches; 0 decides by the caches",
	      TUNED),
	BOOL("xfer_help", xfer_help, "on", "Whether waiting ranks copy for others", TUNED),
	INT("engine_depth", engine_depth, "2", 1, 64, "fragments",
	    "Fragments that wait in a channel at a time; more make a switch to CPUs slower", TUNED),
	INT("engine_timeout", engine_timeout_ms, "1000", 1, 3600000, "ms",
	    "After so long without the end of a copy a channel counts as hung", TUNED),
	INT("worker_poll", worker_poll_us, "5000", 0, 1000000, "us",
	    "Longest time that a worker process polls for work before it sleeps; 0 sleeps at once",
	    TUNED),
	INT("node_spin", node_spin_us, "-1", -1, 1000000, "us",
	    "How long a waiting rank spins before it sleeps; -1 decides by free cores", TUNED),
#undef GROUP
#define GROUP BASE_GROUP_TEST
	STRING("engine_fault", engine_fault, "",
	       "Faults of the engine fault: inner=engine,delay=us,rate=bytes/s,short=n,error=n,"
	       "hang=n", LOCAL),
	STRING("dsa_root", dsa_root, "",
	       "Folder in which the devices of Intel DSA are looked for, in place of /", LOCAL),
	STRING("node_name", node_name, "",
	       "Identity of this machine in place of the one found; simulates nodes", LOCAL),
	STRING("fault", fault, "", "Calls made to fail: name:n or name:all, with commas", LOCAL),
#undef GROUP
};
const size_t base_option_count = BASE_ARRAY_LEN(base_option_table);

const char *base_group_title(enum base_group group)
{
	static const char *const titles[] = {
		[BASE_GROUP_USE] = "Options: what Sluice does",
		[BASE_GROUP_MEMORY] = "Options: memory and guard",
		[BASE_GROUP_MOVERS] = "Options: workers and engines",
		[BASE_GROUP_OUTPUT] = "Options: output and diagnosis",
		[BASE_GROUP_GOAL] = "Variables of libsluice-goal",
		[BASE_GROUP_COLL] = "Names in SLUICE_COLL",
		[BASE_GROUP_WORKERS] = "Parts of SLUICE_WORKERS",
		[BASE_GROUP_TUNE] = "Tuning values (in a tune file)",
		[BASE_GROUP_TEST] = "Names in SLUICE_TEST",
	};

	return titles[group];
}

/* Old names, without SLUICE_. */
const struct option_old_name option_old_names[] = {
	{ "SPAN", "SLUICE_HIER" },
	{ "RT_EARLY", "SLUICE_EARLY" },
	{ "RT_EARLY_MIN", "SLUICE_EARLY_MIN" },
	{ "TUNE_FILE", "SLUICE_TUNE" },
	{ "COLL_DOMAINS", NULL },
	{ "COLL_BCAST", "bcast" },
	{ "COLL_GATHER", "gather" },
	{ "COLL_SCATTER", "scatter" },
	{ "COLL_ALLGATHER", "allgather" },
	{ "COLL_ALLTOALL", "alltoall" },
	{ "COLL_REDUCE", "reduce" },
	{ "COLL_ALLREDUCE", "allreduce" },
	{ "COLL_REDUCE_SCATTER", "reduce_scatter" },
	{ "COLL_SCAN", "scan" },
	{ "COLL_NEIGHBOR", "neighbor" },
	{ "COLL_BARRIER", "barrier" },
	{ "COLL_VECTOR", "vector" },
	{ "COLL_NONBLOCKING", "nonblocking" },
	{ "ENGINE_WORKERS", "workers" },
	{ "ENGINE_CPUS", "worker_cpus" },
	{ "RT_EARLY_WAIT", "early_wait" },
	{ "SPAN_SEGMENT", "hier_segment" },
	{ "REGION_ADOPT_MIN", "region_adopt_min" },
	{ "REGION_MAX", "region_max" },
	{ "REGION_POOL", "region_pool" },
	{ "REGION_HUGE", "region_huge" },
	{ "REGION_WHOLE", "region_whole" },
	{ "XFER_FRAGMENT", "xfer_fragment" },
	{ "XFER_COPY", "xfer_copy" },
	{ "XFER_PAST_CACHE", "xfer_past_cache" },
	{ "XFER_HELP", "xfer_help" },
	{ "ENGINE_DEPTH", "engine_depth" },
	{ "ENGINE_TIMEOUT", "engine_timeout" },
	{ "WORKER_POLL", "worker_poll" },
	{ "NODE_SPIN", "node_spin" },
	{ "ENGINE_FAULT", "engine_fault" },
	{ "NODE_NAME", "node_name" },
	{ "FAULT", "fault" },
};
const size_t option_old_name_count = BASE_ARRAY_LEN(option_old_names);

/* Old values. */
const char *option_new_value(const struct base_option *o, const char *text)
{
	return o->value == &base_opt.guard_kind && base_is_word(text, "steal") ? "mremap" : NULL;
}
