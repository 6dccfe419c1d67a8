/* SPDX-License-Identifier: BSD-3-Clause */
/* The one table of options, and what the environment and a tune file say about them. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/internal.h"

enum {
	STRING_BYTES = 4096, /* all string values together, with their ends */
	NAME_BYTES = 64,     /* longest name that is compared with the table's */
};

/* Before base_options_load: Sluice is off, but an error can be told. */
struct base_options base_opt = {
	.log_level = BASE_LOG_ERROR,
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
static const char *const early_words[] = { "auto", "on", "off", NULL };
static const char *const take_words[] = { "auto", "on", "off", NULL };
static const char *const guard_kinds[] = { "auto", "uffd",  "mremap", "mprotect",
					   "none", "steal", NULL };
static const char *const worker_kinds[] = { "auto", "process", "thread", NULL };
/* What stands in engine/registry.c, and two words more; a test compares them. */
static const char *const engine_words[] = { "auto", "none", "sw", "fault", NULL };
static const char *const log_levels[] = { "none", "error", "warn", "info", "debug", NULL };

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)
#define TIB ((int64_t)1 << 40)

#define BOOL(n, v, d, s, h) \
	{ .name = n, .type = BASE_OPT_BOOL, .value = &base_opt.v, .dflt = d, .max = 1, \
	  .unit = "", .shared = s, .help = h }
#define BYTES(n, v, d, lo, hi, s, h) \
	{ .name = n, .type = BASE_OPT_BYTES, .value = &base_opt.v, .dflt = d, .min = lo, \
	  .max = hi, .unit = "bytes", .shared = s, .help = h }
#define INT_OF(n, v, d, lo, hi, u, s, h) \
	{ .name = n, .type = BASE_OPT_INT, .value = &base_opt.v, .dflt = d, .min = lo, .max = hi, \
	  .unit = u, .shared = s, .help = h }
#define INT(n, v, d, lo, hi, u, h) INT_OF(n, v, d, lo, hi, u, false, h)
#define ENUM(n, v, d, c, s, h) \
	{ .name = n, .type = BASE_OPT_ENUM, .value = &base_opt.v, .dflt = d, .choices = c, \
	  .max = BASE_ARRAY_LEN(c) - 2, .unit = "", .shared = s, .help = h }
#define STRING_OF(n, v, d, h) \
	{ .name = n, .type = BASE_OPT_STRING, .value = &base_opt.v, .dflt = d, .unit = "", \
	  .help = h }
#define STRING(n, v, h) STRING_OF(n, v, "", h)

