/* SPDX-License-Identifier: BSD-3-Clause */
/* What engine_fault asks for. */
#ifndef SLUICE_ENGINE_FAULT_SETTINGS_H
#define SLUICE_ENGINE_FAULT_SETTINGS_H

#include "base/base.h"

struct fault_settings {
	uint64_t delay_us;       /* each copy begins so late */
	uint64_t rate_bytes;     /* a second; 0: as fast as the inner engine */
	uint64_t short_nth; /* this copy of a channel writes its first half only and fails; 0: none
			     */
	uint64_t error_nth;      /* this one writes nothing and fails */
	uint64_t hang_nth;       /* this one and all later ones end when the channel is retired */
	char inner[16];          /* the engine that is wrapped */
};

/* "delay=100,rate=1G,short=3,error=5,hang=9,inner=sw"; "" breaks nothing. 0, or -EINVAL with the
 * reason. */
int fault_settings_parse(const char *text, struct fault_settings *out, char *reason, size_t cap);

#endif
