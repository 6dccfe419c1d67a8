/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base: services for every other folder: options, log, counters, failure injection.
 *
 *   options   one table (options.c) -> parser, `sluice info`, man page, tests
 *   log       one write(2) a line on stderr, no allocation, rate-limited
 *   counters  per-process numbers, printed at the end when SLUICE_STATS asks
 *   fault     makes the n-th call of something that can fail do so (tests only)
 *
 * Order of calls: base_options_load() once, before anything else; the rest at any time and from
 * any thread. Nothing here knows MPI, allocates memory after loading, or writes to stdout.
 */
#ifndef SLUICE_BASE_H
#define SLUICE_BASE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BASE_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define BASE_CACHE_LINE 64
#define BASE_ALIGNED_LINE _Alignas(BASE_CACHE_LINE)
#define base_likely(x) __builtin_expect(!!(x), 1)
#define base_unlikely(x) __builtin_expect(!!(x), 0)

static inline uint64_t base_round_up(uint64_t x, uint64_t unit)
{
	return (x + unit - 1) / unit * unit;
}
static inline uint64_t base_round_down(uint64_t x, uint64_t unit) { return x / unit * unit; }
static inline uint64_t base_divide_up(uint64_t x, uint64_t by) { return (x + by - 1) / by; }
static inline uint64_t base_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t base_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Returns: `hash` (BASE_HASH_START, at first) with these bytes, by FNV-1a. */
#define BASE_HASH_START 14695981039346656037u
static inline uint64_t base_hash(uint64_t hash, const void *data, size_t bytes)
{
	for (const uint8_t *p = data; bytes; p++, bytes--)
		hash = (hash ^ *p) * 1099511628211u;
	return hash;
}

/* Returns: what follows the last slash. */
static inline const char *base_file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* In every locale of the program: in the Turkish one tolower('I') is not 'i'. */
static inline char base_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 32) : c; }
/* Are two texts equal, in their first bytes, but for the case of a to z? */
bool base_alike(const char *a, const char *b, size_t bytes);
static inline bool base_is_word(const char *text, const char *word)
{
	return base_alike(text, word, SIZE_MAX);
}

/* ---- options ---------------------------------------------------------------------------- */

enum base_option_type {
	BASE_OPT_BOOL,
	BASE_OPT_BYTES,
	BASE_OPT_INT,
	BASE_OPT_ENUM,
	BASE_OPT_STRING,
	BASE_OPT_LIST /* its members are other rows of the table */
};

/* Users set the options of the first four groups as environment variables. A list or a tune file
 * sets the rows of the groups behind BASE_GROUP_GOAL. */
enum base_group {
	BASE_GROUP_USE,     /* use of Sluice */
	BASE_GROUP_MEMORY,  /* memory and guard */
	BASE_GROUP_MOVERS,  /* workers and engines */
	BASE_GROUP_OUTPUT,  /* output and diagnosis */
	BASE_GROUP_GOAL,    /* variables of libsluice-goal, which sluice-goal(1) describes */
	BASE_GROUP_COLL,    /* members of SLUICE_COLL */
	BASE_GROUP_WORKERS, /* members of SLUICE_WORKERS */
	BASE_GROUP_TUNE,    /* names in a tune file, and members of SLUICE_TEST */
	BASE_GROUP_TEST     /* members of SLUICE_TEST */
};

enum base_option_source { BASE_SRC_DEFAULT, BASE_SRC_TUNED, BASE_SRC_ENV };

