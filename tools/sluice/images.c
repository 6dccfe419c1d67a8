/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sluice info --pid: the ranks that share the address space of a process, and where their files
 * lie, for debuggers, which know of the carrier's files only.
 *
 *   carrier: endpoints_space --> rank --> r_debug of its ld.so --> link_map --> link_map ...
 *
 * The carrier runs the program that runs here, so a variable has the same offset in both.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "endpoints/endpoints.h"
#include "info.h"
#include "text.h"
#include "tool.h"

enum { FILES_MAX = 4096, MAPS_MAX = 65536 };

struct map {
	uintptr_t start, end;
	uint64_t offset;
	char *path; /* NULL: of no file */
};

struct maps {
	struct map *all;
	size_t count;
};

static int read_memory(int pid, const void *at, void *out, size_t bytes)
{
	struct iovec to = { out, bytes }, from = { (void *)at, bytes };
	ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);

	return n == (ssize_t)bytes ? 0 : n < 0 ? -errno : -EFAULT;
}

static int read_maps(const char *path, struct maps *out)
{
	FILE *in = fopen(path, "re");
	char *line = NULL;
	size_t cap = 0;

	*out = (struct maps){ .all = in ? calloc(MAPS_MAX, sizeof(struct map)) : NULL };
	if (!out->all) {
		if (in)
			fclose(in);
		return in ? -ENOMEM : -errno;
	}
	while (out->count < MAPS_MAX && getline(&line, &cap, in) > 0) {
		struct map *m = &out->all[out->count];
		char *file = strchr(line, '/');

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64, &m->start, &m->end,
			   &m->offset) != 3)
			continue;
		m->path = file ? strndup(file, strcspn(file, "\n")) : NULL;
		out->count++;
	}
	free(line);
	fclose(in);
	return 0;
}

static void free_maps(struct maps *m)
{
	for (size_t i = 0; i < m->count; i++)
		free(m->all[i].path);
	free(m->all);
}

/* Returns: the file that is mapped at the address, or NULL. */
static const char *file_at(const struct maps *m, uintptr_t at)
{
	for (size_t i = 0; i < m->count; i++)
		if (at >= m->all[i].start && at < m->all[i].end)
			return m->all[i].path;
	return NULL;
}

/* Returns: where the beginning of the file is mapped; 0: nowhere. */
static uintptr_t base_of(const struct maps *m, const char *path)
{
	for (size_t i = 0; i < m->count; i++)
		if (m->all[i].path && !m->all[i].offset && !strcmp(m->all[i].path, path))
			return m->all[i].start;
	return 0;
}

/* Reads the table of the ranks. Returns: 0, or -errno after a message. */
static int read_space(int pid, const struct maps *theirs, struct endpoint_space *out)
{
	char self[PATH_MAX], path[64];
	struct stat own, other;
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	uintptr_t from, to;
	struct maps mine;
	int rc;

	snprintf(path, sizeof path, "/proc/%d/exe", pid);
	if (n < 0 || stat("/proc/self/exe", &own) || stat(path, &other))
		return tool_say("info: process %d: %s", pid, strerror(errno)), -ESRCH;
	self[n] = '\0';
	if (own.st_ino != other.st_ino || own.st_dev != other.st_dev) {
		tool_say("info: process %d is no rank of sluice run --endpoints, or of another "
			 "installation of Sluice", pid);
		return -ENOENT;
	}
	rc = read_maps("/proc/self/maps", &mine);
	from = rc ? 0 : base_of(&mine, self);
	to = base_of(theirs, self);
	free_maps(&mine);
	if (!from || !to)
		rc = -ENOENT;
	if (!rc)
		rc = read_memory(pid, (char *)to + ((uintptr_t)&endpoints_space - from), out,
				 sizeof *out);
	if (rc)
		tool_say("info: cannot read the memory of process %d: %s", pid, strerror(-rc));
	return rc;
}

/* ---- output -------------------------------------------------------------------------------- */

/* Calls visit for each file that the ld.so of a rank has loaded. Returns: how many. */
static int each_file(int pid, const struct maps *maps, const void *debug,
		     void (*visit)(const char *path, uintptr_t base))
{
	struct r_debug head;
	struct link_map l;
	int count = 0;

	if (!debug || read_memory(pid, debug, &head, sizeof head))
		return 0;
	for (struct link_map *at = head.r_map; at && count < FILES_MAX; at = l.l_next) {
		const char *path;

		if (read_memory(pid, at, &l, sizeof l))
			break;
		path = file_at(maps, (uintptr_t)l.l_ld);
		if (!path) /* the kernel's vDSO */
			continue;
		visit(path, l.l_addr);
		count++;
	}
	return count;
}

static void print_symbol_file(const char *path, uintptr_t base)
{
	printf("add-symbol-file %s -o 0x%" PRIxPTR "\n", path, base);
}

/* Lines for gdb. A breakpoint in the files of a rank that the debugger has not attached to would
 * kill that rank, so a rank's process gets its own files only. */
static void print_gdb(int pid, const struct maps *maps, const struct endpoint_space *s,
		      const struct endpoint_rank *own)
{
	puts("set confirm off");
	for (uint32_t i = 0; i < s->count; i++) {
		const struct endpoint_rank *r = &s->rank[i];

		if (!r->pid || (own && r != own))
			continue;
		printf("# rank %d, process %d\n", r->rank, r->pid);
		if (!each_file(pid, maps, r->debug, print_symbol_file))
			puts("# it has not started yet");
	}
	puts("set confirm on");
}

static char program[PATH_MAX];
static void keep_first(const char *path, uintptr_t base)
{
	(void)base;
	if (!*program)
		snprintf(program, sizeof program, "%s", path);
}

static void print_ranks(int pid, const struct maps *maps, const struct endpoint_space *s)
{
	struct text_table t = { 0 };

	text_table_row(&t, "rank", "process", "program", NULL);
	for (uint32_t i = 0; i < s->count; i++) {
		const struct endpoint_rank *r = &s->rank[i];
		char rank[16], process[16];

		snprintf(rank, sizeof rank, "%d", r->rank);
		snprintf(process, sizeof process, "%d", r->pid);
		*program = '\0';
		each_file(pid, maps, r->debug, keep_first);
		text_table_row(&t, r->rank < 0 ? "unknown" : rank, r->pid ? process : "ended",
			       *program ? program : "not started", NULL);
	}
	text_table_print(&t, "", stdout);
	text_table_free(&t);
}

int info_images(int pid, bool for_gdb)
{
	const struct endpoint_rank *own = NULL;
	struct endpoint_space space;
	struct maps maps;
	char path[64];
	int rc;

	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	rc = read_maps(path, &maps);
	if (rc) {
		tool_say("info: process %d: %s", pid, strerror(rc == -ENOENT ? ESRCH : -rc));
		return TOOL_FAILED;
	}
	rc = read_space(pid, &maps, &space);
	if (!rc && (!space.count || space.count > ENDPOINT_RANKS_MAX)) {
		tool_say("info: no ranks share the address space of process %d; name a rank, or "
			 "its parent: pgrep sluice-carrier", pid);
		rc = -ENOENT;
	}
	for (uint32_t i = 0; !rc && i < space.count; i++)
		if (space.rank[i].pid == pid)
			own = &space.rank[i];
	if (!rc && for_gdb)
		print_gdb(pid, &maps, &space, own);
	else if (!rc)
		print_ranks(pid, &maps, &space);
	free_maps(&maps);
	return rc ? TOOL_FAILED : TOOL_DONE;
}
