/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which kind of guard works here, by trial, best first; and, where mremap and uffd both work,
 * whether signals or threads serve the faults (doc/adr/0025-signals-or-threads.md).
 */
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "guard/private.h"

enum { REASON_BYTES = 320, ONE_REASON_BYTES = 160, LEAST_BYTES = 64 << 20 };
enum {
	CALLS_MAX = 12,  /* dispatched calls a range: each costs 1.8 us; a touch that a thread
			    serves costs 15 to 20 us more than one that a signal serves */
	RANGES_MIN = 32, /* for an average */
	ANSWERS = 10,    /* waits for the answers of other threads */
	TRACER_NS = 1000000000,
	NEVER_NS = 1000000000 /* threads that do not answer for so long are out of reach */
};

/* Index of an entry plus one is its value of SLUICE_GUARD_KIND. */
static const struct guard_kind *const kinds[] = { &guard_uffd, &guard_mremap, &guard_mprotect };
/* The order in which they are tried. */
static const struct guard_kind *const best_first[] = { &guard_mremap, &guard_uffd,
						       &guard_mprotect };
_Static_assert(BASE_GUARD_UFFD == 1 && BASE_GUARD_MREMAP == 2 && BASE_GUARD_MPROTECT == 3,
	       "order of kinds");

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	bool done;
	int ret;
	bool has_handlers;                     /* sud_init() has succeeded */
	const struct guard_kind *_Atomic kind; /* NULL: none; written under init_lock */
	_Atomic bool may_switch;               /* to uffd, which is open too */
	_Atomic uint64_t calls, ranges;        /* when they were last compared */
	_Atomic uint64_t unreached_ns; /* when one was found out of reach; 0: none is */
	char reason[REASON_BYTES];
} choice;

const char *guard_reason(void) { return choice.reason; }

static const struct guard_kind *kind_now(void)
{
	/* Acquire: pairs with the release in guard_init(). */
	return atomic_load_explicit(&choice.kind, memory_order_acquire);
}

const char *guard_kind_name(void)
{
	const struct guard_kind *k = kind_now();

	return k ? k->name : "none";
}

static void reason_add(const char *name, const char *why)
{
	size_t used = strlen(choice.reason);

	snprintf(choice.reason + used, sizeof choice.reason - used, "%s%s: %s", used ? "; " : "",
		 name, why);
}

static const struct sud_ops callbacks = { .overlaps = guard_overlaps_sig,
				       .touch = guard_touch_sig,
				       .complete_all = guard_complete_all_sig,
				       .tidy = guard_tidy_sig,
				       .openings = guard_openings_sig };

/* Does this part of a loaded object have a note of this owner? */
static bool has_note(const char *at, const char *end, const char *owner, size_t owner_bytes)
{
	ElfW(Nhdr) note;

	for (; (size_t)(end - at) >= sizeof note;
	     at += base_round_up(note.n_namesz, 4) + base_round_up(note.n_descsz, 4)) {
		memcpy(&note, at, sizeof note);
		at += sizeof note;
		if (base_round_up(note.n_namesz, 4) + base_round_up(note.n_descsz, 4) >
		    (size_t)(end - at))
			return false;
		if (note.n_namesz == owner_bytes && !memcmp(at, owner, owner_bytes))
			return true;
	}
	return false;
}

static bool is_loaded(const struct dl_phdr_info *info, const ElfW(Phdr) *part)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *load = &info->dlpi_phdr[i];

		if (load->p_type == PT_LOAD && part->p_vaddr >= load->p_vaddr &&
		    part->p_vaddr + part->p_memsz <= load->p_vaddr + load->p_memsz)
			return true;
	}
	return false;
}

static int is_of_go(struct dl_phdr_info *info, size_t size, void *arg)
{
	static const char owner[4] = "Go";

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		const char *at = (const char *)info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type == PT_NOTE && is_loaded(info, ph) &&
		    has_note(at, at + ph->p_memsz, owner, sizeof owner))
			return 1;
	}
	return 0;
}

/*
 * For the kinds that are served by signals. Go's runtime changes the masks of its threads by system
 * calls of its own, so nobody sees that SIGSEGV is no longer blocked for the program, or that it
 * has blocked SIGSYS before a call that is dispatched.
 */