enum base_region_kind { BASE_REGION_AUTO, BASE_REGION_ARENA, BASE_REGION_CMA, BASE_REGION_STAGED };
enum base_copy_kernel {
	BASE_COPY_AUTO,
	BASE_COPY_PLAIN,       /* libc's memcpy */
	BASE_COPY_MOVSB,       /* rep movsb */
	BASE_COPY_NONTEMPORAL, /* stores past the caches */
	BASE_COPY_INTERLEAVED, /* several pages at a time, into the caches */
	BASE_COPY_KERNELS      /* number of kernels */
};
enum base_messages { BASE_MESSAGES_OFF, BASE_MESSAGES_AUTO };
enum base_early { BASE_EARLY_AUTO, BASE_EARLY_ON, BASE_EARLY_OFF };
enum base_worker_kind { BASE_WORKER_AUTO, BASE_WORKER_PROCESS, BASE_WORKER_THREAD };
enum base_guard_kind {
	BASE_GUARD_AUTO,
	BASE_GUARD_UFFD,
	BASE_GUARD_MREMAP,
	BASE_GUARD_MPROTECT,
	BASE_GUARD_NONE
};
enum base_log_level { BASE_LOG_NONE, BASE_LOG_ERROR, BASE_LOG_WARN, BASE_LOG_INFO, BASE_LOG_DEBUG };

enum base_endpoints { BASE_ENDPOINTS_CORE = -1, BASE_ENDPOINTS_L3 = -2 };
enum base_switch { BASE_SWITCH_KERNEL, BASE_SWITCH_USER };
enum base_wait { BASE_WAIT_AUTO, BASE_WAIT_SPIN, BASE_WAIT_POLITE };
enum base_sums { BASE_SUMS_FIXED, BASE_SUMS_HOST, BASE_SUMS_ANY };
enum base_admit { BASE_ADMIT_AUTO, BASE_ADMIT_ON, BASE_ADMIT_OFF };
/* One SLUICE_COLL member switches all collectives of a family. */
enum base_family {
	BASE_FAMILY_BCAST,
	BASE_FAMILY_GATHER,
	BASE_FAMILY_SCATTER,
	BASE_FAMILY_ALLGATHER,
	BASE_FAMILY_ALLTOALL,
	BASE_FAMILY_REDUCE,
	BASE_FAMILY_ALLREDUCE,
	BASE_FAMILY_REDUCE_SCATTER,
	BASE_FAMILY_SCAN,
	BASE_FAMILY_NEIGHBOR,
	BASE_FAMILY_BARRIER,
	BASE_FAMILY_VECTOR,
	BASE_FAMILY_NONBLOCKING,
	BASE_FAMILY_COUNT
};

/*
 * The values in force. base_options_load() reads the environment. A value that does not parse keeps
 * its default and clears `usable`; the program then runs without Sluice.
 */