#define TAKE(n, v, what) \
	ENUM("SLUICE_COLL_" n, coll_take[BASE_FAMILY_##v], "auto", take_words, true, \
	     "Whether " what " are taken; auto takes those that are then faster")

struct base_option base_option_table[] = {
	BOOL("SLUICE", enabled, "on", true,
	     "Whether Sluice takes part at all; off runs the program plain"),
	BYTES("SLUICE_COLL_THRESHOLD", coll_threshold_bytes, "64K", 1, INT64_MAX, true,
	      "Collectives that move fewer bytes per rank go to the host MPI"),
	TAKE("BCAST", BCAST, "broadcasts"),
	TAKE("GATHER", GATHER, "gathers"),
	TAKE("SCATTER", SCATTER, "scatters"),
	TAKE("ALLGATHER", ALLGATHER, "allgathers"),
	TAKE("ALLTOALL", ALLTOALL, "all-to-alls"),
	TAKE("REDUCE", REDUCE, "reductions to a root"),
	TAKE("ALLREDUCE", ALLREDUCE, "reductions to all"),
	TAKE("REDUCE_SCATTER", REDUCE_SCATTER, "reductions whose result is scattered"),
	TAKE("SCAN", SCAN, "prefix reductions"),
	TAKE("NEIGHBOR", NEIGHBOR, "exchanges with neighbours"),
	TAKE("BARRIER", BARRIER, "nonblocking barriers, and with on those over several nodes,"),
	ENUM("SLUICE_COLL_VECTOR", coll_take[BASE_FAMILY_VECTOR], "auto", take_words, true,
	     "Whether collectives of these kinds whose sizes ranks do not share are taken, however "
	     "small"),
	ENUM("SLUICE_COLL_NONBLOCKING", coll_take[BASE_FAMILY_NONBLOCKING], "auto", take_words, true,
	     "Whether nonblocking collectives are taken: on, as the blocking ones of their kinds; "
	     "auto, those that are then faster"),
	BOOL("SLUICE_HIER", span, "off", true,
	     "Whether communicators over several nodes are served; on says that every rank of the "
	     "job runs Sluice"),
	BYTES("SLUICE_SPAN_SEGMENT", hier_segment_bytes, "0", 0, GIB, true,
	      "Bytes that cross the network at a time while others move inside the nodes; 0 "
	      "decides by free cores"),
	ENUM("SLUICE_REGION_KIND", region_kind, "auto", region_kinds, true,
	     "How peers reach a buffer; auto takes the best that works between them"),
	INT("SLUICE_REGION_ADOPT_AFTER", region_adopt_after, "3", 0, 1000000, "uses",
	    "Uses of a buffer before its memory is adopted"),
	BYTES("SLUICE_REGION_ADOPT_MIN", region_adopt_min_bytes, "64K", 0, INT64_MAX, false,
	      "Smaller buffers are not adopted"),
	INT("SLUICE_REGION_MAX", region_max, "1024", 0, 16384, "regions",
	    "Most buffers adopted at a time; 0 adopts none"),
	BYTES("SLUICE_REGION_ARENA", region_arena_bytes, "64G", 64 * MIB, 4 * TIB, true,
	      "Address space in which a rank offers memory to its peers"),
	BYTES("SLUICE_REGION_POOL", region_pool_bytes, "64M", 0, 4 * TIB, false,
	      "Populated memory kept for the next adoption"),
	BOOL("SLUICE_REGION_HUGE", region_huge, "on", false,
	     "Whether adopted memory is collapsed to huge pages"),
	BOOL("SLUICE_REGION_WHOLE", region_whole, "on", false,
	     "Whether the edge pages of large blocks of malloc are adopted with their buffers"),
	BYTES("SLUICE_XFER_FRAGMENT", xfer_fragment_bytes, "0", 0, GIB, true,
	      "Bytes that one mover takes at a time; 0 chooses by size"),
	ENUM("SLUICE_XFER_COPY", xfer_copy, "auto", copy_kernels, false,
	     "Copy kernel; auto chooses by size"),
	BYTES("SLUICE_XFER_PAST_CACHE", xfer_past_cache_bytes, "0", 0, INT64_MAX, false,
	      "Transfers from this size on are copied past the caches; 0 decides by the caches"),
	BOOL("SLUICE_XFER_HELP", xfer_help, "on", false, "Whether waiting ranks copy for others"),
	ENUM("SLUICE_EARLY", rt_early, "auto", early_words, false,
	     "Whether calls return while data is moving; auto does where it pays, on wherever it "
	     "can"),
	BYTES("SLUICE_EARLY_MIN", rt_early_min_bytes, "512K", 0, INT64_MAX, false,
	      "Calls that move fewer bytes per rank complete before they return"),
	INT("SLUICE_RT_EARLY_WAIT", rt_early_wait_us, "-1", -1, 60000000, "us",
	    "How long a call waits for a late partner before it returns early; -1 decides by size"),
	BOOL("SLUICE_FAULT_PROGRESS", rt_fault_progress, "on", false,
	     "Whether a touch of guarded memory that waits long lets the host MPI progress, inside "
	     "the fault handler; off: calls return early only when all partners have come"),
	ENUM("SLUICE_GUARD_KIND", guard_kind, "auto", guard_kinds, false,
	     "How memory is guarded meanwhile; auto takes the best that works here"),
	{ .name = "SLUICE_ENGINE",
	  .type = BASE_OPT_STRING,
	  .value = &base_opt.engine,
	  .dflt = "auto",
	  .choices = engine_words,
	  .unit = "",
	  .help = "Copy engine that moves data behind the program; auto takes the best that "
		  "works" },
	INT("SLUICE_WORKERS", engine_workers, "-1", -1, 48, "threads",
	    "Workers of the engine sw in a process; -1 as many as CPUs are spare, at most 4"),
	STRING("SLUICE_ENGINE_CPUS", engine_cpus,
	       "CPUs on which workers run, like 1,4-7; empty for those that the job leaves free"),
	INT("SLUICE_ENGINE_DEPTH", engine_depth, "2", 1, 64, "fragments",
	    "Fragments that wait in a channel at a time; more make a switch to CPUs slower"),
	INT("SLUICE_ENGINE_TIMEOUT", engine_timeout_ms, "1000", 1, 3600000, "ms",
	    "After so long without an end of a copy a channel counts as hung"),
	STRING("SLUICE_ENGINE_FAULT", engine_fault,
	       "What the engine fault does, for tests: "
	       "delay=us,rate=bytes/s,short=n,error=n,hang=n"),
	INT("SLUICE_GOAL_TIMEOUT", goal_timeout_ms, "0", 0, 86400000, "ms",
	    "After so long without progress a GOAL run fails and tells what it waits for; 0: "
	    "never"),
	STRING("SLUICE_GOAL_PROFILE", goal_profile,
	       "Prefix of the files for the times of each GOAL operation; empty for none"),
	ENUM("SLUICE_WORKER_KIND", worker_kind, "auto", worker_kinds, false,
	     "Whether software workers are a process of the job or threads of each rank"),
	INT("SLUICE_WORKER_POLL", worker_poll_us, "5000", 0, 1000000, "us",
	    "Longest that a worker process looks for more work before it sleeps; 0 sleeps at once"),
	INT("SLUICE_NODE_SPIN", node_spin_us, "-1", -1, 1000000, "us",
	    "How long a waiting rank spins before it sleeps; -1 decides by free cores"),
	STRING("SLUICE_NODE_NAME", node_name,
	       "Identity of this machine in place of the one found; tests simulate nodes with it"),
	STRING("SLUICE_TUNE", tune_file,
	       "File of what sluice tune measured; empty for the one of this machine, none for "
	       "none"),
	ENUM("SLUICE_LOG", log_level, "error", log_levels, false, "What is written to stderr"),
	STRING("SLUICE_STATS", stats,
	       "Where counters go at the end: - for stderr, else a file prefix"),
	STRING("SLUICE_TRACE", trace,
	       "Folder for the trace of each process, which sluice trace sets; empty for none"),
	BYTES("SLUICE_TRACE_LIMIT", trace_limit_bytes, "64M", MIB, TIB, false,
	      "Longest trace of a process; then its oldest records make room"),
	STRING("SLUICE_FAULT", fault,
	       "Calls made to fail, for tests: name:n or name:all, with commas"),
};
const size_t base_option_count = BASE_ARRAY_LEN(base_option_table);

/* Values outlive the environment, which programs overwrite (setproctitle) or free. */
static char string_pool[STRING_BYTES];
static size_t string_used;

/* Lines for the user; what does not fit is cut at a line. */
struct problems {
	char *text;
	size_t cap, used;
	unsigned count;
};

__attribute__((format(printf, 2, 3)))
static void problem_add(struct problems *p, const char *fmt, ...)
{
	size_t room = p->cap - p->used;
	va_list args;
	int n;

	p->count++;
	if (!room)
		return;
	va_start(args, fmt);
	n = vsnprintf(p->text + p->used, room, fmt, args);
	va_end(args);
	if (n < 0 || (size_t)n + 1 >= room) {
		p->text[p->used] = 0;
		p->cap = p->used; /* nothing after the first line that is cut */
		return;
	}
	p->used += (size_t)n;
	p->text[p->used++] = '\n';
	p->text[p->used] = 0;
}

/* ---- values -------------------------------------------------------------------------------- */

static int parse_bool(const char *text, bool *out)
{
	static const char *const words[][2] = {
		{ "off", "on" }, { "0", "1" }, { "no", "yes" }, { "false", "true" },
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(words); i++) {
		for (int value = 0; value < 2; value++) {
			if (strcasecmp(text, words[i][value]))
				continue;
			*out = value;
			return 0;
		}
	}
	return -EINVAL;
}

int base_parse_int(const char *text, int64_t *out)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	/* strtoll skips white space; we do not */
	if (errno || end == text || *end || !strchr("-0123456789", *text))
		return -EINVAL;
	*out = value;
	return 0;
}

