/* SPDX-License-Identifier: BSD-3-Clause */
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "os/endpoint.h"
#include "os/os.h"

struct endpoint *endpoint_image, *endpoint_self;
struct endpoint_space *endpoint_space;
const char *endpoint_program, *endpoint_refusal;

/* It has copies of its siblings' memory. */
static void after_fork_child(void) { endpoint_space = NULL; }

static uint64_t fs_base(void)
{
	uint64_t fs;

	__asm__ volatile("rdfsbase %0" : "=r"(fs));
	return fs;
}

/* Does the variable name bin/sluice? Shells have a setenv() of their own, which works in main(). */
static bool is_tool(void)
{
	static const char name[] = ENDPOINT_VARIABLE "=@";

	for (char *const *e = environ; e && *e; e++)
		if (!strncmp(*e, name, sizeof name - 1))
			return true;
	return false;
}

/* The variable may be that of another program, executed by a rank: nothing there is believed
 * before the kernel has read it and it names this process. */
__attribute__((cold)) void endpoint_find(void)
{
	struct endpoint copy, *at;
	char *text;

	if (is_tool()) { /* a wrapper, or a program that loads its MPI library later: mpi4py */
		endpoint_refusal = "the program links no MPI library";
		return;
	}
	text = base_job_extract(ENDPOINT_VARIABLE);
	if (!text)
		return;
	if (*text == ENDPOINT_REASON) {
		endpoint_refusal = text + 1; /* kept */
		return;
	}
	at = (struct endpoint *)strtoull(text, NULL, 16);
	free(text);
	if (!at || os_read_memory(at, &copy, sizeof copy))
		return;
	if (copy.magic != ENDPOINT_MAGIC || copy.random_at != getauxval(AT_RANDOM) ||
	    syscall(SYS_gettid) != getpid())
		return;
	endpoint_program = realpath((const char *)getauxval(AT_EXECFN), NULL);
	at->home_pid = getpid();
	at->entry->debug = &_r_debug;
	endpoint_image = at;
	endpoint_space = at->space;
	pthread_atfork(NULL, NULL, after_fork_child);
	if (!at->yield)
		return;
	at->fs = fs_base();
	endpoint_self = at;
}

bool endpoint_is_decoupled(void)
{
	return endpoint_self && endpoint_self->worker && fs_base() == endpoint_self->fs;
}

bool endpoint_is_peer(int pid)
{
	struct endpoint_space *s = endpoint_space;
	uint32_t count = s ? atomic_load_explicit(&s->count, memory_order_relaxed) : 0;

	for (uint32_t i = 0; i < count; i++)
		if (atomic_load_explicit(&s->rank[i].pid, memory_order_relaxed) == pid)
			return true;
	return false;
}

const char *endpoint_program_at(const char *path)
{
	static const char *const names[] = { "self", "thread-self" };
	size_t len;

	if (base_likely(!endpoint_image) || !path || strncmp(path, "/proc/", 6))
		return NULL;
	path += 6;
	for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
		len = strlen(names[i]);
		if (!strncmp(path, names[i], len) && !strcmp(path + len, "/exe"))
			return endpoint_program;
	}
	len = strspn(path, "0123456789");
	return len && !strcmp(path + len, "/exe") && atoi(path) == getpid() ? endpoint_program
									     : NULL;
}