struct base_options {
	bool enabled;                   /* SLUICE: off makes Sluice a plain exec / plain PMPI */
	bool usable;                    /* false: something in the environment is wrong */
	uint64_t coll_threshold_bytes;  /* SLUICE_COLL_THRESHOLD: smaller calls are passed on */
	int64_t coll_modes[BASE_FAMILY_COUNT]; /* SLUICE_COLL: enum base_admit */
	int64_t sums;                   /* SLUICE_SUMS: fixed host any */
	int64_t wait;                   /* SLUICE_WAIT: enum base_wait */
	bool device;                    /* SLUICE_COLL: collectives on memory of GPUs */
	bool hier;                      /* SLUICE_HIER: communicators over several nodes, too */
	uint64_t hier_segment_bytes; /* hier_segment: bytes that cross the network at a time */
	int64_t region_kind;            /* SLUICE_REGION_KIND: auto arena cma staged */
	int64_t region_adopt_after;     /* SLUICE_REGION_ADOPT_AFTER; below 0: by cost */
	uint64_t region_adopt_min_bytes; /* region_adopt_min: least bytes to adopt */
	int64_t region_max;             /* region_max: adopted regions at a time */
	uint64_t region_arena_bytes;    /* SLUICE_REGION_ARENA: address space for peers */
	uint64_t region_pool_bytes;     /* region_pool: populated pages kept */
	bool region_huge;               /* region_huge: collapse to huge pages */
	bool region_whole;              /* region_whole: adopt edge pages of large blocks */
	uint64_t xfer_fragment_bytes;   /* xfer_fragment: 0 = by size */
	int64_t xfer_copy;              /* xfer_copy: enum base_copy_kernel */
	uint64_t xfer_past_cache_bytes; /* xfer_past_cache: 0 = by the caches */
	bool xfer_help;                 /* xfer_help: waiting ranks copy for others */
	const char *decide;          /* SLUICE_DECIDE */
	int64_t messages;            /* SLUICE_MESSAGES: enum base_messages */
	int64_t early;               /* SLUICE_EARLY: enum base_early */
	uint64_t early_min_bytes;    /* SLUICE_EARLY_MIN: shorter calls complete before they
					   return */
	int64_t early_wait_us;       /* early_wait: for a late partner; -1 = by size */
	bool fault_progress;         /* SLUICE_FAULT_PROGRESS: host MPI in fault handlers */
	int64_t guard_kind;             /* SLUICE_GUARD_KIND: enum base_guard_kind */
	const char *engine;     /* SLUICE_ENGINE: "auto", "none" or a name of the registry */
	int64_t engine_workers; /* SLUICE_WORKERS: threads of sw a process; -1 = by spare
				   CPUs */
	const char
		*engine_cpus; /* SLUICE_WORKERS: their CPUs, like 1,4-7; "" = spare CPUs */
	const char *engine_fault; /* engine_fault: behaviour of the engine `fault` (tests) */
	const char *dsa_root; /* dsa_root: folder that stands for / in the search for DSA (tests) */
	int64_t engine_depth;     /* engine_depth: fragments in one channel at a time */
	int64_t engine_timeout_ms;      /* engine_timeout: after it a channel counts as hung */
	int64_t worker_kind;            /* SLUICE_WORKER_KIND: enum base_worker_kind */
	int64_t worker_poll_us; /* worker_poll: longest polling of a worker process */
	int64_t node_spin_us;           /* node_spin: -1 = by cores */
	const char *node_name;          /* node_name: identity of this machine */
	int64_t log_level;              /* SLUICE_LOG: none error warn info debug */
	const char *tune_file;          /* SLUICE_TUNE: "" looks for one, "none" for none */
	int64_t endpoints;              /* SLUICE_ENDPOINTS: ranks; 0 = off, or a word */
	int64_t endpoints_switch;       /* SLUICE_ENDPOINTS_SWITCH: enum base_switch */
	const char *stats;              /* SLUICE_STATS: "" off, "-" stderr, else a file prefix */
	const char *trace;              /* SLUICE_TRACE: "" off, else the folder of the files */
	uint64_t trace_limit_bytes;     /* SLUICE_TRACE_LIMIT: longest file */
	const char *fault;              /* fault: e.g. "memfd:1,cma:all" (tests only) */
	int64_t goal_timeout_ms;        /* SLUICE_GOAL_TIMEOUT: 0 = for ever */
	bool goal_thread;           /* SLUICE_GOAL_THREAD */
	const char *goal_profile;       /* SLUICE_GOAL_PROFILE: "" off, else a file prefix */
};

extern struct base_options base_opt;

/* One row of the table. `choices` is a NULL-terminated list for BASE_OPT_ENUM, index = value. */
struct base_option {
	const char *name;         /* environment variable, SLUICE_..., or name of a member */
	enum base_option_type type;
	enum base_group group;
	enum base_group members;  /* group of a list's members */
	void *value; /* into base_opt: bool, uint64_t, int64_t or const char *; NULL: a list */
	const char *dflt;         /* as the user would write it; of an int, a word stands for 0 */
	int64_t min, max;         /* inclusive; bytes and ints */
	/* NULL-terminated; for a BASE_OPT_STRING: allowed texts; for a BASE_OPT_INT: more words,
	 * which stand for -1, -2 ... */
	const char *const *choices;
	const char *unit;         /* "bytes", "us", "" */
	const char *help;         /* one sentence, no full stop */
	bool shared;              /* ranks must agree: part of base_options_hash() */
	bool is_tunable;          /* a tune file may set it */
	enum base_option_source source; /* written by base_options_load(), base_option_tune() */
};

