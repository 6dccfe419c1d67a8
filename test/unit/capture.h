/* SPDX-License-Identifier: BSD-3-Clause */
/* Standard error, caught in a memfd while a test writes to it. */
#ifndef SLUICE_UNIT_CAPTURE_H
#define SLUICE_UNIT_CAPTURE_H

#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"

struct capture {
	int fd, saved;
	char text[16384];
};

static inline void capture_begin(struct capture *c)
{
	c->fd = memfd_create("capture", MFD_CLOEXEC);
	c->saved = dup(STDERR_FILENO);
	if (c->fd < 0 || c->saved < 0 || dup2(c->fd, STDERR_FILENO) < 0)
		unit_fail(__FILE__, __LINE__, "cannot catch stderr");
}

static inline void capture_end(struct capture *c)
{
	ssize_t n;

	dup2(c->saved, STDERR_FILENO);
	close(c->saved);
	n = pread(c->fd, c->text, sizeof(c->text) - 1, 0);
	close(c->fd);
	c->text[n > 0 ? n : 0] = 0;
}

#endif
