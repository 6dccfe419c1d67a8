/* SPDX-License-Identifier: BSD-3-Clause */
#include "trace_case.h"

#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

static char folder[64];

const char *trace_case_run(void (*body)(void), uint64_t limit_bytes)
{
	glob_t found;
	char pattern[128];
	struct stat st;
	const char *base;
	int fd, status;

	strcpy(folder, "/tmp/unit-trace-XXXXXX");
	CHECK(mkdtemp(folder));
	if (!fork()) {
		base_options_load((char *const[]){ NULL }, NULL, 0);
		base_opt.trace = folder;
		base_opt.trace_limit_bytes = limit_bytes;
		trace_start(3);
		body();
		_exit(!trace_on);
	}
	CHECK(wait(&status) > 0 && WIFEXITED(status));
	snprintf(pattern, sizeof pattern, "%s/rank-3.*.sluice", folder);
	CHECK_EQ(glob(pattern, 0, NULL, &found), 0);
	fd = open(found.gl_pathv[0], O_RDONLY);
	CHECK(fd >= 0 && !fstat(fd, &st));
	base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(base != MAP_FAILED);
	close(fd);
	unlink(found.gl_pathv[0]);
	globfree(&found);
	rmdir(folder);
	return base;
}

void trace_case_call(uint64_t bytes)
{
	trace_call_begin("MPI_Bcast", (void *)(uintptr_t)&trace_case_call,
			 __builtin_frame_address(0));
	trace_bytes(bytes);
	trace_rejected("a reason");
	trace_call_end(0);
}

int trace_case_copies(const char *base, struct trace_record *out, int cap)
{
	const struct trace_chunk *c = trace_case_chunk(base, 0);
	const struct trace_record *r = (const struct trace_record *)(c + 1);
	int n = 0;

	for (uint32_t i = 0;
	     c->kind == TRACE_CHUNK_RECORDS && i < TRACE_RECORDS_PER_CHUNK && n < cap; i++)
		if (r[i].type == TRACE_COPY)
			out[n++] = r[i];
	return n;
}