extern struct base_option base_option_table[];
extern const size_t base_option_count;

/*
 * Reads SLUICE and SLUICE_* from `environ_block` (NULL: the process's). `problems` gets one line
 * for each problem (at most cap bytes, newline-separated, truncated at a line), with the nearest
 * right name or the allowed range. A name of earlier versions is no problem; a line that begins
 * with "sluice: " tells the new name.
 * Returns: 0, or -EINVAL when at least one problem was found (base_opt.usable is then false).
 * Context: once per process, before threads; may be called again (tests, tools).
 */
int base_options_load(char *const *environ_block, char *problems, size_t cap);

/*
 * Sets a value of a tune file (tune/), unless the environment has set the option.
 * Returns: 0, -ENOENT (no such option), -EPERM (no tunable option), -EINVAL or -ERANGE (value).
 * Context: after base_options_load().
 */
int base_option_tune(const char *name, const char *text);
/* Restores the defaults of all tuned options, or of those that ranks must agree on. */
void base_options_untune(bool only_shared);
const char *
base_option_source_name(enum base_option_source source); /* "default", "tune file" ... */
/* Writes the folder of the user's settings: sluice/ in $XDG_CONFIG_HOME or in ~/.config.
 * Returns: 0, -ENOENT (neither variable is set) or -ENAMETOOLONG. */
int base_user_folder(char *out, size_t cap);

/* Writes the value of one option as a user would ("64K"). Returns: a length like snprintf(). */
__attribute__((cold))
int base_option_print(const struct base_option *o, char *buf, size_t cap);

/* "What Sluice does" ... */
const char *base_group_title(enum base_group group);

/* Writes the allowed values: "on or off", "a whole number from 0 to 1000000 us". */
__attribute__((cold))
void base_option_describe(const struct base_option *o, char *buf, size_t cap);

/* Adds values outside the table that ranks must agree on to base_options_hash(). */
void base_options_agree(uint64_t hash);
/* Returns: a hash over all values that ranks must agree on; ranks compare it at communicator
 * creation. */
uint64_t base_options_hash(void);

/* Returns: the table name nearest to `name` by edit distance, or NULL when none is near. */
const char *base_option_nearest(const char *name);
/* Returns: the number of edits (insert, delete, replace, swap neighbours) that turn a into b.
 * Context: a and b have at most 64 bytes each. */
unsigned base_edit_distance(const char *a, const char *b);

/* Parses "64K", "1.5M", "2GiB" ... Returns: 0 or -EINVAL. */
int base_parse_bytes(const char *text, uint64_t *out_bytes);
#define BASE_CPU_MAX 2047
/* Parses "1,4-7" into a mask of `words` words (0: checks the text only); "" is an empty mask.
 * Returns: 0, or -EINVAL: no list, or a number above BASE_CPU_MAX or beyond the words. */
int base_parse_cpus(const char *text, uint64_t *bits, size_t words);
/* Writes the shortest exact form: "64K", "1.5M", "100". */
int base_format_bytes(uint64_t bytes, char *buf, size_t cap);

/* ---- log -------------------------------------------------------------------------------- */

/* Writes a line like "sluice: rank 3: region: cannot adopt 4096 bytes: Cannot allocate memory"; at
 * most 20 lines a second, then a count. Context: any thread, not signal handlers; no allocation. */
void base_log(enum base_log_level level, const char *folder, const char *fmt, ...)
	__attribute__((cold, format(printf, 3, 4)));
void base_log_set_rank(int rank); /* -1: unknown, lines carry no rank */
int base_log_rank(void);

/* Returns: the rank of this process in its job by the launcher's variables (PMI_RANK, PMIX_RANK,
 * OMPI_COMM_WORLD_RANK, SLURM_PROCID ...), or -1. */
int base_job_rank(void);
/* Returns: the variable with the rank, or NULL. */
const char *base_job_rank_name(void);

