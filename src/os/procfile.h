/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads small kernel files into the caller's memory. Private to os/. */
#ifndef SLUICE_HOST_PROCFILE_H
#define SLUICE_HOST_PROCFILE_H

#include <stddef.h>

/* Returns: the length (the text is zero-terminated and cut at cap - 1), or -errno. */
int os_procfile_read(const char *path, char *buf, size_t cap);

#endif
