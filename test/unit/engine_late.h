/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * late: an engine as hardware is. It is autonomous: a device (a thread) copies what was submitted
 * while nobody polls. It is polled: ends are noticed only in engine_poll(). It cannot abort: retire
 * waits for the device.
 */
#ifndef SLUICE_UNIT_ENGINE_LATE_H
#define SLUICE_UNIT_ENGINE_LATE_H

#include "engine/engine.h"

extern const struct engine_ops engine_late;
/* Makes engine_find("late") find it. */
void engine_late_add(void);
/* Returns: bytes that the devices of this process have copied. */
uint64_t engine_late_copied(void);
/* Returns: system calls that a device would have got. */
unsigned engine_late_submissions(void);
extern size_t engine_late_piece_bytes; /* in its caps */

#endif