static int parse_enum(const struct base_option *o, const char *text, int64_t *out)
{
	for (int64_t i = 0; o->choices[i]; i++) {
		if (strcasecmp(text, o->choices[i]))
			continue;
		*out = i;
		return 0;
	}
	return -EINVAL;
}

static int store_string(const struct base_option *o, const char *text)
{
	size_t bytes = strlen(text) + 1;
	int64_t choice;

	if (bytes > sizeof(string_pool) - string_used)
		return -ENAMETOOLONG;
	if (o->value == &base_opt.fault && base_fault_load(text))
		return -EINVAL;
	if (o->choices && parse_enum(o, text, &choice))
		return -EINVAL;
	if (o->value == &base_opt.engine_cpus && base_parse_cpus(text, NULL, 0))
		return -EINVAL;
	memcpy(string_pool + string_used, text, bytes);
	*(const char **)o->value = string_pool + string_used;
	string_used += bytes;
	return 0;
}

/* Returns 0, -EINVAL (not of this type), -ERANGE or -ENAMETOOLONG; writes the value only on 0. */
static int option_set(const struct base_option *o, const char *text)
{
	uint64_t bytes = 0;
	int64_t number = 0;
	int rc;

	switch (o->type) {
	case BASE_OPT_BOOL:
		return parse_bool(text, o->value);
	case BASE_OPT_ENUM:
		return parse_enum(o, text, o->value);
	case BASE_OPT_STRING:
		return store_string(o, text);
	case BASE_OPT_BYTES:
		rc = base_parse_bytes(text, &bytes);
		if (rc)
			return rc;
		if (bytes < (uint64_t)o->min || bytes > (uint64_t)o->max)
			return -ERANGE;
		*(uint64_t *)o->value = bytes;
		return 0;
	case BASE_OPT_INT:
		rc = base_parse_int(text, &number);
		if (rc)
			return rc;
		if (number < o->min || number > o->max)
			return -ERANGE;
		*(int64_t *)o->value = number;
		return 0;
	}
	return -EINVAL;
}

