/* SPDX-License-Identifier: BSD-3-Clause */
/* CPUs of this process, their caches and their time-stamp counter. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/private.h"

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

/* Linux lists the caches of a CPU from the first level (data, instructions) to the last. */
enum { CACHE_OF_LEVEL_2 = 2, CACHES_MAX = 5 };

/* Returns: the size of a cache of a CPU; 0: unknown. To open a file of sysfs takes 10 to 30 us. */
static uint64_t cache_bytes(int cpu, int index)
{
	char path[128], text[64];
	uint64_t bytes;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/size", cpu,
		 index);
	if (os_procfile_read(path, text, sizeof(text)) <= 0)
		return 0;
	text[strcspn(text, "\n")] = 0;
	return base_parse_bytes(text, &bytes) ? 0 : bytes;
}

static struct {
	_Atomic bool is_known;
	_Atomic uint64_t l2, llc;
} caches;

/* Two racing callers both measure, with equal results. Some C libraries give the sum of all
 * last-level caches for the last one. */
static void caches_measure(void)
{
	int cpu, last = CACHES_MAX;
	uint64_t llc = 0;
	long l2;

	if (atomic_load_explicit(&caches.is_known, memory_order_acquire)) /* partner: below */
		return;
	cpu = sched_getcpu();
	cpu = cpu < 0 ? 0 : cpu;
	l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
	while (!llc && last-- > CACHE_OF_LEVEL_2)
		llc = cache_bytes(cpu, last);
	if (l2 <= 0)
		l2 = (long)cache_bytes(cpu, CACHE_OF_LEVEL_2);
	atomic_store_explicit(&caches.l2, (uint64_t)l2, memory_order_relaxed);
	atomic_store_explicit(&caches.llc, llc ? llc : (uint64_t)l2, memory_order_relaxed);
	atomic_store_explicit(&caches.is_known, true, memory_order_release);
}

uint64_t os_llc_bytes(void)
{
	caches_measure();
	return atomic_load_explicit(&caches.llc, memory_order_relaxed);
}

uint64_t os_l2_bytes(void)
{
	caches_measure();
	return atomic_load_explicit(&caches.l2, memory_order_relaxed);
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
