/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of the preloaded library only: what sluice/sluice.h promises of it. */
#define SLUICE_STRONG /* here it is defined */
#include "sluice/sluice.h"

__attribute__((visibility("default"))) const char *sluice_version(void)
{
	return SLUICE_VERSION;
}
