/* SPDX-License-Identifier: BSD-3-Clause */
/* Where ranks would be on machines that hwloc makes up. Needs hwloc: HAVE_HWLOC. */
#ifndef SLUICE_UNIT_PLACES_H
#define SLUICE_UNIT_PLACES_H

#include <stdbool.h>
#include <stddef.h>

/* The memory nodes of ranks that are bound to cores, one after the other or a node at a time in
 * turn. */
void places_of(const char *machine, int ranks, bool in_turn, int *out);
/* Of 2 to PLACES_RANKS ranks on several machines, in both ways. */
enum { PLACES_RANKS = 16 };
void places_each(void (*check)(int ranks, const int *number_of));

#endif
