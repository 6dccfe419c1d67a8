/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kind of guard works here: tried for real, best first. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "guard/private.h"

enum { REASON_BYTES = 320, ONE_REASON_BYTES = 160, LEAST_BYTES = 64 << 20 };

/* Index of an entry plus one is its value of SLUICE_GUARD_KIND. */
static const struct guard_kind *const kinds[] = { &guard_uffd, &guard_steal, &guard_mprotect };
_Static_assert(BASE_GUARD_UFFD == 1 && BASE_GUARD_STEAL == 2 && BASE_GUARD_MPROTECT == 3, "order of kinds");

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	bool done;
	int ret;
	const struct guard_kind *_Atomic kind; /* NULL: none; written under init_lock */
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

	snprintf(choice.reason + used, sizeof choice.reason - used, "%s%s: %s", used ? "; " : "", name, why);
}

/* What the kinds by signal have in common. */
static int open_signals(char *reason, size_t cap)
{
	int ret = dispatch_probe(reason, cap);

	if (ret)
		return ret;
	ret = signals_install(SIGSEGV, fault_segv_sig);
	if (!ret)
		ret = threads_init(true);
	if (ret)
		snprintf(reason, cap, "signal handlers: %s", strerror(-ret));
	return ret;
}

static int try_kind(const struct guard_kind *k)
{
	char why[ONE_REASON_BYTES] = "";
	int ret = k->open(why, sizeof why);

	if (!ret && k->by_signal) {
		ret = open_signals(why, sizeof why);
		if (ret)
			k->close();
	}
	if (ret) {
		reason_add(k->name, why);
		base_log(BASE_LOG_DEBUG, "guard", "not %s: %s", k->name, why);
	}
	return ret;
}

/* Addresses for everything that may be armed at a time: as much as there is of the arena. */
static uint64_t space_bytes(void)
{
	uint64_t want = base_opt.region_arena_bytes;
	struct rlimit limit;

	if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
		want = base_min_u64(want, limit.rlim_cur / 64);
	return base_max_u64(want, LEAST_BYTES);
}

static void after_fork_child(void)
{
	/* Nothing is armed in a child, and nothing will be: its parent's threads do not exist in it. */
	pthread_mutex_init(&init_lock, NULL);
	choice.ret = -ENOTSUP;
	snprintf(choice.reason, sizeof choice.reason, "none: a forked child");
	atomic_store_explicit(&choice.kind, NULL, memory_order_relaxed);
	ranges_after_fork_child();
	steal_unreserve();
	uffd_after_fork_child();
}

static int choose(const struct guard_ops *ops)
{
	static bool atfork_done;
	int ret = host_page_check();

	choice.reason[0] = 0;
	if (!ret)
		ret = ranges_open(space_bytes());
	if (ret) {
		reason_add("none", strerror(-ret));
		return ret;
	}
	if (base_opt.guard_kind == BASE_GUARD_NONE) {
		reason_add("none", "SLUICE_GUARD_KIND says so");
		return -ENOTSUP;
	}
	ret = -ENOTSUP;
	for (size_t i = 0; ret && i < BASE_ARRAY_LEN(kinds); i++) {
		if (base_opt.guard_kind != BASE_GUARD_AUTO && base_opt.guard_kind != (int64_t)i + 1)
			continue;
		ret = try_kind(kinds[i]);
		if (ret)
			continue;
		if (!atfork_done && !pthread_atfork(NULL, NULL, after_fork_child))
			atfork_done = true;
		ranges_use(ops, kinds[i]);
		atomic_store_explicit(&choice.kind, kinds[i], memory_order_release);
		base_log(BASE_LOG_INFO, "guard", "%s", kinds[i]->name);
	}
	return ret;
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
		if (k->by_signal)
			signals_uninstall(SIGSEGV);
		k->close();
	}
	choice.done = false;
	pthread_mutex_unlock(&init_lock);
}

bool guard_is_ready(void)
{
	const struct guard_kind *k = kind_now();

	if (!k)
		return false;
	if (!k->by_signal)
		return uffd_is_staffed(ranges_armed());
	return threads_are_covered() && signals_are_ours();
}
