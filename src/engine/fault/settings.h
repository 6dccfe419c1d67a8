/* SPDX-License-Identifier: BSD-3-Clause */
/* The settings in engine_fault. */
#ifndef SLUICE_ENGINE_FAULT_SETTINGS_H
#define SLUICE_ENGINE_FAULT_SETTINGS_H

#include "base/base.h"

struct fault_settings {
	char inner[16];           /* name of the inner engine; "": sw */
	uint64_t delay_us;       /* delay before each copy */
	uint64_t rate_bytes;     /* per second; 0: the speed of the inner engine */
	uint64_t short_nth; /* this copy of a channel writes its first half and fails; 0: none */
	uint64_t error_nth;      /* this copy writes nothing and fails */
	uint64_t hang_nth; /* this copy and all later ones end only when the channel is retired */
};

/* Parses "inner=sw,delay=100,rate=1G,short=3,error=5,hang=9"; "" injects nothing. Returns: 0, or
 * -EINVAL with the reason. */
__attribute__((cold))
int fault_settings_parse(const char *text, struct fault_settings *out, char *reason, size_t cap);

#endif
