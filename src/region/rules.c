/* SPDX-License-Identifier: BSD-3-Clause */
/* Which memory may be adopted: private anonymous memory and static data, unless the kernel, a
 * device, another process or a thread's stack depends on the pages themselves. */
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "region/private.h"

#define EXCLUDED_MAX 256
#define VMAS_MAX 64 /* a buffer with more mappings is not adopted */

struct range { uintptr_t start, end; };

static struct {
	struct range at[EXCLUDED_MAX]; /* sorted, disjoint */
	int n;
	bool all, future;
} excluded;
_Atomic bool region_has_excluded;

static void exclude_remove(int i, int n)
{
	excluded.n -= n;
	memmove(&excluded.at[i], &excluded.at[i + n],
		(size_t)(excluded.n - i) * sizeof excluded.at[0]);
}

/* Frees an entry: merges the two ranges that are closest to each other. */
__attribute__((cold)) static void exclude_merge(void)
{
	int best = 0;

	for (int i = 1; i + 1 < excluded.n; i++)
		if (excluded.at[i + 1].start - excluded.at[i].end <
		    excluded.at[best + 1].start - excluded.at[best].end)
			best = i;
	excluded.at[best].end = excluded.at[best + 1].end;
	exclude_remove(best + 1, 1);
}

__attribute__((cold)) static void exclude_locked(uintptr_t start, uintptr_t end)
{
	int i = 0, n = 0;

	while (i < excluded.n && excluded.at[i].end < start)
		i++;
	while (i + n < excluded.n && excluded.at[i + n].start <= end)
		n++;
	if (n) {
		start = base_min_u64(start, excluded.at[i].start);
		end = base_max_u64(end, excluded.at[i + n - 1].end);
		exclude_remove(i, n - 1);
	} else {
		if (excluded.n == EXCLUDED_MAX) {
			exclude_merge();
			exclude_locked(start, end);
			return;
		}
		memmove(&excluded.at[i + 1], &excluded.at[i],
			(size_t)(excluded.n++ - i) * sizeof excluded.at[0]);
	}
	excluded.at[i] = (struct range){ start, end };
	atomic_store_explicit(&region_has_excluded, true, memory_order_relaxed);
}

__attribute__((cold)) void rules_forget_locked(uintptr_t start, uintptr_t end)
{
	for (int i = excluded.n; i-- > 0;) {
		struct range *s = &excluded.at[i];

		if (s->end <= start || s->start >= end)
			continue;
		if (s->start >= start && s->end <= end)
			exclude_remove(i, 1);
		else if (s->start < start && s->end > end)
			continue; /* a hole is not worth an entry */
		else if (s->start < start)
			s->end = start;
		else
			s->start = end;
	}
	atomic_store_explicit(&region_has_excluded, excluded.n > 0, memory_order_relaxed);
}

void region_exclude(uintptr_t start, uintptr_t end)
{
	if (start >= end || region_is_locked_here())
		return;
	region_lock();
	exclude_locked(start, end);
	region_unlock();
	region_return(start, end);
}

void region_exclude_all(bool future)
{
	region_lock();
	excluded.all = true;
	excluded.future |= future;
	region_unlock();
	region_return(0, UINTPTR_MAX);
}

bool rules_locks_future_memory(void) { return excluded.future; }

static bool is_excluded(uintptr_t start, uintptr_t end)
{
	for (int i = 0; i < excluded.n; i++)
		if (start < excluded.at[i].end && end > excluded.at[i].start)
			return true;
	return excluded.all;
}

struct module_query { uintptr_t start, end; bool found; };

static int module_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct module_query *q = arg;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t a = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_LOAD && (p->p_flags & PF_W) &&
		    q->start >= base_round_down(a, OS_PAGE) &&
		    q->end <= base_round_up(a + p->p_memsz, OS_PAGE))
			q->found = true;
	}
	return q->found;
}

bool rules_is_static(uintptr_t start, uintptr_t end)
{
	struct module_query q = { start, end, false };

	os_objects_visit(module_visit, &q);
	return q.found;
}

__attribute__((noinline)) static size_t default_stack_bytes(void)
{
	static size_t bytes;
	pthread_attr_t attr;

	if (!bytes && !pthread_getattr_default_np(&attr)) {
		pthread_attr_getstacksize(&attr, &bytes);
		pthread_attr_destroy(&attr);
	}
	return bytes;
}

