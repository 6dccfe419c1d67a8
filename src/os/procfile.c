/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "os/private.h"

int os_procfile_read(const char *path, char *buf, size_t cap)
{
	size_t used = 0;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	do {
		n = read(fd, buf + used, cap - 1 - used);
		used += n > 0 ? (size_t)n : 0;
	} while ((n > 0 && used < cap - 1) || (n < 0 && errno == EINTR));
	n = n < 0 ? -errno : 0;
	close(fd);
	buf[used] = 0;
	return n ? (int)n : (int)used;
}