static const char *describe_string(const struct base_option *o)
{
	if (o->value == &base_opt.fault)
		return "a list like name:1,name:all";
	if (o->value == &base_opt.engine_cpus)
		return "a list of CPUs like 1,4-7";
	return "a short text";
}

void base_option_describe(const struct base_option *o, char *buf, size_t cap)
{
	char min[32], max[32];
	size_t used = 0;

	switch (o->type) {
	case BASE_OPT_BOOL:
		snprintf(buf, cap, "on or off");
		return;
	case BASE_OPT_STRING:
		if (!o->choices) {
			snprintf(buf, cap, "%s", describe_string(o));
			return;
		}
		/* fall through */
	case BASE_OPT_ENUM:
		for (int64_t i = 0; o->choices[i] && used < cap; i++)
			used += (size_t)snprintf(buf + used, cap - used, "%s%s",
						 !i ? "" : o->choices[i + 1] ? ", " : " or ",
						 o->choices[i]);
		return;
	case BASE_OPT_BYTES:
		base_format_bytes((uint64_t)o->min, min, sizeof(min));
		base_format_bytes((uint64_t)o->max, max, sizeof(max));
		if (o->max == INT64_MAX)
			snprintf(buf, cap, "a number of bytes like 64K, at least %s", min);
		else
			snprintf(buf, cap, "a number of bytes like 64K, from %s to %s", min, max);
		return;
	case BASE_OPT_INT:
		snprintf(buf, cap, "a whole number from %" PRId64 " to %" PRId64 "%s%s", o->min,
			 o->max, o->unit[0] ? " " : "", o->unit);
		return;
	}
}

