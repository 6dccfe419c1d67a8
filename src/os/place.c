/* SPDX-License-Identifier: BSD-3-Clause */
/* The file that a process has loaded at an address. No malloc, no stdio, as messages need it. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"

struct lines {
	int fd;
	size_t used, at;
	char text[4096];
};

/* Returns: the next line, NULL at the end. A longer line is cut into several. */
static char *next_line(struct lines *l)
{
	char *start, *end;
	long n;

	while (!(end = memchr(l->text + l->at, '\n', l->used - l->at))) {
		memmove(l->text, l->text + l->at, l->used - l->at);
		l->used -= l->at;
		l->at = 0;
		n = syscall(SYS_read, l->fd, l->text + l->used, sizeof l->text - 1 - l->used);
		if (n <= 0)
			return NULL;
		l->used += (size_t)n;
	}
	start = l->text + l->at;
	*end = '\0';
	l->at = (size_t)(end - l->text) + 1;
	return start;
}

bool os_place_of(int pid, uintptr_t address, char *out, size_t cap)
{
	uint64_t start, end, offset;
	struct lines l = { .used = 0 };
	bool found = false;
	char path[32], *line, *name;

	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	l.fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (l.fd < 0)
		return false;
	while (!found && (line = next_line(&l))) {
		found = sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64, &start, &end,
			       &offset) == 3 &&
			address >= start && address < end;
		name = strrchr(line, '/');
		if (found)
			snprintf(out, cap, "%s+0x%" PRIx64, name ? name + 1 : "?",
				 address - start + offset);
	}
	syscall(SYS_close, l.fd);
	return found;
}
