/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of base/ only. */
#ifndef SLUICE_BASE_INTERNAL_H
#define SLUICE_BASE_INTERNAL_H

#include <stdint.h>

/*
 * Take over SLUICE_FAULT. Returns 0, or -EINVAL when it is not a list of name:n and name:all, upon
 * which nothing is injected. Restarts the count of calls.
 */
int base_fault_load(const char *spec);

/* A whole decimal number and nothing else. 0 or -EINVAL. */
int base_parse_int(const char *text, int64_t *out);

#endif