static int open_signals(char *reason, size_t cap)
{
	int ret;

	if (os_objects_visit(is_of_go, NULL) > 0) {
		snprintf(reason, cap, "Go's runtime blocks signals behind libc");
		return -ENOTSUP;
	}
	ret = sud_probe(reason, cap);
	if (ret)
		return ret;
	ret = sud_init(&callbacks);
	choice.has_handlers |= !ret;
	if (ret)
		snprintf(reason, cap, "signal handlers: %s", strerror(-ret));
	return ret;
}

static int try_kind(const struct guard_kind *k)
{
	char why[ONE_REASON_BYTES] = "";
	int ret = k->open ? k->open(why, sizeof why) : 0;

	if (!ret && k->by_signal) {
		ret = open_signals(why, sizeof why);
		if (ret && k->close)
			k->close();
	}
	if (ret) {
		reason_add(k->name, why);
		base_log(BASE_LOG_DEBUG, "guard", "not %s: %s", k->name, why);
	}
	return ret;
}

/* Bytes that can be armed at a time: the whole arena, as far as the address space allows. */
static uint64_t space_bytes(void)
{
	uint64_t bytes = base_opt.region_arena_bytes;
	struct rlimit limit;

	if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
		bytes = base_min_u64(bytes, limit.rlim_cur / 64);
	return base_max_u64(bytes, LEAST_BYTES);
}

static void after_fork_child(void)
{
	/* a child arms no range: threads that serve faults exist in the parent only */
	pthread_mutex_init(&init_lock, NULL);
	choice.ret = -ENOTSUP;
	snprintf(choice.reason, sizeof choice.reason, "none: a forked child");
	atomic_store_explicit(&choice.kind, NULL, memory_order_relaxed);
	atomic_store_explicit(&choice.may_switch, false, memory_order_relaxed);
	ranges_after_fork_child();
	shadow_unreserve();
	uffd_after_fork_child();
}

/* Opens uffd without its threads, in case guard_is_ready() changes to it. Failure is no error. */
static void open_second(void)
{
	char why[ONE_REASON_BYTES] = "";
	int ret = uffd_open(why, sizeof why);

	atomic_store_explicit(&choice.may_switch, !ret, memory_order_relaxed);
	if (ret)
		base_log(BASE_LOG_DEBUG, "guard", "not %s: %s", guard_uffd.name, why);
}

static int choose(const struct guard_ops *ops)
{
	static bool atfork_done;
	bool is_auto = base_opt.guard_kind == BASE_GUARD_AUTO;
	const struct guard_kind *k = NULL;
	int ret = os_page_check();

	choice.reason[0] = 0;
	if (!ret)
		ret = ranges_open(space_bytes());
	if (ret) {
		reason_add("none", strerror(-ret));
		return ret;
	}
	if (base_opt.guard_kind == BASE_GUARD_NONE) {
		reason_add("none", "SLUICE_GUARD_KIND is none");
		return -ENOTSUP;
	}
	ret = -ENOTSUP;
	for (size_t i = 0; ret && i < BASE_ARRAY_LEN(kinds); i++) {
		k = is_auto ? best_first[i] : kinds[i];
		if (is_auto || base_opt.guard_kind == (int64_t)i + 1)
			ret = try_kind(k);
	}
	if (ret)
		return ret;
	if (!atfork_done && !pthread_atfork(NULL, NULL, after_fork_child))
		atfork_done = true;
	if (is_auto && k == &guard_mremap)
		open_second();
	ranges_use(ops, k);
	atomic_store_explicit(&choice.kind, k, memory_order_release);
	base_log(BASE_LOG_INFO, "guard", "%s", k->name);
	return 0;
}

int guard_init(const struct guard_ops *ops)
{
	int ret;

	pthread_mutex_lock(&init_lock);
	if (!choice.done)
		choice.ret = choose(ops);
	choice.done = true;
	ret = choice.ret;
	pthread_mutex_unlock(&init_lock);
	return ret;
}

void guard_fini(void)
{
	const struct guard_kind *k;

	pthread_mutex_lock(&init_lock);
	k = kind_now();
	if (k) {
		atomic_store_explicit(&choice.kind, NULL, memory_order_release);
		ranges_use(NULL, NULL);
		if (choice.has_handlers)
			sud_fini();
		choice.has_handlers = false;
		if (k->close)
			k->close();
		if (atomic_exchange_explicit(&choice.may_switch, false, memory_order_relaxed))
			guard_uffd.close();
	}
	choice.done = false;
	pthread_mutex_unlock(&init_lock);
}