/*
 * The stacks of other threads have no name in the maps; the caller's own is known exactly, the main
 * thread's by its name. The caller may be a coroutine on a stack of the heap, whose frames lie
 * above the stack pointer: no signal could be delivered on a closed stack.
 */
static bool is_own_stack(uintptr_t start, uintptr_t end)
{
	static __thread uintptr_t lo, hi;
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	pthread_attr_t attr;
	void *addr;
	size_t bytes;

	if (!hi && syscall(SYS_gettid) != getpid() && !pthread_getattr_np(pthread_self(), &attr)) {
		if (!pthread_attr_getstack(&attr, &addr, &bytes)) {
			lo = (uintptr_t)addr;
			hi = lo + bytes;
		}
		pthread_attr_destroy(&attr);
	}
	if ((here < lo || here >= hi) && start > here && start - here < default_stack_bytes())
		return true;
	return start < hi && end > lo;
}

static bool is_signal_stack(uintptr_t start, uintptr_t end)
{
	struct { uintptr_t sp; int flags; size_t bytes; } s = { 0 }; /* the kernel's stack_t */

	return !syscall(SYS_sigaltstack, NULL, &s) && start < s.sp + s.bytes && end > s.sp;
}

static const char *vma_refusal(const struct os_vma *v, bool is_static)
{
	if (v->shared)
		return "it is shared memory of the program";
	if (!v->read || !v->write)
		return "it is not readable and writable";
	if (v->exec)
		return "it is executable";
	if (v->is_stack)
		return "it is a stack";
	if (v->is_special)
		return "it is a mapping of the kernel";
	if (v->page_bytes && v->page_bytes != OS_PAGE)
		return "it consists of hugetlbfs pages";
	/* a returned region may be adopted again */
	if (v->inode && !arena_is_known(v) && !is_static)
		return "it is a private mapping of a file";
	return NULL;
}

/*
 * A thread's stack lies right above an inaccessible guard page: a mapping of its own, or a guard
 * region in the stack's mapping (glibc 2.42). Memory above a stack may have merged with it into one
 * mapping, so only addresses within a stack's length of the guard page are suspect. [start, end)
 * begins in `at`, and must not hold guard regions either, which adoption would touch and remove.
 */
static bool may_be_stack(const struct os_vma *at, uintptr_t start, uintptr_t end)
{
	size_t stack = base_round_up(default_stack_bytes(), OS_PAGE);
	bool is_near = start - at->start < stack;
	struct os_vma v;

	if (os_has_guard_region(is_near ? at->start : start - stack, end))
		return true;
	if (!at->start || !is_near || os_vma_query((void *)(at->start - 1), &v))
		return false;
	return v.end == at->start && !v.read && !v.write && !v.shared && !v.inode;
}

const char *rules_refusal_locked(uintptr_t start, uintptr_t end, const struct rules_known *known)
{
	struct os_vma v;
	uintptr_t a = start;

	if (is_excluded(start, end))
		return "it is locked, exposed to RMA or specially advised";
	if (known->is_registered || end > known->asked_end)
		return "it is registered with a GPU";
	for (int n = 0; a < end; n++) {
		const char *why;

		if (n == VMAS_MAX)
			return "it consists of too many mappings";
		if (os_vma_query((void *)a, &v))
			return "its mapping cannot be found";
		why = vma_refusal(&v, known->is_static);
		if (why)
			return why;
		if (n == 0 && !v.inode && !known->is_block && !known->is_static &&
		    may_be_stack(&v, start, end))
			return "it may be a thread's stack";
		a = v.end;
	}
	if ((!known->is_block && is_own_stack(start, end)) || is_signal_stack(start, end))
		return "it is a thread's stack";
	return NULL;
}

bool region_is_private_memory(uintptr_t start, uintptr_t end)
{
	struct os_vma v;

	for (uintptr_t a = start; a < end; a = v.end)
		if (os_vma_query((void *)a, &v) || !v.read || !v.write ||
		    ((v.shared || v.inode) && !arena_is_known(&v)))
			return false;
	return true;
}
