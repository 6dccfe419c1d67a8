/* SPDX-License-Identifier: BSD-3-Clause */
/* What may be adopted: private anonymous memory and static data, and nothing that somebody else (the
 * kernel, a device, another process, a stack's owner) knows by more than its address. */
#include <link.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "region/private.h"

#define KEEP_OUT_MAX 256
#define VMAS_MAX 64 /* a buffer of more mappings than this is left alone */

static struct {
	struct { uintptr_t start, end; } range[KEEP_OUT_MAX];
	int n;
	bool all;
} keep_out;

void region_keep_out(uintptr_t start, uintptr_t end)
{
	pthread_mutex_lock(&region_lock);
	if (keep_out.n == KEEP_OUT_MAX) {
		keep_out.all = true; /* more than we can remember: adopt nothing from now on */
	} else {
		keep_out.range[keep_out.n].start = start;
		keep_out.range[keep_out.n++].end = end;
	}
	pthread_mutex_unlock(&region_lock);
	region_keep(start, end);
}

void region_keep_out_all(void)
{
	pthread_mutex_lock(&region_lock);
	keep_out.all = true;
	pthread_mutex_unlock(&region_lock);
	region_keep(0, UINTPTR_MAX);
}

static bool in_keep_out(uintptr_t start, uintptr_t end)
{
	for (int i = 0; i < keep_out.n; i++)
		if (start < keep_out.range[i].end && end > keep_out.range[i].start)
			return true;
	return keep_out.all;
}

struct module_query { uintptr_t start, end; bool found; };

static int module_visit(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct module_query *q = arg;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t a = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_LOAD && (p->p_flags & PF_W) && q->start >= base_round_down(a, HOST_PAGE) &&
		    q->end <= base_round_up(a + p->p_memsz, HOST_PAGE))
			q->found = true;
	}
	return q->found;
}

static bool is_static_data(uintptr_t start, uintptr_t end)
{
	struct module_query q = { start, end, false };

	dl_iterate_phdr(module_visit, &q);
	return q.found;
}

/* The stack of a thread other than the first has no name; the caller's own is known exactly. */
static bool is_own_stack(uintptr_t start, uintptr_t end)
{
	static __thread uintptr_t lo, hi;
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
	return start < hi && end > lo;
}

static const char *vma_refusal(const struct host_vma *v, uintptr_t start, uintptr_t end)
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
	if (v->page_bytes && v->page_bytes != HOST_PAGE)
		return "it consists of hugetlbfs pages";
	if (v->inode && !is_static_data(base_max_u64(start, v->start), base_min_u64(end, v->end)))
		return "it is a private mapping of a file";
	return NULL;
}

/* Threads' stacks are mapped with an inaccessible guard right below. */
static bool has_guard_below(uint64_t vma_start)
{
	struct host_vma v;

	if (!vma_start || host_vma_query((void *)(vma_start - 1), &v))
		return false;
	return v.end == vma_start && !v.read && !v.write && !v.shared && !v.inode;
}

const char *rules_refusal_locked(uintptr_t start, uintptr_t end)
{
	struct host_vma v;
	uintptr_t a = start;

	if (in_keep_out(start, end))
		return "it is locked, exposed to RMA or specially advised";
	for (int n = 0; a < end; n++) {
		const char *why;

		if (n == VMAS_MAX)
			return "it consists of too many mappings";
		if (host_vma_query((void *)a, &v))
			return "its mapping cannot be found";
		why = vma_refusal(&v, start, end);
		if (why)
			return why;
		if (n == 0 && !v.inode && has_guard_below(v.start) && !is_static_data(start, end))
			return "it may be a thread's stack";
		a = v.end;
	}
	if (is_own_stack(start, end))
		return "it is a thread's stack";
	return NULL;
}