/* ---- from mremap to uffd ----------------------------------------------------------------- */

/* Do the system calls that the program makes while ranges are armed cost more than signals save? */
static bool has_many_calls(void)
{
	uint64_t calls =
		atomic_load_explicit(&base_counters[BASE_CTR_DISPATCHED], memory_order_relaxed);
	uint64_t ranges = ranges_ever();
	uint64_t more = ranges - atomic_load_explicit(&choice.ranges, memory_order_relaxed);
	bool many;

	if (more < RANGES_MIN)
		return false;
	many = calls - atomic_load_explicit(&choice.calls, memory_order_relaxed) > CALLS_MAX * more;
	atomic_store_explicit(&choice.ranges, ranges, memory_order_relaxed);
	atomic_store_explicit(&choice.calls, calls, memory_order_relaxed);
	return many;
}

/* Do signals reach every thread of the program? *out_never: not for NEVER_NS. */
static bool is_reached(bool *out_never)
{
	bool is = sud_covers_threads() && sud_signals_are_ours();
	uint64_t since = atomic_load_explicit(&choice.unreached_ns, memory_order_relaxed);
	uint64_t now = is ? 0 : os_now_ns();

	*out_never = !is && since && now - since > NEVER_NS;
	if (is ? since : !since)
		atomic_store_explicit(&choice.unreached_ns, now, memory_order_relaxed);
	return is;
}

/*
 * Called before the first range is armed, so that system calls of other programs are never
 * dispatched. Other threads answer within microseconds. The first call waits for them; when one
 * does not answer, this MPI call arms no range.
 */
static void enable_threads(void)
{
	bool is_first = !sud_is_enabled();
	static const struct timespec a_moment = { .tv_nsec = 20000 };

	sud_enable_threads();
	for (int i = 0; is_first && i < ANSWERS && !sud_covers_threads(); i++)
		nanosleep(&a_moment, NULL);
}

/* Never changes back. Returns: false while a range is armed, or without threads to serve faults. */
static bool switch_to_uffd(const char *why)
{
	bool done;

	pthread_mutex_lock(&init_lock);
	done = kind_now() == &guard_uffd;
	if (!done && atomic_load_explicit(&choice.may_switch, memory_order_relaxed) &&
	    uffd_has_threads(0) && ranges_switch(&guard_uffd)) {
		atomic_store_explicit(&choice.may_switch, false, memory_order_relaxed);
		atomic_store_explicit(&choice.kind, &guard_uffd, memory_order_release);
		base_log(BASE_LOG_INFO, "guard", "%s from now on: %s", guard_uffd.name, why);
		done = true;
	}
	pthread_mutex_unlock(&init_lock);
	return done;
}

/*
 * Does a debugger trace this process? It would stop the program at each signal of the guard, read
 * an error from closed memory, and stop the threads that serve faults; ltrace crashes programs that
 * get a signal at a breakpoint. A debugger may come and go: looked up once a TRACER_NS.
 */
static bool has_tracer(void)
{
	static _Atomic uint64_t next_ns;
	static _Atomic bool is_traced;
	uint64_t now = os_now_ns();

	if (base_opt.guard_kind != BASE_GUARD_AUTO)
		return false;
	if (now >= atomic_load_explicit(&next_ns, memory_order_relaxed)) {
		atomic_store_explicit(&next_ns, now + TRACER_NS, memory_order_relaxed);
		atomic_store_explicit(&is_traced, os_is_traced(), memory_order_relaxed);
	}
	return atomic_load_explicit(&is_traced, memory_order_relaxed);
}

bool guard_is_ready(void)
{
	const struct guard_kind *k = kind_now();

	if (!k || has_tracer())
		return false;
	if (k->by_signal) {
		bool never, is, many;

		enable_threads();
		is = is_reached(&never);
		many = is && has_many_calls();
		if (base_likely(!never && !many))
			return is;
		if (!atomic_load_explicit(&choice.may_switch, memory_order_relaxed) ||
		    !switch_to_uffd(never ? "a thread or a handler of the program is out of reach" :
					    "many system calls while memory is guarded"))
			return is;
	}
	return uffd_has_threads(ranges_armed());
}