/* Returns: the number of ranks that the launcher started on this node, or -1. */
int base_job_local_size(void);
/* Sets a variable that the host MPI reads in MPI_Init, unless it is set. Returns: whether it was
 * not. */
bool base_job_preset(const char *name, const char *value);
void base_job_unset(const char *name);
/* Removes a variable. Returns: its value, for free(), or NULL. */
char *base_job_extract(const char *name);
/* Returns: the number of programs that the launcher started together, or -1; *out_name: the
 * variable that says so, or NULL. */
int base_job_size(const char **out_name);

/* Returns: the number of this rank among those on its node, or -1. */
int base_job_node_rank(void);

/*
 * Identifies the job and this process's rank in it. Returns: the value of PMI_FD (the descriptor of
 * one proxy for all processes of a node) or of PMIX_NAMESPACE; NULL when there is none, or when
 * processes of several jobs would look alike.
 */
const char *base_job_identity(bool prefer_pmix, int *out_rank);

/* ---- counters --------------------------------------------------------------------------- */

/* One list for enum, name and sentence. Counters only grow unless the sentence says "now". */
#define BASE_COLL_COUNTER(X, id, name, plural)                                                     \
	X(id##_ADMITTED, name "_admitted", plural " that Sluice executed")                         \
	X(id##_PASSED, name "_passed",                                                             \
	  plural " passed on to the host MPI, most short ones not counted")
#define BASE_COLL_COUNTERS(X)                                                                      \
	BASE_COLL_COUNTER(X, BCAST, "bcast", "broadcasts")                                         \
	BASE_COLL_COUNTER(X, GATHER, "gather", "gathers")                                          \
	BASE_COLL_COUNTER(X, SCATTER, "scatter", "scatters")                                       \
	BASE_COLL_COUNTER(X, ALLGATHER, "allgather", "allgathers")                                 \
	BASE_COLL_COUNTER(X, ALLTOALL, "alltoall", "all-to-alls")                                  \
	BASE_COLL_COUNTER(X, REDUCE, "reduce", "reductions to a root")                             \
	BASE_COLL_COUNTER(X, ALLREDUCE, "allreduce", "reductions to all")                          \
	BASE_COLL_COUNTER(X, REDUCE_SCATTER, "reduce_scatter", "scattered reductions")             \
	BASE_COLL_COUNTER(X, SCAN, "scan", "prefix reductions")                                    \
	BASE_COLL_COUNTER(X, BARRIER, "barrier", "nonblocking barriers")                           \
	BASE_COLL_COUNTER(X, NEIGHBOR, "neighbor", "exchanges with neighbours")
#define BASE_COUNTERS(X)                                                                           \
	BASE_COLL_COUNTERS(X)                                                                      \
	X(EARLY, "early", "calls that returned before their data had moved")                       \
	X(EARLY_NOT, "early_not", "calls that could have returned early without a gain")           \
	X(EARLY_TOUCHED, "early_touched", "pending operations whose buffers the program touched")  \
	X(EARLY_CALLED, "early_called", "pending operations that a later call had to complete")    \
	X(EARLY_UNSEEN, "early_unseen", "pending operations that completed without a wait")        \
	X(FAULTS, "faults", "touches of guarded memory")                                           \
	X(DISPATCHED, "dispatched", "system calls checked while memory was guarded")               \
	X(BYTES_ENGINE, "bytes_engine", "bytes copied by channels or the worker process")          \
	X(ENGINE_ERRORS, "engine_errors", "copies that an engine failed and a CPU finished")       \
	X(ENGINE_RETIRED, "engine_retired", "channels retired as broken")                          \
	X(PACKED, "packed", "buffers packed or unpacked because their type has gaps")              \
	X(TYPED, "typed", "buffers with gaps that peers copied from or to without packing")        \
	X(BYTES_DIRECT, "bytes_direct", "bytes this rank copied between mapped buffers")           \
	X(BYTES_CMA, "bytes_cma", "bytes this rank copied by process_vm_readv/writev")             \
	X(BYTES_STAGED, "bytes_staged", "bytes this rank copied into or out of staging")           \
	X(MESSAGES, "messages", "messages this rank copied from mapped memory of the sender")      \
	X(BYTES_MESSAGES, "bytes_messages", "bytes of messages copied from mapped memory")         \
	X(MESSAGES_REPEATED, "messages_repeated",                                                  \
	  "messages of which the kernel read all, as a region ended or had many gaps")             \
	X(BYTES_EDGE, "bytes_edge", "edge bytes this rank copied out of descriptors")              \
	X(REUSE_ASKED, "reuse_asked", "times ranks agreed whether they use their buffers again")   \
	X(TRIALS, "trials", "comparisons of the host MPI with Sluice by the times of calls")       \
	X(BYTES_REDUCED, "bytes_reduced", "bytes of results this rank combined")                   \
	X(BYTES_HELPED, "bytes_helped", "bytes this rank copied for others")                       \
	X(ADOPTED, "adopted", "buffers adopted")                                                   \
	X(BYTES_ADOPTED, "bytes_adopted", "bytes adopted")                                         \
	X(ADOPT_US, "adopt_us", "microseconds spent on adopting")                                  \
	X(ADOPT_REFUSED, "adopt_refused", "adoptions refused or failed")                           \
	X(BYTES_DEVICE, "bytes_device", "bytes that this rank's GPU copied from memory of GPUs")   \
	X(DEVICE_PASSED, "device_passed",                                                          \
	  "collectives on memory of GPUs passed on, as not every rank could copy")                 \
	X(UNADOPTED, "unadopted", "regions returned to private memory")                            \
	X(EVICTED, "evicted", "regions returned because the cache was full")                       \
	X(STALE, "stale", "regions whose mapping the program changed unnoticed")                   \
	X(GROUPS, "groups", "node groups created")                                                 \
	X(GROUPS_REFUSED, "groups_refused", "communicators that Sluice does not serve")            \
	X(HIER_COMMS, "hier_comms", "communicators over several nodes that Sluice serves")         \
	X(HIER_ADMITTED, "hier_admitted", "collectives over several nodes that Sluice executed")   \
	X(BYTES_HIER, "bytes_hier", "bytes this rank sent to other nodes by the host MPI")         \
	X(SWITCHES, "switches", "times this rank gave its processor to another rank")              \
	X(TRIPS, "trips", "system calls and faults for which this rank left its worker")           \
	X(SLEEPS, "sleeps", "times this rank slept while it waited")                               \
	X(WAKES, "wakes", "times this rank woke a peer")                                           \
	X(CPU_US, "cpu_us", "CPU time of this rank and its threads, in microseconds")

enum base_counter {
#define X(id, name, help) BASE_CTR_##id,
	BASE_COUNTERS(X)
#undef X
	BASE_CTR_COUNT
};

extern const struct base_counter_text {
	const char *name, *help;
} base_counter_texts[BASE_CTR_COUNT];

extern _Atomic uint64_t base_counters[BASE_CTR_COUNT];
static inline void base_count(enum base_counter c, uint64_t n)
{
	atomic_fetch_add_explicit(&base_counters[c], n, memory_order_relaxed);
}
static inline uint64_t base_counter_value(enum base_counter c)
{
	return atomic_load_explicit(&base_counters[c], memory_order_relaxed);
}
/* Writes the counters at the end of the process as SLUICE_STATS asks. Returns: 0 or -errno. */
int base_counters_report(void);
/* Returns: CPU time of all threads of this process so far, user and system, in microseconds. */
uint64_t base_cpu_us(void);

/* ---- failure injection (SLUICE_FAULT) ----------------------------------------------------- */

/* Returns: whether this call must fail: "name:n" fails the n-th call of base_fault("name"),
 * "name:all" every call. */
bool base_fault(const char *name);

#endif
