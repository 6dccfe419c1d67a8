/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of base/ only. */
#ifndef SLUICE_BASE_INTERNAL_H
#define SLUICE_BASE_INTERNAL_H

/*
 * Take over SLUICE_FAULT. Returns 0, or -EINVAL when it is not a list of name:n and name:all, upon
 * which nothing is injected. Restarts the count of calls.
 */
int base_fault_load(const char *spec);

#endif