int base_option_print(const struct base_option *o, char *buf, size_t cap)
{
	switch (o->type) {
	case BASE_OPT_BOOL:
		return snprintf(buf, cap, "%s", *(const bool *)o->value ? "on" : "off");
	case BASE_OPT_BYTES:
		return base_format_bytes(*(const uint64_t *)o->value, buf, cap);
	case BASE_OPT_INT:
		return snprintf(buf, cap, "%" PRId64, *(const int64_t *)o->value);
	case BASE_OPT_ENUM:
		return snprintf(buf, cap, "%s", o->choices[*(const int64_t *)o->value]);
	case BASE_OPT_STRING:
		return snprintf(buf, cap, "%s", *(const char *const *)o->value);
	}
	return 0;
}

/* ---- names --------------------------------------------------------------------------------- */

unsigned base_edit_distance(const char *a, const char *b)
{
	unsigned rows[3][NAME_BYTES + 1];
	size_t a_len = strnlen(a, NAME_BYTES), b_len = strnlen(b, NAME_BYTES);
	unsigned *before = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= b_len; j++)
		above[j] = (unsigned)j;
	for (size_t i = 1; i <= a_len; i++) {
		unsigned *spare = before;

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_len; j++) {
			unsigned best = above[j - 1] + (a[i - 1] != b[j - 1]);

			best = (unsigned)base_min_u64(best, base_min_u64(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = (unsigned)base_min_u64(best, before[j - 2] + 1);
			row[j] = best;
		}
		before = above;
		above = row;
		row = spare;
	}
	return above[b_len];
}

/* People forget the folder: SLUICE_THRESHOLD is one edit away from SLUICE_COLL_THRESHOLD. */
static unsigned name_distance(const char *name, const char *option)
{
	unsigned distance = base_edit_distance(name, option);
	const char *tail = strchr(name, '_');
	const char *folder = strchr(option, '_');
	const char *option_tail = folder ? strchr(folder + 1, '_') : NULL;

	if (tail && option_tail)
		distance = (unsigned)base_min_u64(distance,
						  1 + base_edit_distance(tail, option_tail));
	return distance;
}

const char *base_option_nearest(const char *name)
{
	unsigned best = UINT32_MAX;
	const char *nearest = NULL;
	const char *tail = strchr(name, '_');
	size_t tail_len = strlen(tail ? tail : name);

	if (strlen(name) > NAME_BYTES)
		return NULL;
	for (size_t i = 0; i < base_option_count; i++) {
		unsigned distance = name_distance(name, base_option_table[i].name);

		if (distance >= best)
			continue;
		best = distance;
		nearest = base_option_table[i].name;
	}
	return best <= base_max_u64(2, tail_len / 3) ? nearest : NULL;
}

/* ---- the environment --------------------------------------------------------------------- */

static struct base_option *option_find(const char *name, size_t length)
{
	for (size_t i = 0; i < base_option_count; i++) {
		const char *candidate = base_option_table[i].name;

		if (!strncmp(candidate, name, length) && !candidate[length])
			return &base_option_table[i];
	}
	return NULL;
}

static void load_unknown(const char *entry, size_t length, struct problems *problems)
{
	char name[256];
	const char *nearest;

	snprintf(name, sizeof(name), "%.*s", (int)length, entry);
	nearest = base_option_nearest(name);
	if (nearest)
		problem_add(problems, "%s is not an option; the nearest is %s", name, nearest);
	else
		problem_add(problems, "%s is not an option, and no option has a similar name",
			    name);
}

