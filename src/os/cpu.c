/* SPDX-License-Identifier: BSD-3-Clause */
/* CPUs of this process, their caches and their time-stamp counter. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/private.h"

enum { CACHE_LEVELS = 5 };

int os_page_check(void) { return sysconf(_SC_PAGESIZE) == (long)OS_PAGE ? 0 : -ENOTSUP; }

int os_cpumask_of(int tid, struct os_cpumask *out)
{
	memset(out, 0, sizeof(*out));
	/* A raw call takes a mask of any length; libc's cpu_set_t ends at 1024 CPUs. */
	return syscall(SYS_sched_getaffinity, tid, sizeof(out->bits), out->bits) < 0 ? -errno : 0;
}

void os_cpumask_self(struct os_cpumask *out)
{
	if (os_cpumask_of(0, out))
		out->bits[0] = 1;
}

bool os_cpumask_here(struct os_cpumask *out)
{
	unsigned cpu = 0;

	if (syscall(SYS_getcpu, &cpu, NULL, NULL) || cpu >= OS_CPUMASK_WORDS * 64)
		return false;
	*out = (struct os_cpumask){ { 0 } };
	out->bits[cpu / 64] = (uint64_t)1 << cpu % 64;
	return true;
}

int os_cpumask_apply(int tid, const struct os_cpumask *m)
{
	return syscall(SYS_sched_setaffinity, tid, sizeof(m->bits), m->bits) ? -errno : 0;
}

int os_cpumask_count(const struct os_cpumask *m)
{
	int count = 0;

	for (int i = 0; i < OS_CPUMASK_WORDS; i++)
		count += __builtin_popcountll(m->bits[i]);
	return count;
}

void os_cpumask_or(struct os_cpumask *m, const struct os_cpumask *other)
{
	for (int i = 0; i < OS_CPUMASK_WORDS; i++)
		m->bits[i] |= other->bits[i];
}

void os_cpumask_and(struct os_cpumask *m, const struct os_cpumask *other)
{
	for (int i = 0; i < OS_CPUMASK_WORDS; i++)
		m->bits[i] &= other->bits[i];
}

void os_cpumask_remove(struct os_cpumask *m, const struct os_cpumask *other)
{
	for (int i = 0; i < OS_CPUMASK_WORDS; i++)
		m->bits[i] &= ~other->bits[i];
}

static int cache_attribute(int cpu, int index, const char *name, char *buf, size_t cap)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index,
		 name);
	return os_procfile_read(path, buf, cap);
}

/* Reads the sizes of one CPU's data and unified caches, by level; 0: unknown. */
static void caches_of(int cpu, uint64_t *by_level)
{
	char text[64];

	for (int index = 0; index < 16; index++) {
		uint64_t bytes;
		int level;

		if (cache_attribute(cpu, index, "level", text, sizeof(text)) <= 0)
			return;
		level = text[0] - '0';
		if (level < 1 || level >= CACHE_LEVELS)
			continue;
		if (cache_attribute(cpu, index, "type", text, sizeof(text)) <= 0 || text[0] == 'I')
			continue;
		if (cache_attribute(cpu, index, "size", text, sizeof(text)) <= 0)
			continue;
		text[strcspn(text, "\n")] = 0;
		if (!base_parse_bytes(text, &bytes))
			by_level[level] = bytes;
	}
}

/* Returns: the size of the caches of this level; 0: of the largest level. */
static uint64_t cache_bytes(int level)
{
	uint64_t by_level[CACHE_LEVELS] = { 0 };
	int cpu = sched_getcpu();

	caches_of(cpu < 0 ? 0 : cpu, by_level);
	if (!by_level[2])
		by_level[2] = (uint64_t)base_max_u64(0, (uint64_t)sysconf(_SC_LEVEL2_CACHE_SIZE));
	if (level)
		return by_level[level];
	for (level = CACHE_LEVELS - 1; level > 1 && !by_level[level];)
		level--;
	return by_level[level];
}

/* Memoizes: of two racing callers both measure, with the same result. */
static uint64_t remember(_Atomic uint64_t *memo, int level)
{
	uint64_t bytes = atomic_load_explicit(memo, memory_order_relaxed);

	if (bytes)
		return bytes - 1;
	bytes = cache_bytes(level);
	atomic_store_explicit(memo, bytes + 1, memory_order_relaxed);
	return bytes;
}

uint64_t os_llc_bytes(void)
{
	static _Atomic uint64_t memo;

	return remember(&memo, 0);
}

uint64_t os_l2_bytes(void)
{
	static _Atomic uint64_t memo;

	return remember(&memo, 2);
}

/* ---- the time-stamp counter -------------------------------------------------------------- */

/* Clock sources that read the time-stamp counter. A kernel that found the counter unstable uses
 * another. */
static bool is_by_counter(const char *source)
{
	static const char *const names[] = { "tsc", "kvm-clock", "hyperv_clocksource_tsc_page" };

	for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
		if (!strncmp(source, names[i], strlen(names[i])))
			return true;
	return false;
}

bool os_has_steady_ticks(void)
{
	char source[64];

	return os_arch_has_steady_ticks() &&
	       os_procfile_read(
		       "/sys/devices/system/clocksource/clocksource0/current_clocksource", source,
		       sizeof source) > 0 && is_by_counter(source);
}
