/* SPDX-License-Identifier: BSD-3-Clause */
/* The preloaded library's definitions of functions in sluice/sluice.h. */
#define SLUICE_STRONG /* defined here */
#include "sluice/sluice.h"

__attribute__((visibility("default"))) const char *sluice_version(void)
{
	return SLUICE_VERSION;
}
