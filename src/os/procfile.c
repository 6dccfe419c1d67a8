/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/private.h"

/* Fault handlers come here, and the functions of the C library are cancellation points. */
int os_procfile_read(const char *path, char *buf, size_t cap)
{
	size_t used = 0;
	ssize_t n;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	do {
		n = syscall(SYS_read, fd, buf + used, cap - 1 - used);
		used += n > 0 ? (size_t)n : 0;
	} while ((n > 0 && used < cap - 1) || (n < 0 && errno == EINTR));
	n = n < 0 ? -errno : 0;
	syscall(SYS_close, fd);
	buf[used] = 0;
	return n ? (int)n : (int)used;
}

bool os_is_traced(void)
{
	static const char word[] = "TracerPid:\t";
	char text[512];
	const char *tracer;

	if (os_procfile_read("/proc/self/status", text, sizeof text) <= 0)
		return false;
	tracer = strstr(text, word);
	return tracer && tracer[sizeof word - 1] != '0';
}