static void load_entry(const char *entry, struct problems *problems)
{
	size_t length = strcspn(entry, "=");
	struct base_option *o;
	char wanted[256];

	if (strncmp(entry, "SLUICE", 6) || (length > 6 && entry[6] != '_') || !entry[length])
		return;
	o = option_find(entry, length);
	if (!o) {
		load_unknown(entry, length, problems);
		return;
	}
	if (option_set(o, entry + length + 1)) {
		base_option_describe(o, wanted, sizeof(wanted));
		problem_add(problems, "%s=%.80s is wrong: it takes %s", o->name, entry + length + 1,
			    wanted);
		return;
	}
	o->source = BASE_SRC_ENV;
}

int base_options_load(char *const *environ_block, char *problems, size_t cap)
{
	struct problems found = { .text = problems, .cap = cap };

	string_used = 0;
	if (cap)
		problems[0] = 0;
	for (size_t i = 0; i < base_option_count; i++) {
		option_set(&base_option_table[i], base_option_table[i].dflt);
		base_option_table[i].source = BASE_SRC_DEFAULT;
	}
	if (!environ_block)
		environ_block = environ;
	for (; environ_block && *environ_block; environ_block++)
		load_entry(*environ_block, &found);
	base_opt.usable = !found.count;
	return found.count ? -EINVAL : 0;
}

/* ---- the tune file ------------------------------------------------------------------------- */

/* Of this kind are values only: an option with a text would need room that only loading gives. */
static bool is_tunable(const struct base_option *o)
{
	static const void *const tunable[] = {
		&base_opt.coll_threshold_bytes, &base_opt.region_adopt_after,
		&base_opt.region_adopt_min_bytes, &base_opt.region_huge,
		&base_opt.xfer_fragment_bytes, &base_opt.xfer_copy,
		&base_opt.xfer_past_cache_bytes, &base_opt.rt_early,
		&base_opt.rt_early_min_bytes, &base_opt.guard_kind,
		&base_opt.engine_workers, &base_opt.engine_depth,
		&base_opt.worker_kind, &base_opt.worker_poll_us,
		&base_opt.node_spin_us,
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(tunable); i++)
		if (o->value == tunable[i])
			return true;
	return false;
}

int base_option_tune(const char *name, const char *text)
{
	struct base_option *o = option_find(name, strlen(name));
	int ret;

	if (!o)
		return -ENOENT;
	if (!is_tunable(o))
		return -EPERM;
	if (o->source == BASE_SRC_ENV)
		return 0;
	ret = option_set(o, text);
	if (!ret)
		o->source = BASE_SRC_TUNED;
	return ret;
}

void base_options_untune(bool only_shared)
{
	for (size_t i = 0; i < base_option_count; i++) {
		struct base_option *o = &base_option_table[i];

		if (o->source != BASE_SRC_TUNED || (only_shared && !o->shared))
			continue;
		option_set(o, o->dflt);
		o->source = BASE_SRC_DEFAULT;
	}
}

const char *base_option_source_name(enum base_option_source source)
{
	static const char *const names[] = {
		[BASE_SRC_DEFAULT] = "default",
		[BASE_SRC_TUNED] = "tune file",
		[BASE_SRC_ENV] = "environment",
	};

	return names[source];
}

uint64_t base_options_hash(void)
{
	uint64_t hash = 14695981039346656037u; /* FNV-1a */
	char text[128];

	for (size_t i = 0; i < base_option_count; i++) {
		if (!base_option_table[i].shared)
			continue;
		base_option_print(&base_option_table[i], text, sizeof(text));
		for (const char *c = text;; c++) {
			hash = (hash ^ (uint8_t)*c) * 1099511628211u;
			if (!*c)
				break;
		}
	}
	return hash;
}
