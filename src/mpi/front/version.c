/* SPDX-License-Identifier: BSD-3-Clause */
/* What sluice/sluice.h promises of the preloaded library. */
#define SLUICE_STRONG /* here it is defined */
#include "sluice/sluice.h"

__attribute__((visibility("default"))) const char *sluice_version(void)
{
	return SLUICE_VERSION;
}
